//! `bind`: listeners.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    num::NonZeroU16,
    path::Path,
};

use super::{
    source::{Bound, HaproxyConfig},
    syntax::{ConfigLine, Section},
    words::{self, WordMeaning},
};
use crate::offline::convert::{
    draft::{ConfigDraft, resource_name},
    site::SiteListener,
    yaml::{Map, YamlNode},
};

/// Opens the listeners of all sections that are proxies of HTTP.
pub(super) fn open<'c>(source: &mut HaproxyConfig<'c>, draft: &mut ConfigDraft) {
    let mut taken = BTreeSet::new();
    for section in source.sections {
        let lines = source.lines(section);
        if super::is_served(section, &lines).is_err() {
            continue;
        }
        let binds: Vec<&ConfigLine> = lines.into_iter().filter(|line| line.word(0) == "bind").collect();
        let is_only = binds.len() == 1 && !binds[0].word(1).contains(',');
        for line in binds {
            if let Err(text) = bind(source, draft, section, line, is_only, &mut taken) {
                draft.head.push(line.note(format!("{text}. This listener is not opened")));
            }
        }
    }
}

/// Opens the listeners of a line. `is_only`: the section has no others.
///
/// # Errors
/// Why none is opened.
fn bind<'c>(
    source: &mut HaproxyConfig<'c>,
    draft: &mut ConfigDraft,
    section: &'c Section,
    line: &'c ConfigLine,
    is_only: bool,
    taken: &mut BTreeSet<SocketAddr>,
) -> Result<(), String> {
    if line.is_in_doubt {
        return Err("the environment of HAProxy decides about it".to_owned());
    }
    let (settings, notes) = options(source, line)?;
    for text in line.word(1).split(',') {
        let mut free = addresses(text, line.has("v6only")).ok_or("write an IP address and a port")?;
        free.retain(|address| taken.iter().all(|known| !meet(*known, *address)));
        taken.extend(free.iter().copied());
        let port = free.first().ok_or_else(|| format!("another line has the address {text}"))?.port();
        let own = if is_only { section.name().to_owned() } else { format!("{}-{port}", section.name()) };
        let name = resource_name(&own, |name| source.listeners.iter().any(|bound| bound.name == name));
        let written: Vec<String> = free.iter().map(SocketAddr::to_string).collect();
        let address =
            if written.len() == 1 { YamlNode::from(written.concat()) } else { YamlNode::from(written) };
        let mut map = Map::new().with("address", address);
        settings.iter().for_each(|(key, node)| map.set(key, node.clone()));
        let comments = notes.iter().map(|text| line.note(text)).collect();
        draft.listeners.push(SiteListener { name: name.clone(), settings: map, comments });
        source.listeners.push(Bound { section, name, port, is_tls: line.has("ssl") });
    }
    Ok(())
}

/// The settings of a listener, and the notes on it.
fn options(source: &HaproxyConfig<'_>, line: &ConfigLine) -> Result<(Map, Vec<String>), String> {
    let (mut map, mut notes) = (Map::new(), Vec::new());
    let words: Vec<&str> = line.words.iter().skip(2).map(String::as_str).collect();
    for (word, value, class) in words::options("bind", &words) {
        match (word, class) {
            ("ssl-min-ver", _) if matches!(value, "TLSv1.2" | "TLSv1.3") => {}
            ("accept-proxy", _) => {
                map.set("proxy_protocol", true);
                notes.push("list the load balancers in `trusted_proxies`: others are refused".to_owned());
            }
            (_, WordMeaning::Noted(text)) => notes.push(text.to_owned()),
            (_, WordMeaning::Unknown) => return Err(format!("Tollgate has no equal of `{word}`")),
            _ => {}
        }
    }
    if line.has("ssl") {
        map.set("tls", tls(source, line, &mut notes)?);
    }
    Ok((map, notes))
}

fn tls(source: &HaproxyConfig<'_>, line: &ConfigLine, notes: &mut Vec<String>) -> Result<Map, String> {
    let pairs = line.words.iter().zip(line.words.iter().skip(1));
    let named = pairs.filter(|(word, _)| *word == "crt").map(|(_, name)| source.file(name, Some("crt-base")));
    let mut files: Vec<String> = named.map(|path| path.display().to_string()).collect();
    if files.is_empty() || files.iter().any(|file| file.ends_with('/') || Path::new(file).is_dir()) {
        notes.push("name each certificate of the folder or list".to_owned());
        files = vec![source.file("CERTIFICATE.pem", Some("crt-base")).display().to_string()];
    }
    let pair = |file: String| Map::new().with("cert", file.as_str()).with("key", file);
    let mut tls = Map::new().with("certificates", files.into_iter().map(pair).collect::<Vec<_>>());
    let oldest = source.global("ssl-default-bind-options");
    let is_newest = |line: &ConfigLine| {
        line.after("ssl-min-ver") == Some("TLSv1.3") || line.has("force-tlsv13") || line.has("no-tlsv12")
    };
    if is_newest(line) || oldest.is_some_and(is_newest) {
        tls.set("min_version", "1.3");
    }
    if let Some(verify) = line.after("verify").filter(|verify| *verify != "none") {
        let ca = line.after("ca-file").filter(|ca| !ca.starts_with('@'));
        // A listener without it would take clients that HAProxy refuses.
        let ca = ca.ok_or("it asks clients for certificates: write it with `client_ca`")?;
        tls.set("client_ca", source.file(ca, Some("ca-base")).display().to_string());
        tls.extend_some("client_auth", Some(verify).filter(|verify| *verify == "optional"));
    }
    Ok(tls)
}

/// Whether one socket would take the connections of the other.
fn meet(one: SocketAddr, other: SocketAddr) -> bool {
    let is_wide = one.ip().is_unspecified() || other.ip().is_unspecified();
    one == other || one.port() == other.port() && one.is_ipv4() == other.is_ipv4() && is_wide
}

/// The addresses of a `bind`. They have one port.
fn addresses(text: &str, is_v6_only: bool) -> Option<Vec<SocketAddr>> {
    let (host, port) = text.trim_start_matches("ipv4@").trim_start_matches("ipv6@").rsplit_once(':')?;
    let port = port.parse::<NonZeroU16>().ok()?.get();
    let ip: IpAddr = match host.trim_matches(['[', ']']) {
        "" | "*" => Ipv4Addr::UNSPECIFIED.into(),
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        host => host.parse().ok()?,
    };
    // Linux opens it for IPv4, too.
    let is_for_both = ip == Ipv6Addr::UNSPECIFIED && !is_v6_only;
    let v4 = is_for_both.then_some(IpAddr::from(Ipv4Addr::UNSPECIFIED));
    Some(v4.into_iter().chain([ip]).map(|ip| SocketAddr::new(ip, port)).collect())
}
