//! What the policies of its route would say to a request.

use compact_str::CompactString;

use super::Explained;
use crate::{
    abuse::Names,
    config::model::Missing,
    identity::{Facts, identifier, identifiers},
    limit::{Check, Decision, Policy, Source, Store, algorithm::Verdict},
    proxy::{
        checks::{Asked, Checks, Limits, Passed, Supplies, Unidentified},
        quota::Said,
        rules::Rules,
        tokens::Tokens,
    },
};

/// How one check stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub policy: String,
    /// As in the store; where there is none, as in proxy.yaml.
    pub key: String,
    pub algorithm: &'static str,
    pub cost: u64,
    pub limit: u64,
    /// As clients are told: counting this request where it is admitted. `None`: nobody was asked.
    pub used: Option<u64>,
    pub remaining: Option<u64>,
    /// Microseconds.
    pub retry_after: Option<i64>,
    pub stood: Stood,
    pub is_shadow: bool,
    /// What else there is to know of it.
    pub because: String,
    /// Its policy's place in the configuration.
    index: usize,
}

/// What a check says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stood {
    Allowed,
    Denied,
    Exempt,
    /// There is nothing to check.
    Skipped,
    /// The store can't be asked.
    Unknown,
}

/// Holds the request against all policies of its route, as `admit` does. `supplies`: tokens, and the time.
pub(super) async fn explain<S: Store>(
    rules: &Rules,
    store: &S,
    asked: &Asked<'_>,
    address: &str,
    (tokens, now): (&Tokens, i64),
    explained: &mut Explained,
) {
    let facts = asked.facts(address);
    let mut rows = Vec::new();
    let passed =
        |index, why| rows.extend(rules.policies.get(index).map(|of| passed_by(index, of, why, &facts)));
    // Nothing is written down.
    let names = Names::default();
    let supplies = Supplies { time: || now, tokens, names: &names };
    let checks = match Checks::of(rules, &supplies, asked, &facts, passed) {
        Ok(checks) => checks,
        Err(Unidentified(index)) => {
            if let Some(policy) = rules.policies.get(index) {
                let reply = rules.quotas.unidentified(Said::unidentified(index, policy));
                explained.denied(&policy.name, reply.status, LACKS);
                rows.push(lacking(index, policy));
            }
            explained.checks = in_order(rows, asked);
            return;
        }
    };
    rows.extend(
        checks.denied_in_shadow.iter().filter_map(|&index| Some(lacking(index, rules.policies.get(index)?))),
    );
    let decided = if checks.all.is_empty() { None } else { Some(store.look(&checks.all).await) };
    for (nth, (check, limits)) in checks.all.iter().zip(&checks.limits).enumerate() {
        let verdict = match &decided {
            Some(Ok(decision)) => decision.verdicts.get(nth).copied(),
            _ => None,
        };
        rows.push(standing(rules, check, *limits, verdict, &facts));
    }
    rows.extend(left_out(rules, &checks, &facts));
    explained.checks = in_order(rows, asked);
    match decided {
        None => "no policy holds for it".clone_into(&mut explained.because),
        Some(Err(_)) => explained.undecided(),
        Some(Ok(decision)) => conclude(rules, &checks, &decision, explained),
    }
}

const LACKS: &str = "the request lacks what the policy demands (missing: deny)";

fn conclude(rules: &Rules, checks: &Checks<'_>, decision: &Decision, explained: &mut Explained) {
    let away = match decision.source {
        Source::Fallback => ", without the store, which is away",
        Source::Store | Source::Slice | Source::LocalDenial => "",
    };
    if decision.admitted {
        explained.because = format!("every policy that is enforced admits it{away}");
        return;
    }
    let said: Vec<Said> = checks.said(decision).collect();
    let (index, reply) = rules.quotas.denial(&said, false);
    let by = rules.policies.get(index).map_or("", |policy| policy.name.as_str());
    explained.denied(by, reply.status, &format!("its limit is reached{away}"));
}

/// In the order in which the route names its policies.
fn in_order(mut rows: Vec<Standing>, asked: &Asked<'_>) -> Vec<Standing> {
    rows.sort_by_key(|row| asked.route.policies.iter().position(|&index| index == row.index));
    rows
}

