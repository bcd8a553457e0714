//! npm, publishing to and installing from a registry that runs on Node's own `http`.
//!
//! Debian's npm is some 350 packages, so that it is not asked for: where it is missing, this says so.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
};

use tempfile::TempDir;

use super::{alone, before, noise};
use crate::harness::{Running, installed, printed, program};

/// What of a registry npm needs: packages are put, read, and their archives fetched.
const REGISTRY: &str = r#"
const packages = new Map();
const server = require('http').createServer((request, response) => {
  const answer = (status, body, type = 'application/json') =>
    response.writeHead(status, { 'content-type': type }).end(body);
  const [name, archive] = decodeURIComponent(request.url.slice(1)).split('/-/');
  if (request.method === 'PUT') {
    if (request.headers.authorization !== 'Bearer secret') return answer(401, '{}');
    const chunks = [];
    request.on('data', chunk => chunks.push(chunk));
    request.on('end', () => {
      packages.set(name, JSON.parse(Buffer.concat(chunks)));
      answer(201, '{"ok":true}');
    });
  } else if (!packages.has(name)) {
    answer(404, '{"error":"not found"}');
  } else if (archive) {
    const [attachment] = Object.values(packages.get(name)._attachments);
    answer(200, Buffer.from(attachment.data, 'base64'), 'application/octet-stream');
  } else {
    answer(200, JSON.stringify({ ...packages.get(name), _attachments: undefined }));
  }
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
"#;

fn registry() -> (Running, SocketAddr) {
    let mut child =
        program("node", "nodejs").args(["-e", REGISTRY]).stdout(Stdio::piped()).spawn().map(Running).unwrap();
    let mut port = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    (child, SocketAddr::from(([127, 0, 0, 1], port.trim().parse().unwrap())))
}

fn npm(home: &Path, directory: &str) -> Command {
    let mut npm = program("npm", "npm");
    alone(&mut npm, home).current_dir(home.join(directory));
    npm
}

/// Writes a package with a file of 2 MiB that does not compress.
fn package(home: &Path, directory: &str, manifest: &serde_json::Value) {
    let directory = home.join(directory);
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("package.json"), manifest.to_string()).unwrap();
    fs::write(directory.join("noise.bin"), noise(2 << 20)).unwrap();
    fs::write(directory.join("index.js"), "console.log(require('./package.json').name);").unwrap();
}

#[test]
fn npm_publishes_and_installs() {
    if installed("npm").is_none() {
        // Not by `eprintln`, which nobody sees of a test that passes.
        let _ = writeln!(std::io::stderr(), "    not tested: npm, which is not installed");
        return;
    }
    let (_registry, address) = registry();
    let tollgate = before(address);
    let home = TempDir::new().unwrap();
    let settings = format!(
        "registry=http://{0}/\n//{0}/:_authToken=secret\naudit=false\nfund=false\nupdate-notifier=false\n",
        tollgate.address
    );
    fs::write(home.path().join(".npmrc"), settings).unwrap();

    // npm writes the slash of a scoped name as %2f.
    let scoped = serde_json::json!({ "name": "@team/leaf", "version": "1.0.0" });
    let plain = serde_json::json!({ "name": "plain", "version": "1.2.3", "dependencies": { "@team/leaf": "^1.0.0" } });
    package(home.path(), "leaf", &scoped);
    package(home.path(), "plain", &plain);
    for name in ["leaf", "plain"] {
        printed(npm(home.path(), name).arg("publish"));
    }

    let application = serde_json::json!({ "name": "application", "version": "1.0.0" });
    package(home.path(), "application", &application);
    printed(npm(home.path(), "application").args(["install", "plain"]));
    let modules = home.path().join("application/node_modules");
    for name in ["plain", "@team/leaf"] {
        assert!(fs::read(modules.join(name).join("noise.bin")).unwrap() == noise(2 << 20), "{name}");
    }
    // As CI systems do: what the lock file says, from an empty cache.
    fs::remove_dir_all(&modules).unwrap();
    printed(npm(home.path(), "application").args(["ci", "--cache", "another"]));
    assert!(modules.join("@team/leaf/noise.bin").exists());
    let missing = npm(home.path(), "application").args(["install", "missing"]).output().unwrap();
    assert!(String::from_utf8_lossy(&missing.stderr).contains("E404"), "{missing:?}");
}
