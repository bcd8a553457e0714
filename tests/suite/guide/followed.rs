//! Pages that are followed from top to bottom by a reader who types what stands there: in an empty directory, each file is saved and
//! each command is run, in the order of the page, and prints what the page shows. Only ports differ.

use std::{
    fs,
    process::{Command, Stdio},
};

use jiff::Zoned;
use regex::Regex;
use tempfile::TempDir;

use super::{
    Page, steps,
    tasks::{shell, shows},
};
use crate::harness::{Client, Origin, Redis, Running, eventually, free_port};

/// A part of a page.
enum Part<'a> {
    Prose(&'a str),
    /// A block between fences.
    Block {
        language: &'a str,
        text: &'a str,
    },
    /// Commands that the page has indented.
    Commands(&'a str),
}

/// The parts of a page from `begin` until `end`.
#[track_caller]
fn parts<'a>(page: &'a Page, begin: &str, end: &str) -> Vec<Part<'a>> {
    let at = |mark: &str| page.text.find(mark).unwrap_or_else(|| panic!("{} has no {mark}", page.name));
    let text = &page.text[at(begin)..at(end)];
    let outside = |text: &'a str| {
        text.split("\n\n").map(|paragraph| match paragraph.trim_start_matches('\n') {
            commands if commands.starts_with("    ") => Part::Commands(commands),
            prose => Part::Prose(prose),
        })
    };
    let mut parts = Vec::new();
    for (nth, section) in text.split("```").enumerate() {
        match section.split_once('\n').filter(|_| nth % 2 == 1) {
            Some((language, text)) => parts.push(Part::Block { language, text }),
            None => parts.extend(outside(section)),
        }
    }
    parts
}

struct Reader {
    directory: TempDir,
    listener: String,
    /// What the page says, and what stands for it here.
    places: Vec<(&'static str, String)>,
    /// The port of the service behind Tollgate.
    service: u16,
    admin: String,
    /// The names for the next keys, and the keys that have a name.
    names: Vec<String>,
    keys: Vec<(String, String)>,
    redis: Option<Redis>,
    running: Vec<Running>,
    tollgate: Option<Running>,
}

impl Reader {
    /// Before the service at this port.
    fn new(service: u16) -> Self {
        let (listener, secure) = (format!("127.0.0.1:{}", free_port()), free_port());
        // The shorter ones first: what stands in their place must not be taken for another.
        let places = vec![
            ("127.0.0.1:3000", format!("127.0.0.1:{service}")),
            ("\"127.0.0.1\", 3000", format!("\"127.0.0.1\", {service}")),
            ("127.0.0.1 3000", format!("127.0.0.1 {service}")),
            ("0.0.0.0:8080", listener.clone()),
            ("127.0.0.1:8080", listener.clone()),
            ("127.0.0.1:8443", format!("127.0.0.1:{secure}")),
            ("localhost:8443", format!("localhost:{secure}")),
            ("--month 2026-11", Zoned::now().strftime("--month %Y-%m").to_string()),
        ];
        Self {
            directory: TempDir::new().unwrap(),
            listener,
            places,
            service,
            admin: format!("127.0.0.1:{}", free_port()),
            names: Vec::new(),
            keys: Vec::new(),
            redis: None,
            running: Vec::new(),
            tollgate: None,
        }
    }

    fn here(&self, text: &str) -> String {
        self.places.iter().fold(text.to_owned(), |text, (there, here)| text.replace(there, here))
    }

    /// The shell that runs a line of the page.
    fn shell(&self, line: &str) -> Command {
        let mut shell = shell(self.directory.path(), &self.here(line));
        shell.env("TOLLGATE_ADMIN", format!("http://{}", self.admin)).envs(self.keys.iter().cloned());
        shell
    }

