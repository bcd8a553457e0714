//! Certificates and TLS options.

use std::collections::{BTreeMap, BTreeSet};

use super::{Traefik, entry_points::EntryPoint, plain_name, routers::Router};
use crate::convert::{
    condition::{Condition, Host, Test},
    document::{Fields, Item},
    site::{Edit, Effect, Rule},
    yaml::{Comment, Map},
};

/// What nobody outside can see: Tollgate's suites are all of strength, so that no order of them matters.
const NEEDS_NOTHING: [&str; 2] = ["preferServerCipherSuites", "disableSessionTickets"];

/// Names for which Traefik fetches certificates.
#[derive(Debug, Clone, Default)]
pub(super) struct Domains {
    pub(super) has_resolver: bool,
    pub(super) names: Vec<String>,
}

impl Domains {
    /// Those of `tls` of a router or an entry point.
    pub(super) fn read(tls: &Fields<'_>) -> Self {
        let main = |item: Item<'_>| item.fields().text("main").map(|name| name.replace('*', "_"));
        Self {
            has_resolver: tls.text("certResolver").is_some(),
            names: tls.items("domains").into_iter().filter_map(main).collect(),
        }
    }
}

/// Whether clients need a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ClientAuth {
    None,
    Optional(String),
    Required(String),
    /// Traefik requires one that Tollgate cannot ask for.
    Inexpressible(String),
}

impl ClientAuth {
    fn file(&self) -> Option<&String> {
        match self {
            Self::Optional(file) | Self::Required(file) => Some(file),
            Self::None | Self::Inexpressible(_) => None,
        }
    }
}

/// How a listener asks clients for certificates. Traefik chooses the options of TLS by the name that a client asks for.
pub(super) struct TlsPlan {
    /// The options of each router.
    options: BTreeMap<String, String>,
    /// The hosts of other options than the default ones.
    hosts: BTreeMap<String, BTreeSet<Host>>,
    auth: ClientAuth,
    /// What the requests to some hosts need.
    pub(super) rules: Vec<Rule>,
}

impl TlsPlan {
    /// The hosts with other options than this router: Traefik answers 421, since a client may not have shown what they
    /// ask for.
    pub(super) fn hosts_of_others(&self, router: &str) -> Option<Condition> {
        let own = self.options.get(router);
        let others = self.hosts.iter().filter(|(options, _)| Some(*options) != own);
        let hosts: BTreeSet<Host> = others.flat_map(|(_, hosts)| hosts.iter().cloned()).collect();
        (!hosts.is_empty()).then(|| Test::Hosts(hosts).into())
    }
}

