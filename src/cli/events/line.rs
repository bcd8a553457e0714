//! An event as a line of text or JSON.

use eventsource_stream::Event;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use super::super::terminal::{moment, printable, printable_json, time_left};

/// The format of printed events.
#[derive(Debug, Clone, Copy)]
pub(super) enum Format {
    Text { has_colours: bool },
    Json,
}

/// An event that was parsed.
struct ParsedEvent<'a> {
    name: &'a str,
    time: Timestamp,
    data: Map<String, Value>,
}

#[derive(Serialize)]
struct JsonLine<'a> {
    time: String,
    event: &'a str,
    #[serde(flatten)]
    data: Map<String, Value>,
}

impl Format {
    pub(super) fn line(self, event: &Event) -> String {
        let Event { event: name, id, data, .. } = event;
        // IDs are times in microseconds.
        let time = id.parse().ok().and_then(|id| Timestamp::from_microsecond(id).ok());
        let data = match serde_json::from_str(data) {
            Ok(Value::Object(data)) => data,
            Ok(other) => Map::from_iter([("data".to_owned(), other)]),
            Err(_) => Map::from_iter([("data".to_owned(), data.as_str().into())]),
        };
        let event = ParsedEvent { name, time: time.unwrap_or_else(Timestamp::now), data };
        match self {
            Self::Text { has_colours } => event.text(has_colours),
            Self::Json => event.json(),
        }
    }
}

