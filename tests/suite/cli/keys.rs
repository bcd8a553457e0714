//! `tollgate keys`.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::Path,
    thread,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    admin::keys::keyed,
    harness::{Config, Origin, Terminal, Tollgate, command, eventually, get, tollgate_in},
};

fn status(tollgate: &Tollgate, key: &str) -> u16 {
    get(tollgate.address, "/", &[("x-api-key", key.trim())]).status
}

/// An instance with the keys of a file.
fn by_file(origin: &Origin, directory: &Path) -> Tollgate {
    let rest = format!(
        "api_keys: {{ file: \"{}/keys.yaml\", attempts: 100000/1m }}
plans: {{ pro: {{ many: 200000/1d }} }}
policies: {{ many: {{ algorithm: fixed_window, key: customer, limit: 100000/1d }} }}\n",
        directory.display()
    );
    Tollgate::start(Config::new(&[origin.address], &rest).with_policy("many"))
}

#[test]
fn a_key_is_made_shown_changed_rotated_revoked_and_deleted() {
    let origin = Origin::ok();
    let tollgate = keyed(&origin, None, "");
    let made = tollgate.command(&[
        "keys",
        "create",
        "--customer",
        "acme",
        "--plan",
        "por",
        "--name",
        "CI",
        "--id",
        "a",
    ]);
    assert_eq!((made.code, made.stdout.lines().count()), (Some(0), 1), "{made:?}");
    assert!(made.stdout.starts_with("tgk_a_"));
    assert!(made.stderr.starts_with("Key a of acme was made. It can't be shown again.\n"), "{made:?}");
    assert!(
        made.stderr
            .contains("warning: no plan is named por: the policies' own limits hold; did you mean pro?")
    );
    assert_eq!(status(&tollgate, &made.stdout), 200);

    let listed = tollgate.command(&["keys", "list", "--customer", "acme"]).stdout;
    let row: Vec<&str> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..5], ["a", "acme", "por", "CI", "active"], "{listed}");
    assert_eq!(tollgate.command(&["keys", "list", "--state", "revoked"]).stdout, "There are no such keys.\n");

    let set =
        tollgate.command(&["keys", "set", "a", "--plan", "pro", "--expires", "90d", "--label", "team=a"]);
    assert_eq!((set.code, set.stdout.as_str()), (Some(0), "Key a was changed.\n"), "{set:?}");
    let shown = tollgate.command(&["keys", "show", "a"]).stdout;
    assert!(shown.contains("plan       pro\n") && shown.contains("labels     team=a\n"), "{shown}");
    let json: Value =
        serde_json::from_str(&tollgate.command(&["keys", "show", "a", "--json"]).stdout).unwrap();
    assert_eq!(json["customer"], "acme");

    let rotated = tollgate.command(&["keys", "rotate", "a", "--overlap", "1h"]);
    assert!(rotated.stderr.contains("the old secret is valid for another 1h"), "{rotated:?}");
    assert_eq!([&made.stdout, &rotated.stdout].map(|key| status(&tollgate, key)), [200, 200]);
    let again = tollgate.command(&["keys", "rotate", "a", "--overlap", "0"]);
    assert!(again.stderr.contains("the old secret is not valid any more"), "{again:?}");
    assert_eq!([&made.stdout, &rotated.stdout].map(|key| status(&tollgate, key)), [401, 401]);

    let revoked = tollgate.command(&["keys", "revoke", "a", "--reason", "in a public repository"]);
    assert_eq!(revoked.stdout, "Key a of acme is revoked.\n", "{revoked:?}");
    assert_eq!(status(&tollgate, &again.stdout), 401);
    assert!(tollgate.command(&["keys", "show", "a"]).stdout.contains("UTC: in a public repository\n"));
    let refused = tollgate.command(&["keys", "rotate", "a"]);
    assert_eq!(
        (refused.code, refused.stderr.as_str()),
        (Some(1), "tollgate: key a was revoked: make a new key\n")
    );
    assert_eq!(tollgate.command(&["keys", "delete", "a"]).stdout, "Key a is deleted.\n");
    assert_eq!(tollgate.command(&["keys", "show", "a"]).code, Some(1));
    let wrong = tollgate.command(&["keys", "create", "--customer", "acme", "--expires", "soon"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert_eq!(tollgate.command(&["keys", "set", "a"]).code, Some(2));
}

#[test]
fn exported_keys_can_be_imported_elsewhere() {
    let origin = Origin::ok();
    let one = keyed(&origin, None, "");
    let key =
        one.command(&["keys", "create", "--customer", "a,\"b\"", "--plan", "pro", "--label", "x=y"]).stdout;
    let gone = one.command(&["keys", "create", "--customer", "c", "--id", "gone"]).stdout;
    one.command(&["keys", "revoke", "gone"]);
    let table = one.command(&["keys", "export"]).stdout;
    assert!(!table.contains(key.trim()) && table.contains("sha256:") && !table.contains("gone"), "{table}");
    let other = keyed(&origin, None, "");
    let file = other.directory().join("keys.csv");
    fs::write(&file, &table).unwrap();
    let import = ["keys", "import", file.to_str().unwrap()];
    let imported = other.command(&import);
    assert_eq!(imported.stdout, "1 key imported.\n", "{imported:?}");
    assert_eq!([&key, &gone].map(|key| status(&other, key)), [200, 401]);
    let again = other.command(&import).stdout;
    assert!(again.contains("1 key there already"), "{again}");
    let yaml = one.command(&["keys", "export", "--format", "yaml"]).stdout;
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("keys.yaml"), &yaml).unwrap();
    let by_file = by_file(&origin, directory.path());
    assert_eq!(status(&by_file, &key), 200);
}

