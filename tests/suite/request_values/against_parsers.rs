//! Hostile bodies, read by the JSON parsers of other languages: where one takes a body, its values are ours, or we have refused
//! the body. `TOLLGATE_TEST_ROUNDS=50` for 100,000 bodies, `TOLLGATE_TEST_SEED=7` for another seed. Go, PHP, Ruby, Perl and pydantic
//! take part where they are installed.

use std::{
    env, fs,
    io::Write,
    process::{Command, Stdio},
    thread,
};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use fastrand::Rng;
use tollgate::request_values::Members;

use super::{asking, path};

const BODIES: usize = 2_000;
const PATHS: [&str; 5] = ["stream", "max_tokens", "model", "stream_options.include_usage", "params.name"];

/// Each reads lines of base64, and writes a line for each: the values at [`PATHS`], of each element of an array, or `error`.
const PARSERS: [(&str, &[&str]); 7] = [
    ("python3", &["-c", PYTHON]),
    ("python3", &["-c", PYTHON, "pydantic_core"]),
    ("node", &["-e", NODE]),
    ("jq", &["-R", "-r", "--unbuffered", JQ]),
    ("php", &["-r", PHP]),
    ("ruby", &["-rjson", "-rbase64", "-e", RUBY]),
    ("perl", &["-MJSON::PP", "-MMIME::Base64", "-e", PERL]),
];

const PYTHON: &str = r#"
import base64, importlib, json, sys
loads = json.loads if len(sys.argv) < 2 else importlib.import_module(sys.argv[1]).from_json
PATHS = ["stream", "max_tokens", "model", "stream_options.include_usage", "params.name"]
def shown(value):
    if value is None: return "-"
    if isinstance(value, bool): return str(value).lower()
    if isinstance(value, float) and value != value: return "f"
    if isinstance(value, (int, float)):
        if isinstance(value, float) and (value in (float("inf"), float("-inf")) or value != int(value)): return "f"
        return "neg" if value < 0 else "big" if value > 2**53 - 1 else str(int(value))
    if isinstance(value, str): return "s:" + base64.b64encode(value.encode("utf-8", "replace")).decode()
    return "o"
def at(value, path):
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return shown(value)
for line in sys.stdin:
    try:
        whole = loads(base64.b64decode(line))
    except Exception:
        print("error")
        continue
    print("|".join(",".join(at(one, path) for path in PATHS) for one in (whole if isinstance(whole, list) else [whole])))
"#;

const NODE: &str = r#"
const PATHS = ["stream", "max_tokens", "model", "stream_options.include_usage", "params.name"];
const shown = value => {
    if (value === null || value === undefined) return "-";
    if (typeof value === "boolean") return String(value);
    if (typeof value === "number") {
        if (!Number.isInteger(value)) return "f";
        return value < 0 ? "neg" : value > Number.MAX_SAFE_INTEGER ? "big" : String(value === 0 ? 0 : value);
    }
    return typeof value === "string" ? "s:" + Buffer.from(value).toString("base64") : "o";
};
const isObject = value => typeof value === "object" && value !== null && !Array.isArray(value);
const at = (value, path) => {
    for (const name of path.split(".")) value = isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
    return shown(value);
};
require("readline").createInterface({ input: process.stdin }).on("line", line => {
    try {
        const whole = JSON.parse(new TextDecoder().decode(Buffer.from(line, "base64")));
        console.log((Array.isArray(whole) ? whole : [whole]).map(one => PATHS.map(path => at(one, path)).join(",")).join("|"));
    } catch {
        console.log("error");
    }
});
"#;

const JQ: &str = r#"
def shown:
    if . == null then "-"
    elif type == "boolean" then tostring
    elif type == "number" then
        if isnan or isinfinite or . != floor then "f"
        elif . < 0 then "neg" elif . > 9007199254740991 then "big" else (. + 0 | tostring | if . == "-0" then "0" else . end) end
    elif type == "string" then "s:" + @base64
    else "o" end;
def at($path): try getpath($path / ".") catch null | shown;
def all: [at("stream"), at("max_tokens"), at("model"), at("stream_options.include_usage"), at("params.name")] | join(",");
try (@base64d | fromjson | if type == "array" then map(all) | join("|") else all end) catch "error"
"#;

