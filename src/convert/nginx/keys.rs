//! What a zone counts by: a key of Tollgate, made of variables, `map` and `geo`.

use std::collections::HashMap;

use super::{
    syntax::Directive,
    values::{Part, parts},
};
use crate::convert::covers;

/// How many `map` may lead to one another.
const DEEPEST: usize = 8;

/// A `map` or a `geo`.
#[derive(Debug)]
pub(super) struct Table<'d> {
    /// The text that is looked up; `$remote_addr` for a `geo` that names none.
    source: String,
    is_geo: bool,
    directive: &'d Directive,
}

/// All `map` and `geo`, by the name of their variable.
#[derive(Debug, Default)]
pub(super) struct Tables<'d>(HashMap<&'d str, Table<'d>>);

/// What requests are counted by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Key {
    /// A key of a policy. `None`: the key is empty, so nothing is limited.
    pub(super) key: Option<String>,
    /// Networks for which the key is empty.
    pub(super) exempt: Vec<String>,
    /// The only methods that are limited; empty for all.
    pub(super) methods: Vec<String>,
    /// What has no equal.
    pub(super) notes: Vec<String>,
}

impl<'d> Tables<'d> {
    /// Adds a `map` or a `geo`.
    pub(super) fn add(&mut self, directive: &'d Directive) {
        let is_geo = directive.name == "geo";
        let (source, variable) = match directive.arguments.as_slice() {
            [variable] if is_geo => ("$remote_addr".to_owned(), variable),
            [source, variable] => (source.clone(), variable),
            _ => return,
        };
        self.0.insert(variable.trim_start_matches('$'), Table { source, is_geo, directive });
    }

    /// The key for a text with variables.
    ///
    /// # Errors
    /// Why Tollgate cannot count by it.
    pub(super) fn key(&self, text: &str) -> Result<Key, String> {
        self.key_at(text, 0)
    }

    fn key_at(&self, text: &str, depth: usize) -> Result<Key, String> {
        if depth > DEEPEST {
            return Err("its maps lead to one another without end".to_owned());
        }
        let parts = parts(text);
        if let [Part::Variable(name)] = parts.as_slice()
            && let Some(table) = self.0.get(name.as_str())
        {
            return match table.is_geo {
                true => Err(format!("`${name}` is a constant for each network, not a key")),
                false => self.key_of_map(table, depth),
            };
        }
        let mut key = Key::default();
        let mut words: Vec<String> = Vec::new();
        for part in &parts {
            let Part::Variable(name) = part else { continue };
            if self.0.contains_key(name.as_str()) {
                return Err(format!("Tollgate has no key for `${name}` as a part of a longer key"));
            }
            let (word, note) = variable_key(name)?;
            key.notes.extend(note);
            if !words.contains(&word) {
                words.push(word);
            }
        }
        if words.is_empty() && !text.is_empty() {
            words.push("global".to_owned());
        }
        key.key = (!words.is_empty()).then(|| words.join("+"));
        Ok(key)
    }

    fn key_of_map(&self, table: &Table<'_>, depth: usize) -> Result<Key, String> {
        let source = table.source.as_str();
        let entries = entries(table.directive);
        let default = entries.iter().rfind(|(name, _)| *name == "default").map_or("", |(_, value)| *value);
        let others =
            || entries.iter().filter(|(name, _)| !matches!(*name, "default" | "hostnames" | "volatile"));
        let variable = source.strip_prefix('$').unwrap_or_default();
        let geo = self.0.get(variable).filter(|table| table.is_geo);
        if let Some(geo) = geo {
            return self.key_of_geo(geo, &entries, default, depth);
        }
        let mut key = self.key_at(default, depth + 1)?;
        match variable {
            "remote_addr" | "binary_remote_addr" => {
                for (address, value) in others() {
                    let is_address = address.parse::<std::net::IpAddr>().is_ok();
                    match value.is_empty() && is_address && key.key.is_some() {
                        true => key.exempt.push((*address).to_owned()),
                        false => key.notes.push(format!(
                            "the map's entry `{address}` has no equal: write networks into `exempt` or `overrides`"
                        )),
                    }
                }
            }
            "request_method" if key.key.is_none() => {
                for (method, value) in others() {
                    let of_method = self.key_at(value, depth + 1)?;
                    if of_method.key.is_none() {
                        continue;
                    }
                    if method.starts_with('~') || key.key.is_some() && key.key != of_method.key {
                        return Err(format!("the map's entry `{method}` has no equal"));
                    }
                    key.key = of_method.key;
                    key.methods.push((*method).to_owned());
                }
            }
            _ if others().next().is_some() => {
                let which = match key.key {
                    Some(_) => "all clients are limited here",
                    None => {
                        key.key = Some("ip".to_owned());
                        "all clients are limited here, by address"
                    }
                };
                key.notes.push(format!(
                    "its map of `{source}` has no equal, and {which}: use `exempt`, `overrides` or routes of their own"
                ));
            }
            _ => {}
        }
        Ok(key)
    }

