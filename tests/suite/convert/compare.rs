//! Compares what two programs did with a request.

use std::collections::BTreeSet;

use super::{
    agreement::Pair,
    converted::Taken,
    origins::Received,
    outcome::{Action, MARK, Outcome, sorted},
    sent::Sent,
    source::Noted,
    standing,
};

/// How Tollgate's outcome of a request compares.
pub enum Verdict {
    Same,
    /// One of the standing differences.
    Standing,
    /// Stricter, and a note names it: the words that it names.
    Noted(Vec<String>),
    /// Something else is different that a note may say, and it does.
    Changed,
    /// The label names the kind of failure.
    Failure {
        fault: Fault,
        label: String,
        why: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Tollgate forwards or answers what the other program does not.
    Laxer,
    /// Tollgate refuses what the other program does not, and no note says so.
    Silent,
    /// Anything else.
    Different,
    /// The converted file does not load, or the like.
    Broken,
}

/// A difference of outcomes of one kind.
struct Difference {
    /// What is different: `location`, `field x-user`, `response field set-cookie`.
    what: String,
    theirs: String,
    ours: String,
    /// A field of which Tollgate leaves out some values, and has no others.
    is_less: bool,
}

#[derive(Default)]
struct Differences(Vec<Difference>);

impl Differences {
    fn compare(&mut self, what: &str, theirs: impl AsRef<str>, ours: impl AsRef<str>) {
        let (theirs, ours) = (theirs.as_ref(), ours.as_ref());
        if theirs != ours {
            self.add(what, theirs, ours);
        }
    }

    fn add(&mut self, what: &str, theirs: &str, ours: &str) {
        let (what, theirs, ours) = (what.to_owned(), theirs.to_owned(), ours.to_owned());
        self.0.push(Difference { what, theirs, ours, is_less: false });
    }

