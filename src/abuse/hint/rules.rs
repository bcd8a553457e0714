//! Draws the hint from a client's traffic.
//!
//! The thresholds were set with generated traces, and are judged by others (`traces`).

use super::{super::traffic::Traffic, Hint};

/// Users from whom on they are many.
const MANY_USERS: u64 = 5;
/// Failed logins of so many users are stuffing, however many each has.
const STUFFED_USERS: u64 = 10;
/// So many users who came at once are made up.
const MADE_UP_USERS: u64 = 200;
/// Answers of 401 or 403, and their part of all answers, that are many failures. Who reads a form before it sends a password
/// has fewer of all, and more of what it sends.
const MANY_FAILURES: u32 = 3;
const FAILURE_SHARE: f64 = 0.4;
const WRITE_FAILURE_SHARE: f64 = 0.6;
/// Fewer requests may be of somebody who has forgotten the password.
const ATTEMPTS: u32 = 10;
/// The part of requests for one path, at least, where passwords are tried.
const LOGIN_SHARE: f64 = 0.4;
/// The part of requests that do not only read, at least, where passwords are sent.
const PASSWORD_SHARE: f64 = 0.3;
/// Requests of a user that are few: in all, or in a minute.
const FEW_PER_USER: f64 = 12.0;
const FEW_PER_USER_MINUTE: f64 = 40.0;
/// Requests in a second that no client makes that waits for its answers, and how many there must be.
const FLOOD_RATE: f64 = 50.0;
const FLOOD: u32 = 100;
/// The same for requests of the same few URLs again and again, and with all breaks: a page with many parts is requested fast
/// and then not for a while.
const REPEATED_RATE: f64 = 12.0;
const RATE_WITH_BREAKS: f64 = 3.0;
const REPEATS: f64 = 20.0;
/// Different URLs, at least, and how often each is requested at most, where a client goes through them.
const SCRAPED_URLS: u32 = 30;
const SCRAPED_REPEATS: f64 = 4.0;
/// So many URLs are too many to be told from yet more: how often each is requested is then not known.
const COUNTLESS_URLS: u32 = 350;
/// The part of requests that only read, at least.
const READ_SHARE: f64 = 0.9;
/// Seconds with requests, at least, for what goes on for a while.
const LASTING: u32 = 3;

/// What a client with this traffic and so many users seems to be.
pub(in crate::abuse) fn classify(users: u64, traffic: &Traffic) -> Hint {
    if tries_passwords(users, traffic) {
        let denied = f64::from(traffic.denied);
        let is_each_tried_once = users >= MANY_USERS && denied <= 2.0 * users as f64;
        return match users >= STUFFED_USERS || is_each_tried_once {
            true => Hint::CredentialStuffing,
            false => Hint::PasswordGuessing,
        };
    }
    if users >= MANY_USERS && !makes_up_users(users, traffic) && has_few_requests_each(users, traffic) {
        return Hint::SharedAddress;
    }
    if floods(traffic) {
        return Hint::Flood;
    }
    if reads_one_after_the_other(traffic) {
        return Hint::Scraping;
    }
    Hint::Unknown
}

/// Most answers are failures, and most requests are for one path. A single user who only reads may have a token that has
/// expired.
fn tries_passwords(users: u64, traffic: &Traffic) -> bool {
    let is_many = traffic.refused >= MANY_FAILURES && traffic.requests() >= ATTEMPTS;
    let is_most = traffic.refused_share() >= FAILURE_SHARE
        || traffic.refused_writes >= MANY_FAILURES && traffic.refused_write_share() >= WRITE_FAILURE_SHARE;
    let is_one_path = traffic.top_path().is_some_and(|(_, share)| share >= LOGIN_SHARE);
    let sends = traffic.write_share() >= PASSWORD_SHARE || users > 1 && traffic.urls() < SCRAPED_URLS;
    is_many && is_most && is_one_path && sends
}

/// A flood may give each request another user.
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
