//! `GET /keys`: the API keys of customers, and a form for a new one.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use axum::{extract::State, response::Response};
use futures_util::stream::{self, StreamExt};
use maud::{Markup, html};
use tokio::time;

use super::{
    super::{
        context::HandlerContext,
        dto::{ApiKey, ApiKeys, Limits},
        extract::Query,
        held_limits::Holder,
        keys::{KeysQuery, StateFilter, page},
        problem::Problem,
    },
    components::{self, percent_encode},
    dialogs,
    format::{escape_invisible, format_count},
    layout::{NavItem, Page, PageFrame},
};
use crate::{
    api_keys::{KeyField, KeyStore},
    config::model::UserSource,
};

/// Customers whose usage is read at once.
const CUSTOMERS_AT_ONCE: usize = 32;
/// How long the page waits for the usage of all customers.
const USAGE_TIMEOUT: Duration = Duration::from_secs(2);

const STATES: [(Option<StateFilter>, &str); 4] = [
    (None, "All"),
    (Some(StateFilter::Active), "Active"),
    (Some(StateFilter::Expired), "Expired"),
    (Some(StateFilter::Revoked), "Revoked"),
];

pub(super) async fn keys(
    State(context): State<Arc<HandlerContext>>,
    frame: PageFrame,
    query: Result<Query<KeysQuery>, Problem>,
) -> Response {
    let page = async {
        let Query(mut query) = query?;
        // Forms also send empty fields.
        for field in [&mut query.customer, &mut query.plan, &mut query.cursor] {
            *field = field.take().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        }
        let keys = page(&context, &query).await?;
        let customers = Customers::of(&context, &keys.keys).await;
        let settings = ShownSettings::of(&context);
        Ok(view(&keys, &query, &customers, &settings, context.state.clock.now()))
    };
    frame.render(NavItem::Keys, page.await)
}

/// The parts of the configuration that the page shows.
struct ShownSettings {
    plans: Vec<String>,
    can_make: bool,
    is_configured: bool,
}

impl ShownSettings {
    fn of(context: &HandlerContext) -> Self {
        let config = context.state.active_config.snapshot();
        let config = config.rules.config();
        Self {
            plans: config.plan_names(),
            can_make: context.state.api_keys.store() != KeyStore::None,
            is_configured: config.api_keys.is_some(),
        }
    }
}

/// The customers of a page of keys.
struct Customers {
    /// By the ID of a key: the limits of its customer under its plan. Missing: the store is unavailable or slow.
    usage: HashMap<String, Limits>,
    /// Requests that were denied recently, if customers are the users that denials are recorded of.
    denied: Option<HashMap<String, u64>>,
}

impl Customers {
    async fn of(context: &HandlerContext, keys: &[ApiKey]) -> Self {
        let active = || keys.iter().filter(|key| key.state == "active");
        let mut usage = HashMap::new();
        let read_usage = async {
            let read = async |id: String| (customer_limits(context, &id).await, id);
            let read: Vec<_> = active().map(|key| read(key.id.clone())).collect();
            let mut read = stream::iter(read).buffer_unordered(CUSTOMERS_AT_ONCE);
            while let Some((Ok(found), id)) = read.next().await {
                usage.insert(id, found);
            }
        };
        let config = context.state.active_config.snapshot();
        let are_users = |source: &UserSource| matches!(source, UserSource::ApiKey(KeyField::Customer));
        let mut denied = config.rules.config().user.iter().any(are_users).then(HashMap::new);
        let read_denied = async {
            let Some(denied) = &mut denied else { return };
            let (names, now) = (context.state.registry.names(), context.state.clock.now());
            let customers: BTreeSet<&str> = active().map(|key| key.customer.as_str()).collect();
            let stored = |customer| Some((customer, names.stored_name(customer)?));
            let customers: Vec<_> = customers.into_iter().filter_map(stored).collect();
            let written: Vec<_> = customers.iter().map(|(_, written)| &**written).collect();
            let mut others = context.peers.users(&written).await.into_iter();
            for (customer, written) in &customers {
                let others = others.next().unwrap_or_default();
                let addresses = context.state.registry.addresses_of_user(written, &others, now);
                denied.insert((*customer).to_owned(), addresses.iter().map(|address| address.denied).sum());
            }
        };
        // After the timeout, the page is shown without the missing numbers.
        let _late = time::timeout(USAGE_TIMEOUT, async { tokio::join!(read_usage, read_denied) }).await;
        Self { usage, denied }
    }
}

