//! Hostile forms, read by the parsers of other languages: where one finds a field, it is ours, or we have refused the form.
//! `TOLLGATE_TEST_ROUNDS=50` for 100,000 forms, `TOLLGATE_TEST_SEED=7` for another seed. PHP, Ruby, Rack and Express' `qs` take part
//! where they are installed.

use std::env;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use fastrand::Rng;
use tollgate::request_values::Form;

use super::against_parsers::read_by;

const FORMS: usize = 2_000;
const FIELDS: [&str; 3] = ["username", "user_name", "user[login]"];

/// Each reads lines of base64, and writes a line for each: the fields at [`FIELDS`] in base64, `-` for none and `*` for what is no text.
const PARSERS: [(&str, &[&str]); 7] = [
    ("python3", &["-c", PYTHON]),
    ("node", &["-e", SEARCH_PARAMS]),
    ("node", &["-e", QUERY_STRING]),
    ("node", &["-e", QS]),
    ("php", &["-d", "max_input_vars=100000", "-r", PHP]),
    ("ruby", &["-ruri", "-rbase64", "-e", RUBY]),
    ("ruby", &["-rrack", "-rbase64", "-e", RACK]),
];

const PYTHON: &str = r#"
import base64, sys, urllib.parse
for line in sys.stdin:
    pairs = dict(urllib.parse.parse_qsl(base64.b64decode(line).decode("latin-1"), keep_blank_values=True, encoding="latin-1"))
    show = lambda name: base64.b64encode(pairs[name].encode("latin-1")).decode() if pairs.get(name) else "-"
    print(",".join(show(name) for name in ["username", "user_name", "user[login]"]))
"#;

/// As browsers and Node's fetch read them.
const SEARCH_PARAMS: &str = r#"
require("readline").createInterface({ input: process.stdin }).on("line", line => {
    const all = new URLSearchParams(Buffer.from(line, "base64").toString("utf8"));
    const show = name => all.get(name) ? Buffer.from(all.getAll(name).pop()).toString("base64") || "-" : "-";
    console.log(["username", "user_name", "user[login]"].map(show).join(","));
});
"#;

const QUERY_STRING: &str = r#"
const parse = require("querystring").parse;
require("readline").createInterface({ input: process.stdin }).on("line", line => {
    const all = parse(Buffer.from(line, "base64").toString("utf8"), null, null, { maxKeys: 0 });
    const show = value => Array.isArray(value) ? "*" : value ? Buffer.from(value).toString("base64") : "-";
    console.log(["username", "user_name", "user[login]"].map(name => show(all[name])).join(","));
});
"#;

const QS: &str = r#"
const parse = require("qs").parse;
require("readline").createInterface({ input: process.stdin }).on("line", line => {
    const all = parse(Buffer.from(line, "base64").toString("utf8"));
    const show = value => value === undefined || value === "" ? "-" : typeof value === "string" ? Buffer.from(value).toString("base64") : "*";
    const inner = all.user && typeof all.user === "object" ? all.user.login : undefined;
    console.log([show(all.username), show(all.user_name), show(inner)].join(","));
});
"#;

const PHP: &str = r#"
$show = fn($value) => $value === null || $value === "" ? "-" : (is_string($value) ? base64_encode($value) : "*");
while (($line = fgets(STDIN)) !== false) {
    parse_str(base64_decode($line), $all);
    $user = $all["user"] ?? null;
    echo implode(",", [$show($all["username"] ?? null), $show($all["user_name"] ?? null), $show(is_array($user) ? $user["login"] ?? null : null)]), "\n";
}
"#;

const RUBY: &str = r#"
STDIN.each_line do |line|
  begin
    all = URI.decode_www_form(Base64.decode64(line).force_encoding("UTF-8")).to_h
    puts ["username", "user_name", "user[login]"].map { |name| all[name].to_s.empty? ? "-" : Base64.strict_encode64(all[name]) }.join(",")
  rescue ArgumentError
    puts "error"
  end
end
"#;

