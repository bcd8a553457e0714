//! The way of a request: [`serve`] reads as the list of what happens to it.

mod admit;
mod checks;
mod client;
mod cost;
mod discard;
mod exchange;
mod expect;
mod forward;
mod forwarded;
mod headers;
mod held;
mod incoming;
mod judged;
mod outgoing;
mod patience;
mod quota;
mod record;
mod reply;
mod request_body;
mod request_id;
mod response_body;
mod rules;
mod serve;
mod settle;
mod settlements;
mod taken;
mod tokens;
mod traced;
mod worker;

pub use client::Client;
pub use patience::{Patience, Waiting};
pub use request_body::RequestBody;
pub use response_body::ResponseBody;
pub use rules::Rules;
pub use serve::serve;
pub use worker::{Parts, Worker};
