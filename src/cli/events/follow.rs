//! Follows the stream of events, and reconnects when the connection is lost.

use std::{
    io::{self, ErrorKind, Write, stdout},
    os::fd::AsFd,
    time::Duration,
};

use eventsource_stream::{Event, EventStream, Eventsource};
use futures_util::StreamExt;
use http_body_util::BodyDataStream;
use hyper::body::Incoming;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::{runtime, time};

use super::{
    super::{
        client::{self, AdminConnection, AdminError, Options},
        failure::print_error,
        terminal::printable,
    },
    Args,
    line::Format,
};

/// Maximum time for the response head.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time without an event: there is a `tick` every two seconds.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time before reconnecting.
const RETRY: Duration = Duration::from_secs(2);

/// Prints events until the output is closed.
///
/// # Errors
/// The first connection fails, the admin port refuses, or the output can't be written.
pub(super) fn follow(args: &Args, format: Format) -> Result<(), AdminError> {
    runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut subscription = AdminEventStream::open(&args.options).await?;
        while let Some(lost) = subscription.print(args, format).await? {
            report(&format!("{lost}; connecting again"));
            let Some(again) = reconnect(&args.options).await? else { break };
            report("connected again; events in between were not received");
            subscription = again;
        }
        Ok(())
    })
}

/// Retries until it is connected. `None`: the output is closed.
///
/// # Errors
/// The admin port refuses permanently.
async fn reconnect(options: &Options) -> Result<Option<AdminEventStream>, AdminError> {
    loop {
        time::sleep(RETRY).await;
        if is_unread() {
            return Ok(None);
        }
        match AdminEventStream::open(options).await {
            Ok(subscription) => return Ok(Some(subscription)),
            Err(
                AdminError::Connect { .. }
                | AdminError::Timeout { .. }
                | AdminError::Broken { .. }
                | AdminError::Unavailable(_),
            ) => {}
            Err(refusal) => return Err(refusal),
        }
    }
}

fn report(text: &str) {
    print_error(format_args!("tollgate: {}\n", printable(text)));
}

/// A stream of events.
struct AdminEventStream {
    options: Options,
    events: EventStream<BodyDataStream<Incoming>>,
    /// Kept open for the stream.
    _connection: AdminConnection,
}

impl AdminEventStream {
    async fn open(options: &Options) -> Result<Self, AdminError> {
        let (connection, body) = client::with_timeout(options, CONNECT_TIMEOUT, async {
            let mut connection = AdminConnection::open(options).await?;
            let body = connection.events().await?;
            Ok((connection, body))
        })
        .await?;
        let events = BodyDataStream::new(body).eventsource();
        Ok(Self { options: options.clone(), events, _connection: connection })
    }

    /// Prints events until the connection is lost, and returns why; `None` if the output is closed.
    async fn print(&mut self, args: &Args, format: Format) -> Result<Option<AdminError>, AdminError> {
        loop {
            let event = match self.next().await {
                Ok(event) => event,
                Err(lost) => return Ok(Some(lost)),
            };
            let line = if args.wants(&event.event) { format.line(&event) } else { String::new() };
            // Checked at least every two seconds, by ticks, even if they are not printed.
            if is_unread() || !print(&line)? {
                return Ok(None);
            }
        }
    }

    async fn next(&mut self) -> Result<Event, AdminError> {
        let Self { options, events, .. } = self;
        let broken = |reason: String| AdminError::Broken { admin: options.admin.clone(), reason };
        client::with_timeout(options, SILENCE_TIMEOUT, async {
            match events.next().await {
                Some(Ok(event)) => Ok(event),
                Some(Err(error)) => Err(broken(error.to_string())),
                None => Err(broken("the stream of events has ended".to_owned())),
            }
        })
        .await
    }
}

/// Writes and flushes a line. `false`: the output is closed.
fn print(line: &str) -> io::Result<bool> {
    let mut out = stdout().lock();
    match out.write_all(line.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the output is a pipe whose reader is gone.
fn is_unread() -> bool {
    let stdout = stdout();
    let mut pipe = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    let gone = PollFlags::POLLERR | PollFlags::POLLHUP;
    poll(&mut pipe, PollTimeout::ZERO).is_ok()
        && pipe[0].revents().is_some_and(|events| events.intersects(gone))
}
