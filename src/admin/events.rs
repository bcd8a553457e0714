//! `GET /v1/events`: server-sent events, for as long as a client listens.
//!
//! Events are stored once for all subscribers. A stream has only its position and the event being written: a client
//! that reads too slowly misses events, and gets their number.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::State,
    response::{
        IntoResponse, Sse,
        sse::{Event as SseEvent, KeepAlive},
    },
};
use futures_util::{Stream, stream};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::{
    client_state::banned_until,
    context::{EVENT_STREAMS, HandlerContext},
    dto::Tick,
    extract::{NoParams, Query, ShutdownSignal},
    openapi::{ReadErrors, UnavailableError},
    problem::Problem,
};
use crate::{
    abuse::{self, bans::BanTable},
    limit::Clock,
    telemetry::{Event, EventDelivery, IncidentAct, IncidentNews, Subscription, time::rfc3339},
};

/// Time without an event after which a comment is sent, so that no proxy on the way closes the connection as idle.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Streams server-sent events: `limited`, `unblocked`, `banned`, `lifted`, `drained`, `undrained`, `reloaded`,
/// `not_reloaded`, `health`, `endpoints`, `warning`, `incident`, `incident_act`, and every two seconds the current rates as `tick`. A client that
/// reads too slowly gets the number of events that it missed as `missed`.
#[utoipa::path(
    get,
    path = "/v1/events",
    operation_id = "events",
    tag = "events",
    responses(
        (
            status = 200,
            body = String,
            content_type = "text/event-stream",
            description = "an endless stream of events, each with its name, its time in microseconds as `id`, and one line of \
                JSON; the data of `tick` is a `Tick`",
            example = "event: unblocked\nid: 1783080001250000\ndata: {\"address\":\"203.0.113.7\"}\n\n"
        ),
        ReadErrors,
        UnavailableError
    )
)]
pub(super) async fn events(
    State(context): State<Arc<HandlerContext>>,
    Extension(ending): Extension<ShutdownSignal>,
    _: Query<NoParams>,
) -> Result<impl IntoResponse, Problem> {
    let Ok(permit) = Arc::clone(&context.streams).try_acquire_owned() else {
        let detail =
            format!("there are already {EVENT_STREAMS} event streams: close one, or try again later");
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    };
    let heartbeat = KeepAlive::new().interval(HEARTBEAT).text("heartbeat");
    // nginx would keep events until its buffer is full. Caddy sees by the content type that it must not.
    let unbuffered = [("x-accel-buffering", "no")];
    Ok((unbuffered, Sse::new(stream(&context, ending, permit)).keep_alive(heartbeat)))
}

/// How long a browser waits before it reconnects.
const RETRY: Duration = Duration::from_secs(2);

struct EventStream {
    events: Subscription,
    ticks: watch::Receiver<Option<Arc<Tick>>>,
    bans: Arc<BanTable>,
    ending: ShutdownSignal,
    clock: Arc<dyn Clock>,
    /// Nothing has been sent yet.
    is_new: bool,
    _permit: OwnedSemaphorePermit,
}

