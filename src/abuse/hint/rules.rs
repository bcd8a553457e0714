//! Draws the hint from a client's traffic.
//!
//! The thresholds were set with generated traces, and are tested with others (`traces`).

use super::{
    super::traffic::{Traffic, Who},
    Hint,
};

/// From this number of users on, they are many.
const MANY_USERS: u64 = 5;
/// Failed logins of this number of users are credential stuffing, with any number per user.
const STUFFED_USERS: u64 = 10;
/// This number of users at once are made up.
const MADE_UP_USERS: u64 = 200;
/// Responses of 401 or 403 and their share of all responses that count as many failures. A client that reads a form
/// before it sends a password has a smaller share of all responses, and a larger one of responses to its writes.
const MANY_FAILURES: u32 = 3;
const FAILURE_SHARE: f64 = 0.4;
const WRITE_FAILURE_SHARE: f64 = 0.6;
/// Fewer requests may come from a person who has forgotten the password.
const ATTEMPTS: u32 = 10;
/// Minimum share of the requests for one path where passwords are tried.
const LOGIN_SHARE: f64 = 0.4;
/// Minimum share of requests that do not only read where passwords are sent.
const PASSWORD_SHARE: f64 = 0.3;
/// Requests per user that are few: in all, or per minute.
const FEW_PER_USER: f64 = 12.0;
const FEW_PER_USER_MINUTE: f64 = 40.0;
/// Requests per second that no client makes if it waits for responses, and their minimum number.
const FLOOD_RATE: f64 = 50.0;
const FLOOD: u32 = 100;
/// The same for requests that repeat a few URLs, and with all breaks: a page with many parts is requested fast, and
/// then not for a while.
const REPEATED_RATE: f64 = 12.0;
const RATE_WITH_BREAKS: f64 = 3.0;
const REPEATS: f64 = 20.0;
/// Minimum number of different URLs, and maximum number of requests per URL, of a client that goes through them.
const SCRAPED_URLS: u32 = 30;
const SCRAPED_REPEATS: f64 = 4.0;
/// From this number of URLs on, the sketch does not distinguish more, so the requests per URL are not known.
const COUNTLESS_URLS: u32 = 350;
/// Minimum share of requests that only read.
const READ_SHARE: f64 = 0.9;
/// Minimum number of seconds with requests for lasting traffic.
const LASTING: u32 = 3;

/// The hint for a client with this traffic and this number of users.
pub(in crate::abuse) fn classify(users: u64, traffic: &Traffic) -> Hint {
    if tries_passwords(users, traffic) {
        let denied = f64::from(traffic.denied);
        let is_each_tried_once = users >= MANY_USERS && denied <= 2.0 * users as f64;
        return match users >= STUFFED_USERS || is_each_tried_once {
            true => Hint::CredentialStuffing,
            false => Hint::PasswordGuessing,
        };
    }
    let are_users =
        users >= MANY_USERS && !makes_up_users(users, traffic) && has_few_requests_each(users, traffic);
    let who = traffic.who();
    if are_users || matches!(who, Who::People(_)) {
        return Hint::SharedAddress;
    }
    if floods(traffic) {
        return Hint::Flood;
    }
    // An office reads one page after the other as well.
    let is_one_client = (1..MANY_USERS).contains(&users) || matches!(who, Who::Script(_));
    if reads_one_after_the_other(traffic) && is_one_client {
        return Hint::Scraping;
    }
    Hint::Unknown
}

/// Most responses are failures, and most requests are for one path. A single user who only reads may have an expired
/// token.
fn tries_passwords(users: u64, traffic: &Traffic) -> bool {
    let is_many = traffic.refused >= MANY_FAILURES && traffic.requests() >= ATTEMPTS;
    let is_most = traffic.refused_share() >= FAILURE_SHARE
        || traffic.refused_writes >= MANY_FAILURES && traffic.refused_write_share() >= WRITE_FAILURE_SHARE;
    let is_one_path = traffic.top_path().is_some_and(|(_, share)| share >= LOGIN_SHARE);
    let sends = traffic.write_share() >= PASSWORD_SHARE || users > 1 && traffic.urls() < SCRAPED_URLS;
    is_many && is_most && is_one_path && sends
}

/// A flood may use another user for each request.
fn makes_up_users(users: u64, traffic: &Traffic) -> bool {
    let is_each_seen_once = f64::from(traffic.denied) <= 2.0 * users as f64;
    let is_one_path = traffic.top_path().is_some_and(|(_, share)| share >= READ_SHARE);
    users >= MADE_UP_USERS
        && is_each_seen_once
        && is_one_path
        && floods(traffic)
        && traffic.seconds >= LASTING
}

fn has_few_requests_each(users: u64, traffic: &Traffic) -> bool {
    let users = users as f64;
    f64::from(traffic.denied) <= FEW_PER_USER * users
        || traffic.rate_with_breaks() * 60.0 <= FEW_PER_USER_MINUTE * users
}

fn floods(traffic: &Traffic) -> bool {
    let is_fast = traffic.rate() >= FLOOD_RATE;
    let is_repeated = traffic.rate() >= REPEATED_RATE
        && traffic.rate_with_breaks() >= RATE_WITH_BREAKS
        && traffic.requests_per_url() >= REPEATS
        && traffic.urls() < COUNTLESS_URLS;
    traffic.requests() >= FLOOD && (is_fast || is_repeated)
}

fn reads_one_after_the_other(traffic: &Traffic) -> bool {
    let urls = traffic.urls();
    let is_new = traffic.requests_per_url() <= SCRAPED_REPEATS || urls >= COUNTLESS_URLS;
    urls >= SCRAPED_URLS && is_new && traffic.write_share() <= 1.0 - READ_SHARE && traffic.seconds >= LASTING
}
