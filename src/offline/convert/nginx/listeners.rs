//! `listen` and `ssl_…`: listeners.

use super::{NginxReader, noted, servers::ServerBlock, syntax::Directive, unconverted, values::has_variable};
use crate::offline::convert::{
    draft::resource_name,
    site::SiteListener,
    yaml::{Comment, Map, YamlNode},
};

/// An address that is listened on.
#[derive(Debug, Clone)]
pub(super) struct Listen {
    pub(super) name: String,
    /// As Tollgate writes it: `0.0.0.0:80`, `[::]:80`, `unix:/run/nginx.sock`.
    pub(super) address: String,
    pub(super) is_tls: bool,
    is_proxy_protocol: bool,
}

impl Listen {
    pub(super) fn port(&self) -> &str {
        self.address.rsplit_once(':').map_or("", |(_, port)| port)
    }

    /// The address without its port.
    pub(super) fn host(&self) -> &str {
        self.address.rsplit_once(':').map_or("", |(host, _)| host)
    }

    /// Whether this is one of the addresses that `other` stands for.
    pub(super) fn is_part_of(&self, other: &Self) -> bool {
        let all = if self.host().starts_with('[') { "[::]" } else { "0.0.0.0" };
        other.host() == all && self.host() != all && self.port() == other.port()
    }
}

/// The addresses of a `listen`.
fn addresses(listen: &Directive) -> Result<Vec<String>, String> {
    let text = listen.argument(0);
    let has = |word: &str| listen.arguments.iter().skip(1).any(|argument| argument == word);
    if has("quic") {
        return Err("Tollgate has no HTTP/3".to_owned());
    }
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(vec![format!("unix:{path}")]);
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ if text.chars().all(|c| c.is_ascii_digit()) && !text.is_empty() => ("*", text),
        _ => (text, "80"),
    };
    if !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err("its port cannot be read".to_owned());
    }
    match host {
        "*" => Ok(vec![format!("0.0.0.0:{port}")]),
        "[::]" if has("ipv6only=off") => Ok(vec![format!("[::]:{port}"), format!("0.0.0.0:{port}")]),
        "localhost" => Ok(vec![format!("127.0.0.1:{port}")]),
        host if host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok() => {
            Ok(vec![format!("{host}:{port}")])
        }
        _ => Err("listen on an IP address".to_owned()),
    }
}

impl<'d> NginxReader<'d> {
    /// Reads the addresses of a server. Each with whether the server is the default there.
    pub(super) fn read_listens(&mut self, server: &mut ServerBlock<'d>) {
        let listens: Vec<_> = server.named("listen").collect();
        let is_tls = server.named("ssl").any(|ssl| ssl.argument(0) == "on");
        if listens.is_empty() {
            self.listen("0.0.0.0:80", is_tls, false);
            server.listens.push(("0.0.0.0:80".to_owned(), false));
        }
        for listen in listens {
            let has =
                |words: &[&str]| listen.arguments.iter().skip(1).any(|one| words.contains(&one.as_str()));
            match addresses(listen) {
                Ok(addresses) => {
                    for address in addresses {
                        self.listen(&address, is_tls || has(&["ssl"]), has(&["proxy_protocol"]));
                        server.listens.push((address, has(&["default_server", "default"])));
                    }
                }
                Err(reason) => self.head(listen, &reason),
            }
        }
    }

    fn listen(&mut self, address: &str, is_tls: bool, is_proxy_protocol: bool) {
        if let Some(known) = self.listens.iter_mut().find(|known| known.address == address) {
            known.is_tls |= is_tls;
            known.is_proxy_protocol |= is_proxy_protocol;
            return;
        }
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        let name = match host {
            "0.0.0.0" => port.to_owned(),
            "[::]" => format!("ipv6-{port}"),
            _ => address.replace([':', '/', '[', ']'], "-"),
        };
        let is_taken = |name: &str| self.listens.iter().any(|listen| listen.name == name);
        let name = resource_name(&name, is_taken);
        self.listens.push(Listen { name, address: address.to_owned(), is_tls, is_proxy_protocol });
    }

