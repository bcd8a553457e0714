//! The reasons for a hint, in a sentence.

use super::{
    super::traffic::{People, Traffic, Who},
    Hint,
};

/// The users behind a client, or their stand-ins.
#[derive(Debug, Clone, Copy)]
pub(in crate::abuse) struct Behind {
    pub(in crate::abuse) count: u64,
    pub(in crate::abuse) noun: &'static str,
}

/// The numbers that support the hint. `path`: the one that is requested most, if it is known.
pub(in crate::abuse) fn reasons(
    hint: Hint,
    Behind { count: users, noun }: Behind,
    traffic: &Traffic,
    path: Option<&str>,
) -> String {
    let users_named = match users {
        0 => format!("no {noun} known"),
        1 => format!("one {noun}"),
        _ => format!("{users} {noun}s"),
    };
    let refused = || format!("{} % of answers 401 or 403", percent(traffic.refused_share()));
    let refused_most = || match percent(traffic.refused_write_share()) {
        share if traffic.refused_write_share() > traffic.refused_share() => {
            format!("{share} % of writes answered 401 or 403")
        }
        _ => refused(),
    };
    match hint {
        Hint::PasswordGuessing | Hint::CredentialStuffing => {
            format!("{users_named}, {}, {}", refused_most(), concentration(traffic, path))
        }
        Hint::Flood => {
            let rate = traffic.rate().round();
            format!(
                "{users_named}, about {rate} requests a second, {}{}",
                concentration(traffic, path),
                one_client(traffic)
            )
        }
        Hint::Scraping => {
            format!("{users_named}, {}, {}{}", requests(traffic), urls(traffic), one_client(traffic))
        }
        Hint::SharedAddress if let Who::People(people) = traffic.who() => {
            format!(
                "an office or a carrier: about {} people, {}, {}",
                people.max(to_u32(users)),
                signs(traffic),
                requests(traffic)
            )
        }
        Hint::SharedAddress => {
            let each = (f64::from(traffic.denied) / users.max(1) as f64).max(1.0).round();
            let each = if each > 1.0 {
                format!("about {each} denied requests each")
            } else {
                "one denied request each".into()
            };
            match traffic.answered {
                0 => format!("{users_named}, {each}"),
                _ => format!("{users_named}, {each}, {}", refused()),
            }
        }
        Hint::Unknown => {
            let refused = if traffic.refused == 0 { String::new() } else { format!(", {}", refused()) };
            format!("{users_named}, {}, {}{refused}{}", requests(traffic), urls(traffic), unclear(traffic))
        }
    }
}

/// What tells that it is one client, as the end of a sentence.
fn one_client(traffic: &Traffic) -> String {
    match traffic.who() {
        Who::Script(reason) => {
            let rate = traffic.rate_with_breaks();
            let rate = if rate >= 1.0 {
                format!("{} a second", rate.round())
            } else {
                format!("{} a minute", (rate * 60.0).round().max(1.0))
            };
            format!("; one client, {rate}, {reason}")
        }
        Who::People(_) | Who::Unclear => String::new(),
    }
}

/// The signs of people.
fn signs(traffic: &Traffic) -> String {
    let (agents, sessions) = traffic.people().map_or((0, 0), People::counts);
    let agents = match agents {
        1 => "one User-Agent".to_owned(),
        count => format!("{count} User-Agents"),
    };
    match sessions {
        0 => format!("{agents}, pages with their parts"),
        1 => format!("one session, {agents}"),
        count => format!("{count} sessions, {agents}"),
    }
}

/// That nothing tells people from a script, as the end of a sentence.
fn unclear(traffic: &Traffic) -> String {
    match (traffic.people().map_or(0, People::heads), traffic.who()) {
        // Of a few requests, hardly anything can be told.
        (0..20, _) | (_, Who::People(_)) => String::new(),
        (_, Who::Script(_)) => one_client(traffic),
        (_, Who::Unclear) => format!("; people or a script: {}", signs_of_either(traffic)),
    }
}

fn signs_of_either(traffic: &Traffic) -> String {
    match traffic.people().map_or((0, 0), People::counts) {
        (0 | 1, 0) => "no sessions, and one User-Agent, as many people have".to_owned(),
        _ => signs(traffic),
    }
}

fn requests(traffic: &Traffic) -> String {
    match traffic.requests() {
        1 => "one request".to_owned(),
        requests => format!("{requests} requests"),
    }
}

fn urls(traffic: &Traffic) -> String {
    /// The sketch cannot distinguish more.
    const MANY: u32 = 300;
    match traffic.urls() {
        0 => "no URL known".to_owned(),
        1 => "to one URL".to_owned(),
        urls if urls < 10 => format!("to {urls} URLs"),
        urls if urls < MANY => format!("to about {urls} URLs"),
        _ => format!("to more than {MANY} URLs"),
    }
}

/// The share of the requests for the path that is requested most.
fn concentration(traffic: &Traffic, path: Option<&str>) -> String {
    let share = traffic.top_path().map_or(0, |(_, share)| percent(share));
    match (share, path) {
        (100, Some(path)) => format!("all to {path}"),
        (100, None) => "all to one path".to_owned(),
        (30.., Some(path)) => format!("{share} % to {path}"),
        (30.., None) => format!("{share} % to one path"),
        _ => urls(traffic),
    }
}

fn to_u32(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn percent(share: f64) -> u32 {
    match share {
        // "All" and "nothing" are not said of almost all and almost nothing.
        share if share > 0.99 && share < 1.0 => 99,
        share if share > 0.0 && share < 0.01 => 1,
        share => (share * 100.0).round() as u32,
    }
}
