//! A client of an access log: the requests and users that the hint is drawn from.

use std::hash::DefaultHasher;

use cardinality_estimator::CardinalityEstimator;
use compact_str::CompactString;
use http::StatusCode;

use super::{
    hint::{self, Behind, Hint},
    traffic::{People, RequestLine, Traffic},
};

/// Paths that are kept to name the one that is requested most.
const PATHS: usize = 16;

/// The requests of one client, and the users behind it.
#[derive(Debug, Default)]
pub struct LoggedClient {
    traffic: Traffic,
    users: Distinct,
    agents: Distinct,
    paths: Vec<(u32, CompactString)>,
}

/// Counts hashes: exact up to 128, then wrong by a few percent.
type Distinct = CardinalityEstimator<u64, DefaultHasher, 8, 6>;

impl LoggedClient {
    /// Adds a request that was received at `time`, in microseconds since the Unix epoch. Requests come in their order.
    /// `status`: of the response; `None`: the request is denied. `user` and `agent`: hashes of the user's name and of
    /// the `User-Agent`.
    pub fn add(
        &mut self,
        line: &RequestLine<'_>,
        time: i64,
        status: Option<StatusCode>,
        (user, agent): (Option<u64>, Option<u64>),
    ) {
        match status {
            None => self.traffic.denied = self.traffic.denied.saturating_add(1),
            Some(status) => self.traffic.add_response(status, line.is_safe),
        }
        self.traffic.add_line(line, 1);
        self.traffic.add_second(u32::try_from(time / 1_000_000).unwrap_or(0));
        self.traffic.add_time(time);
        user.into_iter().for_each(|hash| self.users.insert_hash(hash));
        agent.into_iter().for_each(|hash| self.agents.insert_hash(hash));
        if self.paths.len() < PATHS {
            let hash = line.path_hash();
            if !self.paths.iter().any(|(known, _)| *known == hash) {
                self.paths.push((hash, line.recorded_path().into()));
            }
        }
    }

    /// Number of users that the log names. Approximate above 128.
    pub fn users(&self) -> u64 {
        self.users.estimate() as u64
    }

    /// Number of different `User-Agent`s. Approximate above 128.
    pub fn agents(&self) -> u64 {
        self.agents.estimate() as u64
    }

    /// The hint at the kind of client, with its reasons in a sentence. If the log names no user, `User-Agent`s stand
    /// for them where nothing else is known of the client: a script may send many.
    pub fn hint(&self) -> (Hint, String) {
        let (users, agents) = (self.users(), self.agents());
        let hint = match hint::classify(users, &self.traffic) {
            Hint::Unknown if users == 0 => hint::classify(agents, &self.traffic),
            hint => hint,
        };
        let behind = match users {
            0 => Behind { count: agents, noun: "User-Agent" },
            count => Behind { count, noun: "user" },
        };
        let top = self.traffic.top_path().map(|(hash, _)| hash);
        let path = self.paths.iter().find(|(hash, _)| Some(*hash) == top).map(|(_, path)| path.as_str());
        let lacks = match self.traffic.people().map_or((0, 0), People::counts) {
            // Of a few requests, hardly anything could be told.
            _ if hint != Hint::Unknown || self.traffic.requests() < 20 => "",
            (0, 0) => "; the log has neither User-Agents nor cookies, which would tell people from a script",
            (_, 0) => "; the log has no cookies, which would tell people from a script",
            _ => "",
        };
        (hint, hint::reasons(hint, behind, &self.traffic, path) + lacks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGIN: RequestLine<'_> =
        RequestLine { is_safe: false, path: "/login", query: None, headers: None, is_logged: false };

    #[test]
    fn failed_logins_of_one_client_are_password_guessing() {
        let mut client = LoggedClient::default();
        for second in 0..60 {
            let status = (second % 2 == 0).then_some(StatusCode::UNAUTHORIZED);
            client.add(&LOGIN, second * 1_000_000, status, (None, Some(1)));
        }
        let (hint, reasons) = client.hint();
        assert_eq!(hint, Hint::PasswordGuessing);
        assert_eq!(reasons, "one User-Agent, 100 % of answers 401 or 403, all to /login");
    }

    #[test]
    fn many_users_with_few_requests_share_an_address() {
        let mut client = LoggedClient::default();
        for nth in 0..200 {
            let path = format!("/{nth}");
            let line =
                RequestLine { is_safe: true, path: &path, query: None, headers: None, is_logged: false };
            let status = (nth % 4 != 0).then_some(StatusCode::OK);
            client.add(&line, nth as i64 * 2_000_000, status, (Some(xxh(nth % 20)), Some(7)));
        }
        assert_eq!((client.users(), client.agents()), (20, 1));
        assert_eq!(client.hint().0, Hint::SharedAddress);
    }

    fn xxh(nth: u64) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&nth.to_le_bytes())
    }
}
