//! What `examples/` shows: configurations of other proxies, and each as `proxy.yaml`. Both answer the same requests alike.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::harness::{Client, Config, Origin, Reply, Tollgate, caddy, nginx, nobody};

/// One directory of `examples/`.
struct Example {
    directory: PathBuf,
    /// What stands for an origin's address in the files, such as `api:9000`, and the origin.
    origins: Vec<(String, Origin)>,
    requests: Requests,
}

/// `requests`: lines such as `GET example.com /path | cookie: a=b`, and which fields are compared.
#[derive(Default)]
struct Requests {
    fields: Vec<String>,
    response_fields: Vec<String>,
    lines: Vec<String>,
}

impl Requests {
    fn read(text: &str) -> Self {
        let mut requests = Self::default();
        let names = |list: &str| list.split(", ").map(str::to_owned).collect();
        for line in text.lines() {
            if let Some(list) = line.strip_prefix("compare response ") {
                requests.response_fields = names(list);
            } else if let Some(list) = line.strip_prefix("compare ") {
                requests.fields = names(list);
            } else {
                requests.lines.push(line.to_owned());
            }
        }
        assert!(requests.lines.len() > 3, "{text}");
        requests
    }

    /// What the proxy at `address` makes of each request.
    fn answers(&self, address: SocketAddr) -> Vec<String> {
        self.lines
            .iter()
            .map(|line| {
                let (request, fields) = line.split_once(" | ").unwrap_or((line, ""));
                let [method, host, path] = request.split(' ').collect::<Vec<_>>()[..] else {
                    panic!("{line}")
                };
                let mut headers = vec![("host", host)];
                headers.extend(fields.split_once(": "));
                let reply = Client::connect(address).request(method, path, &headers, b"");
                self.describe(&reply)
            })
            .collect()
    }

    /// The status, where the answer leads to or which origin was asked for what, and the fields that are compared.
    fn describe(&self, reply: &Reply) -> String {
        let mut text = reply.status.to_string();
        if let Some(location) = reply.header("location") {
            return text + " " + location;
        }
        if let Some(asked) = reply.header("x-asked") {
            text += &format!(" {asked}");
            let body = reply.text();
            for name in &self.fields {
                let value = body.lines().find_map(|line| line.split_once(": ").filter(|(of, _)| of == name));
                text += &value.map(|(name, value)| format!("; {name}: {value}")).unwrap_or_default();
            }
            for name in &self.response_fields {
                let value = reply.header(name);
                text += &value.map(|value| format!("; response {name}: {value}")).unwrap_or_default();
            }
        } else if reply.status == 200 {
            text += &format!(" {:?}", reply.text());
        }
        text
    }
}

/// Says in `x-asked` who it is and what it was asked for, and in the body with which fields.
fn origin(name: String) -> Origin {
    Origin::start(move |conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            let line = head
                .lines()
                .next()
                .unwrap_or_default()
                .trim_end_matches(" HTTP/1.1")
                .trim_end_matches(" HTTP/1.0");
            let asked = format!("{name} {line}");
            let fields: String = head
                .lines()
                .skip(1)
                .filter_map(|field| field.split_once(": "))
                .map(|(name, value)| format!("{}: {value}\n", name.to_ascii_lowercase()))
                .collect();
            conn.answer("200 OK", &[("x-asked", &asked), ("x-powered-by", "origin")], fields.as_bytes())?;
        }
        Ok(())
    })
}

impl Example {
    fn open(directory: PathBuf) -> Self {
        let configuration = fs::read_to_string(directory.join("proxy.yaml")).unwrap();
        let endpoints = configuration.split("endpoints: [http://").skip(1);
        let origins = endpoints.map(|rest| {
            let address = rest.split(']').next().unwrap().to_owned();
            let name = address.split(':').next().unwrap().to_owned();
            (address, origin(name))
        });
        let requests = Requests::read(&fs::read_to_string(directory.join("requests")).unwrap());
        Self { origins: origins.collect(), directory, requests }
    }

    /// One of its files, with the addresses of the origins. `None`: it has none of this name.
    fn file(&self, name: &str) -> Option<String> {
        let mut text = fs::read_to_string(self.directory.join(name)).ok()?;
        for (address, origin) in &self.origins {
            text = text.replace(address, &origin.address.to_string());
        }
        Some(text)
    }

    /// What Tollgate makes of the requests.
    fn ours(&self) -> Vec<String> {
        let text = self.file("proxy.yaml").unwrap();
        let text = text.strip_prefix("listeners: [{ address: 0.0.0.0:80 }]\n").unwrap();
        let tollgate = Tollgate::start(Config::yaml(text));
        self.requests.answers(tollgate.address)
    }

    /// What the other proxy makes of them.
    fn theirs(&self) -> Vec<String> {
        let directory = TempDir::new().unwrap();
        let address = nobody();
        if let Some(servers) = self.file("nginx.conf") {
            let servers = servers.replace("listen 80;", &format!("listen {address};"));
            let (_nginx, _) = nginx(directory.path(), &servers, "");
            return self.requests.answers(address);
        }
        if let Some(sites) = self.file("Caddyfile") {
            let _caddy = caddy(directory.path(), &sites, "http", address);
            return self.requests.answers(address);
        }
        // Traefik is in no distribution: what its documentation says.
        self.file("answers").unwrap().lines().map(str::to_owned).collect()
    }
}

#[test]
fn examples_answer_as_the_proxies_that_they_replace() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut directories: Vec<_> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    directories.retain(|path| path.is_dir());
    directories.sort();
    assert!(directories.len() >= 10, "{directories:?}");
    for directory in directories {
        let example = Example::open(directory);
        let (ours, theirs) = (example.ours(), example.theirs());
        for ((request, ours), theirs) in example.requests.lines.iter().zip(&ours).zip(&theirs) {
            assert_eq!(ours, theirs, "{}: {request}", example.directory.display());
        }
        assert_eq!(ours.len(), theirs.len());
    }
}