    /// The key of a map whose source is a `geo`: the key of most, and the networks for which it is empty.
    fn key_of_geo(
        &self,
        geo: &Table<'_>,
        map: &[(&str, &str)],
        default: &str,
        depth: usize,
    ) -> Result<Key, String> {
        if !matches!(geo.source.as_str(), "$remote_addr" | "$binary_remote_addr" | "$realip_remote_addr") {
            return Err(format!("its geo looks up `{}`: only the client's address has an equal", geo.source));
        }
        if let Some((entry, _)) = map.iter().find(|(name, _)| name.starts_with('~')) {
            return Err(format!("the map's entry `{entry}` has no equal"));
        }
        let look_up = |value: &str| {
            let found =
                map.iter().rfind(|(name, _)| name.trim_start_matches('\\').eq_ignore_ascii_case(value));
            self.key_at(found.map_or(default, |(_, key)| key), depth + 1)
        };
        let networks = entries(geo.directive);
        let of_others = networks.iter().rfind(|(name, _)| *name == "default").map_or("", |(_, value)| *value);
        let mut key = look_up(of_others)?;
        let mut limited = Vec::new();
        for (network, value) in networks.iter().filter(|(name, _)| *name != "default") {
            if matches!(*network, "proxy" | "proxy_recursive" | "ranges" | "delete" | "include") {
                key.notes.push(format!("`{network}` of its geo has no equal"));
                continue;
            }
            let of_network = look_up(value)?;
            if of_network.key == key.key {
                limited.push(*network);
            } else if of_network.key.is_none() && is_network(network) {
                key.exempt.push((*network).to_owned());
            } else {
                key.notes.push(format!(
                    "`{network}` has a key or a limit of its own, which has no equal here: use `overrides`"
                ));
                limited.push(*network);
            }
        }
        // An exempt network with a limited one in it, whichever comes first.
        let Key { exempt, notes, .. } = &mut key;
        exempt.retain(|exempt| match limited.iter().find(|network| covers(exempt, network)) {
            Some(network) => {
                notes.push(format!(
                    "{exempt} is not exempt, since nginx limits `{network}` in it: write the other parts of it into `exempt`"
                ));
                false
            }
            None => true,
        });
        Ok(key)
    }
}

/// The entries of a `map` or a `geo`: what is looked up, and the value.
fn entries(directive: &Directive) -> Vec<(&str, &str)> {
    directive.children().iter().map(|entry| (entry.name.as_str(), entry.argument(0))).collect()
}

/// Whether this is an address or a network.
pub(in crate::convert) fn is_network(text: &str) -> bool {
    let (address, prefix) = text.split_once('/').unwrap_or((text, "0"));
    let most = if address.contains(':') { 128 } else { 32 };
    address.parse::<std::net::IpAddr>().is_ok() && prefix.parse::<u8>().is_ok_and(|bits| bits <= most)
}

