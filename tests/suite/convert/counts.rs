//! Limits, without chance: the same requests several times at once to both programs, and how many each admits.
//!
//! The generated rates are so low that nothing comes back while the requests are sent, so that how long it takes does not
//! matter. As long as both admit as many, the next request finds the same state in both. Where Tollgate admits fewer, a
//! note has to say so, and the rest of the configuration is not compared.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{
    agreement::{NotRunning, Pair, Run, number},
    converted::Taken,
    outcome::Outcome,
    sent::Sent,
    source::Source,
};

const CONFIGURATIONS: u64 = 30;
/// How often each request is sent: more than any generated limit admits.
const TIMES: usize = 7;
/// Within this time, nothing comes back of any generated limit.
const STILL: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Counted {
    met: BTreeMap<String, usize>,
    failures: Vec<String>,
}

/// Compares what the limits of a source's configurations admit with what those of the converted files do. Each request
/// that the source generates is sent several times.
pub fn run<S: Source>() {
    if !S::is_installed() {
        return;
    }
    let only = number("TOLLGATE_TEST_SEED");
    let count = CONFIGURATIONS * number("TOLLGATE_TEST_ROUNDS").unwrap_or(1);
    let seeds = only.map_or(S::FIRST_SEED..S::FIRST_SEED + count, |seed| seed..seed + 1);
    let run = Run::new();
    let mut counted = Counted::default();
    for seed in seeds {
        // On a machine that stood still, once more.
        let is_over = (0..3).any(|_| configuration::<S>(&run, seed, &mut counted));
        assert!(is_over, "seed {seed} takes too long");
    }
    eprintln!("{:#?}", counted.met);
    let failures = &counted.failures;
    let printed = failures.iter().take(5).map(String::as_str).collect::<Vec<_>>().join("\n\n");
    assert!(failures.is_empty(), "{} configurations, such as:\n\n{printed}", failures.len());
    let missed: Vec<_> = S::TO_BE_MET.iter().filter(|kind| !counted.met.contains_key(**kind)).collect();
    assert!(only.is_some() || missed.is_empty(), "never met: {missed:?}");
}

/// Whether the machine was quick enough to tell.
fn configuration<S: Source>(run: &Run, seed: u64, counted: &mut Counted) -> bool {
    let begun = Instant::now();
    let (both, started) = run.start::<S>(|places| S::generate(seed, places));
    let head = format!("=== TOLLGATE_TEST_SEED={seed}\n{}", both.text());
    let pair = match started {
        Ok(pair) => pair,
        Err(NotRunning::Theirs(error)) => panic!("{head}\n{} does not start: {error}", S::NAME),
        Err(NotRunning::Ours(error)) => {
            counted.failures.push(format!("{head}\n{error}"));
            return true;
        }
    };
    let mut met: Vec<&str> = both.ours.words.clone();
    let mut failure = None;
    for sent in &both.ours.requests {
        let ([theirs, ours], refusal) = admitted(run, &pair, sent);
        met.push(match theirs {
            0 => "admitted none",
            TIMES => "admitted all",
            _ => "admitted some",
        });
        if theirs == ours {
            continue;
        }
        let is_noted = ours < theirs
            && refusal.is_some_and(|refusal| pair.converted.is_noted(&Taken::by(&pair.tollgate, &refusal)));
        if !is_noted {
            failure = Some(format!("of {TIMES}, one admits {theirs}, Tollgate {ours}: {sent}"));
            break;
        }
        met.push("stricter with a note");
        break;
    }
    if begun.elapsed() > STILL {
        return false;
    }
    for word in met {
        *counted.met.entry(word.to_owned()).or_default() += 1;
    }
    let yaml = &pair.converted.yaml;
    counted.failures.extend(failure.map(|failure| format!("{head}--- proxy.yaml\n{yaml}\n{failure}")));
    true
}

/// How many of several of these requests both programs admit, and Tollgate's last refusal.
fn admitted(run: &Run, pair: &Pair, sent: &Sent) -> ([usize; 2], Option<Outcome>) {
    let (mut admitted, mut last) = ([0, 0], None);
    for _ in 0..TIMES {
        let [theirs, ours] = run.outcomes(pair, sent);
        admitted[0] += usize::from(!theirs.is_refused());
        admitted[1] += usize::from(!ours.is_refused());
        last = Some(ours).filter(Outcome::is_refused).or(last);
    }
    (admitted, last)
}
