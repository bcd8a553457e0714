//! Two customers with API keys and plans.

use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, SocketAddr},
};

use http::Method;
use serde::Deserialize;

use super::traffic::{self, ClientScript, ScriptedUsers};
use crate::{
    admin::dto::{Denials, MadeApiKey, NewApiKey, Usage},
    cli::{
        client::{self, Options},
        terminal::table,
    },
};

/// Their names, their plans, and how the demo shows them.
const CUSTOMERS: [(&str, &str, &str, Ipv4Addr); 2] = [
    ("acme", "free", "acme, plan free", Ipv4Addr::new(127, 0, 0, 21)),
    ("globex", "pro", "globex, plan pro", Ipv4Addr::new(127, 0, 0, 22)),
];

/// Makes a key for each customer, as `tollgate keys create` does. Returns the requests of each.
///
/// # Errors
/// The admin port makes none.
pub(super) fn with_new_keys(options: &Options) -> io::Result<Vec<ClientScript>> {
    let script = |(customer, plan, name, address): (&str, &str, &'static str, Ipv4Addr)| {
        let new = NewApiKey {
            id: None,
            customer: customer.to_owned(),
            plan: Some(plan.to_owned()),
            name: String::new(),
            labels: BTreeMap::new(),
            routes: Vec::new(),
            expires: None,
        };
        let key = |made: &MadeApiKey| made.key.0.to_string();
        let key =
            client::post_json(options, Method::POST, "/v1/keys", &new, key).map_err(io::Error::other)?;
        let requests = &[(30, Method::GET, "/reports/{}")];
        Ok(ClientScript { name, address, users: ScriptedUsers::OfKey(key), requests, password: "" })
    };
    CUSTOMERS.into_iter().map(script).collect()
}

/// Whether the history has all requests that customers have sent, and those that were denied. It is written every few
/// seconds.
pub(super) fn are_in_history(options: &Options, sent: u64, limited: u64) -> bool {
    let (mut requests, mut denied) = (0, 0);
    // A question that fails is asked again.
    let _result = client::request(options, Method::GET, "/v1/usage", |usage: &Usage| {
        let of_customers =
            usage.rows.iter().filter(|row| row.customer.as_ref().is_some_and(|name| !name.is_empty()));
        requests = of_customers.map(|row| row.requests).sum();
        String::new()
    });
    let _result =
        client::request(options, Method::GET, "/v1/denials?policy=per-minute", |denials: &Denials| {
            denied = denials.denials.iter().map(|denial| denial.count).sum();
            String::new()
        });
    requests >= sent && denied >= limited
}

/// A response of `/usage`.
#[derive(Deserialize)]
struct UsageResponse {
    customer: String,
    plan: String,
    limits: Vec<ShownUsage>,
}

#[derive(Deserialize)]
struct ShownUsage {
    policy: String,
    limit: u64,
    remaining: u64,
}

/// The rest of each customer's limits, as `/usage` says.
///
/// # Errors
/// The proxy can't be reached, or does not say.
pub(super) async fn usage_table(customers: &[ClientScript], proxy: SocketAddr) -> io::Result<String> {
    let mut rows = Vec::new();
    for script in customers {
        let usage = traffic::body_of(script, "/usage", proxy).await?;
        let UsageResponse { customer, plan, limits } = serde_json::from_slice(&usage)?;
        let left = |policy: &str| {
            let of = limits.iter().find(|of| of.policy == policy);
            of.map_or_else(|| "-".to_owned(), |of| format!("{} of {}", of.remaining, of.limit))
        };
        let [minute, month] = ["per-minute", "monthly"].map(left);
        rows.push([customer, plan, minute, month]);
    }
    Ok(table(["CUSTOMER", "PLAN", "LEFT THIS MINUTE", "LEFT THIS MONTH"], rows))
}