const PHP: &str = r#"
$paths = ["stream", "max_tokens", "model", "stream_options.include_usage", "params.name"];
function shown($value) {
    if ($value === null) return "-";
    if (is_bool($value)) return $value ? "true" : "false";
    if (is_int($value) || is_float($value)) {
        if (is_float($value) && (is_infinite($value) || floor($value) != $value)) return "f";
        return $value < 0 ? "neg" : ($value > 9007199254740991 ? "big" : strval((int)$value));
    }
    return is_string($value) ? "s:" . base64_encode($value) : "o";
}
function at($value, $path) {
    foreach (explode(".", $path) as $name)
        $value = is_object($value) && property_exists($value, $name) ? $value->$name : null;
    return shown($value);
}
while (($line = fgets(STDIN)) !== false) {
    $whole = json_decode(base64_decode($line), false, 100000);
    if (json_last_error() !== JSON_ERROR_NONE) { echo "error\n"; continue; }
    $all = fn($one) => implode(",", array_map(fn($path) => at($one, $path), $paths));
    echo implode("|", array_map($all, is_array($whole) ? $whole : [$whole])), "\n";
}
"#;

const RUBY: &str = r#"
PATHS = ["stream", "max_tokens", "model", "stream_options.include_usage", "params.name"]
def shown(value)
  case value
  when nil then "-"
  when true, false then value.to_s
  when Integer, Float
    return "f" if value.is_a?(Float) && (!value.finite? || value != value.floor)
    value < 0 ? "neg" : value > 2**53 - 1 ? "big" : value.to_i.to_s
  when String then "s:" + Base64.strict_encode64(value)
  else "o"
  end
end
STDIN.each_line do |line|
  begin
    whole = JSON.parse(Base64.decode64(line).force_encoding("UTF-8"), max_nesting: false)
    all = (whole.is_a?(Array) ? whole : [whole]).map do |one|
      PATHS.map { |path| shown(path.split(".").reduce(one) { |value, name| value.is_a?(Hash) ? value[name] : nil }) }.join(",")
    end
    puts all.join("|")
  rescue StandardError
    puts "error"
  end
end
"#;

const PERL: &str = r#"
use B;
my @paths = ("stream", "max_tokens", "model", "stream_options.include_usage", "params.name");
my $json = JSON::PP->new->utf8->allow_nonref->max_depth(100000);
sub shown {
    my $value = shift;
    return "-" unless defined $value;
    if (ref $value) { return JSON::PP::is_bool($value) ? ($value ? "true" : "false") : "o"; }
    if (B::svref_2object(\$value)->FLAGS & (B::SVf_IOK | B::SVf_NOK) and !(B::svref_2object(\$value)->FLAGS & B::SVf_POK)) {
        return "f" if $value != $value or abs($value) == 9**9**9 or $value != int($value);
        return $value < 0 ? "neg" : $value > 9007199254740991 ? "big" : sprintf("%d", $value);
    }
    utf8::encode($value);
    return "s:" . encode_base64($value, "");
}
$| = 1;
while (my $line = <STDIN>) {
    my $whole = eval { $json->decode(decode_base64($line)) };
    if ($@) { print "error\n"; next; }
    my @all = map {
        my $one = $_;
        join ",", map {
            my $value = $one;
            for my $name (split /\./, $_) { $value = ref $value eq "HASH" ? $value->{$name} : undef; }
            shown($value);
        } @paths;
    } ref $whole eq "ARRAY" ? @$whole : ($whole);
    print join("|", @all), "\n";
}
"#;

/// Into a struct, whose fields Go finds in any case.
const GO: &str = r#"
package main

import ("bufio"; "bytes"; "encoding/base64"; "encoding/json"; "fmt"; "math"; "os"; "strings")

type request struct {
	Stream any `json:"stream"`
	MaxTokens any `json:"max_tokens"`
	Model any `json:"model"`
	StreamOptions struct { IncludeUsage any `json:"include_usage"` } `json:"stream_options"`
	Params struct { Name any `json:"name"` } `json:"params"`
}

func shown(value any) string {
	switch value := value.(type) {
	case nil: return "-"
	case bool: return fmt.Sprint(value)
	case float64:
		if value != math.Floor(value) || math.IsInf(value, 0) { return "f" }
		if value < 0 { return "neg" }
		if value > 1<<53 - 1 { return "big" }
		return fmt.Sprint(int64(value))
	case string: return "s:" + base64.StdEncoding.EncodeToString([]byte(value))
	}
	return "o"
}

