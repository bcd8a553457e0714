//! Random configurations of HAProxy. Few names, so that frontends, backends and requests meet each other often.

use super::{
    super::{
        dice::Dice,
        outcome::MARK,
        source::{Generated, Places},
    },
    conditions::Acl,
    frontends::Port,
    requests, unknown,
};

/// What requests are aimed at.
#[derive(Default)]
pub struct Targets {
    pub hosts: Vec<String>,
    pub paths: Vec<String>,
    pub queries: Vec<String>,
    /// Fields that conditions ask for.
    pub fields: Vec<(String, String)>,
    pub ports: Vec<Port>,
}

/// What a section is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Defaults,
    Frontend,
    Listen,
    Backend,
}

/// What a condition is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// A refusal, for which addresses may be tested.
    Refusing,
    /// What becomes of the request, which routes do not choose by address.
    Choosing,
}

/// A configuration that is being written.
pub struct Writer<'a> {
    pub dice: Dice,
    pub places: &'a Places<'a>,
    text: String,
    pub targets: Targets,
    words: Vec<&'static str>,
    noted: Vec<&'static str>,
    texts: usize,
    /// A line that the converter does not know, and where it is to be written.
    pub unknown: Option<(Kind, &'static str)>,
    pub has_unknown: bool,
    /// Names of the ACLs of the section.
    pub acls: Vec<Acl>,
    /// Names of backends that requests may go to.
    pub backends: Vec<&'static str>,
    /// Those of them that some do go to.
    pub used: Vec<&'static str>,
    /// Those that a section names.
    pub named: Vec<&'static str>,
    /// Whether there are tests and values that Tollgate does not know.
    pub is_odd: bool,
    /// Whether the section listens.
    pub is_front: bool,
    /// Whether nothing goes to the section.
    pub is_off: bool,
    /// Whether there is a list of users.
    pub has_users: bool,
}

/// What files have: addresses of clients, and an error.
const NETWORKS: &str = "# who may come in\n127.0.0.0/30\n127.1.0.1\n";
const ERROR: &str = "HTTP/1.0 403 Forbidden\r\ncontent-type: text/plain\r\n\r\ntext-of-a-file\n";

pub fn generate(seed: u64, places: &Places<'_>) -> Generated {
    let mut dice = Dice::new(seed);
    let unknown = (seed % 10 == 9).then(|| unknown::line(&mut dice));
    let mut writer = Writer {
        dice,
        places,
        text: String::new(),
        targets: Targets::default(),
        words: Vec::new(),
        noted: Vec::new(),
        texts: 0,
        unknown,
        has_unknown: unknown.is_some(),
        acls: Vec::new(),
        backends: ["app", "api", "web", "pool"].to_vec(),
        used: Vec::new(),
        named: Vec::new(),
        is_odd: seed.is_multiple_of(2),
        is_front: true,
        is_off: false,
        has_users: false,
    };
    writer.main();
    assert_eq!(writer.unknown, None, "the unknown word has no place");
    let requests = requests::requests(&mut writer.dice, &writer.targets);
    let (open, off): (Vec<Port>, Vec<Port>) = writer.targets.ports.iter().partition(|port| port.is_open);
    let mut files = vec![("haproxy.cfg".to_owned(), writer.text)];
    for (name, text) in [("networks.lst", NETWORKS), ("403.http", ERROR)] {
        if files[0].1.contains(name) {
            files.push((name.to_owned(), text.to_owned()));
        }
    }
    Generated {
        files,
        listeners: open.iter().map(|port| port.listener).collect(),
        requests,
        unknown: unknown.map(|(_, line)| unknown::word(line).to_owned()),
        is_odd: writer.is_odd,
        words: writer.words,
        noted: writer.noted,
        off: off.iter().map(|port| port.listener.address).collect(),
        ..Generated::default()
    }
}

