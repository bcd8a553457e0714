//! Certificates of an authority that exists for one test.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use tempfile::TempDir;

/// An authority, and the files of what it has issued.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: TempDir,
}

/// A certificate and its key, as files in PEM.
pub struct Issued {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    /// One of this name.
    pub fn new(name: &str) -> Self {
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, directory }
    }

    /// Its own certificate.
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// A certificate for these host names and addresses.
    pub fn issue(&self, name: &str, hosts: &[&str]) -> Issued {
        self.sign(name, &params(name, hosts))
    }

    /// One that is valid for so many days from now on, without the last minute.
    pub fn issue_for_days(&self, name: &str, hosts: &[&str], days: u32) -> Issued {
        let mut params = params(name, hosts);
        let end = SystemTime::now() + Duration::from_secs(24 * 60 * 60) * days;
        params.not_after = (end - Duration::from_secs(60)).into();
        self.sign(name, &params)
    }

    /// One that has expired long ago.
    pub fn issue_expired(&self, name: &str, hosts: &[&str]) -> Issued {
        let mut params = params(name, hosts);
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
        self.sign(name, &params)
    }

    fn sign(&self, name: &str, params: &CertificateParams) -> Issued {
        let pair = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&pair, &self.issuer).unwrap();
        let write = |name: String, text: String| {
            let file = self.directory.path().join(name);
            fs::write(&file, text).unwrap();
            file
        };
        Issued {
            cert: write(format!("{name}.pem"), certificate.pem()),
            key: write(format!("{name}.key"), pair.serialize_pem()),
        }
    }
}

fn params(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<_> = hosts.iter().map(|&host| host.to_owned()).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    // Strict clients, such as Python 3.13, demand it (RFC 5280, 4.2.1.1).
    params.use_authority_key_identifier_extension = true;
    params
}

/// A path as an argument.
pub fn file_name(path: &Path) -> &str {
    path.to_str().unwrap()
}
