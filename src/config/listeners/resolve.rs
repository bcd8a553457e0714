//! Makes the listeners and the admin port of their settings.

use std::net::{Ipv4Addr, SocketAddr};

use crate::config::{
    checks::unserved_listeners::DraftListener,
    listeners::{
        guessable_token,
        settings::{
            Admin, AdminSettings, DecisionService, Front, Hsts, HttpsRedirect, HttpsRedirectSettings,
            Listener, ListenerSettings, Secret, Serves, https,
        },
        tls::tls,
    },
    reader::{Cursor, MappingCursor},
    settings::{Read, Settings},
    value::{bearer_token, boolean, listen_address, network::ListenAddress, resource_name, socket_address},
};

/// The listeners, with facts for other sections.
pub(in crate::config) struct Listeners<'t> {
    pub(in crate::config) all: Vec<Listener>,
    /// Whether a listener requests certificates of clients.
    pub(in crate::config) has_client_certificates: bool,
    /// The listeners of the file, as routes refer to them, invalid ones included.
    pub(in crate::config) drafts: Vec<DraftListener<'t>>,
}

pub(in crate::config) fn listeners(value: Option<Cursor<'_>>, has_trusted_proxies: bool) -> Listeners<'_> {
    let Some(list) = value else {
        let all = vec![Listener::plain(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)))];
        return Listeners { all, has_client_certificates: false, drafts: Vec::new() };
    };
    let mut drafts: Vec<DraftListener<'_>> = Vec::new();
    let mut listeners: Vec<Listener> = Vec::new();
    let mut has_client_certificates = false;
    let mut redirected_hsts = None;
    if let Some(port) = list.scalar().filter(|text| text.parse::<u16>().is_ok()) {
        let help = format!("write `listeners: [{{ address: 0.0.0.0:{port} }}]`");
        list.report("expected a list, not a single value", help);
    }
    let items = match list.scalar() {
        Some(text) if text.parse::<u16>().is_ok() => None,
        _ => list.list(),
    };
    if items.as_ref().is_some_and(Vec::is_empty) {
        list.report("no listener is configured, so nothing would be served", None);
    }
    for item in items.unwrap_or_default() {
        let line = match item.scalar() {
            Some(port) if port.parse::<u16>().is_ok() => "{ address: 0.0.0.0:VALUE }",
            _ => "{ address: VALUE }",
        };
        let Some(mapping) = item.mapping_such_as(line) else { continue };
        report_taken_name(item, &drafts);
        drafts.push(DraftListener::new(item));
        let mut mapping = mapping.of(ListenerSettings::mapping());
        let Some(written) = ListenerSettings::fields(&mut mapping) else { continue };
        report_socket_access(&mapping, written.address);
        let ListenerSettings { address: value, http2, max_body, mode, owner, group, serves, .. } = written;
        let name = written.name.and_then(|value| value.parse(resource_name));
        let has_proxy_protocol =
            written.proxy_protocol.is_some_and(|value| proxy_protocol(value, has_trusted_proxies));
        let redirect = written.redirect.map(|value| (value, redirect(value)));
        let tls = written.tls.map(tls);
        // An invalid value was reported. Do not report settings that depend on it as well.
        has_client_certificates |=
            tls.as_ref().is_some_and(|tls| tls.as_ref().is_none_or(|(tls, _)| tls.client_auth.is_some()));
        report_unasked(&mapping, serves, written.front);
        if serves == Serves::Decisions {
            check_decisions(&mapping, has_trusted_proxies);
        }
        mapping.finish();
        let ListenerSettings { front, path_prefix, .. } = written;
        let decisions = (serves == Serves::Decisions).then_some(DecisionService { front, path_prefix });
        if let Some(draft) = drafts.last_mut() {
            draft.decides = decisions.is_some();
            draft.is_redirecting = redirect.is_some();
            draft.certified = tls.as_ref().and_then(Option::as_ref).map(|(_, names)| names.clone());
        }
        if let (Some((value, _)), Some(_)) = (&redirect, &tls) {
            value.report("this listener already serves https, so it would redirect to itself", None);
        }
        let mut addresses = value.map(|value| addresses(value, &listeners)).unwrap_or_default();
        for address in &mut addresses {
            if let ListenAddress::Unix(socket) = address {
                (socket.mode, socket.owner, socket.group) = (mode, owner.clone(), group.clone());
            }
        }
        let redirect = redirect.and_then(|(_, redirect)| redirect);
        if let Some((_, Some(hsts))) = &redirect {
            redirected_hsts = Some((hsts.clone(), value));
        }
        let (redirect, tls) = (redirect.map(|(redirect, _)| redirect), tls.flatten().map(|(tls, _)| tls));
        listeners.push(Listener {
            name,
            addresses,
            has_proxy_protocol,
            redirect,
            tls,
            http2,
            max_body,
            decisions,
        });
    }
    // Browsers accept the field over TLS only (RFC 6797, 7.2), so the target listeners of the redirect send it.
    for tls in listeners.iter_mut().filter_map(|listener| listener.tls.as_mut()) {
        tls.hsts = tls.hsts.take().or_else(|| Some(redirected_hsts.as_ref()?.0.clone()));
    }
    let has_tls = listeners.iter().any(|listener| listener.tls.is_some());
    if let Some((_, Some(listener))) = redirected_hsts.filter(|_| !has_tls) {
        let help = "set it where TLS ends, or on the routes: `response_headers: { set: { strict-transport-security: max-age=31536000 } }`";
        listener.warn(
            "`hsts` does nothing here: browsers heed it over TLS only, and no listener has `tls`",
            help.to_owned(),
        );
    }
    Listeners { all: listeners, has_client_certificates, drafts }
}

