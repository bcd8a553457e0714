//! Programs that none of us wrote, as clients and as origins.

use std::{
    env, fs,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::{eventually, nobody};

/// A program that a test needs; `package` is Debian's.
#[track_caller]
pub fn program(name: &str, package: &str) -> Command {
    Command::new(
        installed(name).unwrap_or_else(|| panic!("this test needs {name}: apt-get install {package}")),
    )
}

/// Where a program is, if it is installed.
pub fn installed(name: &str) -> Option<PathBuf> {
    // nginx is in /usr/sbin, which is not in everyone's PATH.
    let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// Runs `command` to its end, which has to be a good one: what it printed.
#[track_caller]
pub fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a script of Python with what `scripts/test` has installed: what it printed. None: nothing is installed.
#[track_caller]
pub fn python(script: &str, arguments: &[&str]) -> Option<String> {
    let Ok(directory) = std::env::var("PYTHON_CLIENTS") else {
        eprintln!("left out: `scripts/test` installs Python's clients and says where in PYTHON_CLIENTS");
        return None;
    };
    let mut python = program("python3", "python3");
    Some(printed(python.env("PYTHONPATH", directory).args(["-c", script]).args(arguments)))
}

/// A process that ends with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// nginx in `directory`, with `http` in its http block and `server` in its only server.
pub fn nginx(directory: &Path, http: &str, server: &str) -> (Running, SocketAddr) {
    let address = nobody();
    let configuration = format!(
        "daemon off; master_process off; pid nginx.pid; error_log stderr; events {{ }}
         http {{ access_log off;
                client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
                uwsgi_temp_path uwsgi; scgi_temp_path scgi;
                {http}
                server {{ listen {address}; root .; {server} }} }}"
    );
    fs::write(directory.join("nginx.conf"), configuration).unwrap();
    (start_nginx(directory, address), address)
}

/// Starts the [`nginx`] of `directory` once more, at the same `address`.
pub fn start_nginx(directory: &Path, address: SocketAddr) -> Running {
    let child = program("nginx", "nginx-light")
        .arg("-p")
        .arg(directory)
        .args(["-c", "nginx.conf", "-e", "stderr"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let running = Running(child);
    eventually("nginx listens", || TcpStream::connect(address).is_ok());
    running
}

/// HAProxy with this `configuration`, one of whose frontends is at `address`. Its files lie in `directory`.
pub fn haproxy(directory: &Path, configuration: &str, address: SocketAddr) -> Running {
    fs::write(directory.join("haproxy.cfg"), configuration).unwrap();
    let mut command = program("haproxy", "haproxy");
    command.args(["-db", "-f", "haproxy.cfg"]).current_dir(directory);
    let running = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    eventually("HAProxy listens", || TcpStream::connect(address).is_ok());
    running
}

/// Debian's Caddy with these `sites`, which are at `address`, by `http` or `https`.
pub fn caddy(directory: &Path, sites: &str, scheme: &str, address: SocketAddr) -> Running {
    start_caddy(program("caddy", "caddy"), directory, sites, (scheme, address))
}

/// The same with the Caddy that `scripts/test` installs, which is newer; else Debian's.
pub fn new_caddy(directory: &Path, sites: &str, scheme: &str, address: SocketAddr) -> Running {
    let caddy = env::var_os("CADDY").map_or_else(|| program("caddy", "caddy"), Command::new);
    start_caddy(caddy, directory, sites, (scheme, address))
}

fn start_caddy(
    mut command: Command,
    directory: &Path,
    sites: &str,
    (scheme, address): (&str, SocketAddr),
) -> Running {
    let port = address.port();
    let global =
        format!("{{\n\tadmin off\n\tauto_https off\n\t{scheme}_port {port}\n\tdefault_bind 127.0.0.1\n}}\n");
    fs::write(directory.join("Caddyfile"), global + sites).unwrap();
    command.args(["run", "--config", "Caddyfile", "--adapter", "caddyfile"]).current_dir(directory);
    command.env("HOME", directory).env("XDG_DATA_HOME", directory).env("XDG_CONFIG_HOME", directory);
    let running = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    eventually("Caddy listens", || TcpStream::connect(address).is_ok());
    running
}
