//! `listeners` and `admin`: the sockets that Tollgate opens.

use std::net::{Ipv4Addr, SocketAddr};

use crate::config::{
    model::{Admin, Listener, Secret},
    reader::Cursor,
    value::{bearer_token, socket_address},
};

pub(super) fn listeners(value: Option<Cursor<'_>>) -> Vec<Listener> {
    let Some(list) = value else {
        return vec![Listener { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)) }];
    };
    let mut listeners: Vec<Listener> = Vec::new();
    let items = list.list();
    if items.as_ref().is_some_and(Vec::is_empty) {
        list.report("no listener is configured, so nothing would be served", None);
    }
    for item in items.unwrap_or_default() {
        let Some(mut mapping) = item.mapping() else { continue };
        let value = mapping.require("address", "such as `address: 127.0.0.1:8080`");
        mapping.finish();
        let Some((value, address)) = value.and_then(|value| Some((value, value.parse(socket_address)?)))
        else {
            continue;
        };
        if listeners.iter().any(|other| same_socket(other.address, address)) {
            value.report("another listener already uses this address", None);
        }
        listeners.push(Listener { address });
    }
    listeners
}

pub(super) fn admin(value: Option<Cursor<'_>>, listeners: &[Listener]) -> Admin {
    let default = SocketAddr::from((Ipv4Addr::LOCALHOST, 9900));
    let mapping = value.and_then(|value| Some((value, value.mapping()?)));
    let Some((value, mut mapping)) = mapping else {
        return Admin { address: default, token: None };
    };
    let address_value = mapping.take("address");
    let address = address_value.and_then(|value| value.parse(socket_address)).unwrap_or(default);
    let token = mapping.take("token").map(|value| value.parse_secret(bearer_token));
    // An invalid token was reported. Do not report it as missing as well.
    let missing = matches!(token, None | Some(Some(None)));
    mapping.finish();
    let address_or_admin = address_value.unwrap_or(value);
    if missing && !address.ip().is_loopback() {
        let help = "set `token`, or listen on 127.0.0.1".to_owned();
        address_or_admin.report("an admin port that is reachable from other machines needs a token", help);
    }
    if listeners.iter().any(|listener| same_socket(listener.address, address)) {
        address_or_admin.report("a listener already uses this address", None);
    }
    Admin { address, token: token.flatten().flatten().map(Secret::new) }
}

/// Whether both would be the same socket. Port 0 stands for any free port.
fn same_socket(one: SocketAddr, other: SocketAddr) -> bool {
    one == other && one.port() != 0
}
