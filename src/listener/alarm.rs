//! A timer for a deadline that is usually extended before it is reached.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};

use tokio::time::Sleep;

/// Sleeps until a deadline. The timer is set again only when it fires, or when the deadline has moved earlier.
pub(super) struct Alarm {
    sleep: Pin<Box<Sleep>>,
    /// Whether the sleep has the waker of this task.
    armed: bool,
}

impl Alarm {
    pub(super) fn new(deadline: Instant) -> Self {
        Self { sleep: Box::pin(tokio::time::sleep_until(deadline.into())), armed: false }
    }

    /// The time at which the task is woken.
    pub(super) fn time(&self) -> Instant {
        self.sleep.deadline().into_std()
    }

    /// Ready once `deadline` has passed. `now` is the time of this poll, which may be slightly old.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant, now: Instant) -> Poll<()> {
        if self.sleep.deadline() > deadline.into() {
            self.sleep.as_mut().reset(deadline.into());
            self.armed = false;
        }
        // Usually the timer has not expired, and need not be polled.
        if self.armed && self.sleep.deadline() > now.into() {
            return Poll::Pending;
        }
        while self.sleep.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                self.armed = false;
                return Poll::Ready(());
            }
            // The deadline was extended after the timer was set.
            self.sleep.as_mut().reset(deadline.into());
        }
        self.armed = true;
        Poll::Pending
    }
}
