//! The exchanges of one worker that may last long, so that they can be closed early: tunnels and streamed responses.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    net::IpAddr,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use compact_str::CompactString;
use slab::Slab;

use crate::{
    abuse::bans::{Ban, BanTable, BannedKey},
    api_keys::{ApiKey, ApiKeys},
};

/// Why the proxy closes an exchange that both sides would continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closing {
    /// The process ends.
    Draining,
    /// Its client is banned, or its API key is not valid any more.
    Banned,
}

/// The kind of an open exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExchangeKind {
    /// A tunnel, which a drain closes.
    Tunnel,
    /// A response of unknown length. A drain waits for its end.
    Stream,
}

/// The open exchanges of one worker, over successive configurations.
#[derive(Debug, Default)]
pub(super) struct OpenExchanges {
    open: RefCell<Slab<Rc<OpenExchange>>>,
    is_draining: Cell<bool>,
    /// The version of the bans that was last checked.
    bans_seen: Cell<u64>,
    /// The version of the API keys that was last checked.
    keys_seen: Cell<u64>,
    /// When the next key of an exchange expires, in microseconds since the Unix epoch; or earlier.
    next_expiry: Cell<Option<i64>>,
}

#[derive(Debug)]
struct OpenExchange {
    kind: ExchangeKind,
    owner: ExchangeOwner,
    closing: Cell<Option<Closing>>,
    waker: RefCell<Option<Waker>>,
}

/// The client of an exchange, as bans identify it.
#[derive(Debug)]
pub(super) struct ExchangeOwner {
    pub(super) address: IpAddr,
    pub(super) user: Option<BannedKey>,
    /// The ban rules that the request was exempt from.
    pub(super) exempt: Vec<CompactString>,
    /// The API key of the request, as it was then.
    pub(super) key: Option<Arc<ApiKey>>,
}

impl ExchangeOwner {
    /// Whether the owner's API key is not valid any more.
    pub(super) fn is_revoked(&self, keys: &ApiKeys, now: i64) -> bool {
        self.key.as_ref().is_some_and(|key| !keys.is_in_use(&key.id, now))
    }

    /// Whether bans would deny the owner's requests.
    pub(super) fn is_banned(&self, bans: &BanTable, now: i64) -> bool {
        let mut is_banned = false;
        let is_exempt = |ban: &Ban| !ban.is_manual() && self.exempt.iter().any(|rule| **rule == *ban.by);
        bans.for_each_match(
            self.address,
            || self.user.clone(),
            now,
            |ban| {
                is_banned |= !ban.is_shadow && !is_exempt(ban);
            },
        );
        is_banned
    }
}

impl OpenExchange {
    fn close(&self, closing: Closing) {
        if self.closing.get().is_none() {
            self.closing.set(Some(closing));
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
    }
}

impl OpenExchanges {
    /// Registers an exchange until the guard is dropped.
    pub(super) fn register(self: &Rc<Self>, kind: ExchangeKind, owner: ExchangeOwner) -> OpenExchangeGuard {
        let is_closed = self.is_draining.get() && kind == ExchangeKind::Tunnel;
        let closing = Cell::new(is_closed.then_some(Closing::Draining));
        if let Some(expires) = owner.key.as_ref().and_then(|key| key.expires) {
            self.next_expiry.set(Some(self.next_expiry.get().map_or(expires, |next| next.min(expires))));
        }
        let exchange = Rc::new(OpenExchange { kind, owner, closing, waker: RefCell::default() });
        let key = self.open.borrow_mut().insert(Rc::clone(&exchange));
        OpenExchangeGuard { exchanges: Rc::clone(self), key, exchange }
    }

    /// Closes all tunnels in order, and each tunnel that is opened from now on.
    pub(super) fn drain(&self) {
        self.is_draining.set(true);
        self.close_where(Closing::Draining, |exchange| exchange.kind == ExchangeKind::Tunnel);
    }

    /// Closes the exchanges of clients whose requests bans would deny, if the bans have changed since the last call.
    pub(super) fn close_banned(&self, bans: &BanTable, now: i64) {
        if self.bans_seen.replace(bans.enforced()) != bans.enforced() {
            self.close_where(Closing::Banned, |exchange| exchange.owner.is_banned(bans, now));
        }
    }

    /// Closes the exchanges whose API keys are not valid any more, if a key was changed since the last call or one of
    /// theirs has expired.
    pub(super) fn close_revoked(&self, keys: &ApiKeys, now: i64) {
        let has_changed = self.keys_seen.replace(keys.changes()) != keys.changes();
        if !has_changed && self.next_expiry.get().is_none_or(|next| next > now) {
            return;
        }
        self.close_where(Closing::Banned, |exchange| exchange.owner.is_revoked(keys, now));
        let open = self.open.borrow();
        let known = open.iter().filter_map(|(_, exchange)| exchange.owner.key.as_ref());
        let expiries = known.filter_map(|key| keys.get(&key.id)?.expires);
        self.next_expiry.set(expiries.filter(|expires| *expires > now).min());
    }

    fn close_where(&self, closing: Closing, is_closed: impl Fn(&OpenExchange) -> bool) {
        for (_, exchange) in self.open.borrow().iter() {
            if is_closed(exchange) {
                exchange.close(closing);
            }
        }
    }
}

/// An exchange's entry in [`OpenExchanges`], until dropped.
#[derive(Debug)]
pub(super) struct OpenExchangeGuard {
    exchanges: Rc<OpenExchanges>,
    key: usize,
    exchange: Rc<OpenExchange>,
}

impl OpenExchangeGuard {
    /// Closes the exchange because its client is banned.
    pub(super) fn close_for_ban(&self) {
        self.exchange.close(Closing::Banned);
    }

    /// Ready once the exchange has to be closed.
    pub(super) fn poll_closing(&self, cx: &Context<'_>) -> Poll<Closing> {
        if let Some(closing) = self.exchange.closing.get() {
            return Poll::Ready(closing);
        }
        let mut waker = self.exchange.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Ready once the exchange has to be closed.
    pub(super) async fn closing(&self) -> Closing {
        poll_fn(|cx| self.poll_closing(cx)).await
    }
}

impl Drop for OpenExchangeGuard {
    fn drop(&mut self) {
        self.exchanges.open.borrow_mut().remove(self.key);
    }
}
