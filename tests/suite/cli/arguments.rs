//! What commands take, and how they end if it is wrong.

use std::{
    fs,
    io::Write,
    process::{Command, Stdio},
};

use super::commands::limited;
use crate::harness::{Ended, Origin, Terminal, command, eventually, program, tollgate, tollgate_in};

const VALID: &str = "upstreams: { api: { endpoints: [http://127.0.0.1:3000] } }
routes: [{ path: /*, upstream: api }]
";

/// The commands that ask the admin port, with what they need besides.
const ADMIN_COMMANDS: [&[&str]; 16] = [
    &["blocked"],
    &["unblock", "127.0.0.1"],
    &["ban", "127.0.0.1", "--for", "1h"],
    &["bans"],
    &["unban", "ip:127.0.0.1"],
    &["policies"],
    &["suggest", "--live"],
    &["limits", "ip:127.0.0.1"],
    &["limits", "ip:127.0.0.1", "--reset"],
    &["user", "ann"],
    &["audit"],
    &["events"],
    &["status"],
    &["top"],
    &["explain", "/"],
    &["reload"],
];

#[test]
fn wrong_arguments_end_each_command_with_2_and_are_named() {
    for command in ADMIN_COMMANDS {
        for wrong in ["--admin=ftp://x", "--admin=http://x:1/y", "--admin=x:y", "--frobnicate"] {
            let ended = tollgate(&[command, &[wrong]].concat());
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{command:?} {wrong}: {ended:?}");
            let name = wrong.split('=').next().unwrap();
            assert!(ended.stderr.contains(name), "{command:?} {wrong}: {}", ended.stderr);
        }
    }
    for wrong in [
        ["run", "--config"].as_slice(),
        &["check", "a", "b"],
        &["check", "a", "--config", "b"],
        &["run", "a", "--config", "b"],
        &["run", "a", "b"],
        &["--"],
        &["demo", "twice"],
        &["completions", "none"],
        &["man", "a", "b"],
        &["blocked", "--sort", "size"],
        &["bans", "--limit", "1001"],
        &["audit", "--by", "ann"],
        &["events", "--type", "joke"],
        &["explain", "/", "--client-cert", "none.pem"],
        &["frobnicate"],
    ] {
        assert_eq!(tollgate(wrong).code, Some(2), "{wrong:?}");
    }
}

#[test]
fn a_configuration_without_its_command_is_pointed_to_it() {
    let directory = tempfile::TempDir::new().unwrap();
    fs::write(directory.path().join("gate.conf"), VALID).unwrap();
    let told = |arguments: &[&str]| {
        let ended = tollgate_in(directory.path(), &[], arguments);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{arguments:?}: {ended:?}");
        ended.stderr
    };
    for file in ["proxy.yaml", "/etc/tollgate/proxy.yml", "gate.conf"] {
        assert!(told(&[file]).contains(&format!("'tollgate run {file}'")), "{file}: {}", told(&[file]));
    }
    assert!(!told(&["frobnicate"]).contains("tollgate run"));
    for command in ["check", "run"] {
        let told = told(&["--config", "proxy.yaml", command]);
        assert!(told.contains(&format!("'tollgate {command} --config <FILE>'")), "{told}");
    }
    // It reads none.
    assert!(!told(&["--config", "proxy.yaml", "status"]).contains("tip:"));
}

#[test]
fn arguments_that_the_admin_port_refuses_end_with_code_2() {
    let (_origin, instance) = limited("");
    for wrong in [
        ["blocked", "localhost"].as_slice(),
        &["blocked", "--prefix", "x"],
        &["blocked", "--cursor", "x"],
        &["unblock", "localhost"],
        &["bans", "--key", "x"],
        &["ban", "x", "--for", "1h"],
        &["ban", "127.0.0.9", "--for", "soon"],
        &["unban", "x"],
        &["limits", "acme"],
        &["limits", "acme", "--reset"],
        &["audit", "--cursor", "x"],
        &["explain", "http://"],
        &["explain", "/", "--peer", "localhost"],
        &["status", "--token", "a\nb"],
    ] {
        let ended = instance.command(wrong);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{wrong:?}: {ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{wrong:?}: {ended:?}");
    }
    // What is not there is no wrong argument.
    for (missing, told) in [
        (["limits", "127.0.0.1", "--policy", "none"].as_slice(), "tollgate: no policy is named none\n"),
        (&["blocked", "--policy", "none"], "tollgate: no policy is named none\n"),
        (
            &["user", "nobody"],
            "tollgate: nobody was not limited recently, is not banned, and has used none of its limits\n",
        ),
        (&["unban", "user:nobody"], "tollgate: there is no ban of user:nobody\n"),
    ] {
        let ended = instance.command(missing);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), told), "{missing:?}: {ended:?}");
    }
}

#[test]
fn an_admin_port_that_does_not_answer_is_named_with_what_to_check() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for command in ADMIN_COMMANDS {
        let ended = tollgate(&[command, &["--admin", &nobody]].concat());
        let code = if command[0] == "explain" { 2 } else { 1 };
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), ""), "{command:?}: {ended:?}");
        for words in [format!("http://{nobody}"), "Tollgate is running".into(), "`admin.address`".into()] {
            assert!(ended.stderr.contains(&words), "{command:?}: {}", ended.stderr);
        }
    }
}

/// A script must not take the page of another program for success.
#[test]
fn an_admin_url_of_another_program_is_an_error_that_says_so_as_json_too() {
    let other = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            conn.answer("200 OK", &[("content-type", "text/html")], b"<html>Sign in</html>")?;
        }
        Ok(())
    });
    let admin = other.address.to_string();
    for command in ADMIN_COMMANDS {
        for json in [&[][..], &["--json"]] {
            let ended = tollgate(&[command, &["--admin", &admin], json].concat());
            let code = if command[0] == "explain" { 2 } else { 1 };
            assert_eq!(
                (ended.code, ended.stdout.as_str()),
                (Some(code), ""),
                "{command:?} {json:?}: {ended:?}"
            );
            assert!(ended.stderr.contains("is not Tollgate's admin port"), "{command:?}: {}", ended.stderr);
        }
    }
}

#[test]
fn the_admin_port_is_given_as_host_and_port_or_as_a_url_everywhere() {
    let (_origin, running) = limited("admin: { address: \"127.0.0.1:0\", token: s3cret }\n");
    let port = running.admin.port();
    for admin in [
        format!("127.0.0.1:{port}"),
        format!("localhost:{port}"),
        format!(":{port}"),
        format!("http://127.0.0.1:{port}/"),
    ] {
        let ended = tollgate(&["policies", "--admin", &admin, "--token", "s3cret"]);
        assert_eq!(ended.code, Some(0), "{admin}: {ended:?}");
        let variables = [("TOLLGATE_ADMIN", admin.as_str()), ("TOLLGATE_ADMIN_TOKEN", "s3cret")];
        assert_eq!(tollgate_in(running.directory(), &variables, &["policies"]).code, Some(0), "{admin}");
    }
    for command in ADMIN_COMMANDS {
        let ended = tollgate(&[command, &["--admin", &format!("127.0.0.1:{port}")]].concat());
        assert_eq!(ended.stdout, "", "{command:?}");
        assert!(
            ended.stderr.contains("pass --token or set TOLLGATE_ADMIN_TOKEN"),
            "{command:?}: {}",
            ended.stderr
        );
    }
}

#[test]
fn each_command_says_in_its_help_how_it_ends() {
    let commands = ADMIN_COMMANDS.map(|command| command[0]);
    for name in commands.into_iter().chain([
        "run",
        "check",
        "replay",
        "convert",
        "explain-setting",
        "schema",
        "demo",
        "completions",
        "man",
    ]) {
        let help = tollgate(&[name, "--help"]).stdout;
        assert!(help.contains("Exit code: 0 "), "{name}: {help}");
    }
    assert!(tollgate(&["--help"]).stdout.contains("Exit code: 0 on success, 1 on failure, 2 if"));
}

#[test]
fn only_a_terminal_sees_colours_and_only_without_no_color() {
    let (_origin, instance) = limited("");
    let explain = |no_color: &str| {
        let terminal = Terminal::open(24, 80);
        let mut explain = command(std::path::Path::new("."));
        explain.args(["explain", "/a"]).arg(format!("--admin={}", instance.admin)).env("NO_COLOR", no_color);
        let _running = terminal.run(&explain);
        eventually("it is explained", || terminal.text().contains("allowed"));
        terminal
    };
    assert!(explain("").has_colours(), "an empty NO_COLOR is none (no-color.org)");
    assert!(!explain("1").has_colours());
    assert!(!instance.command(&["explain", "/a"]).stdout.contains('\x1b'));
}

fn checked(arguments: &[&str], input: &str) -> Ended {
    let directory = tempfile::TempDir::new().unwrap();
    let mut child = command(directory.path())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn check_reads_standard_input_or_the_file_of_an_option() {
    for arguments in [["check", "-"].as_slice(), &["check", "--config", "-"]] {
        let ended = checked(arguments, VALID);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        assert_eq!(ended.stdout, "stdin: valid (1 route, 1 upstream, 0 policies)\n");
        let ended = checked(arguments, &VALID.replace("upstream: api", "upstream: apo"));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(78), ""), "{arguments:?}");
        assert!(ended.stderr.starts_with("stdin:2:"), "{}", ended.stderr);
        assert_eq!(checked(arguments, "").code, Some(78), "{arguments:?}");
    }
    let directory = tempfile::TempDir::new().unwrap();
    fs::write(directory.path().join("a.yaml"), VALID).unwrap();
    let ended = tollgate_in(directory.path(), &[], &["check", "--config", "a.yaml"]);
    assert_eq!(ended.stdout, "a.yaml: valid (1 route, 1 upstream, 0 policies)\n");
    assert_eq!(tollgate_in(directory.path(), &[], &["check", "--config", "b.yaml"]).code, Some(78));
}

#[test]
fn a_configuration_is_given_by_itself_or_by_an_option() {
    let directory = tempfile::TempDir::new().unwrap();
    let wrong = VALID.replace("upstream: api", "upstream: apo");
    for (name, text) in [("a.yaml", &wrong), ("b.yaml", &wrong), ("proxy.yaml", &wrong)] {
        fs::write(directory.path().join(name), text).unwrap();
    }
    for command in ["run", "check"] {
        for (arguments, read) in [
            (["a.yaml"].as_slice(), "a.yaml:2:"),
            (&["--config", "a.yaml"], "a.yaml:2:"),
            (&["a.yaml", "--config", "a.yaml"], "a.yaml:2:"),
            (&[], "proxy.yaml:2:"),
        ] {
            let ended = tollgate_in(directory.path(), &[], &[&[command], arguments].concat());
            assert_eq!(ended.code, Some(78), "{command} {arguments:?}: {ended:?}");
            assert!(ended.stderr.starts_with(read), "{command} {arguments:?}: {ended:?}");
        }
        let ended = tollgate_in(directory.path(), &[], &[command, "a.yaml", "--config", "b.yaml"]);
        assert_eq!(
            (ended.code, ended.stderr.as_str()),
            (
                Some(2),
                "tollgate: two configurations are given, a.yaml and --config b.yaml; leave one of them out\n"
            )
        );
    }
}

#[test]
fn a_configuration_of_another_proxy_is_called_by_its_name() {
    let directory = tempfile::TempDir::new().unwrap();
    fs::write(directory.path().join("nginx.conf"), "server {\n  listen 80;\n}\n").unwrap();
    for command in ["run", "check"] {
        let ended = tollgate_in(directory.path(), &[], &[command, "nginx.conf"]);
        assert_eq!(
            (ended.code, ended.stderr.as_str()),
            (
                Some(78),
                "nginx.conf: this is an nginx configuration; Tollgate reads proxy.yaml: `tollgate convert \
                 nginx.conf` converts it; see docs/migration/nginx.md\n"
            )
        );
    }
}

/// What bash offers where the cursor is behind the last of these words.
fn completed(directory: &std::path::Path, words: &[&str]) -> Vec<String> {
    let script = directory.join("completions.bash");
    fs::write(&script, tollgate(&["completions", "bash"]).stdout).unwrap();
    let quoted: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
    let ask = format!(
        "source {}; COMP_WORDS=({}); COMP_CWORD={}; _tollgate tollgate \"${{COMP_WORDS[COMP_CWORD]}}\" \
         \"${{COMP_WORDS[COMP_CWORD-1]}}\" 2>/dev/null; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        quoted.join(" "),
        words.len() - 1
    );
    let mut bash: Command = program("bash", "bash");
    let output = bash.current_dir(directory).args(["--norc", "-c", &ask]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_shell_completes_commands_files_and_values() {
    let directory = tempfile::TempDir::new().unwrap();
    fs::write(directory.path().join("proxy.yaml"), VALID).unwrap();
    for (words, offered) in [
        (["tollgate", "po"].as_slice(), ["policies"].as_slice()),
        (&["tollgate", "explain-"], &["explain-setting"]),
        (&["tollgate", "sch"], &["schema"]),
        (&["tollgate", "blocked", "--sort", ""], &["last", "first", "denied", "users", "address"]),
        (&["tollgate", "blocked", "--sort", "d"], &["denied"]),
        (&["tollgate", "audit", "--by", ""], &["operator", "rule"]),
        (&["tollgate", "events", "--type", "not"], &["not_reloaded"]),
        (&["tollgate", "completions", "b"], &["bash"]),
        (&["tollgate", "check", "--config", "pro"], &["proxy.yaml"]),
        (&["tollgate", "run", "--config", "pro"], &["proxy.yaml"]),
        (&["tollgate", "explain", "--client-cert", "pro"], &["proxy.yaml"]),
    ] {
        assert_eq!(completed(directory.path(), words), offered, "{words:?}");
    }
}
