//! The Debian package, made of the binary under test: installed, upgraded, removed and purged by dpkg, on a copy of this machine.

use std::{
    cell::Cell,
    fs,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use crate::harness::{Origin, Running, eventually, file_name, free_port, get, installed, printed};

/// A copy of this machine on which nothing is written to the machine itself: an overlay over its files, in memory, that only
/// what runs in it can see. All of it ends with the test.
struct Machine {
    /// Keeps it for as long as its standard input is open.
    keeper: Child,
    /// The first process there, by its number here.
    first: String,
    _mounts: TempDir,
}

impl Machine {
    /// The files of `packages` are in its `/mnt`. None: this machine can't have one.
    fn start(packages: &Path) -> Option<Self> {
        // What a container's image leaves out or forbids, a machine does not. Without its triggers, dpkg does not make the
        // index of all manual pages anew each time, which takes seconds.
        const SCRIPT: &str = r#"set -e
            first=$(awk '/^PPid:/ { print $2 }' /proc/self/status)
            mount -t tmpfs tmpfs "$0"
            mkdir "$0"/upper "$0"/work "$0"/root
            mount -t overlay overlay -o "lowerdir=/,upperdir=$0/upper,workdir=$0/work" "$0"/root
            mount --bind /dev "$0"/root/dev
            mount -t proc proc "$0"/root/proc
            mount --bind "$1" "$0"/root/mnt
            rm -rf "$0"/root/etc/dpkg/dpkg.cfg.d "$0"/root/usr/sbin/policy-rc.d "$0"/root/run/systemd
            test -f "$0"/root/var/lib/dpkg/status
            rm -f "$0"/root/var/lib/dpkg/triggers/File
            touch "$0"/root/is-a-copy
            exec chroot "$0"/root sh -c 'echo "$0"; exec cat' "$first""#;
        let mounts = TempDir::new().unwrap();
        let mut keeper = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"])
            .args(["sh", "-c", SCRIPT])
            .args([mounts.path(), packages])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut line = String::new();
        BufReader::new(keeper.stdout.take()?).read_line(&mut line).unwrap();
        let machine = Self { keeper, first: line.trim().to_owned(), _mounts: mounts };
        if machine.first.is_empty() {
            eprintln!("left out: only root on Debian may have a copy of the machine for the package");
            return None;
        }
        Some(machine)
    }

    /// A shell's command line there. What its commands say is in English.
    fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.first, "--mount", "--pid", "--root", "--wd"]);
        // Never on the machine itself, whatever goes wrong.
        command.args(["sh", "-c", &format!("test -e /is-a-copy || exit 99\n{line}")]);
        command.env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// What a command line that succeeds prints.
    #[track_caller]
    fn run(&self, line: &str) -> String {
        printed(&mut self.shell(line))
    }

    fn succeeds(&self, line: &str) -> bool {
        let status = self.shell(line).status().unwrap();
        assert_ne!(status.code(), Some(99), "it is gone");
        status.success()
    }

    /// From now on the machine looks as if systemd ran on it: `systemctl` notes what it is told. The service runs unless there is
    /// `/run/stopped`; if it does, its process is in `/run/tollgate.pid`. What concerns files alone is done.
    fn pretend_systemd(&self) {
        const SYSTEMCTL: &str = r#"#!/bin/sh
case "$*" in
--root=*) exec systemctl.real "$@" ;;
*is-enabled*) exec systemctl.real --root=/ is-enabled tollgate.service ;;
*is-active*) test ! -e /run/stopped || exit 3 ;;
*) echo "$*" >>/run/systemctl ;;
esac
case "$*" in
"kill --kill-who=main --signal=USR2 "*) test ! -e /run/tollgate.pid || kill -USR2 "$(cat /run/tollgate.pid)" ;;
esac
"#;
        self.run(&format!(
            "mkdir -p /run/systemd/system; mv /usr/bin/systemctl /usr/bin/systemctl.real
             cat >/usr/bin/systemctl <<'END'\n{SYSTEMCTL}END\nchmod +x /usr/bin/systemctl"
        ));
    }

    /// What `systemctl` was told since this was last asked.
    fn told(&self) -> Vec<String> {
        let told = self.run("touch /run/systemctl; cat /run/systemctl; rm /run/systemctl");
        let plain = |line: &str| line.replace("--system ", "").replace("--quiet ", "");
        told.lines().map(plain).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// The package of the binary under test, as `1.deb`. None: this is no Debian.
fn package() -> Option<TempDir> {
    if installed("dpkg-shlibdeps").is_none() {
        eprintln!("left out: the package is made by dpkg-dev");
        return None;
    }
    let directory = TempDir::new().unwrap();
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/debian/build");
    let mut build = Command::new(build);
    build.env("DPKG_DEB_COMPRESSOR_TYPE", "none");
    printed(build.arg(env!("CARGO_BIN_EXE_tollgate")).arg(directory.path()).arg("1"));
    let made: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [made] = &made[..] else { panic!("{made:?}") };
    let name = file_name(made).rsplit('/').next().unwrap().to_owned();
    assert!(name.starts_with(concat!("tollgate_", env!("CARGO_PKG_VERSION"), "-1_")), "{name}");
    fs::rename(made, directory.path().join("1.deb")).unwrap();
    Some(directory)
}

/// Makes the package `2.deb` of `1.deb`: a later one, whose configuration differs in a comment.
fn next_package(packages: &Path) {
    let tree = packages.join("tree");
    let file = |name: &str| packages.join(name);
    printed(Command::new("dpkg-deb").arg("--raw-extract").arg(file("1.deb")).arg(&tree));
    let change = |name: &str, from: &str, to: &str| {
        let text = fs::read_to_string(tree.join(name)).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(tree.join(name), text.replacen(from, to, 1)).unwrap();
    };
    let version = concat!("Version: ", env!("CARGO_PKG_VERSION"));
    change("DEBIAN/control", &format!("{version}-1"), &format!("{version}-2"));
    change("etc/tollgate/proxy.yaml", "\n#\n", "\n#\n# As the second package has it.\n");
    let mut build = Command::new("dpkg-deb");
    build.args(["-Znone", "--root-owner-group", "--build"]).arg(&tree).arg(file("2.deb"));
    printed(&mut build);
    fs::remove_dir_all(tree).unwrap();
}

const IS_ENABLED: &str = "test -L /etc/systemd/system/multi-user.target.wants/tollgate.service";
const SOCKET_IS_ENABLED: &str = "test -L /etc/systemd/system/sockets.target.wants/tollgate.socket";

#[test]
fn a_package_is_installed_removed_and_purged() {
    let Some(packages) = package() else { return };
    let Some(machine) = Machine::start(packages.path()) else { return };
    machine.pretend_systemd();
    machine.run("dpkg --install /mnt/1.deb");
    assert_eq!(machine.run("dpkg --verify tollgate"), "");
    assert_eq!(machine.told(), ["daemon-reload", "start tollgate.service"]);
    assert!(machine.succeeds(IS_ENABLED) && !machine.succeeds(SOCKET_IS_ENABLED));
    // The user that the unit names can read the configuration, and log in nowhere.
    let unit = machine.run("cat /usr/lib/systemd/system/tollgate.service");
    assert!(unit.contains("\nUser=tollgate\n"), "{unit}");
    let user = machine.run("getent passwd tollgate");
    assert!(user.trim_end().ends_with(":/nonexistent:/usr/sbin/nologin"), "{user}");
    let as_user = "setpriv --reuid tollgate --regid tollgate --clear-groups";
    let checked = machine.run(&format!("{as_user} tollgate check /etc/tollgate/proxy.yaml"));
    assert!(checked.contains("valid") && !checked.contains("warning"), "{checked}");
    if installed("systemd-analyze").is_some() {
        let units = "/usr/lib/systemd/system/tollgate.service /usr/lib/systemd/system/tollgate.socket";
        assert_eq!(machine.run(&format!("systemd-analyze verify {units} 2>&1")), "");
    }
    // The configuration names the schema beside it, the shell completes, and each command has its page.
    let schema = machine.run("sed -n 's/.*$schema=//p' /etc/tollgate/proxy.yaml | xargs cat");
    let described = serde_json::from_str::<serde_json::Value>(&schema).unwrap();
    assert!(!described["properties"]["listeners"].is_null());
    let completed = machine.run(
        "bash -c '. /usr/share/bash-completion/completions/tollgate; COMP_WORDS=(tollgate exp); COMP_CWORD=1
         _tollgate tollgate exp tollgate; echo \"${COMPREPLY[@]}\"'",
    );
    assert_eq!(completed.split_whitespace().collect::<Vec<_>>(), ["explain-setting", "explain"]);
    for page in ["tollgate", "tollgate-check", "tollgate-run"] {
        let text = machine.run(&format!("zcat /usr/share/man/man1/{page}.1.gz"));
        assert!(text.contains(".TH "), "{page}");
    }
    let copyright = machine.run("cat /usr/share/doc/tollgate/copyright");
    assert!(copyright.contains("Apache-2.0") && copyright.contains("Permission is hereby granted"));

    // The same once more changes nothing.
    let passwd = machine.run("cat /etc/passwd");
    machine.run("dpkg --install /mnt/1.deb");
    let again = "DPKG_MAINTSCRIPT_PACKAGE=tollgate sh /var/lib/dpkg/info/tollgate";
    machine.run(&format!("{again}.postinst configure '' && {again}.postinst abort-remove"));
    assert_eq!(machine.run("cat /etc/passwd"), passwd);
    assert!(machine.succeeds(IS_ENABLED) && !machine.succeeds(SOCKET_IS_ENABLED));
    assert!(!machine.succeeds(&format!("{again}.postinst nonsense")));
    machine.told();

    machine.run(
        "echo secret >/etc/tollgate/token; mkdir -p /var/log/tollgate; touch /var/log/tollgate/access.log",
    );
    machine.run("dpkg --remove tollgate");
    assert_eq!(machine.told(), ["stop tollgate.socket tollgate.service", "daemon-reload"]);
    assert!(machine.succeeds("test -f /etc/tollgate/proxy.yaml && test -f /var/log/tollgate/access.log"));
    assert!(
        !machine.succeeds("test -e /usr/bin/tollgate || test -e /usr/lib/systemd/system/tollgate.service")
    );
    machine.run("dpkg --purge tollgate");
    let rest = "find /etc /usr /var/log /var/lib/systemd /var/lib/dpkg/info -name '*tollgate*'";
    assert_eq!(machine.run(rest), "/etc/tollgate\n");
    assert_eq!(machine.run("ls /etc/tollgate"), "token\n");
    assert_eq!(machine.run("cat /etc/passwd"), passwd, "its number is given to nobody else");
    // And as if it had never been there.
    machine.run("dpkg --install /mnt/1.deb");
    assert!(machine.succeeds(IS_ENABLED));
}

#[test]
fn an_upgrade_keeps_what_the_administrator_has_changed() {
    let Some(packages) = package() else { return };
    next_package(packages.path());
    let Some(machine) = Machine::start(packages.path()) else { return };
    machine.pretend_systemd();
    let text = || machine.run("cat /etc/tollgate/proxy.yaml");
    machine.run("dpkg --install /mnt/1.deb");
    machine.told();
    machine.run("dpkg --install /mnt/2.deb");
    // A new process takes over; nothing is stopped or started.
    let handed_over = ["daemon-reload", "kill --kill-who=main --signal=USR2 tollgate.service"];
    assert_eq!(machine.told(), handed_over);
    assert!(text().contains("As the second package has it"), "nobody had changed it");

    machine.run("dpkg --purge tollgate && dpkg --install /mnt/1.deb");
    machine.run("echo '# mine' >>/etc/tollgate/proxy.yaml");
    // As `systemctl disable` does.
    machine.run("rm /etc/systemd/system/multi-user.target.wants/tollgate.service");
    machine.run("dpkg --force-confdef --force-confold --install /mnt/2.deb");
    assert!(text().contains("# mine") && !text().contains("As the second package"), "{}", text());
    assert!(machine.run("cat /etc/tollgate/proxy.yaml.dpkg-dist").contains("As the second package has it"));
    assert!(!machine.succeeds(IS_ENABLED), "it was disabled");
    // Back to the first one, while nothing runs.
    machine.run("touch /run/stopped");
    machine.told();
    machine.run("dpkg --force-confold --install /mnt/1.deb");
    assert_eq!(machine.told(), ["daemon-reload"]);
    assert!(text().contains("# mine"));
    assert_eq!(machine.run("dpkg-query --show --showformat='${db:Status-Status}' tollgate"), "installed");
}

#[test]
fn an_upgrade_drops_no_connection() {
    let Some(packages) = package() else { return };
    next_package(packages.path());
    let Some(machine) = Machine::start(packages.path()) else { return };
    machine.pretend_systemd();
    machine.run("dpkg --install /mnt/1.deb");
    let origin = Origin::ok();
    let [listener, admin] = [free_port(), free_port()].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let mut service = machine.shell(
        "echo $$ >/run/tollgate.pid
         exec setpriv --reuid tollgate --regid tollgate --clear-groups \
            /usr/bin/tollgate run --config /etc/tollgate/proxy.yaml",
    );
    service.env("LISTEN", listener.to_string()).env("ADMIN", admin.to_string());
    service.env("ORIGIN", format!("http://{}", origin.address));
    let mut service = Running(service.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    eventually("it serves", || TcpStream::connect(listener).is_ok());
    // The limit of the configuration answers some.
    let asked = Cell::new(0);
    let ask = || {
        assert!([200, 429].contains(&get(listener, "/", &[]).status));
        asked.set(asked.get() + 1);
    };
    let mut upgrade = machine.shell("dpkg --install /mnt/2.deb").stdout(Stdio::null()).spawn().unwrap();
    let upgraded = loop {
        ask();
        if let Some(ended) = upgrade.try_wait().unwrap() {
            break ended;
        }
    };
    assert!(upgraded.success());
    let mut ended = None;
    eventually("the old process ends", || {
        ask();
        ended = service.0.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.unwrap().success(), "{ended:?}");
    // The new process is one of the new binary: the old one is deleted.
    let running = machine.run("for exe in /proc/[0-9]*/exe; do readlink $exe || true; done | grep tollgate");
    assert_eq!(running, "/usr/bin/tollgate\n");
    assert_eq!(get(admin, "/readyz", &[]).status, 200);
    // Both processes have written to the history.
    let history = || get(admin, "/v1/usage?by=route", &[]).json()["rows"][0]["requests"].as_u64();
    eventually("all requests are in the history", || history() == Some(asked.get()));
    assert_eq!(machine.run("stat --format='%U %a' /var/lib/tollgate/history.db"), "tollgate 600\n");
}

/// As the unit has it: the user's file in the user's directory, which cron's root rotates.
#[test]
fn its_access_log_is_rotated() {
    if installed("logrotate").is_none() {
        eprintln!("left out: logrotate is not installed");
        return;
    }
    let Some(packages) = package() else { return };
    let Some(machine) = Machine::start(packages.path()) else { return };
    machine.run("dpkg --install /mnt/1.deb");
    machine.run(
        "install -d -o tollgate -g tollgate -m 755 /var/log/tollgate
         echo first >/var/log/tollgate/access.log
         chown tollgate:tollgate /var/log/tollgate/access.log; chmod 600 /var/log/tollgate/access.log",
    );
    machine.pretend_systemd();
    let rotate = "logrotate --force --state /run/logrotate.state /etc/logrotate.d/tollgate 2>&1";
    assert_eq!(machine.run(rotate), "");
    assert_eq!(machine.told(), ["kill --signal=USR1 tollgate.service"]);
    let files = machine.run("cd /var/log/tollgate; stat --format='%n %U:%G %a %s' *");
    assert_eq!(files, "access.log.1 tollgate:tollgate 600 6\n");
    // As Tollgate does on the signal.
    machine.run("cd /var/log/tollgate; echo second >access.log; chown tollgate:tollgate access.log");
    assert_eq!(machine.run(rotate), "");
    assert_eq!(
        machine.run("cd /var/log/tollgate; zcat access.log.2.gz; cat access.log.1"),
        "first\nsecond\n"
    );
    // Without one, and without the service, there is nothing to do.
    machine.run("rm -r /run/systemd /var/log/tollgate/*");
    assert_eq!(machine.run(rotate), "");
}