const RACK: &str = r#"
show = ->(value) { value.nil? || value == "" ? "-" : value.is_a?(String) ? Base64.strict_encode64(value) : "*" }
STDIN.each_line do |line|
  begin
    all = Rack::Utils.parse_nested_query(Base64.decode64(line).force_encoding("UTF-8"))
    user = all["user"]
    puts [show[all["username"]], show[all["user_name"]], show[user.is_a?(Hash) ? user["login"] : nil]].join(",")
  rescue StandardError
    puts "error"
  end
end
"#;

/// A form of pieces that parsers are known to disagree on.
fn hostile(rng: &mut Rng) -> Vec<u8> {
    const NAMES: [&str; 34] = [
        "username",
        "user_name",
        "user[login]",
        "user%5Blogin%5D",
        "Username",
        "%75sername",
        "user%6eame",
        "username[]",
        "username[a]",
        "[username]",
        "username]",
        "user.name",
        "user+name",
        "user%20name",
        "user[name",
        "+username",
        "%20username",
        "%09username",
        "username%00",
        "username%00x",
        "%00username",
        "username+",
        "user[login",
        "user[login]x",
        "user[login][]",
        "user[[login]]",
        "[user][login]",
        "user][login]",
        "user",
        "user[]",
        "user[password]",
        "u%sername",
        "password",
        "",
    ];
    const VALUES: [&str; 16] = [
        "ann", "bob", "", "a+b", "a%2Bb", "%41nn", "%e4", "%c3%a4", "%", "%4", "%zz", "a=b", "a%00b", "a;b",
        "%u0061", "\u{e4}",
    ];
    let mut text = String::new();
    for nth in 0..rng.usize(0..6) {
        if nth > 0 {
            text.push_str(["&", "&", "&", "&", "&", "&", ";", "&&", "\n"][rng.usize(0..9)]);
        }
        let name =
            NAMES[if rng.bool() { [0, 1, 2, 3, 30, 32][rng.usize(0..6)] } else { rng.usize(0..NAMES.len()) }];
        let value = VALUES[if rng.bool() { rng.usize(0..5) } else { rng.usize(0..VALUES.len()) }];
        text.extend([name, ["=", "=", "=", "=", "=", "=", "=", "", "==", " = "][rng.usize(0..10)], value]);
    }
    let mut bytes = text.into_bytes();
    if rng.u8(0..12) == 0 {
        let at = rng.usize(0..=bytes.len());
        bytes.insert(at, rng.u8(..));
    }
    // A line ends what the parsers are told, and none is in base64.
    bytes
}

#[test]
fn what_a_parser_finds_in_a_form_is_what_is_read_or_it_is_refused() {
    let number = |name: &str| env::var(name).ok().map(|number| number.parse::<u64>().unwrap());
    let rounds = number("TOLLGATE_TEST_ROUNDS").unwrap_or(1) as usize;
    let mut rng = Rng::with_seed(number("TOLLGATE_TEST_SEED").unwrap_or(1));
    let (mut read, mut parsers) = (0, 0);
    for _ in 0..rounds {
        let forms: Vec<Vec<u8>> = (0..FORMS).map(|_| hostile(&mut rng)).collect();
        for (program, arguments) in PARSERS {
            let Some(lines) = read_by((program, arguments), &forms) else { continue };
            parsers += 1;
            for (form, line) in forms.iter().zip(lines).filter(|(_, line)| line != "error") {
                for (name, theirs) in FIELDS.iter().zip(line.split(',')) {
                    let Ok(ours) = Form::new(form).field(name) else { continue };
                    read += 1;
                    let shown =
                        ours.filter(|text| !text.is_empty()).map(|text| BASE64_STANDARD.encode(&*text));
                    let (program, form) =
                        (arguments.last().unwrap_or(&program), String::from_utf8_lossy(form));
                    assert_eq!(shown.as_deref().unwrap_or("-"), theirs, "{name} in {form}: {program:.60}");
                }
            }
        }
    }
    assert!(parsers >= 3 * rounds && read > 3 * FORMS * rounds, "{read} fields by {parsers} parsers");
}