impl Writer<'_> {
    /// A line of a section.
    pub fn line(&mut self, text: impl AsRef<str>) {
        self.text += &format!("    {}\n", text.as_ref());
    }

    pub fn section(&mut self, head: impl AsRef<str>, body: impl FnOnce(&mut Self)) {
        self.text += &format!("{}\n", head.as_ref());
        self.acls.clear();
        body(self);
    }

    /// The configuration has this word.
    pub fn met(&mut self, word: &'static str) {
        self.words.push(word);
    }

    /// The configuration has this word, of which a note has to say that it has no equal.
    pub fn noted(&mut self, word: &'static str) {
        self.met(word);
        // Rules may keep all requests from a backend.
        if !self.is_off && self.is_front {
            self.noted.push(word);
        }
    }

    /// A text that no other response has.
    pub fn text(&mut self) -> String {
        self.texts += 1;
        format!("{MARK}{}", self.texts)
    }

    /// Writes the unknown line, if it belongs here.
    pub fn unknown(&mut self, kind: Kind) {
        let kind = if kind == Kind::Listen { Kind::Frontend } else { kind };
        if self.is_off {
            return;
        }
        if let Some((_, line)) = self.unknown.take_if(|(wanted, _)| *wanted == kind) {
            let condition = match self.dice.chance(40) && unknown::has_condition(line) {
                true => self.condition(For::Choosing),
                false => String::new(),
            };
            self.line(format!("{line}{condition}"));
            // HAProxy looks for the backend that it names.
            self.named.extend(line.contains("(app)").then_some("app"));
        }
    }

    fn main(&mut self) {
        self.section("global", |writer| {
            writer.line("maxconn 200");
            if let Some(line) = writer.dice.maybe(
                30,
                &[
                    "log 127.0.0.1:9 local0",
                    "tune.bufsize 16384",
                    "nbthread 1",
                    "spread-checks 5",
                    "hard-stop-after 5s",
                ],
            ) {
                writer.line(line);
            }
        });
        let is_named = self.dice.chance(15);
        self.section(if is_named { "defaults usual" } else { "defaults" }, Self::defaults);
        let from = if is_named { " from usual" } else { "" };
        let has_rules = is_named && self.dice.chance(60);
        if has_rules {
            self.met("rules of defaults");
            self.section("defaults front from usual", Self::unconditional_rules);
        }
        self.has_users = self.dice.chance(6);
        if self.has_users {
            self.section("userlist people", |writer| {
                // In plain text, nobody's but a test's.
                writer.line("user ann insecure-password secret");
            });
        }
        self.frontends(if has_rules { " from front" } else { from }, from);
        self.is_front = false;
        // Some that no request goes to stay.
        for name in self.backends.clone() {
            self.is_off = !self.used.contains(&name);
            if !self.is_off || self.named.contains(&name) || self.dice.chance(10) {
                self.backend(name, from);
            }
        }
    }

    fn defaults(&mut self) {
        self.line("mode http");
        self.line("timeout connect 2s");
        self.line("timeout client 10s");
        self.line("timeout server 10s");
        self.line("timeout tarpit 10ms");
        if self.dice.chance(40) {
            self.forwardfor();
        }
        let harmless = [
            "option httplog",
            "option dontlognull",
            "option redispatch",
            "option http-server-close",
            "option http-keep-alive",
            "log global",
            "retries 3",
            "timeout http-request 5s",
            "timeout queue 5s",
            "timeout check 2s",
            "balance roundrobin",
        ];
        let count = self.dice.number(..4);
        for line in self.dice.some(count, &harmless) {
            self.line(line);
        }
        if self.dice.chance(4) {
            self.errorfile();
        }
        if self.dice.chance(3) {
            self.compression();
        }
    }

    pub fn forwardfor(&mut self) {
        let how = self.dice.weighted(&[
            (6, ""),
            (1, " except 127.0.0.0/8"),
            (1, " if-none"),
            (2, " header X-Real-IP"),
            (1, " except 10.0.0.0/8 header X-Client-IP"),
        ]);
        self.met("option forwardfor");
        self.line(format!("option forwardfor{how}"));
    }

    pub fn errorfile(&mut self) {
        self.met("errorfile");
        self.line("errorfile 403 403.http");
    }

    pub fn compression(&mut self) {
        self.noted("compression");
        self.line("compression algo gzip");
        self.line("compression type text/html text/plain");
    }
}
