//! Changes of headers.

use super::{rules::RuleCollector, syntax::ConfigLine, words::OWN};
use crate::offline::convert::{
    condition::RequestCondition,
    draft::{is_field_name, literal},
    site::{Edit, Effect, HeaderRule},
};

/// Headers that HTTP needs, and that no route can change.
const OF_CONNECTIONS: &str = "connection content-length expect http2-settings keep-alive proxy-connection \
                              sec-websocket-key te trailer trailers transfer-encoding upgrade";

/// `set-header`, `add-header` or `del-header`. `words`: the action and its arguments.
pub(super) fn change<'c>(
    run: &mut RuleCollector<'c>,
    line: &'c ConfigLine,
    words: &[&str],
    when: RequestCondition,
) {
    let is_request = !run.scope.is_of_response;
    let name = words.get(1).map(|name| name.to_ascii_lowercase()).unwrap_or_default();
    let fixed = || OF_CONNECTIONS.split(' ').chain(["host"]);
    match words {
        _ if name == "host" && is_request => {
            // The rules behind it compare another host.
            push(run, line, when.clone(), HeaderRule::Set(name, "-".to_owned()));
            run.close(line, when, "`host: rewrite` of the upstream sends the host of the endpoint");
        }
        _ if fixed().any(|known| known == name) => {
            run.note(line, when, "Tollgate sets this header for each connection");
        }
        // Tollgate's own takes the place of the client's.
        ["del-header", _] if is_request && OWN.contains(&name.as_str()) => {
            push(run, line, when, HeaderRule::Undo(name));
        }
        ["del-header", _] | ["del-header", _, "-m", "str"] if is_field_name(&name) => {
            push(run, line, when, HeaderRule::Remove(name));
        }
        // Tollgate changes headers last, and would remove its own, too.
        ["del-header", _, "-m", "beg"]
            if is_field_name(&name) && !fixed().chain(OWN).any(|known| known.starts_with(&name)) =>
        {
            push(run, line, when, HeaderRule::Remove(format!("{name}*")));
        }
        [action, _, value] if *action != "del-header" && is_field_name(&name) => {
            set(run, line, (action, &name, value), when);
        }
        // A service may trust fields of its requests; nothing guards fields of responses.
        _ if is_request => run.close(line, when, "Tollgate changes headers by their names and beginnings"),
        _ => run.note(line, when, "Tollgate changes headers by their names and beginnings"),
    }
}

fn push<'c>(run: &mut RuleCollector<'c>, line: &'c ConfigLine, when: RequestCondition, change: HeaderRule) {
    let edit = if run.scope.is_of_response { Edit::Response(change) } else { Edit::Request(change) };
    run.push(line, when, Effect::Edit(edit));
}

/// `set-header` and `add-header`: the action, the name and the value.
fn set<'c>(
    run: &mut RuleCollector<'c>,
    line: &'c ConfigLine,
    (action, name, value): (&str, &str, &str),
    when: RequestCondition,
) {
    let source = run.scope.source;
    // Where Tollgate sends it itself.
    let own = match (name, value) {
        _ if run.scope.is_of_response => RequestCondition::NEVER,
        ("x-forwarded-for", "%[src]" | "%ci") | ("x-forwarded-host", "%[req.hdr(host)]" | "%[hdr(host)]") => {
            RequestCondition::ALWAYS
        }
        ("x-forwarded-proto", "https" | "http") => source.at(|bound| bound.is_tls == (value == "https")),
        _ => RequestCondition::NEVER,
    };
    if own != RequestCondition::NEVER {
        push(run, line, when.clone().and(own.clone()), HeaderRule::Undo(name.to_owned()));
    }
    let when = when.and(own.not());
    if when == RequestCondition::NEVER {
        return;
    }
    let [port, is_tls, scheme] = ["%[dst_port]", "%[ssl_fc]", "%[ssl_fc,iif(https,http)]"];
    if [port, is_tls, scheme].iter().any(|fetch| value.contains(fetch)) {
        for bound in &source.listeners {
            let (bit, name_of) = if bound.is_tls { ("1", "https") } else { ("0", "http") };
            let value = value.replace(port, &bound.port.to_string()).replace(is_tls, bit);
            let value = value.replace(scheme, name_of);
            let here = source.at(|other| other.name == bound.name);
            set(run, line, (action, name, &value), when.clone().and(here));
        }
        return;
    }
    let name = name.to_owned();
    let change = match text(value) {
        Some(text) if text.is_empty() => HeaderRule::Remove(name),
        // Tollgate's own is there already.
        Some(text) if action == "add-header" && !OWN.contains(&name.as_str()) => HeaderRule::Add(name, text),
        Some(text) => HeaderRule::Set(name, text),
        None => {
            let text = "Tollgate has no placeholder for this value: it removes the header";
            run.note(line, when.clone(), text);
            HeaderRule::Remove(name)
        }
    };
    push(run, line, when, change);
}

/// The value of a header with Tollgate's placeholders. `None` if a fetch in it has no equal.
fn text(value: &str) -> Option<String> {
    if value.chars().any(char::is_control) {
        return None;
    }
    let (mut out, mut rest) = (String::new(), value.trim());
    while let Some((before, behind)) = rest.split_once('%') {
        out += &literal(before);
        let known = [
            ("%", "%"),
            ("[src]", "{client_address}"),
            ("ci", "{client_address}"),
            ("[req.hdr(host)]", "{host}"),
            ("[req.hdr(Host)]", "{host}"),
            ("[hdr(host)]", "{host}"),
            ("[unique-id]", "{request_id}"),
            ("ID", "{request_id}"),
        ];
        let (from, to) = known.into_iter().find(|(from, _)| behind.starts_with(from))?;
        out += to;
        rest = &behind[from.len()..];
    }
    Some(out + &literal(rest))
}
