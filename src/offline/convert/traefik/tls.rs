//! Certificates and TLS options.

use std::collections::BTreeSet;

use super::{Traefik, entry_points::EntryPoint, plain_name, routers::TraefikRouter};
use crate::offline::convert::{
    condition::{HostCondition, RequestCondition, Test},
    document::Fields,
    site::{Effect, SiteRule},
    yaml::{Comment, Map},
};

/// Settings without effect outside: Tollgate's suites are all of strength, so that no order of them matters.
const NEEDS_NOTHING: [&str; 3] = ["preferServerCipherSuites", "disableSessionTickets", "clientAuth"];

/// `tls` of a router or an entry point.
#[derive(Debug, Clone, Default)]
pub(super) struct TlsOptions<'d> {
    options: Option<&'d str>,
    /// Whether Traefik fetches certificates for its hosts.
    has_resolver: bool,
}

impl<'d> TlsOptions<'d> {
    pub(super) fn read(fields: &Fields<'d>) -> Self {
        // Which certificates are fetched: those of its hosts.
        fields.ignore(&["domains"]);
        Self {
            options: fields.text("options").map(plain_name),
            has_resolver: fields.text("certResolver").is_some(),
        }
    }
}

/// Whether clients need a certificate.
enum ClientCertificates {
    None,
    Optional(String),
    Required(String),
    /// Traefik requires one that Tollgate cannot ask for.
    Inexpressible(String),
}

impl<'d> Traefik<'d> {
    /// `tls` of a listener, and the hosts with other options: Traefik chooses them by the name that a client asks for.
    pub(super) fn listener_tls(
        &mut self,
        entry_point: &EntryPoint<'d>,
        routers: &[&TraefikRouter<'d>],
        comments: &mut Vec<Comment>,
    ) -> (Map, Vec<SiteRule>) {
        let mut tls = Map::new().with("certificates", self.files(entry_point, routers, comments));
        let mut rules = Vec::new();
        let options = |router: &TraefikRouter<'d>| {
            let tls = router.tls.as_ref().or(entry_point.tls.as_ref());
            tls.and_then(|tls| tls.options).unwrap_or("default")
        };
        let names: BTreeSet<&str> = routers.iter().map(|router| options(router)).collect();
        let base = if names.len() == 1 { names.first().copied() } else { None }.unwrap_or("default");
        let mut close = |when: RequestCondition, text: String| {
            rules.push(SiteRule::new(when, Effect::Close(text), &entry_point.place, "tls.options"));
        };
        for router in routers.iter().filter(|router| options(router) != base) {
            let text =
                format!("move the hosts with the options `{}` to a listener of their own", options(router));
            let hosts = Test::Hosts(router.hosts.iter().cloned().collect());
            close(if router.hosts.is_empty() { router.condition.clone() } else { hosts.into() }, text);
        }
        let named: BTreeSet<HostCondition> =
            routers.iter().flat_map(|router| router.hosts.iter().cloned()).collect();
        if base != "default" {
            // Without a name, the default options count.
            let text = format!("other hosts do not have the options `{base}` in Traefik");
            close(RequestCondition::from(Test::Hosts(named)).not(), text);
        }
        match self.client_auth(base) {
            ClientCertificates::None => {}
            ClientCertificates::Required(file) => tls.set("client_ca", file),
            ClientCertificates::Optional(file) => {
                tls.set("client_ca", file);
                tls.set("client_auth", "optional");
            }
            ClientCertificates::Inexpressible(text) => close(RequestCondition::ALWAYS, text),
        }
        let min_version = self.tls_options.get(base).and_then(|item| item.fields().text("minVersion"));
        tls.extend_some("min_version", (min_version == Some("VersionTLS13")).then_some("1.3"));
        (tls, rules)
    }

