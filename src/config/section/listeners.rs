//! `listeners` and `admin`: the sockets that Tollgate opens.

use std::net::{Ipv4Addr, SocketAddr};

use tollgate_derive::Settings;

use super::{
    guessable_token,
    tls::{ListenerTlsSettings, tls},
};
use crate::config::{
    checks::unserved_listeners::DraftListener,
    model::{Admin, Hsts, HttpsRedirect, ListenAddress, Listener, Secret},
    reader::{Cursor, MappingCursor},
    settings::{Read, Settings},
    value::{
        Invalid, bearer_token, body_size, boolean, choice, file_mode, listen_address, printable_text,
        resource_name, socket_address,
    },
};

/// The listeners, with facts for other sections.
pub(super) struct Listeners<'t> {
    pub(super) all: Vec<Listener>,
    /// Whether a listener requests certificates of clients.
    pub(super) has_client_certificates: bool,
    /// Those of the file, as routes refer to them. Also those that are invalid.
    pub(super) drafts: Vec<DraftListener<'t>>,
}

/// One or more addresses on which clients are served in the same way.
#[derive(Settings)]
#[settings(written, page = "connections.md", foreign = "listeners[]", sample = "address: 127.0.0.1:8090")]
pub(in crate::config) struct ListenerSettings<'t> {
    /// The address to listen on, or a list of them.
    #[setting(either(text = LISTEN, list(text = LISTEN, SomeUnique)), example = "[0.0.0.0:8080, \"[::]:8080\"]")]
    #[setting(missing = "such as `address: 127.0.0.1:8080`")]
    address: Option<Cursor<'t>>,
    /// The name by which routes refer to the listener.
    #[setting(text = RESOURCE, unset = "it has none", example = "internal", see = ["routes[].listeners"])]
    name: Option<Cursor<'t>>,
    /// The permissions of a Unix socket.
    #[setting(text = FILE_MODE, parse = file_mode, unset = "depends on the umask", example = "\"0660\"")]
    #[setting(beside = "address: \"unix:/run/tollgate.sock\"")]
    mode: Option<u32>,
    /// The owner of a Unix socket, by name or number.
    #[setting(text = NAME, parse = printable_text, unset = "the user that Tollgate runs as", example = "tollgate")]
    #[setting(beside = "address: \"unix:/run/tollgate.sock\"")]
    owner: Option<String>,
    /// The group of a Unix socket, by name or number.
    #[setting(text = NAME, parse = printable_text, unset = "the group that Tollgate runs as", example = "www-data")]
    #[setting(beside = "address: \"unix:/run/tollgate.sock\"")]
    group: Option<String>,
    /// Redirects every request to the same URL with https, with status 308. A request that a trusted proxy sends with
    /// `X-Forwarded-Proto: https` is served instead.
    #[setting(
        either(word("https"), mapping(HttpsRedirectSettings)),
        unset = "no redirect",
        example = "https"
    )]
    #[setting(see = ["listeners[].tls"])]
    redirect: Option<Cursor<'t>>,
    /// Whether connections begin with a header of the PROXY protocol, version 1 or 2. Connections that do not come from
    /// `trusted_proxies` are then closed.
    #[setting(boolean, default = "false", example = "true", see = ["trusted_proxies"])]
    proxy_protocol: Option<Cursor<'t>>,
    /// Serves clients over TLS.
    #[setting(mapping(ListenerTlsSettings), unset = "clear text")]
    #[setting(example = "{ certificates: [{ cert: api.pem, key: api.key }] }")]
    tls: Option<Cursor<'t>>,
    /// Whether clients may use HTTP/2: over TLS, negotiated by ALPN; in clear text, with prior knowledge.
    #[setting(default = "true", example = "false", see = ["client_limits.h2_streams"])]
    http2: bool,
    /// The longest request body on this listener; a longer one gets 413. `0` allows any length.
    #[setting(size = "0..=1024TiB", parse = body_size, unset = "`client_limits.max_body`", example = "10MiB")]
    #[setting(see = ["routes[].max_body", "client_limits.max_body"])]
    max_body: Option<usize>,
}

pub(super) fn listeners(value: Option<Cursor<'_>>, has_trusted_proxies: bool) -> Listeners<'_> {
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
        let ListenerSettings { address: value, http2, max_body, mode, owner, group, .. } = written;
        let name = written.name.and_then(|value| value.parse(resource_name));
        let has_proxy_protocol =
            written.proxy_protocol.is_some_and(|value| proxy_protocol(value, has_trusted_proxies));
        let redirect = written.redirect.map(|value| (value, redirect(value)));
        let tls = written.tls.map(tls);
        // An invalid value was reported. Do not report settings that depend on it as well.
        has_client_certificates |=
            tls.as_ref().is_some_and(|tls| tls.as_ref().is_none_or(|(tls, _)| tls.client_auth.is_some()));
        mapping.finish();
        if let Some(draft) = drafts.last_mut() {
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
        listeners.push(Listener { name, addresses, has_proxy_protocol, redirect, tls, http2, max_body });
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

/// The redirect to https.
#[derive(Settings)]
#[settings(written, page = "connections.md", sample = "to: https")]
struct HttpsRedirectSettings {
    /// The scheme that clients are sent to.
    #[setting(word("https"), parse = https, missing = "write `to: https`", example = "https")]
    to: (),
    /// The port at which clients reach the https listener.
    #[setting(count = "1..=65535", default = "443", example = "8443")]
    port: u16,
    /// Sends `Strict-Transport-Security` on all TLS listeners that have no `hsts` of their own.
    #[setting(of(Hsts), read = Hsts::of, unset = "no such header", example = "365d")]
    #[setting(see = ["listeners[].tls.hsts"])]
    hsts: Option<Hsts>,
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

fn https(text: &str) -> Result<(), Invalid> {
    choice(&[("https", ())])(text)
}

/// The admin port.
#[derive(Settings)]
#[settings(written, page = "admin.md", foreign = "admin")]
pub(in crate::config) struct AdminSettings<'t> {
    /// The address to listen on.
    #[setting(text = ADDRESS_AND_PORT, default = "127.0.0.1:9900", example = "0.0.0.0:9900")]
    #[setting(beside = "token: \"9c1185a5c5e9fc54612808977ee8f548b2258d31\"", see = ["admin.token"])]
    address: Option<Cursor<'t>>,
    /// The bearer token that every request to the admin port needs. It is required unless the address is loopback. An
    /// empty one is an error, unless it is the fallback of `${NAME:-}`.
    #[setting(text = BEARER, unset = "no token is needed", example = "\"${TOLLGATE_ADMIN_TOKEN:-}\"")]
    token: Option<Cursor<'t>>,
}
pub(super) fn admin(root: &mut MappingCursor<'_>, listeners: &[Listener]) -> Admin {
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
