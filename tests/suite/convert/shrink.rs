//! Makes a failure small: lines of the configuration and fields of the request are left out as long as it stays.

use std::time::Duration;

use super::{
    agreement::{Both, NotRunning, Run, shown},
    compare::Verdict,
    sent::Sent,
    source::Source,
};

/// What is left of a configuration in which this request fails with this label.
pub fn shrunk<S: Source>(run: &Run, mut both: Both, mut sent: Sent, label: &str) -> String {
    only(&mut both, &mut sent);
    // Without the line that makes it listen, it never does.
    both.patience = Duration::from_millis(700);
    let mut shown = String::new();
    // A line goes with those below it that stand deeper. Larger parts first, and again until nothing goes.
    let mut is_smaller = true;
    while is_smaller {
        is_smaller = false;
        for file in 0..both.ours.files.len() {
            let mut at = 0;
            while at < both.ours.files[file].1.lines().count() {
                let smaller = without(&both, file, at);
                match failure::<S>(run, &smaller, &sent, label) {
                    Some(text) => {
                        (both, shown, is_smaller) = (smaller, text, true);
                    }
                    None => at += 1,
                }
            }
        }
    }
    for nth in (0..sent.headers.len()).rev() {
        let mut smaller = sent.clone();
        let (name, _) = smaller.headers.remove(nth);
        if name == "host" {
            continue;
        }
        if let Some(text) = failure::<S>(run, &both, &smaller, label) {
            (sent, shown) = (smaller, text);
        }
    }
    let text = both.text();
    format!("{text}\n{shown}")
}

/// The listener of the request is the only one that has to be there.
fn only(both: &mut Both, sent: &mut Sent) {
    for side in [&mut both.theirs, &mut both.ours] {
        side.listeners = vec![side.listeners[sent.listener]];
    }
    sent.listener = 0;
}

fn without(both: &Both, file: usize, at: usize) -> Both {
    let mut smaller = both.clone();
    for side in [&mut smaller.theirs, &mut smaller.ours] {
        let text = &mut side.files[file].1;
        let lines: Vec<&str> = text.lines().collect();
        let depth = |line: &str| line.len() - line.trim_start().len();
        let mut end = at + 1;
        while lines.get(end).is_some_and(|line| depth(line) > depth(lines[at])) {
            end += 1;
        }
        let is_closing = |line: &&str| line.trim() == "}" && depth(line) == depth(lines[at]);
        end += usize::from(end > at + 1 && lines.get(end).is_some_and(is_closing));
        let kept: Vec<&str> = lines[..at].iter().chain(&lines[end..]).copied().collect();
        *text = kept.join("\n") + "\n";
    }
    smaller
}

/// The failure, if it is still there.
fn failure<S: Source>(run: &Run, both: &Both, sent: &Sent, label: &str) -> Option<String> {
    let pair = match both.start::<S>() {
        Ok(pair) => pair,
        Err(NotRunning::Theirs(_) | NotRunning::Ours(_)) => return None,
    };
    let ([theirs, ours], verdict) = run.judged(&pair, sent);
    match verdict {
        Verdict::Failure { fault, label: now, why } if now == label => {
            let failure = shown(fault, &why, 0, sent, [&theirs, &ours]);
            Some(format!("--- proxy.yaml\n{}\n{failure}", pair.converted.yaml))
        }
        _ => None,
    }
}
