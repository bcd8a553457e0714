//! The reasons for a hint, in a sentence.

use super::{super::traffic::Traffic, Hint};

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
            format!("{users_named}, about {rate} requests a second, {}", concentration(traffic, path))
        }
        Hint::Scraping => {
            format!("{users_named}, {}, {}", requests(traffic), urls(traffic))
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
        Hint::Unknown => match traffic.refused {
            0 => format!("{users_named}, {}, {}", requests(traffic), urls(traffic)),
            _ => format!("{users_named}, {}, {}, {}", requests(traffic), urls(traffic), refused()),
        },
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

fn percent(share: f64) -> u32 {
    match share {
        // "All" and "nothing" are not said of almost all and almost nothing.
        share if share > 0.99 && share < 1.0 => 99,
        share if share > 0.0 && share < 0.01 => 1,
        share => (share * 100.0).round() as u32,
    }
}
