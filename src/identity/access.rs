//! `deny` and `allow`: whether a client's address may send requests.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use parking_lot::{Mutex, RwLock};

use super::trusted_proxies::ClientIp;
use crate::{
    address_set::{AddressFileError, AddressSet, read_addresses},
    config::model::{Access, AddressList, Config},
    file::WatchedFile,
};

/// How often files are checked for changes.
const REREAD_INTERVAL: Duration = Duration::from_secs(1);

/// Which setting denies an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessDenial {
    /// `deny` names it.
    Denied,
    /// `allow` does not name it.
    NotAllowed,
}

impl AccessDenial {
    /// The setting.
    pub fn setting(self) -> &'static str {
        match self {
            Self::Denied => "deny",
            Self::NotAllowed => "allow",
        }
    }
}

/// `deny` and `allow` of one configuration: at the top level, and of its routes.
#[derive(Debug)]
pub struct AccessRules {
    everywhere: Option<Box<AccessRule>>,
    /// For each route, in the configuration's order.
    routes: Box<[Option<Box<AccessRule>>]>,
    files: Vec<Arc<AddressFile>>,
}

impl AccessRules {
    /// The rules of `config`. Reads their files.
    ///
    /// # Errors
    /// A file can't be read, or contains something other than addresses.
    pub fn open(config: &Config) -> Result<Self, UnusableAddresses> {
        let mut files = Vec::new();
        let everywhere = rule(&config.access, &mut files)?;
        let routes = config.routes.iter().map(|route| rule(&route.access, &mut files));
        let routes = routes.collect::<Result<_, _>>()?;
        Ok(Self { everywhere, routes, files })
    }

    /// Rereads changed files, on a thread of its own, while these rules are in use.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn watch_files(self: &Arc<Self>) -> std::io::Result<()> {
        if !self.files.is_empty() {
            let rules = Arc::downgrade(self);
            thread::Builder::new().name("addresses".into()).spawn(move || reread_until_dropped(&rules))?;
        }
        Ok(())
    }

    /// Rereads the files that have changed. Blocks: not for a worker's thread.
    pub fn reread_changed_files(&self) {
        self.files.iter().for_each(|file| file.reread_if_changed());
    }

    /// The rule for all requests. `None`: all addresses are allowed.
    pub fn everywhere(&self) -> Option<&AccessRule> {
        self.everywhere.as_deref()
    }

    /// The rule for the route with this index. `None`: all addresses are allowed.
    pub fn of_route(&self, route: usize) -> Option<&AccessRule> {
        self.routes.get(route)?.as_deref()
    }
}

fn reread_until_dropped(rules: &Weak<AccessRules>) {
    loop {
        thread::sleep(REREAD_INTERVAL);
        match rules.upgrade() {
            Some(rules) => rules.reread_changed_files(),
            None => return,
        }
    }
}

/// `deny` and `allow` at the top level or of a route.
#[derive(Debug)]
pub struct AccessRule {
    deny: AddressMatcher,
    allow: Option<AddressMatcher>,
}

fn rule(
    access: &Access,
    files: &mut Vec<Arc<AddressFile>>,
) -> Result<Option<Box<AccessRule>>, UnusableAddresses> {
    if access.is_open() {
        return Ok(None);
    }
    let deny = AddressMatcher::open(&access.deny, files)?;
    let allow = access.allow.as_ref().map(|list| AddressMatcher::open(list, files)).transpose()?;
    Ok(Some(Box::new(AccessRule { deny, allow })))
}

impl AccessRule {
    /// Whether the client is denied, and by which setting. An unknown address counts as matched by any `deny` and by no
    /// `allow`.
    pub fn denial(&self, client: ClientIp) -> Option<AccessDenial> {
        let ClientIp { ip, is_known } = client;
        if self.deny.contains(ip) || !is_known && self.allow.is_none() {
            return Some(AccessDenial::Denied);
        }
        let is_allowed = self.allow.as_ref().is_none_or(|allow| is_known && allow.contains(ip));
        (!is_allowed).then_some(AccessDenial::NotAllowed)
    }