fn standing(
    rules: &Rules,
    check: &Check<'_>,
    limits: Limits,
    verdict: Option<Verdict>,
    facts: &Facts<'_>,
) -> Standing {
    let policy = check.policy;
    let mut why = Vec::new();
    let place = limits.variant.checked_sub(1);
    let own = rules.policies.get(limits.policy);
    if let Some((of, _)) = place.and_then(|place| own?.overrides.get(place)) {
        why.push(format!("by the override for {of}"));
    }
    if let Some(absent) = stands_for(policy, &check.identifier, facts) {
        why.push(format!("in place of {absent}, which the request lacks"));
    }
    let stood = match verdict {
        None | Some(Verdict::UNKNOWN) => Stood::Unknown,
        Some(verdict) if verdict.admitted => Stood::Allowed,
        Some(_) => Stood::Denied,
    };
    let known = verdict.filter(|_| stood != Stood::Unknown);
    if let Some(verdict) = known {
        if let Some(rate) = policy.rates().nth(verdict.tier).filter(|_| policy.tiers.len() > 1) {
            why.push(format!("the tightest is {rate}"));
        }
        if verdict.delay > 0 {
            why.push(format!("it waits {}ms for its place", (verdict.delay + 999) / 1_000));
        }
        if !verdict.admitted && verdict.retry_after.is_none() {
            why.push("its cost is above the limit: it never fits".to_owned());
        }
        if verdict.admitted && policy.count.is_some() {
            why.push("given back unless the answer counts".to_owned());
        }
    }
    Standing {
        key: check.identifier.to_string(),
        cost: check.cost,
        limit: known.map_or_else(|| limit(policy), |verdict| verdict.limit),
        used: known.map(|verdict| verdict.limit.saturating_sub(verdict.remaining)),
        remaining: known.map(|verdict| verdict.remaining),
        retry_after: known.filter(|verdict| !verdict.admitted).and_then(|verdict| verdict.retry_after),
        stood,
        ..row(limits.policy, policy, why.join("; "))
    }
}

/// One that nobody was asked about.
fn row(index: usize, policy: &Policy, because: String) -> Standing {
    Standing {
        policy: policy.name.clone(),
        key: policy.keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        algorithm: policy.algorithm(),
        cost: 0,
        limit: limit(policy),
        used: None,
        remaining: None,
        retry_after: None,
        stood: Stood::Skipped,
        is_shadow: policy.is_shadow,
        because,
        index,
    }
}

fn limit(policy: &Policy) -> u64 {
    policy.tiers.first().map_or(0, |tier| tier.limit)
}

fn lacking(index: usize, policy: &Policy) -> Standing {
    Standing { stood: Stood::Denied, ..row(index, policy, LACKS.to_owned()) }
}

fn passed_by(index: usize, policy: &Policy, why: Passed<'_>, facts: &Facts<'_>) -> Standing {
    let (stood, because) = match why {
        Passed::Preflight => (Stood::Exempt, "CORS preflights are not counted".to_owned()),
        Passed::Exempt(of) => (Stood::Exempt, format!("exempt: {of}")),
        Passed::NoValue => {
            let value = policy.value.as_ref().map(ToString::to_string).unwrap_or_default();
            (Stood::Skipped, format!("the request has no {value} to count"))
        }
    };
    let row = row(index, policy, because);
    match identifiers(&policy.keys, policy.missing, facts) {
        Ok(known) => Standing { stood, key: known.join(", "), ..row },
        Err(_) => Standing { stood, ..row },
    }
}

/// The keys of policies that hold, which the request lacks and which are skipped.
fn left_out<'a>(
    rules: &'a Rules,
    checks: &Checks<'a>,
    facts: &'a Facts<'_>,
) -> impl Iterator<Item = Standing> + use<'a> {
    let mut held: Vec<usize> = checks.limits.iter().map(|limits| limits.policy).collect();
    held.dedup();
    let policies = held.into_iter().filter_map(|index| Some((index, rules.policies.get(index)?)));
    policies.filter(|(_, policy)| policy.missing == Missing::Skip).flat_map(move |(index, policy)| {
        let lacks = policy.keys.iter().filter(move |recipe| identifier(recipe, facts).is_none());
        lacks.map(move |recipe| {
            let why = "the request lacks it".to_owned();
            Standing { key: recipe.to_string(), ..row(index, policy, why) }
        })
    })
}

/// What the request lacks, if it is limited by its address in the place of that.
fn stands_for(policy: &Policy, key: &CompactString, facts: &Facts<'_>) -> Option<String> {
    if policy.keys.iter().any(|recipe| identifier(recipe, facts).as_ref() == Some(key)) {
        return None;
    }
    let lacks = policy.keys.iter().filter(|recipe| identifier(recipe, facts).is_none());
    Some(lacks.map(ToString::to_string).collect::<Vec<_>>().join(", "))
}
