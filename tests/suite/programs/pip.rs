//! pip, installing from an index of plain files, which nginx serves.

use std::{fs, net::SocketAddr, path::Path, process::Command};

use tempfile::TempDir;

use super::{alone, before};
use crate::harness::{Config, Running, Tollgate, eventually, nginx, printed, program};

/// Builds the wheels of `app`, which needs `dep`, and an index of them (PEP 427, PEP 503, PEP 658).
const INDEX: &str = r#"
import base64, hashlib, os, random, sys, zipfile

def wheel(name, needs, files):
    info = f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n" + "".join(f"Requires-Dist: {n}\n" for n in needs)
    files = files | {
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    def line(path, data):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        return f"{path},sha256={digest},{len(data)}\n"
    record = "".join(line(path, data) for path, data in files.items()) + f"{info}/RECORD,,\n"
    file = f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"files/{file}", "w") as archive:
        for path, data in (files | {f"{info}/RECORD": record.encode()}).items():
            archive.writestr(path, data)
    with open(f"files/{file}.metadata", "w") as out:
        out.write(metadata)
    digest = hashlib.sha256(open(f"files/{file}", "rb").read()).hexdigest()
    own = hashlib.sha256(metadata.encode()).hexdigest()
    os.makedirs(f"simple/{name}")
    with open(f"simple/{name}/index.html", "w") as out:
        out.write(f'<!DOCTYPE html><a href="/files/{file}#sha256={digest}" data-dist-info-metadata="sha256={own}">{file}</a>')

os.mkdir("files")
wheel("app", ["dep"], {"app.py": b"import dep\nprint(dep.size())\n"})
noise = random.Random(1).randbytes(8 << 20)
wheel("dep", [], {"dep/__init__.py": b"import os\ndef size():\n    return os.path.getsize(__file__.replace('__init__.py', 'noise'))\n",
                  "dep/noise": noise})
"#;

fn index() -> (Running, SocketAddr, TempDir) {
    let directory = TempDir::new().unwrap();
    printed(python(directory.path()).args(["-c", INDEX]));
    let (running, address) = nginx(directory.path(), "default_type text/html;", "index index.html;");
    (running, address, directory)
}

fn python(directory: &Path) -> Command {
    let mut python = program("python3", "python3");
    alone(&mut python, directory).current_dir(directory);
    python
}

/// `pip install`, from behind `tollgate` into `target` only.
fn install(directory: &Path, tollgate: &Tollgate) -> Command {
    let mut pip = program("pip3", "python3-pip");
    alone(&mut pip, directory).current_dir(directory);
    pip.args(["--isolated", "--disable-pip-version-check", "install", "--no-cache-dir"])
        .args(["--target", "target", "--index-url"])
        .arg(format!("http://{}/simple/", tollgate.address));
    pip
}

#[test]
fn pip_installs_a_package_and_what_it_needs() {
    let (_running, address, directory) = index();
    let tollgate = before(address);
    let said = printed(install(directory.path(), &tollgate).args(["app"]));
    assert!(said.contains("Successfully installed app-1.0 dep-1.0"), "{said}");
    fs::remove_dir_all(directory.path().join("files")).unwrap();
    let size = printed(python(&directory.path().join("target")).args(["-c", "import app"]));
    assert_eq!(size, format!("{}\n", 8 << 20));
}

#[test]
fn pip_reads_a_package_s_ranges() {
    let (_running, address, directory) = index();
    // Without the metadata beside the wheel, it has to be fetched out of it.
    for name in ["app", "dep"] {
        let page = directory.path().join("simple").join(name).join("index.html");
        let text = fs::read_to_string(&page).unwrap();
        fs::write(page, text.replace("data-dist-info-metadata", "data-nothing")).unwrap();
    }
    let tollgate = Tollgate::start(Config::new(&[address], "access_log: { format: combined, to: stdout }\n"));
    let said = printed(install(directory.path(), &tollgate).args(["--use-feature", "fast-deps", "app"]));
    assert!(said.contains("Successfully installed app-1.0 dep-1.0"), "{said}");
    eventually("a range is logged", || {
        tollgate.stdout().iter().any(|line| line.contains("dep-1.0") && line.contains("\" 206 "))
    });
}

#[test]
fn pip_waits_as_long_as_a_limit_says_and_goes_on() {
    let (_running, address, directory) = index();
    // Two pages of the index, the metadata of two wheels, and the wheels: more than a second allows.
    let policy = "policies:\n  few: { algorithm: sliding_log, key: ip, limit: 2/1s }\n";
    let tollgate = Tollgate::start(Config::new(&[address], policy).with_policy("few"));
    let said = printed(install(directory.path(), &tollgate).args(["app"]));
    assert!(said.contains("Successfully installed app-1.0 dep-1.0"), "{said}");
    assert!(
        tollgate.metric("tollgate_decisions_total{policy=\"few\",verdict=\"denied\"") > 0.0,
        "never limited"
    );
}
