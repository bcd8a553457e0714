//! Which addresses may send requests.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use ipnet::IpNet;
use serde::{Serialize, Serializer, ser::SerializeSeq};
use tollgate_derive::Settings;

use crate::config::{
    reader::Cursor,
    settings::Read,
    value::{Invalid, address_file, network},
};

/// `deny` and `allow`, at the top level or of a route. An address that both name is denied.
#[derive(Debug, Clone, PartialEq, Settings)]
pub struct Access {
    /// Client addresses that get 403, before Tollgate looks at users, routes, bans and limits.
    #[setting(either(list(either(text = NETWORK, mapping(AddressesFile)), Unique), mapping(AddressesFile)))]
    #[setting(read = AddressList::denied, unset = "no address is denied")]
    #[setting(example = "[192.0.2.0/24, { file: blocked.txt }]", see = ["allow", "client_address.header"])]
    pub deny: AddressList,
    /// The only client addresses that may send requests; all others get 403. `deny` wins over `allow`.
    #[setting(either(list(either(text = NETWORK, mapping(AddressesFile)), SomeUnique), mapping(AddressesFile)))]
    #[setting(read = AddressList::allowed, unset = "every address is allowed")]
    #[setting(example = "[10.0.0.0/8]", see = ["deny"])]
    pub allow: Option<AddressList>,
}

impl Access {
    /// Whether it denies nobody.
    pub fn is_open(&self) -> bool {
        self.deny.is_empty() && self.allow.is_none()
    }
}

/// Addresses and networks, and files that name further ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AddressList {
    pub networks: Arc<[IpNet]>,
    /// Each is reread when it changes.
    pub files: Vec<PathBuf>,
}

impl AddressList {
    /// Reads `deny`.
    pub(in crate::config) fn denied(value: Cursor<'_>) -> Option<Self> {
        Some(Self::read(value, denied_network))
    }

    /// Reads `allow`.
    pub(in crate::config) fn allowed(value: Cursor<'_>) -> Option<Self> {
        if value.is_empty_list() {
            let help = "name the addresses that are allowed, or remove `allow`".to_owned();
            value.report("an empty list allows nobody", help);
        }
        Some(Self::read(value, allowed_network))
    }

    /// Reads a list of addresses and files, or a file alone.
    fn read(value: Cursor<'_>, read: fn(&str) -> Result<IpNet, Invalid>) -> Self {
        if let Some(text) = value.scalar().filter(|text| is_everybody(text)) {
            let text = text.to_owned();
            value.parse(move |_| read(&text).map(|_| ()));
            return Self::default();
        }
        let items = if value.is_mapping() { vec![value] } else { value.list().unwrap_or_default() };
        let mut networks: Vec<IpNet> = Vec::with_capacity(items.len());
        let mut lines: HashMap<IpNet, usize> = HashMap::with_capacity(items.len());
        let mut files: Vec<PathBuf> = Vec::new();
        for item in items {
            if item.is_mapping() {
                let file = AddressesFile::read(item).map(|found| found.file);
                files.extend(file.filter(|file| !files.contains(file)));
                continue;
            }
            let Some(network) = item.parse(read) else { continue };
            match lines.insert(network, item.location().line) {
                None => networks.push(network),
                Some(line) => item.report(
                    format!("`{}` is in this list twice", item.scalar().unwrap_or_default()),
                    (line != item.location().line).then(|| format!("it is also in line {line}")),
                ),
            }
        }
        Self { networks: networks.into(), files }
    }

    /// How many addresses, networks and files it names.
    pub fn len(&self) -> usize {
        self.networks.len() + self.files.len()
    }

    /// Whether it names none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Serialize for AddressList {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut list = to.serialize_seq(Some(self.len()))?;
        for network in self.networks.iter() {
            match network.prefix_len() == network.max_prefix_len() {
                true => list.serialize_element(&network.addr())?,
                false => list.serialize_element(&network.to_string())?,
            }
        }
        for file in &self.files {
            list.serialize_element(&serde_json::json!({ "file": file }))?;
        }
        list.end()
    }
}

/// A file that lists the addresses.
#[derive(Settings)]
#[settings(written, page = "security.md")]
pub(in crate::config) struct AddressesFile {
    /// The path of the file, with one address or network per line. It is read again when it changes.
    #[setting(file, read = addresses_file, example = "blocked.txt")]
    #[setting(missing = "such as `{ file: blocked.txt }`, with one address or network a line")]
    file: PathBuf,
}

fn addresses_file(value: Cursor<'_>) -> Option<PathBuf> {
    value.file(address_file).map(|(path, ())| path)
}

/// Whether this is a word for every address, as nginx and people write it.
fn is_everybody(text: &str) -> bool {
    ["all", "any", "*", "everyone", "everybody"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

fn denied_network(text: &str) -> Result<IpNet, Invalid> {
    if is_everybody(text) {
        return Err(Invalid::new("would deny every request, since `deny` wins over `allow`")
            .expected("`allow: [ADDRESS, …]` alone denies all others; remove this"));
    }
    network(text)
}

fn allowed_network(text: &str) -> Result<IpNet, Invalid> {
    if is_everybody(text) {
        return Err(Invalid::new("need not be written")
            .expected("without `allow`, every address that `deny` does not name is allowed; remove this"));
    }
    network(text)
}
