//! Session tickets (RFC 5077, RFC 8446 4.6.1): a client that returns within twelve hours resumes its session without a
//! signature.

use std::{
    fmt,
    time::{Duration, Instant},
};

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey},
    error::Unspecified,
    rand,
};
use parking_lot::RwLock;
use rustls::server::ProducesTickets;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// A key issues tickets for this long, and decrypts them for as long again.
const ROTATION: Duration = Duration::from_secs(6 * 60 * 60);
const NAME_LEN: usize = 16;
const SECRET_LEN: usize = 32;

/// Issues and decrypts the session tickets of one listener.
///
/// A ticket is the name of its key, a nonce, and the session sealed by AES-256-GCM. rustls has the same, but does not
/// export its keys: a new process could not decrypt the tickets of the one that it replaces.
pub(super) struct Tickets {
    keys: RwLock<TicketKeys>,
}

struct TicketKeys {
    current: TicketKey,
    previous: Option<TicketKey>,
}

struct TicketKey {
    name: [u8; NAME_LEN],
    secret: Zeroizing<[u8; SECRET_LEN]>,
    cipher: RandomizedNonceKey,
    since: Instant,
}

impl TicketKey {
    fn generate() -> Result<Self, Unspecified> {
        let mut name = [0; NAME_LEN];
        let mut secret = Zeroizing::new([0; SECRET_LEN]);
        rand::fill(&mut name)?;
        rand::fill(&mut *secret)?;
        Self::new(name, secret, Instant::now())
    }

    fn new(
        name: [u8; NAME_LEN],
        secret: Zeroizing<[u8; SECRET_LEN]>,
        since: Instant,
    ) -> Result<Self, Unspecified> {
        let cipher = RandomizedNonceKey::new(&AES_256_GCM, &*secret)?;
        Ok(Self { name, secret, cipher, since })
    }
}

/// A key, for a new process that resumes the sessions of this one. Secret: with it their traffic can be decrypted.
#[derive(Serialize, Deserialize)]
pub struct ExportedTicketKey {
    name: [u8; NAME_LEN],
    secret: Zeroizing<[u8; SECRET_LEN]>,
    /// In seconds.
    age: u64,
}

impl Tickets {
    /// With a new key.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(super) fn new() -> Result<Self, Unspecified> {
        Ok(Self { keys: RwLock::new(TicketKeys { current: TicketKey::generate()?, previous: None }) })
    }

    /// The keys, the newest first.
    pub(super) fn export(&self) -> Vec<ExportedTicketKey> {
        let keys = self.keys.read();
        let all = [Some(&keys.current), keys.previous.as_ref()].into_iter().flatten();
        all.map(|TicketKey { name, secret, since, .. }| ExportedTicketKey {
            name: *name,
            secret: secret.clone(),
            age: since.elapsed().as_secs(),
        })
        .collect()
    }

    /// Replaces the keys by the ones of another process, in the order of [`Tickets::export`]. An invalid key is left
    /// out.
    pub(super) fn import(&self, keys: &[ExportedTicketKey]) {
        let keys = keys.iter().filter_map(|ExportedTicketKey { name, secret, age }| {
            let since = Instant::now().checked_sub(Duration::from_secs(*age))?;
            TicketKey::new(*name, secret.clone(), since).ok()
        });
        let mut keys = keys.fuse();
        if let Some(current) = keys.next() {
            *self.keys.write() = TicketKeys { current, previous: keys.next() };
        }
    }

    /// Replaces the key when it is due.
    fn rotate(&self, now: Instant) {
        let is_due = |keys: &TicketKeys| now.saturating_duration_since(keys.current.since) >= ROTATION;
        if !is_due(&self.keys.read()) {
            return;
        }
        let mut keys = self.keys.write();
        // Another worker may have been first. Without random numbers the old key remains in use.
        if is_due(&keys)
            && let Ok(next) = TicketKey::generate()
        {
            let last = std::mem::replace(&mut keys.current, next);
            keys.previous = Some(last);
        }
    }
}

impl TicketKeys {
    fn named(&self, name: &[u8]) -> Option<&TicketKey> {
        [Some(&self.current), self.previous.as_ref()].into_iter().flatten().find(|key| key.name == name)
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    /// In seconds.
    fn lifetime(&self) -> u32 {
        2 * ROTATION.as_secs() as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.rotate(Instant::now());
        let keys = self.keys.read();
        let TicketKey { name, cipher, .. } = &keys.current;
        let mut sealed = plain.to_vec();
        let nonce = cipher.seal_in_place_append_tag(Aad::from(name), &mut sealed).ok()?;
        Some([&name[..], nonce.as_ref(), &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(NAME_LEN)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let keys = self.keys.read();
        let TicketKey { name, cipher, since, .. } = keys.named(name)?;
        if since.elapsed() >= 2 * ROTATION {
            return None;
        }
        let mut session = sealed.to_vec();
        let length = cipher.open_in_place(nonce, Aad::from(name), &mut session).ok()?.len();
        session.truncate(length);
        Some(session)
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tickets(***)")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tickets_are_read_until_their_key_has_gone() {
        let tickets = Tickets::new().unwrap();
        let first = tickets.encrypt(b"session").unwrap();
        assert_eq!(tickets.decrypt(&first).unwrap(), b"session");
        assert_ne!(tickets.encrypt(b"session").unwrap(), first, "a nonce is used once");

        tickets.rotate(Instant::now() + ROTATION);
        let second = tickets.encrypt(b"session").unwrap();
        assert_ne!(second[..NAME_LEN], first[..NAME_LEN]);
        assert_eq!(tickets.decrypt(&first).unwrap(), b"session", "the key before is still known");

        tickets.rotate(Instant::now() + 2 * ROTATION);
        assert_eq!(tickets.decrypt(&first), None);
        assert_eq!(tickets.decrypt(&second).unwrap(), b"session");
    }

    #[test]
    fn another_process_goes_on_with_the_keys() {
        let (one, other) = (Tickets::new().unwrap(), Tickets::new().unwrap());
        let first = one.encrypt(b"session").unwrap();
        one.rotate(Instant::now() + ROTATION);
        let second = one.encrypt(b"session").unwrap();
        let sent = serde_json::to_string(&one.export()).unwrap();
        other.import(&serde_json::from_str::<Vec<ExportedTicketKey>>(&sent).unwrap());
        for ticket in [first, second, one.encrypt(b"session").unwrap()] {
            assert_eq!(other.decrypt(&ticket).unwrap(), b"session");
        }
        assert_eq!(one.decrypt(&other.encrypt(b"session").unwrap()).unwrap(), b"session");
        other.import(&[]);
        assert!(one.decrypt(&other.encrypt(b"session").unwrap()).is_some());
    }

    #[test]
    fn tickets_of_others_are_not_read() {
        let (one, other) = (Tickets::new().unwrap(), Tickets::new().unwrap());
        assert_eq!(other.decrypt(&one.encrypt(b"session").unwrap()), None);
    }

    proptest! {
        #[test]
        fn altered_tickets_are_not_read(plain: Vec<u8>, at: prop::sample::Index, mask in 1..=255u8, cut: prop::sample::Index) {
            let tickets = Tickets::new().unwrap();
            let ticket = tickets.encrypt(&plain).unwrap();
            prop_assert_eq!(tickets.decrypt(&ticket), Some(plain));
            let mut altered = ticket.clone();
            altered[at.index(ticket.len())] ^= mask;
            prop_assert_eq!(tickets.decrypt(&altered), None);
            prop_assert_eq!(tickets.decrypt(&ticket[..cut.index(ticket.len())]), None);
        }
    }
}
