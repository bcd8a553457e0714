//! Incidents: what many clients do together, such as 40 addresses that guess passwords.
//!
//! Workers note each response with 401 and 403 ([`RouteNotes`]) beside the denials that they record anyway. The collector adds them to
//! the [`Minute`] in progress, and every few seconds [`find::find`] looks at the last ten minutes. With Redis, instances exchange their
//! minutes, so that each finds the same.

mod distinct;
mod find;
mod incident;
mod minute;
mod notes;
mod state;
#[cfg(test)]
#[path = "../../../benches/support/incident_traces.rs"]
mod traces;
mod usual;

pub(in crate::abuse) use find::index_of;
pub use find::{Finding, IncidentKind};
pub use incident::{Incident, Member, WrittenIncident};
pub use minute::{Cause, CauseCounts, ClientCounts, Credential, Minute};
pub(in crate::abuse) use notes::RouteNotes;
pub use state::{Incidents, KeptIncident, Mute};
pub use usual::SlotCounts;