    /// The entry of `deny` that names the address: a network, or a file.
    pub fn denied_by(&self, address: IpAddr) -> Option<String> {
        let address = address.to_canonical();
        let network = self.deny.list.networks.iter().find(|network| network.contains(&address));
        let file = || self.deny.files.iter().find(|file| file.contains(address));
        network.map(ToString::to_string).or_else(|| Some(file()?.path.display().to_string()))
    }
}

/// The addresses of one list.
#[derive(Debug)]
struct AddressMatcher {
    list: AddressList,
    listed: AddressSet,
    files: Vec<Arc<AddressFile>>,
}

impl AddressMatcher {
    fn open(list: &AddressList, known: &mut Vec<Arc<AddressFile>>) -> Result<Self, UnusableAddresses> {
        let mut files = Vec::with_capacity(list.files.len());
        for path in &list.files {
            let file = match known.iter().find(|file| file.path == *path) {
                Some(file) => Arc::clone(file),
                None => {
                    let file = Arc::new(AddressFile::open(path)?);
                    known.push(Arc::clone(&file));
                    file
                }
            };
            files.push(file);
        }
        Ok(Self { list: list.clone(), listed: list.networks.iter().copied().collect(), files })
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.listed.contains(address) || self.files.iter().any(|file| file.contains(address))
    }
}

/// A file of addresses can't be used.
#[derive(Debug, thiserror::Error)]
#[error("the addresses in {} can't be used: {reason}", .path.display())]
pub struct UnusableAddresses {
    path: PathBuf,
    reason: AddressFileFault,
}