#[test]
fn a_name_neither_runs_in_a_spreadsheet_nor_turns_text_around_and_is_exported_as_it_is() {
    let origin = Origin::ok();
    let one = keyed(&origin, None, "");
    for customer in ["=1+1", "'=1+1", "acme\u{202e}\u{e0041}"] {
        assert_eq!(one.command(&["keys", "create", "--customer", customer]).code, Some(0));
    }
    let customers = |tollgate: &Tollgate| {
        let keys = tollgate.admin("GET", "/v1/keys").json()["keys"].clone();
        let mut customers: Vec<String> =
            keys.as_array().unwrap().iter().map(|key| key["customer"].to_string()).collect();
        customers.sort_unstable();
        customers
    };
    let table = one.command(&["keys", "export"]).stdout;
    assert!(table.contains(",'=1+1,") && table.contains(",''=1+1,") && !table.contains(",=1+1"), "{table}");
    let other = keyed(&origin, None, "");
    let file = other.directory().join("keys.csv");
    fs::write(&file, &table).unwrap();
    assert_eq!(other.command(&["keys", "import", file.to_str().unwrap()]).stdout, "3 keys imported.\n");
    assert_eq!(customers(&other), customers(&one));

    let directory = TempDir::new().unwrap();
    let yaml = one.command(&["keys", "export", "--format", "yaml"]).stdout;
    fs::write(directory.path().join("keys.yaml"), &yaml).unwrap();
    assert_eq!(customers(&by_file(&origin, directory.path())), customers(&one));
    let json = one.command(&["keys", "export", "--json"]).stdout;
    for shown in [yaml, json, one.command(&["keys", "list"]).stdout] {
        assert!(shown.contains("202e") && !shown.contains(['\u{202e}', '\u{e0041}']), "{shown}");
    }
    // A terminal gets the table as it can be read, a file as it is.
    let terminal = Terminal::open(20, 400);
    let mut export = command(Path::new("."));
    let _export = terminal.run(export.args(["keys", "export", "--admin", &one.admin.to_string()]));
    eventually("the table is shown", || terminal.text().contains(r"acme\u{202e}\u{e0041}"));
}

#[test]
fn a_wrong_line_is_told_and_nothing_is_sent() {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("keys.csv"), "key,customer\na-key-of-a-customer,acme\nshort,acme\n")
        .unwrap();
    let refused =
        tollgate_in(directory.path(), &[("TOLLGATE_ADMIN", "127.0.0.1:1")], &["keys", "import", "keys.csv"]);
    assert_eq!(refused.code, Some(2));
    assert_eq!(
        refused.stderr,
        "tollgate: keys.csv: line 3: key: has 5 characters, not 16 to 512: it could be guessed\n"
    );
    let missing = tollgate_in(directory.path(), &[], &["keys", "import", "none.csv"]);
    assert!(missing.code == Some(1) && missing.stderr.contains("can't read none.csv"), "{missing:?}");
}