fn view(
    keys: &ApiKeys,
    query: &KeysQuery,
    customers: &Customers,
    settings: &ShownSettings,
    now: i64,
) -> Page {
    let is_filtered = query.customer.is_some() || query.plan.is_some() || query.state.is_some();
    let body = html! {
        div.head {
            div {
                h1 { "Keys" }
                p.meta { "The API keys of customers. Nobody can read a key again: only its hash is kept." }
            }
        }
        @if settings.can_make {
            section.js aria-labelledby="new" {
                div.bar-head { h2 #new { "New key" } }
                (new_key_form(&settings.plans))
            }
        }
        section aria-labelledby="known" {
            div.bar-head { h2 #known { "Known keys" } (states(query)) }
            (filter(query))
            div.card.scroll tabindex="0" role="region" aria-labelledby="known" {
                @if !keys.keys.is_empty() { (table(&keys.keys, customers, settings.can_make, now)) }
                @else if is_filtered || query.cursor.is_some() { (components::empty_state("No matches", "No key matches this filter.")) }
                @else if settings.is_configured { (components::empty_state("No keys", "Keys that you make, and those of the file of keys, are listed here.")) }
                @else { (components::empty_state("No API keys", "API keys are not configured: set api_keys in proxy.yaml.")) }
            }
            nav.pages aria-label="Pages of the list" {
                @if query.cursor.is_some() { a.button href=(link(query, query.state, None)) { "First page" } }
                @if let Some(next) = &keys.cursor { a.button rel="next" href=(link(query, query.state, Some(next))) { "Next page" } }
            }
        }
        (dialogs::rotate_key())
        (dialogs::revoke_key())
        (dialogs::made_key())
    };
    Page { title: "Keys".to_owned(), body }
}

fn states(query: &KeysQuery) -> Markup {
    html! {
        nav.pages aria-label="State" {
            @for (state, name) in STATES {
                a.button href=(link(query, state, None)) aria-current=[(query.state == state).then_some("true")] { (name) }
            }
        }
    }
}

fn filter(query: &KeysQuery) -> Markup {
    html! {
        form.filter role="search" method="get" action="/keys" data-keep {
            label { span { "Customer" }
                input type="search" name="customer" value=[query.customer.as_deref().map(escape_invisible)] autocomplete="off" spellcheck="false";
            }
            label { span { "Plan" }
                input type="search" name="plan" value=[query.plan.as_deref().map(escape_invisible)] autocomplete="off" spellcheck="false";
            }
            @if let Some(state) = query.state { input type="hidden" name="state" value=(state.name()); }
            button.primary type="submit" { "Search" }
            @if query.customer.is_some() || query.plan.is_some() { a href="/keys" { "Clear" } }
        }
    }
}

fn table(keys: &[ApiKey], customers: &Customers, can_change: bool, now: i64) -> Markup {
    html! {
        table.cards {
            caption.hidden { "API keys" }
            thead { tr {
                th scope="col" { "Customer" } th scope="col" { "Key" } th scope="col" { "Plan" } th scope="col" { "State" }
                th.wide scope="col" { "Used of the limits" }
                @if customers.denied.is_some() { th.num scope="col" { "Denied" } }
                th.num scope="col" { "Last used" }
                @if can_change { th.js scope="col" { span.hidden { "Actions" } } }
            } }
            tbody { @for key in keys { (row(key, customers, can_change, now)) } }
        }
    }
}

fn row(key: &ApiKey, customers: &Customers, can_change: bool, now: i64) -> Markup {
    let is_active = key.state == "active";
    html! {
        tr data-key=(key.id) {
            th scope="row" {
                @match &customers.denied {
                    Some(_) => a.plain href={ "/users/" (percent_encode(&key.customer)) } { (components::untrusted(&key.customer)) },
                    None => (components::untrusted(&key.customer)),
                }
            }
            td data-label="Key" { span.mono { (key.id) } @if !key.name.is_empty() { " " (components::untrusted(&key.name)) } }
            td data-label="Plan" { @match &key.plan { Some(plan) => (components::untrusted(plan)), None => span.faint { "none" } } }
            td data-label="State" { (state(key, now)) }
            td.wide data-label="Used of the limits" { @if is_active { (usage(key, customers)) } @else { "–" } }
            @if let Some(denied) = &customers.denied {
                td.num data-label="Denied" {
                    @match denied.get(&key.customer) { Some(denied) => (format_count(*denied)), None => "–" }
                }
            }
            td.num data-label="Last used" {
                @match &key.last_used { Some(last) => (components::time_ago(last, now)), None => span.faint { "not yet" } }
            }
            @if can_change {
                td.num.js {
                    @if is_active && key.source == "store" {
                        button type="button" data-dialog="rotate-key" data-about=(key.id) data-version=(key.version) aria-haspopup="dialog" { "Rotate …" } " "
                        button type="button" data-dialog="revoke-key" data-about=(key.id) aria-haspopup="dialog" { "Revoke …" }
                    }
                }
            }
        }
    }
}

fn state(key: &ApiKey, now: i64) -> Markup {
    let rotated =
        key.secrets.first().filter(|_| key.secrets.len() > 1).and_then(|old| old.expires.as_deref());
    let rotated = rotated.filter(|expires| super::format::parse_micros(expires) > now);
    html! {
        @match key.state.as_str() {
            "active" => span.badge.good { "active" },
            "revoked" => span.badge.bad title=[key.revoked.as_ref().map(|revoked| escape_invisible(&revoked.reason))] { "revoked" },
            state => span.badge.warn { (state) },
        }
        @if key.state == "active" && let Some(expires) = &key.expires { span.faint { " for " (components::time_left(expires, now)) } }
        @if key.state == "active" && let Some(old) = rotated { span.faint { " old key for " (components::time_left(old, now)) } }
        @if let Some(revoked) = &key.revoked && !revoked.reason.is_empty() { " " (components::untrusted(&revoked.reason)) }
        @if key.source == "file" { " " span.badge.quiet { "file" } }
    }
}

fn usage(key: &ApiKey, customers: &Customers) -> Markup {
    html! {
        @match customers.usage.get(&key.id) {
            None => span.faint { "unknown" },
            Some(Limits { limits, unlimited }) => {
                @if limits.is_empty() && unlimited.is_empty() { "–" }
                @for limit in limits {
                    div.used {
                        (components::bar(limit.used, limit.limit, if limit.remaining == 0 { "fill bad" } else { "fill" }))
                        span.num { (limit.policy) ": " (format_count(limit.used)) " of " (format_count(limit.limit)) }
                    }
                }
                @for limit in unlimited { div.used { span.num { (limit.policy) ": unlimited" } } }
            },
        }
    }
}

/// The limits of the customer of an API key, under its plan, of every policy that counts by customer alone.
async fn customer_limits(context: &HandlerContext, id: &str) -> Result<Limits, Problem> {
    let mut limits = Limits::default();
    let Some(key) = context.state.api_keys.get(id) else { return Ok(limits) };
    let (holder, config) = (Holder::customer(key), context.state.active_config.snapshot());
    for policy in config.policies().iter().filter(|policy| holder.key().is_keyed(policy)) {
        holder.read(context, policy, false, &mut limits).await?;
    }
    Ok(limits)
}

fn link(query: &KeysQuery, state: Option<StateFilter>, cursor: Option<&str>) -> String {
    let fields = [
        ("customer", query.customer.as_deref()),
        ("plan", query.plan.as_deref()),
        ("state", state.map(StateFilter::name)),
        ("cursor", cursor),
    ];
    let fields =
        fields.iter().filter_map(|(name, value)| Some(format!("{name}={}", percent_encode((*value)?))));
    let query = fields.collect::<Vec<_>>().join("&");
    if query.is_empty() { "/keys".to_owned() } else { format!("/keys?{query}") }
}

fn new_key_form(plans: &[String]) -> Markup {
    html! {
        form.card.pad.stack data-api="POST" action="/v1/keys" data-said="make" data-keep {
            div.row {
                label { span { "Customer" }
                    input type="text" name="customer" required maxlength="128" autocomplete="off" spellcheck="false" placeholder="acme";
                }
                label { span { "Plan" }
                    select name="plan" {
                        option value="" { "No plan" }
                        @for plan in plans { option value=(plan) { (plan) } }
                    }
                }
                label { span { "Name" }
                    input type="text" name="name" maxlength="128" autocomplete="off" placeholder="CI";
                }
                label { span { "Expires" }
                    select name="expires" {
                        @for (value, words) in [("", "Never"), ("30d", "In 30 days"), ("90d", "In 90 days"), ("366d", "In 366 days")] { option value=(value) { (words) } }
                    }
                }
                button.primary type="submit" { "Make" }
            }
            div.error role="alert" hidden {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        admin::testing::{Harness, NOW},
        api_keys::operations,
    };

    #[test]
    fn keys_are_listed_with_their_state_and_names_are_escaped() {
        let harness = Harness::start(None);
        let fields = |customer: &str, expires| operations::KeyFields {
            customer: customer.into(),
            plan: Some("<pro>".into()),
            expires,
            ..<_>::default()
        };
        let (active, new) =
            operations::create(fields("<b>acme</b>", Some(NOW + 61_000_000)), "tgk", NOW).unwrap();
        let (revoked, _) = operations::create(fields("other", None), "tgk", NOW).unwrap();
        let revoked = operations::revoke(&revoked, "leaked <i>", NOW).unwrap();
        harness.api_keys.put(active.clone()).unwrap();
        harness.api_keys.put(revoked.clone()).unwrap();
        let page = harness.get("/keys").body;
        assert!(page.contains("&lt;b&gt;acme&lt;/b&gt;") && !page.contains("<b>acme"), "{page}");
        assert!(page.contains("1 min 1 s") && page.contains("leaked &lt;i&gt;"), "{page}");
        assert!(!page.contains(new.text.as_str()) && !page.contains("sha256:"));
        let buttons = page.matches("data-dialog=\"revoke-key\"").count();
        assert_eq!(buttons, 1, "a revoked key can't be revoked");
        let only = harness.get("/keys?state=revoked&customer=").body;
        assert!(only.contains(revoked.id.as_str()) && !only.contains(active.id.as_str()));
        assert!(harness.get("/keys?customer=nobody").body.contains("No key matches"));
        assert_eq!(harness.get("/keys?state=x").status, 400);
    }
}
