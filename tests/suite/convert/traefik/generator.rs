//! Random configurations of Traefik. Few names, so that routers, middlewares and requests meet each other often.

use std::net::IpAddr;

use super::{
    super::{
        dice::Dice,
        source::{Generated, Listener, Places},
    },
    entry_points::EntryPoint,
    middlewares::Middleware,
    requests::{self, Aim, Often},
    services,
    unknown::{self, Unknown},
};

/// A configuration that is being written.
pub struct Writer<'a> {
    pub dice: Dice,
    pub places: &'a Places<'a>,
    text: String,
    depth: usize,
    words: Vec<&'static str>,
    /// What the converter does not know, until it is written.
    pub unknown: Option<Unknown>,
    pub entry_points: Vec<EntryPoint>,
    pub middlewares: Vec<Middleware>,
    /// Names of services.
    pub services: Vec<&'static str>,
    /// A service that the converter does not know.
    pub other_service: Option<String>,
    /// What requests are aimed at: one for each router.
    pub aims: Vec<Aim>,
    pub listeners: Vec<Listener>,
    /// Clients whose claims are believed.
    pub trusted: Vec<IpAddr>,
    /// Whether a router asks for clients' certificates by its options of TLS.
    pub has_strict_tls: bool,
}

pub fn generate(seed: u64, places: &Places<'_>) -> Generated {
    let mut dice = Dice::new(seed);
    let unknown = (seed % 10 == 9).then(|| unknown::choose(&mut dice));
    let word = unknown.map(|unknown| unknown.word().to_ascii_lowercase());
    let mut writer = Writer {
        dice,
        places,
        text: String::new(),
        depth: 0,
        words: Vec::new(),
        unknown,
        entry_points: Vec::new(),
        middlewares: Vec::new(),
        services: Vec::new(),
        other_service: None,
        aims: Vec::new(),
        listeners: Vec::new(),
        trusted: Vec::new(),
        has_strict_tls: false,
    };
    writer.middlewares();
    writer.services();
    writer.static_file();
    let of_program = std::mem::take(&mut writer.text);
    writer.dynamic_file();
    let dynamic = std::mem::take(&mut writer.text);
    assert_eq!(writer.unknown, None, "the unknown word has no place");
    let has = |word: &str| writer.middlewares.iter().any(|one| one.text.contains(word));
    let often = Often {
        crosses: if has("accessControl") { 45 } else { 8 },
        has_body: if has("buffering") { 25 } else { 0 },
    };
    let requests = requests::requests(&mut writer.dice, &writer.aims, &writer.listeners, &often);
    Generated {
        files: vec![("traefik.yml".to_owned(), of_program), ("dynamic.yml".to_owned(), dynamic)],
        listeners: writer.listeners,
        requests,
        unknown: word,
        words: writer.words,
        trusted: writer.trusted,
        ..Generated::default()
    }
}

impl Writer<'_> {
    pub fn line(&mut self, text: impl AsRef<str>) {
        self.text += &format!("{}{}\n", "  ".repeat(self.depth), text.as_ref());
    }

    /// A key with what `body` writes below it.
    pub fn block(&mut self, key: impl AsRef<str>, body: impl FnOnce(&mut Self)) {
        self.line(format!("{}:", key.as_ref()));
        self.depth += 1;
        body(self);
        self.depth -= 1;
    }

    /// The configuration has this word.
    pub fn met(&mut self, word: &'static str) {
        self.words.push(word);
    }

    fn dynamic_file(&mut self) {
        self.block("http", |writer| {
            writer.block("routers", Writer::routers);
            if !writer.middlewares.is_empty() {
                writer.block("middlewares", |writer| {
                    for Middleware { name, text } in writer.middlewares.clone() {
                        writer.line(format!("{name}: {{ {text} }}"));
                    }
                });
            }
            writer.block("services", |writer| {
                for service in writer.services.clone() {
                    let text = services::text(writer, service);
                    writer.line(format!("{service}: {{ {text} }}"));
                }
                if let Some(text) = writer.other_service.take() {
                    writer.line(format!("unknown: {{ {text} }}"));
                }
            });
        });
        self.tls();
        self.unknown_section();
    }
}