fn local(directory: &Path, arguments: &[&str]) -> crate::harness::Ended {
    tollgate_in(directory, &[("TOLLGATE_ADMIN", "127.0.0.1:1")], &[&["keys"], arguments].concat())
}

#[test]
fn a_file_of_keys_is_changed_without_an_instance_and_keeps_its_comments() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("keys.yaml");
    let made = local(directory.path(), &["create", "--file", "keys.yaml", "--customer", "acme", "--id", "a"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("# ours\n{text}# the end\n")).unwrap();
    let more =
        local(directory.path(), &["create", "--file", "keys.yaml", "--customer", "b: #", "--expires", "90d"]);
    assert!(more.code == Some(0) && more.stderr.contains("was written to keys.yaml"), "{more:?}");
    let origin = Origin::ok();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("# ours\nkeys:\n") && text.ends_with("# the end\n"), "{text}");
    assert!(!text.contains(made.stdout.trim()));
    let tollgate = by_file(&origin, directory.path());
    assert_eq!([&made.stdout, &more.stdout].map(|key| status(&tollgate, key)), [200, 200]);
    let inside = directory.path();
    let rotated = local(inside, &["rotate", "a", "--file", "keys.yaml"]);
    assert_eq!(rotated.code, Some(0), "{rotated:?}");
    eventually("the new one is known", || status(&tollgate, &rotated.stdout) == 200);
    assert_eq!(status(&tollgate, &made.stdout), 200);
    let newest = local(inside, &["rotate", "a", "--file", "keys.yaml", "--overlap", "0"]);
    eventually("the old ones are gone", || {
        [&made.stdout, &rotated.stdout, &newest.stdout].map(|key| status(&tollgate, key)) == [401, 401, 200]
    });
    assert_eq!(local(inside, &["revoke", "a", "--file", "keys.yaml"]).code, Some(0));
    eventually("it is gone", || status(&tollgate, &newest.stdout) == 401);
    assert_eq!(local(inside, &["revoke", "a", "--file", "keys.yaml"]).code, Some(1));
    let refused = tollgate.command(&["keys", "create", "--customer", "acme"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("`api_keys.store` is not set"), "{refused:?}");
    assert!(refused.stderr.contains("with `--file`"), "{refused:?}");
}

