//! What other proxies ask about their requests.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use tollgate_derive::Label;

use super::{
    Counter,
    families::{count, counter},
};
use crate::config::model::Front;

/// How another proxy asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Label)]
pub enum AskedBy {
    Nginx,
    IngressNginx,
    Traefik,
    Caddy,
    Envoy,
    /// Envoy, by gRPC.
    ExtAuthz,
    /// Envoy's rate limits.
    RateLimits,
    /// A call that asks nothing that can be answered.
    Grpc,
}

impl From<Front> for AskedBy {
    fn from(front: Front) -> Self {
        match front {
            Front::Nginx => Self::Nginx,
            Front::IngressNginx => Self::IngressNginx,
            Front::Traefik => Self::Traefik,
            Front::Caddy => Self::Caddy,
            Front::Envoy => Self::Envoy,
        }
    }
}

/// What the answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Label)]
pub enum Answer {
    Allowed,
    Refused,
    /// The store was not available, or credentials could not be verified.
    Undecided,
}

/// The answers of one worker.
#[derive(Debug, Default)]
pub struct QuestionMetrics([[Counter; Answer::ALL.len()]; AskedBy::ALL.len()]);

impl QuestionMetrics {
    pub fn counter(&self, by: AskedBy, answer: Answer) -> &Counter {
        &self.0[by as usize][answer as usize]
    }
}

pub(super) fn expose(
    answers: impl Fn(AskedBy, Answer) -> u64,
    out: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let help = "Requests about which another proxy has asked, by that proxy and by the answer";
    let mut family = counter(out, "tollgate_decisions_asked", help)?;
    for by in AskedBy::ALL {
        for answer in Answer::ALL {
            count(&mut family, [("front", by.name()), ("answer", answer.name())], answers(by, answer))?;
        }
    }
    Ok(())
}