/// Reports the name of the listener at `item` if another one before it has the name.
fn report_taken_name(item: Cursor<'_>, others: &[DraftListener<'_>]) {
    let Some((value, name)) = item.entry("name").and_then(|value| Some((value, value.interpolated()?)))
    else {
        return;
    };
    if let Some(other) = others.iter().find(|other| other.name.as_ref() == Some(&name)) {
        let line = other.cursor.location().line;
        let help = format!(
            "the listener in line {line} already has it; names must be unique, since routes refer to listeners by them"
        );
        value.report(format!("the name `{}` is taken", value.scalar().unwrap_or_default()), help);
    }
}

/// Reports `mode`, `owner` and `group` of an address that is not a Unix socket.
fn report_socket_access(mapping: &MappingCursor<'_>, address: Option<Cursor<'_>>) {
    let is_unix = |value: Cursor<'_>| value.interpolated().is_none_or(|text| text.starts_with("unix:"));
    for key in ["mode", "owner", "group"] {
        if let Some(location) =
            mapping.key_location(key).filter(|_| address.is_some_and(|value| !is_unix(value)))
        {
            let help = "remove it, or listen on unix:/path".to_owned();
            mapping.report_at(location, format!("`{key}` is only for Unix sockets"), help);
        }
    }
}

/// Reports what keeps a listener for decisions from being asked.
fn check_decisions(mapping: &MappingCursor<'_>, has_trusted_proxies: bool) {
    let Some(serves) = mapping.peek("serves") else { return };
    if !has_trusted_proxies {
        let help =
            "add the addresses of the proxy that asks to `trusted_proxies`, or `unix` for a Unix socket";
        serves.report("only trusted proxies may ask for decisions, and none is configured", help.to_owned());
    }
    for key in ["redirect", "proxy_protocol", "max_body"] {
        if let Some(location) = mapping.key_location(key) {
            let help = "remove it: the proxy that asks has its own".to_owned();
            mapping.report_at(location, format!("`{key}` does nothing where decisions are served"), help);
        }
    }
    let asks_by_http = mapping
        .peek("front")
        .is_some_and(|front| front.scalar() != Some("envoy") || mapping.peek("path_prefix").is_some());
    if !asks_by_http
        && let Some(http2) = mapping.peek("http2").filter(|http2| http2.scalar() == Some("false"))
    {
        let help = "remove it, or write which proxy asks by HTTP: `front: nginx`, `ingress-nginx`, `traefik`, `caddy`, or `envoy` with \
                    `path_prefix`";
        http2.report("gRPC needs HTTP/2", help.to_owned());
    }
}

/// Reports `front` and `path_prefix` where they do nothing.
fn report_unasked(mapping: &MappingCursor<'_>, serves: Serves, front: Option<Front>) {
    if let Some(location) = mapping.key_location("front").filter(|_| serves == Serves::Proxying) {
        let help = "add `serves: decisions`, or remove it".to_owned();
        mapping.report_at(location, "`front` is only for listeners that serve decisions", help);
    }
    if let Some(location) = mapping.key_location("path_prefix").filter(|_| front != Some(Front::Envoy)) {
        let help = "add `front: envoy`, or remove it".to_owned();
        mapping.report_at(location, "`path_prefix` is only for Envoy's questions by HTTP", help);
    }
}