#[test]
fn a_file_of_keys_that_can_not_be_used_is_an_error_of_the_configuration() {
    let directory = TempDir::new().unwrap();
    let yaml = "api_keys: { file: keys.yaml }
admin: { address: 127.0.0.1:0 }
listeners: [{ address: 127.0.0.1:0 }]
upstreams: { a: { endpoints: [http://127.0.0.1:1] } }
routes: [{ path: /*, upstream: a }]
";
    fs::write(directory.path().join("proxy.yaml"), yaml).unwrap();
    for (text, message) in [
        (None, "proxy.yaml:1:19: `keys.yaml` cannot be read: "),
        (Some("keys: 1\n"), "proxy.yaml:1:19: `keys.yaml` lists no API keys that can be used: "),
    ] {
        if let Some(text) = text {
            fs::write(directory.path().join("keys.yaml"), text).unwrap();
        }
        let checked = tollgate_in(directory.path(), &[], &["check"]);
        let run = tollgate_in(directory.path(), &[], &["run"]);
        assert!(checked.code == Some(78) && checked.stderr.starts_with(message), "{checked:?}");
        assert!(run.code == Some(78) && run.stderr.ends_with(&checked.stderr), "{run:?}");
    }
}

#[test]
fn a_request_with_a_key_is_explained() {
    let origin = Origin::ok();
    for from in ["[{ header: x-api-key }]", "[bearer]", "[{ query: key }]"] {
        let rest = format!(
            "api_keys: {{ store: true, data: keys.json, from: {from} }}
policies: {{ many: {{ algorithm: fixed_window, key: customer, limit: 9/1d }} }}\n"
        );
        let tollgate = Tollgate::start(Config::new(&[origin.address], &rest).with_policy("many"));
        let key = tollgate.command(&["keys", "create", "--customer", "acme"]).stdout;
        for url in ["/", "/?a=b"] {
            let explained = tollgate.command(&["explain", "--key", key.trim(), url]);
            assert!(explained.code == Some(0) && explained.stdout.contains("customer:acme"), "{explained:?}");
            assert!(!explained.stdout.contains(key.trim()), "{explained:?}");
        }
        let explained = tollgate.command(&["explain", "--key", "a-key-of-nobody-at-all", "/"]);
        assert!(explained.code == Some(1) && explained.stdout.contains("401"), "{explained:?}");
    }
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let refused = tollgate.command(&["explain", "--key", "a-key-of-nobody-at-all", "/"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("`api_keys` is not set"), "{refused:?}");
}

#[test]
fn a_file_that_can_not_be_changed_safely_is_left_alone() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("keys.yaml");
    for text in ["keys: [{ id: a, hash: x, customer: b }]\n", "other: 1\n", "keys:\n  - { id: a }\n"] {
        fs::write(&path, text).unwrap();
        let refused = local(directory.path(), &["create", "--file", "keys.yaml", "--customer", "acme"]);
        assert!(refused.code == Some(1) && refused.stdout.is_empty(), "{text}: {refused:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}

#[test]
fn a_changed_file_keeps_its_owner_its_mode_and_the_links_to_it() {
    let directory = TempDir::new().unwrap();
    fs::create_dir(directory.path().join("there")).unwrap();
    let path = directory.path().join("there/keys.yaml");
    fs::write(&path, "keys: []\n").unwrap();
    // Only root may.
    let _owned = chown(&path, Some(12_345), Some(54_321));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    for (link, target) in [("link.yaml", "there/keys.yaml"), ("new.yaml", "there/not-yet.yaml")] {
        symlink(target, directory.path().join(link)).unwrap();
    }
    let identity = || {
        let metadata = fs::metadata(&path).unwrap();
        (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777)
    };
    let before = identity();
    for file in ["link.yaml", "new.yaml"] {
        let made = local(directory.path(), &["create", "--file", file, "--customer", "acme", "--id", "a"]);
        assert_eq!(made.code, Some(0), "{made:?}");
        assert!(fs::symlink_metadata(directory.path().join(file)).unwrap().is_symlink(), "{file}");
        assert!(fs::read_to_string(directory.path().join(file)).unwrap().contains("id: a"), "{file}");
    }
    assert_eq!(identity(), before);
    let names: Vec<_> = fs::read_dir(directory.path().join("there")).unwrap().collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn commands_at_the_same_time_lose_no_key() {
    let directory = TempDir::new().unwrap();
    let create = |n: usize| {
        let id = format!("k{n}");
        local(directory.path(), &["create", "--file", "keys.yaml", "--customer", "acme", "--id", &id])
    };
    thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|n| scope.spawn(move || create(n))).collect();
        for one in all {
            let made = one.join().unwrap();
            assert_eq!(made.code, Some(0), "{made:?}");
        }
    });
    let text = fs::read_to_string(directory.path().join("keys.yaml")).unwrap();
    for n in 0..8 {
        assert!(text.contains(&format!("- id: k{n}\n")), "{text}");
    }
}

#[test]
fn the_reason_of_a_revocation_stays_in_the_file() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("keys.yaml");
    for id in ["a", "b"] {
        local(directory.path(), &["create", "--file", "keys.yaml", "--customer", "acme", "--id", id]);
    }
    let before = fs::read_to_string(&path).unwrap();
    let revoke = |id: &str, reason: &str| {
        local(directory.path(), &["revoke", id, "--file", "keys.yaml", "--reason", reason])
    };
    let wrong = revoke("a", "two\nlines");
    assert!(wrong.code == Some(2) && wrong.stderr.contains("no control characters"), "{wrong:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    for id in ["a", "b"] {
        let revoked = revoke(id, "in a public repository: #1");
        assert_eq!(revoked.code, Some(0), "{revoked:?}");
        let text = fs::read_to_string(&path).unwrap();
        let note = text.lines().find(|line| line.contains(&format!("# {id} of acme was revoked on 2")));
        assert!(note.is_some_and(|note| note.ends_with(": in a public repository: #1")), "{text}");
    }
    let again =
        local(directory.path(), &["create", "--file", "keys.yaml", "--customer", "acme", "--id", "a"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(fs::read_to_string(&path).unwrap().matches("was revoked on").count(), 2);
}

#[test]
fn keys_of_a_file_with_several_hashes_can_be_exported_and_imported() {
    let (origin, directory) = (Origin::ok(), TempDir::new().unwrap());
    let mut keys = Vec::new();
    keys.push(
        local(directory.path(), &["create", "--file", "keys.yaml", "--customer", "acme", "--id", "a"]).stdout,
    );
    for _ in 0..3 {
        keys.push(local(directory.path(), &["rotate", "a", "--file", "keys.yaml"]).stdout);
    }
    let text = fs::read_to_string(directory.path().join("keys.yaml")).unwrap();
    let live = text.matches("sha256:").count();
    assert!(live >= 2, "{text}");
    let exporting = by_file(&origin, directory.path());
    let table = exporting.command(&["keys", "export"]).stdout;
    let other = keyed(&origin, None, "");
    let file = other.directory().join("keys.csv");
    fs::write(&file, &table).unwrap();
    let imported = other.command(&["keys", "import", file.to_str().unwrap()]);
    assert_eq!(imported.stdout, "1 key imported.\n", "{imported:?} {table}");
    for key in &keys[keys.len() - live..] {
        assert_eq!(status(&other, key), 200);
    }
}

#[test]
fn a_table_that_spreadsheets_write_is_imported_and_one_that_is_not_utf_8_is_told() {
    let origin = Origin::ok();
    let tollgate = keyed(&origin, None, "");
    let file = tollgate.directory().join("keys.csv");
    let import = |table: &[u8]| {
        fs::write(&file, table).unwrap();
        tollgate.command(&["keys", "import", file.to_str().unwrap()])
    };
    let table =
        "\u{feff}\"key\",customer,name\r\na-key-of-a-customer,\"M\u{fc}ller, \"\"S\u{f6}hne\"\"\",\"CI\"\r\n";
    let imported = import(table.as_bytes());
    assert_eq!(imported.stdout, "1 key imported.\n", "{imported:?}");
    assert_eq!(status(&tollgate, "a-key-of-a-customer"), 200);
    assert!(tollgate.command(&["keys", "list"]).stdout.contains("M\u{fc}ller, \"S\u{f6}hne\""));
    let latin = import(b"key,customer\na-key-of-a-customer,M\xfcller\n");
    assert!(
        latin.code == Some(2) && latin.stderr.ends_with("keys.csv: line 2: it is not UTF-8\n"),
        "{latin:?}"
    );
    let utf_16: Vec<u8> = "\u{feff}key,customer\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let utf_16 = import(&utf_16);
    assert!(
        utf_16.code == Some(2) && utf_16.stderr.ends_with("keys.csv: line 1: it is not UTF-8\n"),
        "{utf_16:?}"
    );
}

#[test]
fn a_key_is_changed_only_if_it_has_the_version_that_is_named() {
    let origin = Origin::ok();
    let tollgate = keyed(&origin, None, "");
    assert_eq!(tollgate.command(&["keys", "create", "--customer", "acme", "--id", "a"]).code, Some(0));
    let version = || {
        let shown = tollgate.command(&["keys", "show", "a"]).stdout;
        let line = shown.lines().find_map(|line| line.strip_prefix("version")).unwrap();
        line.trim().to_owned()
    };
    let first = version();
    let changed = tollgate.command(&["keys", "set", "a", "--plan", "pro", "--if-match", &first]);
    assert_eq!(changed.code, Some(0), "{changed:?}");
    for command in [&["set", "a", "--name", "x"][..], &["rotate", "a"], &["revoke", "a"]] {
        let stale = tollgate.command(&[&["keys"], command, &["--if-match", &first]].concat());
        assert_eq!(stale.code, Some(1), "{stale:?}");
        assert!(stale.stderr.contains("key a was changed since: nothing was changed"), "{stale:?}");
        assert!(stale.stdout.is_empty(), "{stale:?}");
    }
    let rotated = tollgate.command(&["keys", "rotate", "a", "--if-match", &version()]);
    assert_eq!(rotated.code, Some(0), "{rotated:?}");
    assert_eq!(status(&tollgate, &rotated.stdout), 200);
}