    pub(super) fn certificates(&mut self, tls: &Fields<'d>) {
        for (name, item) in tls.fields("stores").each() {
            let fields = item.fields();
            self.certificate(&fields.fields("defaultCertificate"));
            self.leftovers(&fields, &format!("tls.stores.{name}"));
        }
        for item in tls.items("certificates") {
            let fields = item.fields();
            self.certificate(&fields);
            fields.ignore(&["stores"]);
            self.leftovers(&fields, "tls.certificates");
        }
        for (name, item) in tls.fields("options").each() {
            let fields = item.fields();
            fields.ignore(&NEEDS_NOTHING);
            if matches!(fields.text("minVersion"), Some("VersionTLS10" | "VersionTLS11")) {
                self.draft.head.push(item.note("Tollgate speaks TLS 1.2 and 1.3, nothing older"));
            }
            self.leftovers(&fields, &format!("tls.options.{name}"));
        }
        self.leftovers(tls, "tls");
    }

    fn certificate(&mut self, fields: &Fields<'d>) {
        let files = fields.text("certFile").zip(fields.text("keyFile"));
        self.certificates.extend(files.filter(|files| !self.certificates.contains(files)));
    }

    /// The certificates that these options ask clients for.
    fn client_auth(&self, options: &str) -> ClientCertificates {
        let Some(item) = self.tls_options.get(options).copied() else {
            return match options {
                "default" => ClientCertificates::None,
                _ => ClientCertificates::Inexpressible(format!(
                    "the TLS options `{options}` are not in this file"
                )),
            };
        };
        let fields = item.fields().fields("clientAuth");
        let files = fields.texts("caFiles");
        if files.len() > 1 || files.iter().any(|file| file.contains("-----BEGIN")) {
            let text = "`caFiles`: `client_ca` is one file; join the certificates in it";
            return ClientCertificates::Inexpressible(text.to_owned());
        }
        let file = files.first().map(|file| (*file).to_owned());
        match (fields.text("clientAuthType"), file) {
            (None, None) | (Some("NoClientCert" | "RequestClientCert"), _) => ClientCertificates::None,
            (Some("VerifyClientCertIfGiven"), Some(file)) => ClientCertificates::Optional(file),
            (None | Some("RequireAndVerifyClientCert"), Some(file)) => ClientCertificates::Required(file),
            (kind, _) => {
                let kind = kind.unwrap_or_default();
                ClientCertificates::Inexpressible(format!(
                    "`{kind}`: Tollgate verifies every certificate that it asks for"
                ))
            }
        }
    }

    /// The certificates of a listener: those that are listed, and files for those that Traefik fetches.
    fn files(
        &self,
        entry_point: &EntryPoint<'d>,
        routers: &[&TraefikRouter<'d>],
        comments: &mut Vec<Comment>,
    ) -> Vec<Map> {
        let pair = |(cert, key): &(&str, &str)| Map::new().with("cert", *cert).with("key", *key);
        let mut files: Vec<Map> = self.certificates.iter().map(pair).collect();
        let has_resolver = |tls: &Option<TlsOptions<'_>>| tls.as_ref().is_some_and(|tls| tls.has_resolver);
        let mut names = BTreeSet::new();
        for router in routers {
            if files.is_empty() || has_resolver(&router.tls) || has_resolver(&entry_point.tls) {
                names.extend(router.hosts.iter().map(|host| match host {
                    HostCondition::Exact(name) => name.replace(['[', ']', ':'], "_"),
                    HostCondition::Below(name) => format!("_.{name}"),
                }));
            }
        }
        if names.is_empty() && files.is_empty() {
            names.insert("server".to_owned());
        }
        if !names.is_empty() {
            let text = "Tollgate fetches no certificates. Let certbot, lego or acme.sh write these files; they are read \
                        again when they change.";
            comments.push(Comment::Plain(text.to_owned()));
        }
        files.extend(names.iter().map(|name| {
            Map::new().with("cert", format!("certs/{name}.pem")).with("key", format!("certs/{name}.key"))
        }));
        files
    }
}