/// One address or a list. An address of another listener is an error.
fn addresses(value: Cursor<'_>, others: &[Listener]) -> Vec<ListenAddress> {
    let items = match value.scalar() {
        Some(_) => vec![value],
        None if value.is_empty_list() => {
            value.report("this list is empty", "such as [0.0.0.0:8080, \"[::]:8080\"]".to_owned());
            return Vec::new();
        }
        None => value.list().unwrap_or_default(),
    };
    let mut addresses: Vec<ListenAddress> = Vec::new();
    for item in items {
        let Some(address) = item.parse(listen_address) else { continue };
        if let ListenAddress::Unix(socket) = &address {
            item.warn_without_directory(&socket.path);
        }
        let of_others = others.iter().flat_map(|other| &other.addresses);
        if let Some(other) = of_others.clone().find(|other| other.overlaps(&address)) {
            item.report("another listener already uses this address", all_of(other, &address));
        } else if let Some(other) = addresses.iter().find(|other| other.overlaps(&address)) {
            item.report("this address is in the list twice", all_of(other, &address));
        }
        addresses.push(address);
    }
    addresses
}

/// Explains which of two overlapping addresses includes the other. `None`: they are the same.
fn all_of(one: &ListenAddress, other: &ListenAddress) -> Option<String> {
    let is_any = |address: &&ListenAddress| matches!(address, ListenAddress::Tcp(address) if address.ip().is_unspecified());
    let all = [one, other].into_iter().find(is_any).filter(|_| !one.is_same_address(other))?;
    Some(format!("{all} stands for all addresses of the machine"))
}

fn proxy_protocol(value: Cursor<'_>, has_trusted_proxies: bool) -> bool {
    let is_on = value.parse(boolean).unwrap_or(false);
    if is_on && !has_trusted_proxies {
        let help = "add the load balancer's addresses to `trusted_proxies`".to_owned();
        value.report("only trusted proxies may send a PROXY header, and none is configured", help);
    }
    is_on
}

/// `https`, or its settings.
fn redirect(value: Cursor<'_>) -> Option<(HttpsRedirect, Option<Hsts>)> {
    if value.scalar().is_some() {
        value.parse(https)?;
        return Some((HttpsRedirect { port: 443 }, None));
    }
    let HttpsRedirectSettings { to: (), port, hsts } = HttpsRedirectSettings::read(value)?;
    Some((HttpsRedirect { port }, hsts))
}
pub(in crate::config) fn admin(root: &mut MappingCursor<'_>, listeners: &[Listener]) -> Admin {
    let default = SocketAddr::from((Ipv4Addr::LOCALHOST, 9900));
    let value = root.take("admin");
    let of_listeners = listeners.iter().flat_map(|listener| &listener.addresses);
    let listener_at = |address: &ListenAddress| of_listeners.clone().find(|other| other.overlaps(address));
    if value.is_none() && listener_at(&ListenAddress::Tcp(default)).is_some() {
        let help = "set `admin: { address: 127.0.0.1:9901 }`, or another address".to_owned();
        root.report(format!("a listener already uses {default}, where the admin port is by default"), help);
    }
    let mapping = value.and_then(|value| {
        let line = match value.scalar() {
            Some(port) if port.parse::<u16>().is_ok() => "admin: { address: 127.0.0.1:VALUE }",
            _ => "admin: { address: VALUE }",
        };
        Some((value, value.mapping_such_as(line)?.of(AdminSettings::mapping())))
    });
    let Some((value, mut mapping)) = mapping else {
        return Admin { address: default, token: None };
    };
    let written = AdminSettings::fields(&mut mapping);
    let (address_value, token_value) =
        written.map_or((None, None), |written| (written.address, written.token));
    let address = address_value.and_then(|value| value.parse(socket_address)).unwrap_or(default);
    let token = token_value.map(|value| {
        let token = value.parse_secret(bearer_token)?;
        // Only `${NAME:-}` allows an empty token.
        if token.is_none() && (value.is_inserted() || value.scalar().is_some_and(str::is_empty)) {
            let help = "set one, or remove this line; ${NAME:-} stands for a token that may be missing";
            value.report("this token is empty: the admin port would have no token", help.to_owned());
            return None;
        }
        Some(token)
    });
    // An invalid token was reported. Do not report it as missing as well.
    let missing = matches!(token, None | Some(Some(None)));
    mapping.finish();
    let address_or_admin = address_value.unwrap_or(value);
    if missing && !address.ip().is_loopback() {
        let help = "set `token`, or listen on 127.0.0.1".to_owned();
        address_or_admin.report("an admin port that is reachable from other machines needs a token", help);
    }
    let own = ListenAddress::Tcp(address);
    if let Some(other) = listener_at(&own) {
        address_or_admin.report("a listener already uses this address", all_of(other, &own));
    }
    if let (Some(value), Some(Some(Some(token)))) = (token_value, &token) {
        guessable_token::warn(value, token);
    }
    Admin { address, token: token.flatten().flatten().map(Secret::new) }
}
