//! Which addresses may send requests.

use std::{path::PathBuf, sync::Arc};

use ipnet::IpNet;
use serde::{Serialize, Serializer, ser::SerializeSeq};

/// `deny` and `allow`, at the top level or of a route. An address that both name is denied.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Access {
    pub deny: AddressList,
    /// `None`: all addresses that are not denied.
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