impl ParsedEvent<'_> {
    fn json(mut self) -> String {
        // The data of a tick has its own time.
        for name in ["time", "event"] {
            self.data.remove(name);
        }
        let time = self.time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
        let line = JsonLine { time, event: self.name, data: self.data };
        // Strings and numbers can always be written as JSON.
        printable_json(&serde_json::to_string(&line).unwrap_or_default()) + "\n"
    }

    /// `2026-07-03 12:00:01Z  limited       203.0.113.7 …`
    fn text(&self, has_colours: bool) -> String {
        let time = self.time.strftime("%Y-%m-%d %H:%M:%SZ");
        let name = printable(self.name);
        let name = match has_colours {
            true => format!("\x1b[{}m{name:<12}\x1b[0m", if self.is_bad() { 31 } else { 32 }),
            false => format!("{name:<12}"),
        };
        format!("{time}  {name}  {}\n", printable(&self.description()))
    }

    /// Whether the event may need an operator's attention.
    fn is_bad(&self) -> bool {
        match self.name {
            "limited" | "banned" | "not_reloaded" | "missed" => true,
            "health" => !self.is("healthy"),
            "warning" => self.is("raised"),
            "incident" => self.is("attack") && !self.is("over"),
            _ => false,
        }
    }

    fn description(&self) -> String {
        let text = |name: &str| self.text_of(name);
        let count = |name: &str| self.data.get(name).and_then(Value::as_u64).unwrap_or(0);
        let rate = |name: &str| self.data.get(name).and_then(Value::as_f64).unwrap_or(0.0);
        match self.name {
            "limited" => {
                let (denied, users) = (count("denied"), count("distinct_users"));
                let left = match time_left(text("until"), self.time) {
                    left if left == "-" => String::new(),
                    left => format!(" for {left}"),
                };
                format!(
                    "{} is limited{left} by {}: {denied} request{} denied, {users} user{}",
                    text("address"),
                    self.list("policies", ", "),
                    plural(denied),
                    plural(users)
                )
            }
            "unblocked" => format!("{} was unblocked", text("address")),
            "banned" => {
                let reason = match text("reason") {
                    "" => String::new(),
                    reason => format!(": {reason}"),
                };
                let shadow = if text("mode") == "shadow" { " (shadow: no request is denied)" } else { "" };
                let (key, until, by) = (text("key"), moment(text("until")), text("by"));
                format!("{key} was banned until {until} UTC by {by}{shadow}{reason}")
            }
            "lifted" => format!("the ban of {} was lifted", text("key")),
            "drained" => {
                let reason = match text("reason") {
                    "" => String::new(),
                    reason => format!(": {reason}"),
                };
                let (upstream, endpoint, by) = (text("upstream"), text("endpoint"), text("by"));
                format!("{endpoint} of upstream {upstream} was drained by {by}{reason}")
            }
            "undrained" => {
                format!("{} of upstream {} was undrained", text("endpoint"), text("upstream"))
            }
            "reloaded" => match self.list("changed", "; ") {
                changed if changed.is_empty() => {
                    "the configuration was reloaded; nothing has changed".to_owned()
                }
                changed => format!("the configuration was reloaded: {changed}"),
            },
            "not_reloaded" => {
                format!("the running configuration was not changed: {}", self.list("errors", "; "))
            }
            "health" if self.is("healthy") => format!("{} is healthy again", text("what")),
            "health" => match text("why") {
                "" => format!("{} is not healthy", text("what")),
                why => format!("{} is not healthy: {why}", text("what")),
            },
            "endpoints" => {
                let [now, added, removed] = ["count", "added", "removed"].map(count);
                let (upstream, source, plural) = (text("upstream"), text("source"), plural(now));
                let has = match text("kind") {
                    "file" => format!("lists {now} endpoint{plural}"),
                    _ => format!("has {now} address{}", if now == 1 { "" } else { "es" }),
                };
                let first = match self.list("first_added", ", ") {
                    first if first.is_empty() => first,
                    first if added > self.length("first_added") => format!(": {first} …"),
                    first => format!(": {first}"),
                };
                format!("upstream {upstream}: {source} now {has}, {removed} gone, {added} new{first}")
            }
            "warning" if self.is("raised") => text("text").to_owned(),
            "warning" => format!("no longer: {}", text("text")),
            "incident" if self.is("over") => {
                format!("over: {} (tollgate incidents {})", text("text"), text("id"))
            }
            "incident" => format!("{} (tollgate incidents {})", text("text"), text("id")),
            "incident_act" => {
                let (addresses, id, by) = (count("addresses"), text("id"), text("by"));
                let plural = if addresses == 1 { "" } else { "es" };
                let done = if text("act") == "ban" { "banned" } else { "unblocked" };
                format!("{addresses} address{plural} of incident {id} were {done} by {by}")
            }
            "missed" => {
                let missed = count("missed");
                format!("{missed} event{} were missed, because they were read too slowly", plural(missed))
            }
            "tick" => format!(
                "{:.1} requests/s, {:.1} denied/s, {} blocked",
                rate("requests_per_second"),
                rate("denied_per_second"),
                count("blocked")
            ),
            // An event of a newer version.
            _ => Value::Object(self.data.clone()).to_string(),
        }
    }

    fn text_of(&self, name: &str) -> &str {
        self.data.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    fn is(&self, name: &str) -> bool {
        self.data.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    fn length(&self, name: &str) -> u64 {
        self.data.get(name).and_then(Value::as_array).map_or(0, |items| items.len() as u64)
    }

    fn list(&self, name: &str, separator: &str) -> String {
        let items = self.data.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(separator)
    }
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event_of(name: &str, data: &str) -> Event {
        Event { event: name.into(), data: data.into(), id: "1783080001250000".into(), retry: None }
    }

    fn line(name: &str, data: &str) -> String {
        let line = Format::Text { has_colours: false }.line(&event_of(name, data));
        let text = line.strip_prefix("2026-07-03 12:00:01Z  ").unwrap_or_else(|| panic!("{line}"));
        text.strip_prefix(&format!("{name:<12}  ")).unwrap_or_else(|| panic!("{line}")).trim_end().to_owned()
    }

    #[test]
    fn each_event_is_a_sentence() {
        for (name, data, text) in [
            (
                "limited",
                r#"{"address":"203.0.113.7","policies":["per-ip","login"],"denied":12,"distinct_users":1,"until":"2026-07-03T12:01:00Z"}"#,
                "203.0.113.7 is limited for 59s by per-ip, login: 12 requests denied, 1 user",
            ),
            (
                "limited",
                r#"{"address":"::1","policies":["per-ip"],"denied":1,"distinct_users":0,"until":"2026-07-03T12:00:00Z"}"#,
                "::1 is limited by per-ip: 1 request denied, 0 users",
            ),
            ("unblocked", r#"{"address":"203.0.113.7"}"#, "203.0.113.7 was unblocked"),
            (
                "banned",
                r#"{"key":"user:acme","until":"2026-07-03T13:00:00Z","reason":"scraping","by":"bans.hammering","level":1,"mode":"shadow"}"#,
                "user:acme was banned until 2026-07-03 13:00:00 UTC by bans.hammering (shadow: no request is denied): scraping",
            ),
            (
                "banned",
                r#"{"key":"ip:::1","until":"2026-07-03T13:00:00Z","reason":"","by":"operator at ::1","level":0,"mode":"enforce"}"#,
                "ip:::1 was banned until 2026-07-03 13:00:00 UTC by operator at ::1",
            ),
            ("lifted", r#"{"key":"user:acme"}"#, "the ban of user:acme was lifted"),
            (
                "drained",
                r#"{"upstream":"api","endpoint":"http://a:1","reason":"a new disk","by":"operator at ::1"}"#,
                "http://a:1 of upstream api was drained by operator at ::1: a new disk",
            ),
            (
                "undrained",
                r#"{"upstream":"api","endpoint":"http://a:1"}"#,
                "http://a:1 of upstream api was undrained",
            ),
            (
                "reloaded",
                r#"{"configuration_hash":"a","changed":[]}"#,
                "the configuration was reloaded; nothing has changed",
            ),
            (
                "reloaded",
                r#"{"configuration_hash":"a","changed":["policy a is new","route b is gone"]}"#,
                "the configuration was reloaded: policy a is new; route b is gone",
            ),
            (
                "not_reloaded",
                r#"{"errors":["proxy.yaml:1:1: wrong"]}"#,
                "the running configuration was not changed: proxy.yaml:1:1: wrong",
            ),
            ("health", r#"{"what":"store","healthy":true,"why":""}"#, "store is healthy again"),
            (
                "health",
                r#"{"what":"upstream api http://a:1","healthy":false,"why":"it is unreachable"}"#,
                "upstream api http://a:1 is not healthy: it is unreachable",
            ),
            (
                "endpoints",
                r#"{"upstream":"api","source":"http://api.test","kind":"name","count":50,"added":49,"removed":48,"first_added":["10.0.0.1:80","10.0.0.2:80"]}"#,
                "upstream api: http://api.test now has 50 addresses, 48 gone, 49 new: 10.0.0.1:80, 10.0.0.2:80 …",
            ),
            (
                "endpoints",
                r#"{"upstream":"api","source":"/list.yaml","kind":"file","count":1,"added":0,"removed":2,"first_added":[]}"#,
                "upstream api: /list.yaml now lists 1 endpoint, 2 gone, 0 new",
            ),
            ("warning", r#"{"text":"Redis evicts keys","raised":true}"#, "Redis evicts keys"),
            ("warning", r#"{"text":"Redis evicts keys","raised":false}"#, "no longer: Redis evicts keys"),
            (
                "incident",
                r#"{"id":"0a1b2c3d","kind":"password guessing","attack":true,"text":"40 addresses, POST /login, password guessing, 13/s at most","start":"2026-07-03T12:00:00Z"}"#,
                "40 addresses, POST /login, password guessing, 13/s at most (tollgate incidents 0a1b2c3d)",
            ),
            (
                "incident_act",
                r#"{"id":"0a1b2c3d","act":"ban","addresses":38,"by":"operator at ::1"}"#,
                "38 addresses of incident 0a1b2c3d were banned by operator at ::1",
            ),
            ("missed", r#"{"missed":3}"#, "3 events were missed, because they were read too slowly"),
            (
                "tick",
                r#"{"requests_per_second":12.5,"denied_per_second":0.25,"blocked":3}"#,
                "12.5 requests/s, 0.2 denied/s, 3 blocked",
            ),
            ("newer", r#"{"b":1,"a":"x"}"#, r#"{"a":"x","b":1}"#),
            ("newer", "nonsense", r#"{"data":"nonsense"}"#),
        ] {
            assert_eq!(line(name, data), text);
        }
    }

    #[test]
    fn json_is_one_object_a_line_and_nothing_in_it_moves_the_cursor() {
        let json = Format::Json.line(&event_of("unblocked", "{\"address\":\"\u{9b}2J\\n\"}"));
        assert_eq!(json.matches('\n').count(), 1);
        assert!(json.contains("\\u009b2J"), "{json}");
        assert!(json.starts_with(r#"{"time":"2026-07-03T12:00:01.250Z","event":"unblocked","#), "{json}");
        let event: Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&event["event"], &event["address"]), (&"unblocked".into(), &"\u{9b}2J\n".into()));
        let tick = Format::Json.line(&event_of("tick", r#"{"blocked":3,"time":"2026-07-03T11:59:59Z"}"#));
        assert_eq!(tick, "{\"time\":\"2026-07-03T12:00:01.250Z\",\"event\":\"tick\",\"blocked\":3}\n");
        assert!(!line("unblocked", "{\"address\":\"\\u001b[2J\"}").contains('\x1b'));
    }

    #[test]
    fn the_name_of_an_event_is_red_if_it_is_bad() {
        let coloured = |data| Format::Text { has_colours: true }.line(&event_of("health", data));
        assert!(coloured(r#"{"what":"store","healthy":false}"#).contains("\x1b[31mhealth      \x1b[0m"));
        assert!(coloured(r#"{"what":"store","healthy":true}"#).contains("\x1b[32mhealth"));
    }
}