/// Streams events from now on, until the connection or the process ends.
pub(super) fn stream(
    context: &HandlerContext,
    ending: ShutdownSignal,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<SseEvent, Infallible>> + use<> {
    let stream_state = EventStream {
        events: context.state.events.subscribe(),
        ticks: context.ticks.subscribe(),
        bans: Arc::clone(&context.state.bans),
        ending,
        clock: Arc::clone(&context.state.clock),
        is_new: true,
        _permit: permit,
    };
    stream::unfold(stream_state, |mut stream_state| async move {
        let event = stream_state.next().await?;
        Some((Ok(event), stream_state))
    })
}

impl EventStream {
    async fn next(&mut self) -> Option<SseEvent> {
        if std::mem::take(&mut self.is_new) {
            // Sent at once, so that the client knows that it is subscribed.
            return Some(SseEvent::default().retry(RETRY).comment("listening"));
        }
        let (name, data) = tokio::select! {
            biased;
            () = self.ending.ended() => return None,
            delivery = self.events.next() => match delivery {
                EventDelivery::Event(event) => (event.name(), event_data(&event, &self.bans)),
                EventDelivery::Missed(missed) => ("missed", serde_json::json!({"missed": missed})),
                EventDelivery::Closed => return None,
            },
            tick = tick(&mut self.ticks) => ("tick", serde_json::to_value(&*tick?).unwrap_or_default()),
        };
        let id = self.clock.now().to_string();
        // JSON escapes line breaks, so the data is one line.
        Some(SseEvent::default().event(name).id(id).data(data.to_string()))
    }
}

/// The next tick. `None`: there will be no more.
async fn tick(ticks: &mut watch::Receiver<Option<Arc<Tick>>>) -> Option<Arc<Tick>> {
    loop {
        ticks.changed().await.ok()?;
        let tick = ticks.borrow_and_update().clone();
        if tick.is_some() {
            return tick;
        }
    }
}

/// The end of the last ban of an address or of a prefix around it.
fn held_until(address: &str, bans: &BanTable) -> Option<i64> {
    banned_until(&bans.covering(abuse::parse(address)?))
}

/// The data of an event, without its name.
pub(super) fn event_data(event: &Event, bans: &BanTable) -> Value {
    match event {
        Event::Limited { address, policies, denied, distinct_users, until } => json!({
            "address": address,
            "policies": policies,
            "denied": denied,
            "distinct_users": distinct_users,
            "until": rfc3339(held_until(address, bans).map_or(*until, |banned| banned.max(*until))),
        }),
        Event::Unblocked { address } => json!({"address": address}),
        Event::Banned { key, until, reason, by, level, is_shadow } => json!({
            "key": key,
            "until": rfc3339(*until),
            "reason": reason,
            "by": by,
            "level": level,
            "mode": if *is_shadow { "shadow" } else { "enforce" },
        }),
        Event::Lifted { key } => json!({"key": key}),
        Event::Drained { upstream, endpoint, reason, by } => {
            json!({"upstream": upstream, "endpoint": endpoint, "reason": reason, "by": by})
        }
        Event::Undrained { upstream, endpoint } => json!({"upstream": upstream, "endpoint": endpoint}),
        Event::Reloaded { configuration_hash, changed } => {
            json!({"configuration_hash": configuration_hash, "changed": changed})
        }
        Event::NotReloaded { errors } => json!({"errors": errors}),
        Event::Health { what, is_healthy, why } => json!({"what": what, "healthy": is_healthy, "why": why}),
        Event::Endpoints(change) => json!({
            "upstream": change.upstream,
            "source": change.source,
            "kind": if change.is_file { "file" } else { "name" },
            "count": change.count,
            "added": change.added,
            "removed": change.removed,
            "first_added": change.first_added,
        }),
        Event::Incident(IncidentNews { id, kind, is_attack, text, start, is_over }) => json!({
            "id": id,
            "kind": kind,
            "attack": is_attack,
            "text": text,
            "start": rfc3339(*start),
            "over": is_over,
        }),
        Event::IncidentAct(IncidentAct { id, act, addresses, by }) => {
            json!({"id": id, "act": act, "addresses": addresses, "by": by})
        }
        Event::Warning { text, is_raised } => json!({"text": text, "raised": is_raised}),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Read, Write},
        net::TcpStream,
        time::Instant,
    };

    use super::*;
    use crate::admin::testing::Harness;

    /// A subscribed client.
    struct Client(BufReader<TcpStream>);

    impl Client {
        fn new(harness: &Harness) -> Self {
            let mut stream = TcpStream::connect(harness.address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
            Self(BufReader::new(stream))
        }

        /// Reads up to a line with this prefix.
        fn line(&mut self, prefix: &str) -> String {
            loop {
                let mut line = String::new();
                assert!(self.0.read_line(&mut line).unwrap() > 0, "it ended before {prefix}");
                if line.starts_with(prefix) {
                    return line.trim_end().to_owned();
                }
            }
        }

        /// A client whose subscription has begun.
        fn subscribed(harness: &Harness) -> Self {
            let mut listener = Self::new(harness);
            listener.line("retry:");
            listener
        }
    }

    #[test]
    fn events_have_a_name_an_id_and_data() {
        let harness = Harness::start(None);
        let mut listener = Client::new(&harness);
        listener.line("HTTP/1.1 200");
        assert_eq!(listener.line("content-type:"), "content-type: text/event-stream");
        assert_eq!(listener.line("retry:"), "retry: 2000");
        harness.events.publish(|| Event::Unblocked { address: "203.0.113.7".into() });
        assert_eq!(listener.line("event: unblocked"), "event: unblocked");
        assert!(listener.line("id:").len() > 4);
        assert_eq!(listener.line("data:"), r#"data: {"address":"203.0.113.7"}"#);
        // Ticks are sent without any event.
        listener.line("event: tick");
        let tick: serde_json::Value = serde_json::from_str(&listener.line("data:")[5..]).unwrap();
        assert_eq!((&tick["blocked"], &tick["ready"]), (&0.into(), &true.into()));
        assert_eq!(tick["store"]["topology"], "memory");
    }

    #[test]
    fn a_slow_reader_is_sent_the_number_of_missed_events() {
        let harness = Harness::start(None);
        let mut listener = Client::subscribed(&harness);
        let long = "x".repeat(10_000);
        for n in 0..4_000 {
            harness.events.publish(|| Event::Unblocked { address: format!("{n} {long}") });
        }
        listener.line("event: missed");
        let missed: serde_json::Value = serde_json::from_str(&listener.line("data:")[5..]).unwrap();
        assert!(missed["missed"].as_u64().unwrap() > 0, "{missed}");
        listener.line(&format!("data: {{\"address\":\"{} ", 3_999));
    }

    #[test]
    fn streams_are_limited_and_their_permits_are_released() {
        let harness = Harness::start(None);
        let mut listeners: Vec<_> = (0..EVENT_STREAMS).map(|_| Client::subscribed(&harness)).collect();
        harness.get("/v1/events").is_problem(503);
        // Other requests are still served.
        assert_eq!(harness.get("/v1/status").status, 200);
        listeners.pop();
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let mut another = Client::new(&harness);
            let mut status = String::new();
            another.0.read_line(&mut status).unwrap();
            if status.starts_with("HTTP/1.1 200") {
                break;
            }
            assert!(Instant::now() < until, "{status}");
        }
        harness.get("/v1/events?x=1").is_problem(400);
    }

    #[test]
    fn a_stop_ends_streams_cleanly_and_soon() {
        let harness = Harness::start(None);
        let mut listeners = [Client::subscribed(&harness), Client::subscribed(&harness)];
        let begun = Instant::now();
        harness.stop();
        assert!(begun.elapsed() < Duration::from_secs(5));
        for listener in &mut listeners {
            let mut rest = String::new();
            listener.0.read_to_string(&mut rest).unwrap();
            assert!(rest.ends_with("0\r\n\r\n"), "it was broken off: {rest:?}");
        }
    }

    #[test]
    fn times_and_hostile_names_fit_in_one_line() {
        let event = Event::Banned {
            key: "user:a\nb\r\u{2028}".into(),
            until: 1_783_080_001_250_000,
            reason: "</script>".into(),
            by: "bans.hammering".into(),
            level: 2,
            is_shadow: true,
        };
        let data = event_data(&event, &Harness::start(None).bans);
        assert_eq!(data["until"], "2026-07-03T12:00:01.250Z");
        assert_eq!(data["mode"], "shadow");
        assert!(!data.to_string().contains(['\n', '\r']));
    }
}
