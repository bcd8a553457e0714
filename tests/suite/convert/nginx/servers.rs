//! Servers: where they listen, their names, and what holds for all of their locations.

use super::{
    super::source::Listener,
    generator::{Level, Writer},
};

const NAMES: [&str; 11] = [
    "a.test",
    "*.a.test",
    ".a.test",
    "x.a.test",
    "*.x.a.test",
    "b.test",
    ".b.test",
    "*.b.test",
    "c.test",
    "A.test",
    "x.b.test",
];
/// Rarer ones.
const ODD_NAMES: [&str; 3] = [r"~^(www\.)?c\.test$", "b.*", "\"\""];

/// An address that servers may share.
#[derive(Clone)]
struct Address {
    /// As `listen` has it.
    listen: String,
    address: &'static str,
    port: u16,
    is_tls: bool,
    /// Whether some server is the default one by a word.
    has_default: bool,
    is_used: bool,
}

impl Writer<'_> {
    fn addresses(&mut self) -> Vec<Address> {
        let port = |nth: usize| self.places.ports[nth];
        let address = |listen: String, address, port, is_tls| Address {
            listen,
            address,
            port,
            is_tls,
            has_default: false,
            is_used: false,
        };
        let all = [
            address(format!("127.0.0.1:{}", port(0)), "127.0.0.1", port(0), false),
            address(format!("localhost:{}", port(1)), "127.0.0.1", port(1), false),
            address(format!("127.0.0.2:{}", port(2)), "127.0.0.2", port(2), false),
            address(port(3).to_string(), "0.0.0.0", port(3), false),
            address(format!("127.0.0.1:{} ssl", port(4)), "127.0.0.1", port(4), true),
        ];
        let count = self.dice.weighted(&[(4, 1), (4, 2), (2, 3)]);
        let mut chosen = self.dice.some(count, &all);
        // An address of a port on which others listen for all addresses.
        if chosen.iter().any(|one| one.address == "0.0.0.0") && self.dice.chance(6) {
            self.met("an address beside all addresses");
            chosen.push(address(format!("127.0.0.2:{}", port(3)), "127.0.0.2", port(3), false));
        }
        chosen
    }

    pub fn servers(&mut self) {
        let mut addresses = self.addresses();
        let servers = self.dice.weighted(&[(2, 1), (4, 2), (3, 3)]);
        let mut names = self.dice.some(NAMES.len(), &NAMES);
        for nth in 0..servers {
            let first = self.dice.number(..addresses.len());
            let mut picked = Vec::new();
            for (index, address) in addresses.iter_mut().enumerate() {
                let is_last = nth + 1 == servers && !address.is_used;
                if index == first || self.dice.chance(40) || is_last {
                    address.is_used = true;
                    picked.push(index);
                }
            }
            self.block("server", |writer| {
                writer.listens(&picked, &mut addresses);
                writer.names(&mut names);
                writer.server();
            });
        }
        let listener = |one: &Address| Listener {
            address: format!("{}:{}", one.address, one.port).parse().unwrap(),
            is_tls: one.is_tls,
        };
        self.targets.listeners = addresses.iter().map(listener).collect();
    }

    fn listens(&mut self, picked: &[usize], addresses: &mut [Address]) {
        for &index in picked {
            let one = &mut addresses[index];
            let is_default = !one.has_default && self.dice.chance(30);
            one.has_default |= is_default;
            let listen = one.listen.clone();
            if is_default {
                self.met("default_server");
            }
            self.line(format!("listen {listen}{};", if is_default { " default_server" } else { "" }));
        }
        if !picked.iter().any(|index| addresses[*index].is_tls) {
            return;
        }
        self.met("ssl");
        let tls = self.places.tls;
        self.line(format!("ssl_certificate {}; ssl_certificate_key {};", tls.cert, tls.key));
        if let Some(verify) = self.dice.maybe(25, &["on", "on", "optional"]) {
            self.met("ssl_verify_client");
            self.line(format!("ssl_client_certificate {}; ssl_verify_client {verify};", tls.ca));
        }
    }

    fn names(&mut self, names: &mut Vec<&'static str>) {
        let count = self.dice.weighted(&[(2, 0), (5, 1), (2, 2)]);
        let mut own: Vec<&str> = names.drain(..count.min(names.len())).collect();
        own.extend(self.dice.maybe(3, &ODD_NAMES));
        if own.is_empty() {
            if self.dice.chance(50) {
                self.line("server_name _;");
            }
            return;
        }
        self.line(format!("server_name {};", own.join(" ")));
        self.targets.hosts.extend(own.iter().map(|name| (*name).to_owned()));
    }

    fn server(&mut self) {
        self.named.clear();
        self.inherited(Level::Server);
        self.unknown(Level::Server);
        self.steps(Level::Server, "/");
        if self.dice.chance(3) {
            self.returns();
        }
        self.locations();
        for name in std::mem::take(&mut self.named) {
            self.named_location(&name);
        }
    }
}