func main() {
	lines := bufio.NewReaderSize(os.Stdin, 1 << 20)
	for {
		line, err := lines.ReadString('\n')
		if err != nil { return }
		body, _ := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
		all := make([]request, 1)
		if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) { all = nil; err = json.Unmarshal(body, &all) } else { err = json.Unmarshal(body, &all[0]) }
		if err != nil { fmt.Println("error"); continue }
		var out []string
		for _, one := range all {
			values := []any{one.Stream, one.MaxTokens, one.Model, one.StreamOptions.IncludeUsage, one.Params.Name}
			var row []string
			for _, value := range values { row = append(row, shown(value)) }
			out = append(out, strings.Join(row, ","))
		}
		fmt.Println(strings.Join(out, "|"))
	}
}
"#;

/// What a parser that is not installed would say.
pub(super) fn read_by((program, arguments): (&str, &[&str]), bodies: &[Vec<u8>]) -> Option<Vec<String>> {
    let mut command = Command::new(program);
    let child =
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.ok()?;
    let mut input = child.stdin.take().unwrap();
    let lines: String = bodies.iter().map(|body| BASE64_STANDARD.encode(body) + "\n").collect();
    // It may end before it has read all.
    let writing = thread::spawn(move || drop(input.write_all(lines.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    let said: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    // A module of it is not installed.
    (said.len() == bodies.len()).then_some(said)
}

/// The values in the same form. `?`: a policy that asks for it as a number, a text or a boolean refuses the body.
fn shown(members: &Members<'_, '_>) -> Vec<String> {
    let value = |text: &&str| {
        let path = path(text);
        let Some(member) = members.get(&path) else { return "-".to_owned() };
        if let Ok(is) = member.boolean(&path) {
            return is.to_string();
        }
        if member.is_object() {
            return "o".to_owned();
        }
        match member.whole_number(&path) {
            Ok(None) => "neg".to_owned(),
            Ok(Some(number)) if number > (1 << 53) - 1 => "big".to_owned(),
            Ok(Some(number)) => number.to_string(),
            Err(_) => "?".to_owned(),
        }
    };
    PATHS.iter().map(value).collect()
}

/// A body of pieces that parsers are known to disagree on.
fn hostile(rng: &mut Rng) -> Vec<u8> {
    const NAMES: [&str; 22] = [
        "stream",
        "Stream",
        "STREAM",
        "\\u0073tream",
        "ſtream",
        "max_tokens",
        "Max_Tokens",
        "max_to\u{212a}ens",
        "maxtokens",
        "model",
        "model\\u0000",
        "mod\\u0065l",
        "stream_options",
        "include_usage",
        "Include_Usage",
        "params",
        "name",
        "n\\u0061me",
        "tools",
        "\\ud800",
        "__proto__",
        "",
    ];
    const VALUES: [&str; 36] = [
        "true",
        "false",
        "null",
        "True",
        "\"true\"",
        "1",
        "0",
        "-0",
        "-1",
        "1.0",
        "1e3",
        "1E+2",
        "10e-1",
        "1.5",
        "01",
        "+1",
        ".5",
        "1.",
        "0x10",
        "9007199254740993",
        "18446744073709551616",
        "1e400",
        "-1e400",
        "NaN",
        "Infinity",
        "-Infinity",
        "\"a\"",
        "\"\\ud83d\\ude00\"",
        "\"\\ud800\"",
        "\"\\x41\"",
        "'a'",
        "\"a\nb\"",
        "\"\u{e9}\"",
        "[]",
        "[1,2]",
        "undefined",
    ];
    fn value(rng: &mut Rng, depth: usize, out: &mut String) {
        match rng.u8(0..12) {
            0..=2 if depth < 4 => object(rng, depth + 1, out),
            3 if depth < 4 => {
                out.push('[');
                for nth in 0..rng.usize(0..3) {
                    if nth > 0 {
                        out.push(',');
                    }
                    value(rng, depth + 1, out);
                }
                out.push(']');
            }
            _ => out.push_str(
                VALUES[if rng.u8(0..3) > 0 { rng.usize(0..13) } else { rng.usize(0..VALUES.len()) }],
            ),
        }
    }
    fn object(rng: &mut Rng, depth: usize, out: &mut String) {
        out.push('{');
        for nth in 0..rng.usize(0..6) {
            if nth > 0 {
                out.push_str(if rng.u8(0..40) == 0 { ",," } else { "," });
            }
            let name = NAMES[if rng.bool() {
                [0, 5, 9, 12, 13, 15, 16][rng.usize(0..7)]
            } else {
                rng.usize(0..NAMES.len())
            }];
            let quote = if rng.u8(0..60) == 0 { "'" } else { "\"" };
            out.extend([quote, name, quote, if rng.u8(0..60) == 0 { "=" } else { ":" }]);
            value(rng, depth, out);
        }
        out.push_str(if rng.u8(0..60) == 0 { ",}" } else { "}" });
    }
    let mut text = String::new();
    match rng.u8(0..10) {
        0 => value(rng, 0, &mut text),
        1 => {
            text.push('[');
            object(rng, 0, &mut text);
            text.push(',');
            object(rng, 0, &mut text);
            text.push(']');
        }
        _ => object(rng, 0, &mut text),
    }
    match rng.u8(0..24) {
        0 => text.insert(0, '\u{feff}'),
        1 => text.insert_str(0, "/* a */"),
        2 => text.insert_str(0, " \t\r\n"),
        3 => text.insert(0, '\u{a0}'),
        4 => text += "//",
        5 => text += " {}",
        6 => text.truncate(
            text.char_indices().map(|(at, _)| at).nth(rng.usize(0..text.len().max(1))).unwrap_or(0),
        ),
        7 => text.push('\0'),
        8 => return text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        9 => return text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        10 => {
            let mut bytes = text.into_bytes();
            let at = rng.usize(0..=bytes.len());
            bytes.insert(at, rng.u8(..));
            return bytes;
        }
        _ => {}
    }
    text.into_bytes()
}

#[test]
fn what_a_parser_takes_is_what_is_read_or_it_is_refused() {
    let number = |name: &str| env::var(name).ok().map(|number| number.parse::<u64>().unwrap());
    let rounds = number("TOLLGATE_TEST_ROUNDS").unwrap_or(1) as usize;
    let mut rng = Rng::with_seed(number("TOLLGATE_TEST_SEED").unwrap_or(1));
    let asked = asking(&PATHS);
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("main.go");
    fs::write(&program, GO).unwrap();
    let go = ["run", program.to_str().unwrap()];
    let (mut compared, mut taken) = (0, 0);
    for _ in 0..rounds {
        let bodies: Vec<Vec<u8>> = (0..BODIES).map(|_| hostile(&mut rng)).collect();
        let ours: Vec<Option<Vec<Vec<String>>>> = bodies
            .iter()
            .map(|body| {
                asked
                    .read(body)
                    .ok()
                    .filter(|_| !body.is_empty())
                    .map(|uses| uses.iter().map(shown).collect())
            })
            .collect();
        taken += ours.iter().flatten().count();
        let parsers = PARSERS.into_iter().chain([("go", &go[..])]);
        let said: Vec<_> = parsers.filter_map(|parser| Some((parser.0, read_by(parser, &bodies)?))).collect();
        let names: Vec<_> = said.iter().map(|(name, _)| *name).collect();
        assert!(["python3", "node", "jq"].iter().all(|name| names.contains(name)), "{names:?}");
        for (parser, lines) in &said {
            for ((body, ours), line) in bodies.iter().zip(&ours).zip(lines) {
                let Some(ours) = ours.as_ref().filter(|_| line != "error") else { continue };
                let theirs: Vec<Vec<&str>> = line.split('|').map(|one| one.split(',').collect()).collect();
                let theirs = if line.is_empty() { Vec::new() } else { theirs };
                let shown = String::from_utf8_lossy(body);
                assert_eq!(ours.len(), theirs.len(), "{parser}: {shown}: {line}");
                for (ours, theirs) in ours.iter().flatten().zip(theirs.iter().flatten()) {
                    compared += 1;
                    assert!(ours == theirs || ours == "?", "{parser}: {shown}: {ours} and {theirs}");
                }
            }
        }
    }
    assert!(taken > rounds * BODIES / 10 && compared > 5 * taken, "{taken} of {} are read", rounds * BODIES);
}
