//! The connection to the stream of events, made again whenever it is lost.

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
        client::{self, AdminError, Connection, Options},
        print_error,
        terminal::printable,
    },
    Args,
    line::Format,
};

/// For the response's head.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Without an event: there is a `tick` every two seconds.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// Before the connection is made again.
const RETRY: Duration = Duration::from_secs(2);

/// Prints events until nobody reads them any more.
///
/// # Errors
/// The admin port can't be reached at first, it refuses, or the output can't be written.
pub(super) fn follow(args: &Args, format: Format) -> Result<(), AdminError> {
    runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut subscription = Subscription::open(&args.options).await?;
        while let Some(lost) = subscription.print(args, format).await? {
            report(&format!("{lost}; connecting again"));
            let Some(again) = reconnect(&args.options).await? else { break };
            report("connected again; events in between were not received");
            subscription = again;
        }
        Ok(())
    })
}

/// Tries until there is a connection. `None`: nobody reads the output any more.
///
/// # Errors
/// The admin port refuses, now and later.
async fn reconnect(options: &Options) -> Result<Option<Subscription>, AdminError> {
    loop {
        time::sleep(RETRY).await;
        if is_unread() {
            return Ok(None);
        }
        match Subscription::open(options).await {
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
struct Subscription {
    options: Options,
    events: EventStream<BodyDataStream<Incoming>>,
    /// The stream lasts as long as the connection.
    _connection: Connection,
}

impl Subscription {
    async fn open(options: &Options) -> Result<Self, AdminError> {
        let (connection, body) = client::with_timeout(options, CONNECT_TIMEOUT, async {
            let mut connection = Connection::open(options).await?;
            let body = connection.events().await?;
            Ok((connection, body))
        })
        .await?;
        let events = BodyDataStream::new(body).eventsource();
        Ok(Self { options: options.clone(), events, _connection: connection })
    }

    /// Prints events until the connection is lost, and returns why; `None` if nobody reads the output any more.
    async fn print(&mut self, args: &Args, format: Format) -> Result<Option<AdminError>, AdminError> {
        loop {
            let event = match self.next().await {
                Ok(event) => event,
                Err(lost) => return Ok(Some(lost)),
            };
            let line = if args.wants(&event.event) { format.line(&event) } else { String::new() };
            // Ticks come every two seconds, whether they are printed or not.
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

/// Writes a line at once. `false`: nobody reads it.
fn print(line: &str) -> io::Result<bool> {
    let mut out = stdout().lock();
    match out.write_all(line.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the output is a pipe that nobody reads any more.
fn is_unread() -> bool {
    let stdout = stdout();
    let mut pipe = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    let gone = PollFlags::POLLERR | PollFlags::POLLHUP;
    poll(&mut pipe, PollTimeout::ZERO).is_ok()
        && pipe[0].revents().is_some_and(|events| events.intersects(gone))
}
