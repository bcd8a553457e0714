//! The open tunnels of one worker, so that they can be closed.

use std::{
    cell::{Cell, RefCell},
    net::IpAddr,
    rc::Rc,
};

use compact_str::CompactString;
use slab::Slab;
use tokio::sync::Notify;

use crate::abuse::bans::{Ban, BanTable, Key};

/// Why a tunnel is closed that both sides would keep open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closing {
    /// The process ends.
    Draining,
    /// Its client is banned.
    Banned,
}

/// The open tunnels of one worker, over one configuration after another.
#[derive(Debug, Default)]
pub(in crate::proxy) struct OpenTunnels {
    open: RefCell<Slab<Rc<OpenTunnel>>>,
    is_draining: Cell<bool>,
    /// Of the bans of addresses and users, when they were last looked at.
    bans_seen: Cell<u64>,
}

#[derive(Debug)]
struct OpenTunnel {
    client: TunnelClient,
    closing: Cell<Option<Closing>>,
    changed: Notify,
}

/// Whose tunnel it is, as far as bans go by it.
#[derive(Debug)]
pub(in crate::proxy) struct TunnelClient {
    pub(in crate::proxy) address: IpAddr,
    pub(in crate::proxy) user: Option<Key>,
    /// The rules of bans that the request was exempt from.
    pub(in crate::proxy) exempt: Vec<CompactString>,
}

impl TunnelClient {
    /// Whether bans would deny its requests.
    pub(in crate::proxy) fn is_banned(&self, bans: &BanTable, now: i64) -> bool {
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

impl OpenTunnels {
    /// Registers a tunnel until the guard is dropped.
    pub(super) fn register(self: &Rc<Self>, client: TunnelClient) -> RegisteredTunnel {
        let closing = Cell::new(self.is_draining.get().then_some(Closing::Draining));
        let tunnel = Rc::new(OpenTunnel { client, closing, changed: Notify::new() });
        let key = self.open.borrow_mut().insert(Rc::clone(&tunnel));
        RegisteredTunnel { tunnels: Rc::clone(self), key, tunnel }
    }

    /// Closes all of them in order, and each that is opened from now on.
    pub(in crate::proxy) fn drain(&self) {
        self.is_draining.set(true);
        self.close_where(Closing::Draining, |_| true);
    }

    /// Closes the tunnels of clients whose requests bans would deny, if there are other bans than when this was last called.
    pub(in crate::proxy) fn close_banned(&self, bans: &BanTable, now: i64) {
        if self.bans_seen.replace(bans.enforced()) != bans.enforced() {
            self.close_where(Closing::Banned, |client| client.is_banned(bans, now));
        }
    }

    fn close_where(&self, closing: Closing, is_closed: impl Fn(&TunnelClient) -> bool) {
        for (_, tunnel) in self.open.borrow().iter() {
            if tunnel.closing.get().is_none() && is_closed(&tunnel.client) {
                tunnel.closing.set(Some(closing));
                tunnel.changed.notify_one();
            }
        }
    }
}

/// A tunnel's entry in [`OpenTunnels`], until dropped.
#[derive(Debug)]
pub(super) struct RegisteredTunnel {
    tunnels: Rc<OpenTunnels>,
    key: usize,
    tunnel: Rc<OpenTunnel>,
}

impl RegisteredTunnel {
    /// Has it closed because its client is banned.
    pub(super) fn close_for_ban(&self) {
        self.tunnel.closing.set(Some(Closing::Banned));
    }

    /// Ready once the tunnel has to be closed.
    pub(super) async fn closing(&self) -> Closing {
        loop {
            if let Some(closing) = self.tunnel.closing.get() {
                return closing;
            }
            self.tunnel.changed.notified().await;
        }
    }
}

impl Drop for RegisteredTunnel {
    fn drop(&mut self) {
        self.tunnels.open.borrow_mut().remove(self.key);
    }
}
