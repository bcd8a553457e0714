//! A timer that follows a deadline which mostly moves on before it is reached.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};

use tokio::time::Sleep;

/// Sleeps until a deadline. It is set again only when it fires, or where the deadline has come nearer.
pub(super) struct Alarm {
    sleep: Pin<Box<Sleep>>,
    /// Whether the sleep has the waker of this task.
    armed: bool,
}

impl Alarm {
    pub(super) fn new(deadline: Instant) -> Self {
        Self { sleep: Box::pin(tokio::time::sleep_until(deadline.into())), armed: false }
    }

    /// When it wakes its task.
    pub(super) fn time(&self) -> Instant {
        self.sleep.deadline().into_std()
    }

    /// Ready once `deadline` has passed. `now`: the time, as far as the caller knows it.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant, now: Instant) -> Poll<()> {
        if self.sleep.deadline() > deadline.into() {
            self.sleep.as_mut().reset(deadline.into());
            self.armed = false;
        }
        // Mostly the sleep ends in the future, and need not be polled.
        if self.armed && self.sleep.deadline() > now.into() {
            return Poll::Pending;
        }
        while self.sleep.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                self.armed = false;
                return Poll::Ready(());
            }
            // The deadline has moved on since the sleep was set.
            self.sleep.as_mut().reset(deadline.into());
        }
        self.armed = true;
        Poll::Pending
    }
}