    fn add_field(&mut self, what: &str, theirs: &[&str], ours: &[&str]) {
        self.0.push(Difference {
            what: what.to_owned(),
            theirs: theirs.join(" | "),
            ours: ours.join(" | "),
            is_less: ours.iter().all(|value| theirs.contains(value)),
        });
    }
}

pub fn verdict(pair: &Pair, sent: &Sent, theirs: &Outcome, ours: &Outcome) -> Verdict {
    let failure = |fault| {
        let label = format!("{} by one, {} by Tollgate", theirs.kind(), ours.kind());
        Verdict::Failure { fault, why: label.clone(), label }
    };
    let is_lower = theirs.is_refused() && sent.method.bytes().any(|byte| byte.is_ascii_lowercase());
    let is_denied = ours.is_refused() && standing::is_denied_preflight(sent, theirs);
    if is_lower || is_denied || standing::is_refused_as_ambiguous(sent, ours) {
        return Verdict::Standing;
    }
    match (theirs.is_refused(), ours.is_refused()) {
        (true, false) => failure(Fault::Laxer),
        (false, true) => stricter(pair, theirs, ours),
        _ if theirs.kind() != ours.kind() => {
            failure(if ours.kind() == "forwarded" { Fault::Laxer } else { Fault::Different })
        }
        _ => {
            let Differences(differences) = differences(pair, sent, theirs, ours);
            // A closed route refuses what another one would have refused: its fields and texts are its own.
            let is_closed = theirs.is_refused()
                && !differences.is_empty()
                && pair.converted.is_noted(&Taken::by(&pair.tollgate, ours));
            let is_error = [theirs, ours].iter().any(|outcome| outcome.status() >= 300);
            let is_noted = |difference: &Difference| is_closed || is_noted(pair, difference, is_error);
            match differences.iter().find(|difference| !is_noted(difference)) {
                None if differences.is_empty() => Verdict::Same,
                None => Verdict::Changed,
                Some(first) => {
                    let show = |one: &Difference| {
                        format!("{}: {:?} by one, {:?} by Tollgate", one.what, one.theirs, one.ours)
                    };
                    let why = differences.iter().map(show).collect::<Vec<_>>().join("; ");
                    Verdict::Failure { fault: Fault::Different, label: first.what.clone(), why }
                }
            }
        }
    }
}

/// Tollgate refuses what the other program does not.
fn stricter(pair: &Pair, theirs: &Outcome, ours: &Outcome) -> Verdict {
    let taken = Taken::by(&pair.tollgate, ours);
    if pair.converted.is_noted(&taken) {
        return Verdict::Noted(pair.converted.noted_words(&taken));
    }
    let label = format!("{} by one, refused by Tollgate, and no note says so", theirs.kind());
    let why = format!("{label} (route: {})", taken.route.as_deref().unwrap_or("none"));
    Verdict::Failure { fault: Fault::Silent, label, why }
}

/// Whether a note may say a difference, and does: a field that Tollgate cannot set is named and left out, or, if it
/// protects, set more often; and what [`super::source::Source::NOTED`] lists.
fn is_noted(pair: &Pair, difference: &Difference, is_error: bool) -> bool {
    let Difference { what, theirs, is_less, .. } = difference;
    let by_table = |noted: &Noted| {
        what.starts_with(noted.what) && pair.converted.says(noted.word) && (is_error || !noted.is_of_errors)
    };
    if pair.noted.iter().any(by_table) {
        return true;
    }
    let field = what.strip_prefix("response field ").or_else(|| what.strip_prefix("field "));
    field.is_some_and(|name| {
        let may_differ = if standing::is_protection(name) { theirs.is_empty() } else { *is_less };
        may_differ && pair.converted.says(name)
    })
}

/// What differs between two outcomes of one kind.
fn differences(pair: &Pair, sent: &Sent, theirs: &Outcome, ours: &Outcome) -> Differences {
    let is_tls = pair.ours[sent.listener].is_tls;
    let mut found = Differences::default();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    match (&theirs.action, &ours.action) {
        (Action::Refused { text: one @ Some(_), .. }, Action::Refused { text: other, .. }) => {
            found.compare("text", text(one), text(other));
        }
        (
            Action::Redirected { status: one, location: to },
            Action::Redirected { status: other, location: our_to },
        ) => {
            if !standing::is_same_redirect(*one, *other) {
                found.add("status", &one.to_string(), &other.to_string());
            }
            if !standing::is_same_location(to, our_to, sent, is_tls, &pair.ports) {
                found.add("location", to, our_to);
            }
        }
        (
            Action::Answered { status: one, body, content_type: kind },
            Action::Answered { status: other, body: our_body, content_type: our_kind },
        ) => {
            if !standing::is_same_answer(*one, *other, sent) {
                found.add("status", &one.to_string(), &other.to_string());
            }
            found.compare("body", body, our_body);
            if body.contains(MARK) && !standing::is_typed_by_path(sent) {
                found.compare("content type", text(kind), text(our_kind));
            }
        }
        (
            Action::Forwarded { status: one, received, body, .. },
            Action::Forwarded { status: other, received: our_received, body: our_body, .. },
        ) => {
            found.compare("status", one.to_string(), other.to_string());
            found.compare("body", body, our_body);
            received_differences(pair, sent, received, our_received, &mut found);
        }
        _ => {}
    }
    // A refusal without a text of the configuration is a page of the program's own.
    if !matches!(theirs.action, Action::Closed(_) | Action::Refused { text: None, .. }) {
        response_differences(sent, theirs, ours, &mut found);
    }
    found
}

/// What differs in what services got.
fn received_differences(
    pair: &Pair,
    sent: &Sent,
    theirs: &Received,
    ours: &Received,
    found: &mut Differences,
) {
    let is_tls = pair.ours[sent.listener].is_tls;
    found.compare("service", theirs.origin, ours.origin);
    found.compare("method", theirs.method.to_ascii_uppercase(), ours.method.to_ascii_uppercase());
    let comparable = |target| standing::comparable(target, sent);
    found.compare("target", comparable(&theirs.target), comparable(&ours.target));
    found.compare("length of the body", theirs.body_bytes.to_string(), ours.body_bytes.to_string());
    let [one, other] = [theirs, ours].map(|one| sorted(&one.headers, "host").join(", "));
    if !standing::is_same_host(&one, &other, sent) {
        found.add("host", &one, &other);
    }
    for name in names(&theirs.headers, &ours.headers) {
        let (mut one, other) = (sorted(&theirs.headers, name), sorted(&ours.headers, name));
        // Both have ports of their own.
        let [port, our_port] =
            [&pair.theirs, &pair.ours].map(|listeners| listeners[sent.listener].address.port().to_string());
        for value in &mut one {
            if *value == port {
                *value = &our_port;
            }
        }
        let is_standing = standing::is_of_connection(name)
            || standing::is_own_claim(name, sent, is_tls, pair.trusted.contains(&sent.peer), [&one, &other])
            || standing::is_underscored(name, sent, &theirs.headers, &other)
            || other.is_empty() && pair.added.contains(&name) && standing::is_added(name, sent);
        if !is_standing && !standing::is_same_text(&one, &other, sent) {
            found.add_field(&format!("field {name}"), &one, &other);
        }
    }
}

/// What differs in the fields of the responses.
fn response_differences(sent: &Sent, theirs: &Outcome, ours: &Outcome, found: &mut Differences) {
    let is_forwarded = theirs.kind() == "forwarded";
    for name in names(&theirs.headers, &ours.headers) {
        let (one, other) = (theirs.values(name), ours.values(name));
        let is_standing = standing::is_of_response(name)
            || standing::is_added_to_error(theirs.status(), name, &one, &other)
            || !is_forwarded && standing::is_own_cache_control(name, &one, &other)
            || standing::is_same_field(name, &one, &other, sent)
            || !is_forwarded && standing::is_added_to_preflight(name, sent, &one)
            || name.starts_with("access-control-")
                && ![theirs, ours].into_iter().any(standing::allows_origin)
            || name == "location" && (!is_forwarded || standing::is_own_location(&one, &other));
        // It is compared with the body.
        let is_type = name == "content-type" && !is_forwarded;
        if !is_standing && !is_type && !standing::is_same_text(&one, &other, sent) {
            found.add_field(&format!("response field {name}"), &one, &other);
        }
    }
}

fn names<'h>(one: &'h [(String, String)], other: &'h [(String, String)]) -> BTreeSet<&'h str> {
    one.iter().chain(other).map(|(name, _)| name.as_str()).collect()
}
