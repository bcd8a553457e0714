//! `GET /explain`: shows how a request would be decided.

use std::{collections::BTreeMap, sync::Arc};

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    super::{
        context::HandlerContext,
        dto::{
            AssumedHost, AssumedListener, ExplainedBodyLimit, ExplainedCheck, ExplainedEndpoint,
            ExplainedListener, ExplainedReply, ExplainedRequest, ExplainedRoute, Explanation, HeaderChange,
            HeaderValues,
        },
        explain::explanation,
        extract::Query,
        problem::Problem,
    },
    bans, components,
    format::{escape_invisible, format_count, humanize_duration},
    layout::{NavItem, Page, PageFrame},
};
use crate::config::model::Listener;

pub(super) async fn explain(
    State(context): State<Arc<HandlerContext>>,
    frame: PageFrame,
    query: Result<Query<ExplainForm>, Problem>,
) -> Response {
    let page = async {
        let Query(form) = query?;
        let result = match form.request() {
            None => None,
            Some(Err(problem)) => Some(Err(problem)),
            Some(Ok(request)) => Some(explanation(&context, request).await),
        };
        let config = context.state.active_config.snapshot();
        Ok(view(&form, &config.rules.config().listeners, result, context.state.clock.now()))
    };
    frame.render(NavItem::Explain, page.await)
}

const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// The fields of the form.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExplainForm {
    #[serde(default)]
    method: String,
    #[serde(default)]
    url: String,
    /// One header per line.
    #[serde(default)]
    headers: String,
    #[serde(default)]
    peer: String,
    /// Empty: any.
    #[serde(default)]
    listener: String,
}

impl ExplainForm {
    /// The request to explain. `None` if the form is empty.
    fn request(&self) -> Option<Result<ExplainedRequest, Problem>> {
        let url = self.url.trim();
        let given = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let with_headers = |headers| ExplainedRequest {
            method: if self.method.is_empty() { "GET".to_owned() } else { self.method.clone() },
            url: url.to_owned(),
            headers,
            api_key: None,
            client_certificate: None,
            peer: given(&self.peer),
            listener: given(&self.listener),
            body: None,
        };
        (!url.is_empty()).then(|| parse_headers(&self.headers).map(with_headers))
    }
}

/// Header lines of the form `name: value`.
fn parse_headers(text: &str) -> Result<BTreeMap<String, HeaderValues>, Problem> {
    let mut headers = BTreeMap::<String, Vec<String>>::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or_else(|| {
            Problem::bad_request(format!(
                "write headers as name: value; this line is not: {}",
                line.escape_debug()
            ))
        })?;
        headers.entry(name.trim().to_ascii_lowercase()).or_default().push(value.trim().to_owned());
    }
    Ok(headers.into_iter().map(|(name, values)| (name, HeaderValues::Many(values))).collect())
}

