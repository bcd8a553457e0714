//! The certificates of a listener, and which of them a client is shown: by the server name that it asks for.

use std::{collections::HashMap, sync::Arc};

use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use crate::tls::Certificate;

/// The certificates of a listener, and which of them is for a name.
#[derive(Debug)]
pub(in crate::listener) struct Certificates {
    all: Vec<Certificate>,
    /// By name, in lower case; a wildcard by what follows its `*`.
    by_name: HashMap<String, usize>,
}

impl Certificates {
    /// In the order in which they are preferred; the first is for all names that none is for.
    pub(super) fn new(all: Vec<Certificate>) -> Self {
        let mut by_name = HashMap::new();
        for (index, certificate) in all.iter().enumerate() {
            for name in &certificate.info().names {
                // The first that has a name serves it.
                by_name.entry(name.strip_prefix('*').unwrap_or(name).to_owned()).or_insert(index);
            }
        }
        Self { all, by_name }
    }

    /// Whether a certificate is for `name`, in lower case.
    pub(in crate::listener) fn cover(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// The certificate for exactly this name, or with a wildcard in place of its first label.
    fn find(&self, name: &str) -> Option<&Certificate> {
        let index = self.by_name.get(name).or_else(|| self.by_name.get(name.get(name.find('.')?..)?))?;
        self.all.get(*index)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = hello.server_name().and_then(|name| self.find(name));
        named.or(self.all.first()).map(|certificate| Arc::clone(certificate.key()))
    }
}