/// The key for a variable, and what differs.
fn variable_key(name: &str) -> Result<(String, Option<String>), String> {
    let key = match name {
        "binary_remote_addr" | "remote_addr" | "realip_remote_addr" | "proxy_protocol_addr" => "ip",
        "host" | "http_host" => "host",
        "server_name" => {
            let note = "nginx counts all hosts of a server together, under its first name, and nothing for a server without \
                        one; Tollgate counts each host, so that a client of a default server has a limit for each host that it \
                        names: use `global` in policies of its own routes";
            return Ok(("host".to_owned(), Some(note.to_owned())));
        }
        "uri" | "document_uri" => "path",
        "request_uri" => {
            let note = "`$request_uri` counts each query separately; Tollgate counts by the path alone";
            return Ok(("path".to_owned(), Some(note.to_owned())));
        }
        "request_method" => "method",
        "remote_user" => "user",
        "ssl_client_s_dn" => "tls:subject",
        "ssl_client_fingerprint" => "tls:fingerprint",
        "http_x_forwarded_for"
        | "http_x_real_ip"
        | "http_cf_connecting_ip"
        | "http_true_client_ip"
        | "proxy_add_x_forwarded_for" => {
            let note = format!(
                "any client can write the header of `${name}`. Tollgate counts by the client's address: list the \
                 proxies in front in `trusted_proxies`"
            );
            return Ok(("ip".to_owned(), Some(note)));
        }
        _ => {
            let named = [("http_", "header"), ("cookie_", "cookie"), ("arg_", "query")];
            let known = named.into_iter().find_map(|(begin, kind)| Some((kind, name.strip_prefix(begin)?)));
            let Some((kind, rest)) = known else {
                return Err(format!("Tollgate has no key for `${name}`"));
            };
            let rest = if kind == "header" { rest.replace('_', "-") } else { rest.to_owned() };
            let note = format!(
                "nginx does not limit a request without `${name}`; Tollgate limits it by its address"
            );
            return Ok((format!("{kind}:{rest}"), Some(note)));
        }
    };
    let note = (key == "user").then(|| {
        "nginx does not limit a request without a user; Tollgate limits it by its address".to_owned()
    });
    Ok((key.to_owned(), note))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{super::syntax, *};

    fn key(text: &str, of: &str) -> Result<Key, String> {
        let parsed = syntax::parse(text, Path::new("nginx.conf")).unwrap();
        let mut tables = Tables::default();
        parsed.directives.iter().for_each(|directive| tables.add(directive));
        tables.key(of)
    }

    #[test]
    fn variables_are_keys() {
        for (text, expected) in [
            ("$binary_remote_addr", Some("ip")),
            ("$binary_remote_addr$uri", Some("ip+path")),
            ("$server_name$host", Some("host")),
            ("${remote_addr}_$request_method", Some("ip+method")),
            ("$http_x_api_key", Some("header:x-api-key")),
            ("$cookie_session", Some("cookie:session")),
            ("all", Some("global")),
            ("", None),
        ] {
            assert_eq!(key("", text).unwrap().key.as_deref(), expected, "{text}");
        }
        assert!(key("", "$geoip_country_code").is_err());
    }

    #[test]
    fn geo_and_map_exempt_networks() {
        let tables = "geo $limit { default 1; 10.0.0.0/8 0; 192.168.0.0/24 0; 203.0.113.7 1; }
                      map $limit $limit_key { 0 \"\"; 1 $binary_remote_addr; }";
        let nested =
            "geo $l { default 1; 10.1.0.0/16 1; 10.0.0.0/8 0; } map $l $k { 0 \"\"; 1 $remote_addr; }";
        let found = key(nested, "$k").unwrap();
        assert_eq!((found.exempt.len(), found.notes.len()), (0, 1));
        let found = key(tables, "$limit_key").unwrap();
        assert_eq!(found.key.as_deref(), Some("ip"));
        assert_eq!(found.exempt, ["10.0.0.0/8", "192.168.0.0/24"]);
        assert_eq!(found.notes, [""; 0]);
        let inside = "geo $limit { default 1; 10.0.0.0/8 0; 10.1.0.0/16 1; } map $limit $k { 0 \"\"; 1 $remote_addr; }";
        assert_eq!(key(inside, "$k").unwrap().notes.len(), 1);
        let addresses = "map $remote_addr $k { default $binary_remote_addr; 127.0.0.1 ''; ~^10 ''; }";
        let found = key(addresses, "$k").unwrap();
        assert_eq!((found.exempt, found.notes.len()), (vec!["127.0.0.1".to_owned()], 1));
        let methods =
            "map $request_method $k { default ''; POST $binary_remote_addr; PUT $binary_remote_addr; }";
        assert_eq!(key(methods, "$k").unwrap().methods, ["POST", "PUT"]);
        let agents = "map $http_user_agent $k { default ''; ~*bot $binary_remote_addr; }";
        let found = key(agents, "$k").unwrap();
        assert_eq!((found.key.as_deref(), found.notes.len()), (Some("ip"), 1));
        assert!(key("map $a $a { default $a; }", "$a").is_err());
    }

    #[test]
    fn networks_cover_networks() {
        assert!(covers("10.0.0.0/8", "10.1.0.0/16") && covers("::/0", "2001:db8::1"));
        assert!(
            !covers("10.0.0.0/8", "11.0.0.1") && !covers("10.0.0.0/16", "10.0.0.0/8") && !covers("x", "y")
        );
    }
}