fn view(
    form: &ExplainForm,
    listeners: &[Listener],
    result: Option<Result<Explanation, Problem>>,
    now: i64,
) -> Page {
    let body = html! {
        div.head {
            div {
                h1 { "Explain" }
                p.meta { "See what would happen to a request. Nothing is counted or forwarded." }
            }
        }
        div.columns.turned {
            section aria-labelledby="request" {
                div.bar-head { h2 #request { "Request" } }
                (request_form(form, listeners))
            }
            section aria-labelledby="answer" {
                div.bar-head { h2 #answer { "Answer" } }
                @match result {
                    None => div.card { (components::empty_state("No request yet", "The client address, the route and every limit that is checked are shown here.")) },
                    Some(Err(problem)) => div.card.pad role="alert" { p.error { (escape_invisible(problem.detail())) } },
                    Some(Ok(explanation)) => (answer(&explanation, now)),
                }
            }
        }
    };
    Page { title: "Explain".to_owned(), body }
}

fn request_form(form: &ExplainForm, listeners: &[Listener]) -> Markup {
    html! {
        form.card.pad.stack method="get" action="/explain" data-keep {
            label { span { "URL" }
                input type="text" name="url" required value=(escape_invisible(&form.url)) placeholder="http://api.example.com/orders?page=1" autocomplete="off" spellcheck="false" aria-describedby="seen";
            }
            div.pair {
                label { span { "Method" }
                    select name="method" { @for method in METHODS { option selected[form.method == method] { (method) } } }
                }
                label { span { "Peer address" }
                    input type="text" name="peer" value=(escape_invisible(&form.peer)) placeholder="127.0.0.1" autocomplete="off" spellcheck="false";
                }
            }
            @if listeners.len() > 1 {
                label { span { "Listener" }
                    select name="listener" {
                        option value="" { "any" }
                        @for listener in listeners.iter().map(Listener::shown) { option value=(listener) selected[form.listener == listener] { (listener) } }
                    }
                }
            }
            label { span { "Headers, one per line" }
                textarea name="headers" spellcheck="false" autocomplete="off" placeholder="x-user-id: alice" { (form.headers) }
            }
            p.faint.small #seen { "The request is part of this page's URL; do not paste secrets." }
            div.buttons { button.primary type="submit" { "Explain" } }
        }
    }
}

fn answer(explanation: &Explanation, now: i64) -> Markup {
    html! {
        div.card {
            div.verdict {
                (verdict_badge(&explanation.verdict))
                p { (components::untrusted(&explanation.because)) }
                @if let Some(status) = explanation.status { span.faint { "status " (status) } }
            }
            dl.facts.reasons {
                @if let Some(AssumedHost { host, because }) = &explanation.assumed_host { (fact("Host", &components::untrusted(host), because)) }
                @if let Some(AssumedListener { listener, because }) = &explanation.assumed_listener { (fact("Listener", &html! { (listener) }, because)) }
                (fact("Client address", &html! { (components::address_link(&explanation.client_address.address)) }, &explanation.client_address.because))
                (fact("User", &components::user_link(explanation.user.user.as_deref()), &explanation.user.because))
                @for ExplainedListener { listener, reply, because } in &explanation.listeners {
                    (fact("Listener", &html! { (listener) " answers with " (reply.status) }, because))
                }
                @if let Some(route) = &explanation.route {
                    (fact("Route", &html! { @if let Some(name) = &route.name { (name) } @else { span.faint { "none" } } }, &route.because))
                }
                @if let Some(upstream) = &explanation.upstream { (fact("Upstream", &html! { (upstream) }, "")) }
                @if let Some(ExplainedEndpoint { url, because }) = &explanation.endpoint { (fact("Endpoint", &html! { (url) }, because)) }
                @if let Some(ExplainedReply { status, location }) = &explanation.reply {
                    @match location {
                        Some(location) => (fact("Redirect", &html! { (status) " to " (components::untrusted(location)) }, "")),
                        None => (fact("Reply", &html! { (status) }, "by the route")),
                    }
                }
                @if let Some(cors) = &explanation.cors { (fact("CORS", &html! { (components::untrusted(cors)) }, "")) }
                @if let Some(path) = &explanation.rewritten_path { (fact("Path", &html! { (components::untrusted(path)) }, "rewritten")) }
                @for (title, changes) in [("Request headers", &explanation.request_headers), ("Response headers", &explanation.response_headers)] {
                    @if !changes.is_empty() { (fact(title, &header_changes(changes), "")) }
                }
                @if let Some(ExplainedBodyLimit { max, because }) = &explanation.body_limit {
                    (fact("Body", &html! { @if let Some(max) = max { "at most " (format_count(*max)) " bytes" } }, because))
                }
            }
        }
        @if let Some(route) = &explanation.route { (skipped_routes(route)) }
        @if !explanation.checks.is_empty() {
            h3.above { "Limits checked" }
            div.card { (checks_table(&explanation.checks)) }
        }
        @if !explanation.bans.is_empty() {
            h3.above { "Active bans" }
            div.card { (bans::table(&explanation.bans, now, false)) }
        }
    }
}

fn fact(name: &str, value: &Markup, because: &str) -> Markup {
    html! {
        div { dt { (escape_invisible(name)) } dd { (value) @if !because.is_empty() { p.faint { (escape_invisible(because)) } } } }
    }
}

fn header_changes(changes: &[HeaderChange]) -> Markup {
    html! {
        @for HeaderChange { change, name, value } in changes {
            div { (change) " " (escape_invisible(name)) @if let Some(value) = value { ": " (components::untrusted(value)) } }
        }
    }
}

fn skipped_routes(route: &ExplainedRoute) -> Markup {
    html! {
        @let count = route.passed_over.len() + route.others;
        @if count > 0 {
            details.passed {
                summary { "Not matched: " (count) @if count == 1 { " route" } @else { " routes" } }
                dl.card.facts.reasons { @for other in &route.passed_over { (fact(&other.name, &html! {}, &other.because)) } }
            }
        }
    }
}

fn checks_table(checks: &[ExplainedCheck]) -> Markup {
    html! {
        table.cards {
            thead { tr {
                th scope="col" { "Policy" } th scope="col" { "Key" } th.wide scope="col" { "Used" }
                th.num scope="col" { "Retry in" } th scope="col" { "Verdict" }
            } }
            tbody {
                @for check in checks {
                    tr {
                        th scope="row" {
                            (check.policy)
                            p.faint { (check.algorithm) @if check.cost != 1 { ", costs " (format_count(check.cost)) } }
                            @if !check.because.is_empty() { p.faint.wrap { (components::untrusted(&check.because)) } }
                        }
                        td.mono data-label="Key" { (components::untrusted(&check.key)) }
                        td.wide data-label="Used" {
                            @if let (Some(used), Some(remaining)) = (check.used, check.remaining) {
                                div.used {
                                    (components::bar(used, check.limit, if remaining == 0 { "fill bad" } else { "fill" }))
                                    span.num { (format_count(used)) " of " (format_count(check.limit)) }
                                }
                            } @else { span.faint { "not checked, of " (format_count(check.limit)) } }
                        }
                        td.num data-label="Retry in" { (check.retry_after.as_deref().map_or("–".to_owned(), humanize_duration)) }
                        td data-label="Verdict" {
                            span { (verdict_badge(&check.verdict)) @if check.mode == "shadow" { " " span.badge.quiet { "shadow" } } }
                        }
                    }
                }
            }
        }
    }
}

fn verdict_badge(verdict: &str) -> Markup {
    let class = match verdict {
        "allowed" => "badge good",
        "denied" | "banned" | "forbidden" => "badge bad",
        "refused" | "undecided" => "badge warn",
        _ => "badge quiet",
    };
    html! { span class=(class) { (verdict) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_lines_are_parsed() {
        let form = |headers: &str| ExplainForm {
            url: " /x ".into(),
            headers: headers.into(),
            ..ExplainForm::default()
        };
        let request =
            form("X-Forwarded-For: 2001:db8::1\n\n x-forwarded-for:10.0.0.1\r\n").request().unwrap().unwrap();
        assert_eq!((request.method.as_str(), request.url.as_str(), request.peer), ("GET", "/x", None));
        let Some(HeaderValues::Many(values)) = request.headers.get("x-forwarded-for") else {
            panic!("{:?}", request.headers)
        };
        assert_eq!(values, &["2001:db8::1", "10.0.0.1"]);
        assert!(form("no colon").request().unwrap().is_err());
        assert!(ExplainForm::default().request().is_none());
    }

    #[test]
    fn of_several_listeners_one_can_be_chosen() {
        let [one, other] =
            ["0.0.0.0:80", "127.0.0.1:81"].map(|address| Listener::plain(address.parse().unwrap()));
        let listeners = [Listener { name: Some("public".to_owned()), ..one }, other];
        let form = ExplainForm { url: "/".into(), listener: "127.0.0.1:81".into(), ..ExplainForm::default() };
        assert_eq!(form.request().unwrap().unwrap().listener.as_deref(), Some("127.0.0.1:81"));
        assert_eq!(
            ExplainForm { url: "/".into(), ..ExplainForm::default() }.request().unwrap().unwrap().listener,
            None
        );
        let page = |listeners| view(&form, listeners, None, 0).body.into_string();
        let options = page(&listeners);
        assert!(options.contains("<option value=\"public\">public</option>"), "{options}");
        assert!(options.contains("<option value=\"127.0.0.1:81\" selected>"), "{options}");
        assert!(!page(&listeners[..1]).contains("name=\"listener\""));
    }

    #[test]
    fn the_form_keeps_its_fields_and_escapes_them() {
        let form = ExplainForm {
            url: "\"><script>".into(),
            headers: "</textarea><script>".into(),
            ..ExplainForm::default()
        };
        let page = view(&form, &[], Some(Err(Problem::bad_request("<b>"))), 0).body.into_string();
        assert!(
            !page.contains("<script>") && page.contains("&lt;/textarea&gt;") && page.contains("&lt;b&gt;")
        );
    }
}