    /// Runs a line that the page has run on.
    fn start(&self, line: &str) -> Running {
        let mut shell = self.shell(&format!("exec {line}"));
        Running(shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Runs the service of a page.
    #[track_caller]
    fn serve(&mut self, line: &str) {
        self.running.push(self.start(line));
        let address = format!("127.0.0.1:{}", self.service).parse().unwrap();
        eventually("the service listens", || Client::try_connect(address).is_some());
    }

    /// Saves the script of `page`, and runs it.
    #[track_caller]
    fn save_script(&mut self, page: &Page) {
        let name = Regex::new(r"Save it as `(\w+\.py)`").unwrap();
        let name = name.captures(&page.text).unwrap()[1].to_owned();
        let script = self.here(&page.block("python", "HTTPServer"));
        fs::write(self.directory.path().join(&name), script).unwrap();
        self.serve(&format!("python3 {name}"));
    }

    fn save_configuration(&mut self, yaml: &str) {
        if yaml.contains("redis://") {
            let redis = self.redis.get_or_insert_with(Redis::start);
            // With 50 ms, a busy machine would count some requests here alone.
            let url = format!("{}\", timeout: \"5s", redis.url());
            self.places.push(("redis://127.0.0.1:6379", url));
        }
        let mut yaml = self.here(yaml) + &format!("\nadmin: {{ address: {} }}\n", self.admin);
        if !yaml.contains("listeners:") {
            yaml += &format!("listeners: [{{ address: {} }}]\n", self.listener);
        }
        fs::write(self.directory.path().join("proxy.yaml"), yaml).unwrap();
    }

    /// Runs commands that show nothing.
    #[track_caller]
    fn run(&mut self, commands: &str) {
        for line in commands.replace("\\\n", " ").lines().map(str::trim) {
            if line.starts_with("tollgate run") {
                self.tollgate = None;
                self.tollgate = Some(self.start(line));
                eventually("Tollgate is ready", || {
                    self.shell("tollgate status").output().unwrap().status.success()
                });
            } else if let Some((before, server)) = line.split_once("python3 ") {
                let made = self.shell(before.trim_end().trim_end_matches("&&")).status().unwrap();
                assert!(made.success(), "{line}");
                self.serve(&format!("python3 {server}"));
            } else {
                let output = self.shell(line).output().unwrap();
                assert!(output.status.success(), "{line}: {output:?}");
                let printed = String::from_utf8(output.stdout).unwrap();
                if printed.starts_with("tgk_") && !self.names.is_empty() {
                    self.keys.push((self.names.remove(0), printed.trim().to_owned()));
                }
            }
        }
    }

    fn follow(&mut self, page: &Page, begin: &str, end: &str) {
        let names = Regex::new(r"into\s+`\$([A-Z]+)`(?:\s+and\s+`\$([A-Z]+)`)?").unwrap();
        let elsewhere = Regex::new(r"server of \[[^]]*\]\(([\w-]+\.md)#try-it\)").unwrap();
        for part in parts(page, begin, end) {
            match part {
                Part::Prose(text) => {
                    if let Some(found) = names.captures(text) {
                        let found = found.iter().skip(1).flatten();
                        self.names = found.map(|name| name.as_str().to_owned()).collect();
                    }
                    if let Some(found) = elsewhere.captures(text) {
                        self.save_script(&Page::open(&format!("tasks/{}", &found[1])));
                    }
                }
                Part::Commands(commands) => self.run(commands),
                Part::Block { language: "python", .. } => self.save_script(page),
                Part::Block { language: "yaml", text }
                    if text.contains("listeners:") || !self.directory.path().join("proxy.yaml").exists() =>
                {
                    self.save_configuration(text);
                }
                Part::Block { text, .. } if text.starts_with("$ ") => {
                    shows(&steps(text), |line| {
                        String::from_utf8(self.shell(line).output().unwrap().stdout).unwrap()
                    });
                }
                Part::Block { .. } => {}
            }
        }
        assert!(self.tollgate.is_some(), "{} does not start Tollgate", page.name);
    }
}

/// Follows a page until `end`, with the service that it has its reader start.
fn follow(name: &str, end: &str) {
    Reader::new(free_port()).follow(&Page::open(name), "# ", end);
}

/// Follows a page whose reader has a service already, from `begin` until `end`.
fn follow_with_service(name: &str, begin: &str, end: &str) {
    let service = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            conn.answer("200 OK", &[("content-type", "application/json")], b"{}")?;
        }
        Ok(())
    });
    Reader::new(service.address.port()).follow(&Page::open(name), begin, end);
}

#[test]
fn the_first_page() {
    follow_with_service("start.md", "# ", "### Passwords");
}

#[test]
fn limits_of_tokens() {
    follow("tasks/limit-tokens.md", "## What is charged");
}

#[test]
fn budgets_of_tokens() {
    follow("tasks/token-budgets.md", "When the tokens of the month");
}

#[test]
fn limits_by_model() {
    follow("tasks/limit-by-model.md", "## Where a value may be");
}

#[test]
fn points_of_graphql() {
    follow("tasks/graphql-points.md", "## Where the number is");
}

#[test]
fn quotas_of_traffic() {
    follow("tasks/traffic-quota.md", "A customer with less than");
}

#[test]
fn stuffed_credentials() {
    follow("tasks/stop-credential-stuffing.md", "## Many addresses");
}

#[test]
fn plans() {
    follow_with_service("tasks/plans.md", "# ", "## Keep keys");
}

#[test]
fn tools_of_agents() {
    follow_with_service("tasks/limit-agent-tools.md", "# ", "## Exceptions");
}

#[test]
fn what_is_left() {
    follow_with_service("tasks/quota-left.md", "# ", "| field |");
}

#[test]
fn invoices() {
    follow_with_service("tasks/invoice-a-month.md", "# ", "The column `monthly`");
}

#[test]
fn a_first_certificate() {
    follow_with_service("tls.md", "## A first certificate", "On a server with a public name");
}
