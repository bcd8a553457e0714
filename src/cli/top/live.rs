//! The event loop: it draws, and waits for keys, responses, ticks and signals.

use std::{
    io, thread,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event},
};
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    sync::mpsc::{self, Receiver},
    time::{self, MissedTickBehavior},
};

use super::{
    super::client::{AdminError, Options},
    admin_client,
    app::TopApp,
    draw::{self, Theme},
    keys::Action,
};

/// Time between two refreshes.
const REFRESH: Duration = Duration::from_secs(1);

/// Why the event loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    Quit,
    /// The number of the signal.
    Signal(u8),
}

/// Uses the terminal until the operator quits.
///
/// # Errors
/// The admin port refuses the token, its URL is wrong, or drawing fails.
pub(super) fn run(options: &Options) -> Result<Exit, AdminError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(event_loop(options))
}

async fn event_loop(options: &Options) -> Result<Exit, AdminError> {
    let (requests, received) = mpsc::channel(8);
    let (respond, mut responses) = mpsc::channel(8);
    tokio::spawn(admin_client::serve(options.clone(), received, respond));
    let mut signals = signals()?;
    let mut ticks = time::interval(REFRESH);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut app, theme) = (TopApp::new(options.admin.to_string()), Theme::from_environment());
    let mut screen = Screen::new()?;
    let mut keys = keys();
    loop {
        screen.draw(|frame| draw::draw(frame, &app, theme, Timestamp::now()))?;
        let request = tokio::select! {
            biased;
            number = signals.recv() => return Ok(Exit::Signal(number.unwrap_or(0))),
            key = keys.recv() => match key {
                Some(Event::Key(key)) => match app.press(key) {
                    Some(Action::Quit) => return Ok(Exit::Quit),
                    Some(Action::Send(request)) => Some(request),
                    None => None,
                },
                // For example a resize: draw again.
                Some(_) => None,
                // The terminal was closed.
                None => return Ok(Exit::Quit),
            },
            response = responses.recv() => match response {
                Some(response) => app.handle(response, Instant::now())?,
                None => return Err(io::Error::other("the connection to the admin port has ended").into()),
            },
            _ = ticks.tick() => app.tick(),
        };
        if let Some(request) = request
            && requests.try_send(request).is_err()
        {
            app.notice = Some("the admin port is slow: that key press was ignored".to_owned());
        }
    }
}

/// Terminal events, read by a thread that runs until the process ends.
fn keys() -> Receiver<Event> {
    let (sender, keys) = mpsc::channel(64);
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    });
    keys
}

/// The numbers of received signals that end the process.
fn signals() -> io::Result<Receiver<u8>> {
    let (caught, signals) = mpsc::channel(1);
    for (kind, number) in
        [(SignalKind::hangup(), 1), (SignalKind::interrupt(), 2), (SignalKind::terminate(), 15)]
    {
        let (mut signal, caught) = (signal(kind)?, caught.clone());
        tokio::spawn(async move {
            signal.recv().await;
            let _ended = caught.send(number).await;
        });
    }
    Ok(signals)
}

/// The terminal while in use. Dropping this restores it, as does ratatui's hook before a panic is reported.
pub(super) struct Screen(DefaultTerminal);

impl Screen {
    pub(super) fn new() -> io::Result<Self> {
        ratatui::try_init().map(Self).inspect_err(|_| {
            // The initialisation may have been partial.
            let _best_effort = ratatui::try_restore();
        })
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.0.draw(draw).map(|_| ())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _gone = self.0.show_cursor();
        let _gone = ratatui::try_restore();
    }
}