impl<'d> Traefik<'d> {
    pub(super) fn tls_plan(&mut self, entry_point: &EntryPoint<'d>, routers: &[&Router<'d>]) -> TlsPlan {
        let wanted = |router: &Router<'d>| {
            router.tls_options.or(entry_point.tls_options).map_or("default", plain_name)
        };
        let mut plan = TlsPlan {
            options: BTreeMap::new(),
            hosts: BTreeMap::new(),
            auth: ClientAuth::None,
            rules: Vec::new(),
        };
        for router in routers {
            let own = wanted(router);
            let is_shared =
                |host: &Host| routers.iter().any(|other| wanted(other) != own && other.sni.contains(host));
            let is_default = router.sni.is_empty() || router.sni.iter().any(is_shared);
            let options = if is_default { "default" } else { own };
            if options != own {
                let text = "Traefik takes the default options of TLS here: the rule names no host, or another router has \
                            other options for it";
                self.draft.head.push(router.item.note(text));
            }
            plan.options.insert(router.name.to_owned(), options.to_owned());
            if options != "default" {
                plan.hosts.entry(options.to_owned()).or_default().extend(router.sni.iter().cloned());
            }
        }
        let hosts_of = |hosts: &BTreeSet<Host>| Condition::from(Test::Hosts(hosts.clone()));
        let named: BTreeSet<Host> = plan.hosts.values().flatten().cloned().collect();
        let mut all = vec![(self.client_auth("default"), hosts_of(&named).not())];
        for (options, hosts) in &plan.hosts {
            all.push((self.client_auth(options), hosts_of(hosts)));
        }
        let place = entry_point.place.clone();
        let rule = |when, effect| Rule::new(when, effect, &place, "clientAuth");
        let files: BTreeSet<&String> = all.iter().filter_map(|(auth, _)| auth.file()).collect();
        let is_same = all.iter().all(|(auth, _)| *auth == all[0].0);
        plan.auth = match files.iter().next() {
            Some(_) if is_same => all[0].0.clone(),
            Some(file) if files.len() == 1 => ClientAuth::Optional((*file).clone()),
            _ => ClientAuth::None,
        };
        for (auth, when) in &all {
            match auth {
                ClientAuth::Inexpressible(text) => {
                    plan.rules.push(rule(when.clone(), Effect::Close(text.clone())));
                }
                ClientAuth::Required(_) if is_same => {}
                ClientAuth::Required(_) if files.len() == 1 => {
                    self.draft.settings.set("user", vec!["tls:subject"]);
                    plan.rules
                        .push(rule(when.clone(), Effect::Edit(Edit::Setting("require", "user".into()))));
                }
                ClientAuth::Required(_) => {
                    let text = "a listener has one `client_ca`: move these hosts to a listener of their own";
                    plan.rules.push(rule(when.clone(), Effect::Close(text.to_owned())));
                }
                ClientAuth::None | ClientAuth::Optional(_) => {}
            }
        }
        plan
    }

    pub(super) fn certificates(&mut self, tls: &Fields<'d>) {
        let mut found = Vec::new();
        for (name, item) in tls.fields("stores").each() {
            let fields = item.fields();
            let default = fields.fields("defaultCertificate");
            found.extend(default.text("certFile").zip(default.text("keyFile")));
            self.leftovers(&fields, &format!("tls.stores.{name}"));
        }
        for item in tls.items("certificates") {
            let fields = item.fields();
            found.extend(fields.text("certFile").zip(fields.text("keyFile")));
            fields.ignore(&["stores"]);
            self.leftovers(&fields, "tls.certificates");
        }
        for certificate in found {
            if !self.certificates.contains(&certificate) {
                self.certificates.push(certificate);
            }
        }
        for (name, item) in tls.fields("options").each() {
            let fields = item.fields();
            fields.ignore(&NEEDS_NOTHING);
            fields.ignore(&["clientAuth"]);
            if fields
                .text("minVersion")
                .is_some_and(|version| matches!(version, "VersionTLS10" | "VersionTLS11"))
            {
                self.draft.head.push(item.note("Tollgate speaks TLS 1.2 and 1.3, nothing older"));
            }
            self.leftovers(&fields, &format!("tls.options.{name}"));
        }
        self.leftovers(tls, "tls");
    }

    /// The certificates that these options ask clients for.
    pub(super) fn client_auth(&mut self, options: &str) -> ClientAuth {
        let Some(item) = self.tls_options.get(plain_name(options)).copied() else {
            return match options {
                "default" => ClientAuth::None,
                _ => ClientAuth::Inexpressible(format!("the TLS options `{options}` are not in this file")),
            };
        };
        let fields = item.fields().fields("clientAuth");
        let files = fields.texts("caFiles");
        let file = files.first().map(|file| match file.contains("-----BEGIN") {
            true => "client-ca.pem".to_owned(),
            false => (*file).to_owned(),
        });
        if files.len() > 1 || files.iter().any(|file| file.contains("-----BEGIN")) {
            let note = item.note("`caFiles`: `client_ca` is one file; join the certificates in it");
            if !self.draft.head.contains(&note) {
                self.draft.head.push(note);
            }
        }
        match (fields.text("clientAuthType"), file) {
            (None, None) | (Some("NoClientCert" | "RequestClientCert"), _) => ClientAuth::None,
            (Some("VerifyClientCertIfGiven"), Some(file)) => ClientAuth::Optional(file),
            (None | Some("RequireAndVerifyClientCert"), Some(file)) => ClientAuth::Required(file),
            (kind, _) => {
                let kind = kind.unwrap_or_default();
                ClientAuth::Inexpressible(format!(
                    "`{kind}`: Tollgate verifies every certificate that it asks for"
                ))
            }
        }
    }

    /// `tls` of a listener.
    pub(super) fn listener_tls(
        &self,
        routers: &[&Router<'d>],
        domains: &Domains,
        plan: &TlsPlan,
        comments: &mut Vec<Comment>,
    ) -> Map {
        let pair = |(cert, key): &(&str, &str)| Map::new().with("cert", *cert).with("key", *key);
        let mut certificates: Vec<Map> = self.certificates.iter().map(pair).collect();
        let is_covered = !certificates.is_empty();
        let is_fetched = |own: &Domains| own.has_resolver || domains.has_resolver || !is_covered;
        let names = routers.iter().filter(|router| is_fetched(&router.domains)).flat_map(|router| {
            let own = [router.domains.names.as_slice(), domains.names.as_slice()].concat();
            if own.is_empty() { router.hosts.clone() } else { own }
        });
        let mut names: BTreeSet<String> = names.map(|name| name.replace(['[', ']', ':'], "_")).collect();
        if names.is_empty() && !is_covered {
            names.insert("server".to_owned());
        }
        if !names.is_empty() {
            let text = "Tollgate fetches no certificates. Let certbot, lego or acme.sh write these files; they are read \
                        again when they change.";
            comments.push(Comment::Plain(text.to_owned()));
        }
        certificates.extend(names.iter().map(|name| {
            Map::new().with("cert", format!("certs/{name}.pem")).with("key", format!("certs/{name}.key"))
        }));
        let mut tls = Map::new().with("certificates", certificates);
        let is_1_3 = |name: &String| {
            let options = self.tls_options.get(plain_name(name));
            options.is_some_and(|item| item.fields().text("minVersion") == Some("VersionTLS13"))
        };
        if plan.options.values().any(is_1_3) {
            tls.set("min_version", "1.3");
        }
        match &plan.auth {
            ClientAuth::Required(file) => tls.set("client_ca", file.as_str()),
            ClientAuth::Optional(file) => {
                tls.set("client_ca", file.as_str());
                tls.set("client_auth", "optional");
            }
            ClientAuth::None | ClientAuth::Inexpressible(_) => {}
        }
        tls
    }
}
