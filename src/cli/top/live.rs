//! The loop: draws, and waits for keys, answers, seconds and signals.

use std::{
    io, thread,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use ratatui::crossterm::event::{self, Event};
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    sync::mpsc::{self, Receiver},
    time::{self, MissedTickBehavior},
};

use super::{
    super::client::{Failure, Options},
    app::App,
    asker,
    draw::{self, Look},
    keys::Wish,
    screen::Screen,
};

/// Between two looks.
const SECOND: Duration = Duration::from_secs(1);

/// How it came to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Left,
    /// With this number.
    Signal(u8),
}

/// Takes the terminal until somebody has seen enough.
///
/// # Errors
/// The admin port does not take the token, or is none that can be asked; or the terminal can't be drawn upon.
pub(super) fn run(options: &Options) -> Result<End, Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(watch(options))
}

async fn watch(options: &Options) -> Result<End, Failure> {
    let (jobs, asked) = mpsc::channel(8);
    let (tell, mut told) = mpsc::channel(8);
    tokio::spawn(asker::serve(options.clone(), asked, tell));
    let mut signals = signals()?;
    let mut seconds = time::interval(SECOND);
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut app, look) = (App::new(options.admin.clone()), Look::of_environment());
    let mut screen = Screen::take()?;
    let mut keys = keys();
    loop {
        screen.draw(|frame| draw::frame(frame, &app, look, Timestamp::now()))?;
        let job = tokio::select! {
            biased;
            number = signals.recv() => return Ok(End::Signal(number.unwrap_or(0))),
            key = keys.recv() => match key {
                Some(Event::Key(key)) => match app.press(key) {
                    Some(Wish::Leave) => return Ok(End::Left),
                    Some(Wish::Ask(job)) => Some(job),
                    None => None,
                },
                // Another size, say: it is drawn anew.
                Some(_) => None,
                // The terminal is gone.
                None => return Ok(End::Left),
            },
            told = told.recv() => match told {
                Some(told) => app.hear(told, Instant::now())?,
                None => return Err(io::Error::other("nobody asks the admin port any more").into()),
            },
            _ = seconds.tick() => app.tick(),
        };
        if let Some(job) = job
            && jobs.try_send(job).is_err()
        {
            app.notice = Some("the admin port is slow: that key was not heeded".to_owned());
        }
    }
}

/// What is pressed, from a thread that waits for it; it ends with the process.
fn keys() -> Receiver<Event> {
    let (pressed, keys) = mpsc::channel(64);
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            if pressed.blocking_send(event).is_err() {
                return;
            }
        }
    });
    keys
}

/// The numbers of signals that ask to end.
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