#[derive(Debug, thiserror::Error)]
enum AddressFileFault {
    #[error("it can't be read: {0}")]
    Unreadable(#[from] std::io::Error),
    #[error(transparent)]
    Wrong(#[from] AddressFileError),
}

/// An address file, and the addresses that were last read from it.
#[derive(Debug)]
struct AddressFile {
    path: PathBuf,
    addresses: RwLock<AddressSet>,
    source: Mutex<AddressSource>,
}

#[derive(Debug)]
struct AddressSource {
    file: WatchedFile,
    /// The last error that was logged, so that it is logged once.
    logged_error: Option<String>,
}

impl AddressFile {
    fn open(path: &Path) -> Result<Self, UnusableAddresses> {
        let opened = WatchedFile::open(path.to_owned()).map_err(AddressFileFault::from);
        let read = opened.and_then(|file| Ok((read_addresses(file.bytes())?, file)));
        let (networks, file) = read.map_err(|reason| UnusableAddresses { path: path.to_owned(), reason })?;
        let source = Mutex::new(AddressSource { file, logged_error: None });
        let addresses = RwLock::new(networks.into_iter().collect());
        Ok(Self { path: path.to_owned(), addresses, source })
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.addresses.read().contains(address)
    }

    fn reread_if_changed(&self) {
        let mut source = self.source.lock();
        let refreshed = source.file.refresh().map_err(AddressFileFault::from);
        let has_recovered = matches!(refreshed, Ok(false)) && source.logged_error.is_some();
        let read = match refreshed {
            Ok(false) if !has_recovered => return,
            Ok(_) => read_addresses(source.file.bytes()).map_err(AddressFileFault::from),
            Err(error) => Err(error),
        };
        let file = self.path.display();
        match read {
            Ok(networks) => {
                let count = networks.len();
                *self.addresses.write() = networks.into_iter().collect();
                source.logged_error = None;
                tracing::info!(%file, "the addresses in {file} were reread: {count} entries");
            }
            Err(error) => {
                let error = error.to_string();
                if source.logged_error.as_ref() != Some(&error) {
                    tracing::error!(%file, "the previous addresses of {file} stay in use: {error}");
                    source.logged_error = Some(error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn list(networks: &[&str], files: &[&Path]) -> AddressList {
        AddressList {
            networks: networks.iter().map(|network| network.parse().unwrap()).collect(),
            files: files.iter().map(|&file| file.to_owned()).collect(),
        }
    }

    fn denial(access: &Access, address: &str) -> Option<AccessDenial> {
        let rule = rule(access, &mut Vec::new()).unwrap();
        rule.and_then(|rule| rule.denial(ClientIp { ip: address.parse().unwrap(), is_known: true }))
    }

    #[test]
    fn an_unknown_client_is_let_in_by_no_list() {
        let all = || list(&["0.0.0.0/0"], &[]);
        let unknown = ClientIp { ip: "10.0.0.1".parse().unwrap(), is_known: false };
        let allowing = Access { deny: AddressList::default(), allow: Some(all()) };
        let denying = Access { deny: list(&["192.0.2.1/32"], &[]), allow: None };
        for (access, denial) in [
            (allowing, AccessDenial::NotAllowed),
            (denying, AccessDenial::Denied),
            (Access { deny: list(&["192.0.2.1/32"], &[]), allow: Some(all()) }, AccessDenial::NotAllowed),
        ] {
            let rule = rule(&access, &mut Vec::new()).unwrap().unwrap();
            assert_eq!(rule.denial(unknown), Some(denial));
        }
    }

    #[test]
    fn deny_wins_over_allow() {
        let deny = list(&["10.1.0.0/16", "192.0.2.1/32"], &[]);
        let access = Access { deny: deny.clone(), allow: Some(list(&["10.0.0.0/8", "2001:db8::/32"], &[])) };
        assert_eq!(denial(&access, "10.2.0.1"), None);
        assert_eq!(denial(&access, "2001:db8::1"), None);
        assert_eq!(denial(&access, "::ffff:10.1.2.3"), Some(AccessDenial::Denied));
        assert_eq!(denial(&access, "192.0.2.2"), Some(AccessDenial::NotAllowed));
        let access = Access { deny, allow: None };
        assert_eq!(denial(&access, "192.0.2.2"), None);
        assert_eq!(denial(&access, "192.0.2.1"), Some(AccessDenial::Denied));
        assert_eq!(denial(&Access::default(), "192.0.2.1"), None);
    }

    #[test]
    fn a_file_is_reread_and_stays_as_it_was_while_it_is_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("blocked.txt");
        fs::write(&path, "203.0.113.7\n").unwrap();
        let access = Access { deny: list(&["10.0.0.0/8"], &[&path]), allow: None };
        let mut files = Vec::new();
        let rule = rule(&access, &mut files).unwrap().unwrap();
        let is_denied =
            |address: &str| rule.denial(ClientIp { ip: address.parse().unwrap(), is_known: true }).is_some();
        assert!(is_denied("203.0.113.7") && is_denied("10.0.0.1") && !is_denied("198.51.100.1"));
        let path_text = path.display().to_string();
        assert_eq!(rule.denied_by("203.0.113.7".parse().unwrap()), Some(path_text));
        assert_eq!(rule.denied_by("10.0.0.1".parse().unwrap()).as_deref(), Some("10.0.0.0/8"));
        fs::write(&path, "198.51.100.0/24\n").unwrap();
        files[0].reread_if_changed();
        assert!(!is_denied("203.0.113.7") && is_denied("198.51.100.1"));
        fs::write(&path, "nobody\n").unwrap();
        files[0].reread_if_changed();
        assert!(is_denied("198.51.100.1"));
        fs::remove_file(&path).unwrap();
        files[0].reread_if_changed();
        assert!(is_denied("198.51.100.1"));
        assert!(
            files[0].source.lock().logged_error.as_ref().is_some_and(|error| error.contains("can't be read"))
        );
        fs::write(&path, "192.0.2.9\n").unwrap();
        files[0].reread_if_changed();
        assert!(is_denied("192.0.2.9") && !is_denied("198.51.100.1"));
    }
}
