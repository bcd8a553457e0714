//! The certificates of a listener, and the choice of one by server name.

use std::{collections::HashMap, sync::Arc};

use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use crate::tls::Certificate;

/// The certificates of a listener, by server name.
#[derive(Debug)]
pub(in crate::listener) struct Certificates {
    all: Vec<Certificate>,
    /// By name, in lower case; a wildcard by the part after its `*`.
    by_name: HashMap<String, usize>,
}

impl Certificates {
    /// In order of preference. The first is also the default for unknown names.
    pub(super) fn new(all: Vec<Certificate>) -> Self {
        let mut by_name = HashMap::new();
        for (index, certificate) in all.iter().enumerate() {
            for name in &certificate.info().names {
                // The first certificate with a name is used for it.
                by_name.entry(name.strip_prefix('*').unwrap_or(name).to_owned()).or_insert(index);
            }
        }
        Self { all, by_name }
    }

    /// Whether a certificate covers `name`, in lower case.
    pub(in crate::listener) fn cover(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// The certificate for exactly this name, or else for a wildcard in place of its first label.
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