    /// Writes the listeners. Those that cannot be opened are left out.
    pub(super) fn write_listeners(&mut self, servers: &mut [ServerBlock<'d>]) {
        for listen in self.listens.clone() {
            let mut order: Vec<usize> =
                (0..servers.len()).filter(|nth| servers[*nth].is_on(&listen.address)).collect();
            // The default comes first: it serves clients without SNI.
            order.sort_by_key(|nth| !servers[*nth].is_default_on(&listen.address));
            let on: Vec<&ServerBlock<'d>> = order.iter().map(|nth| &servers[*nth]).collect();
            let mut settings = Map::new().with("address", listen.address.as_str());
            let (mut comments, mut closed) = (Vec::new(), Vec::new());
            if listen.is_proxy_protocol && self.draft.settings.has("trusted_proxies") {
                settings.set("proxy_protocol", true);
            } else if listen.is_proxy_protocol {
                let text = "`proxy_protocol`: name the proxies in front in `trusted_proxies`, and set `proxy_protocol: true`";
                comments.push(unconverted(&on[0].place, text));
            }
            if listen.is_tls {
                let Some(mut tls) = self.tls(&on, &mut comments) else {
                    let text =
                        format!("`{}`: no certificate is named: nothing listens there", listen.address);
                    self.draft.head.push(unconverted(&on[0].place, text));
                    self.listens.retain(|known| known.name != listen.name);
                    continue;
                };
                closed = self.client_auth(&on, &mut tls, &mut comments);
                settings.set("tls", tls);
            }
            for (nth, verify, text) in closed {
                servers[order[nth]].closed.push((verify, listen.name.clone(), text));
            }
            if !self.listens.iter().any(|other| listen.is_part_of(other)) {
                self.draft.listeners.push(SiteListener { name: listen.name, settings, comments });
            }
        }
    }

    /// `tls` of a listener. `None`: there is no certificate.
    fn tls(&self, servers: &[&ServerBlock<'d>], comments: &mut Vec<Comment>) -> Option<Map> {
        let mut certificates: Vec<YamlNode> = Vec::new();
        for server in servers {
            let [certs, keys] =
                ["ssl_certificate", "ssl_certificate_key"].map(|name| server.scope.all(&[name]));
            for (cert, key) in certs.into_iter().zip(keys) {
                if has_variable(cert.argument(0)) || has_variable(key.argument(0)) {
                    comments.push(noted(cert, "name each certificate"));
                    continue;
                }
                let [cert, key] = [cert, key].map(|file| self.file(file.argument(0)));
                let node = YamlNode::from(Map::new().with("cert", cert).with("key", key));
                if !certificates.contains(&node) {
                    certificates.push(node);
                }
            }
        }
        let protocols: Vec<_> =
            servers.iter().filter_map(|server| server.scope.last("ssl_protocols")).collect();
        let is_old = |word: &String| matches!(word.as_str(), "SSLv2" | "SSLv3" | "TLSv1" | "TLSv1.1");
        let old = protocols.iter().find(|protocols| protocols.arguments.iter().any(is_old));
        comments.extend(old.map(|old| noted(old, "Tollgate has TLS 1.2 and 1.3")));
        let mut tls = (!certificates.is_empty()).then(|| Map::new().with("certificates", certificates))?;
        if protocols.iter().any(|protocols| protocols.arguments == ["TLSv1.3"]) {
            tls.set("min_version", "1.3");
        }
        Some(tls)
    }

    /// Whether clients need a certificate, which is one setting for all servers of a listener. Returns the servers for
    /// which it would not hold.
    fn client_auth(
        &self,
        servers: &[&ServerBlock<'d>],
        tls: &mut Map,
        comments: &mut Vec<Comment>,
    ) -> Vec<(usize, &'d Directive, &'static str)> {
        const OTHERS: &str = "a listener of Tollgate asks all of its clients for the same certificates, or none: give this \
                              server a listener of its own";
        let named = |server: &&ServerBlock<'d>, name: &str| {
            server.scope.last(name).filter(|directive| directive.argument(0) != "off")
        };
        let asks: Vec<_> = servers.iter().map(|server| named(server, "ssl_verify_client")).collect();
        let ca = |server: &&ServerBlock<'d>| {
            named(server, "ssl_client_certificate").map(|ca| self.file(ca.argument(0)))
        };
        let mut files =
            servers.iter().zip(&asks).filter(|(_, asks)| asks.is_some()).map(|(server, _)| ca(server));
        let first = files.next().flatten();
        let is_asked = |(server, asks): (&&ServerBlock<'d>, &Option<_>)| asks.is_some() || server.rejects();
        let is_one = files.all(|file| file == first) && servers.iter().zip(&asks).all(is_asked);
        let is_strict = asks.iter().flatten().all(|verify| verify.argument(0) == "on");
        if let (true, Some(file)) = (is_one, first) {
            tls.set("client_ca", file);
            if !is_strict {
                tls.set("client_auth", "optional");
            }
        }
        let mut closed = Vec::new();
        for (nth, server) in servers.iter().enumerate() {
            let Some(verify) = asks[nth] else { continue };
            let is_revoked = named(server, "ssl_crl").or(named(server, "ssl_ocsp")).is_some();
            let text = match (verify.argument(0), ca(server)) {
                _ if is_revoked => "Tollgate checks no revocation lists",
                ("on" | "optional", None) => "Tollgate needs the authorities of `ssl_client_certificate`",
                ("on", _) if is_one && is_strict => continue,
                ("on", _) => OTHERS,
                ("optional", _) if is_one => continue,
                ("optional", _) => {
                    comments.push(noted(verify, OTHERS));
                    continue;
                }
                _ => "Tollgate verifies each certificate that it asks for",
            };
            closed.push((nth, verify, text));
        }
        closed
    }
}
