//! `deny` and `allow`.

use super::{Items, Kind, Mapping, Setting, text};

/// `deny` at the top level. A route has another description.
pub(super) const DENY: Setting = Setting::new(
    "deny",
    ADDRESSES,
    "Client addresses that get 403, before Tollgate looks at users, routes, bans and limits.",
)
.unset("no address is denied")
.example("[192.0.2.0/24, { file: blocked.txt }]")
.see(&["allow", "client_address.header"]);

/// `allow`, at the top level and of a route.
pub(super) const ALLOW: Setting = Setting::new(
    "allow",
    SOME_ADDRESSES,
    "The only client addresses that may send requests; all others get 403. `deny` wins over `allow`.",
)
.unset("every address is allowed")
.example("[10.0.0.0/8]")
.see(&["deny"]);

const ADDRESS: Kind = Kind::Either(&[Kind::Text(&text::NETWORK), Kind::Mapping(|| &ADDRESSES_FILE)]);
const ADDRESSES: Kind =
    Kind::Either(&[Kind::List(&ADDRESS, Items::Unique), Kind::Mapping(|| &ADDRESSES_FILE)]);
const SOME_ADDRESSES: Kind =
    Kind::Either(&[Kind::List(&ADDRESS, Items::SomeUnique), Kind::Mapping(|| &ADDRESSES_FILE)]);

pub(in crate::config) static ADDRESSES_FILE: Mapping = Mapping::new(
    "A file that lists the addresses.",
    "security.md",
    &[Setting::new(
        "file",
        Kind::File,
        "The path of the file, with one address or network per line. It is read again when it changes.",
    )
    .example("blocked.txt")],
);
