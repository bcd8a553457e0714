//! Listening sockets and client connections, up to the beginning of a request.

mod alarm;
mod connection_table;
mod connections_by_address;
mod current_worker;
mod handed_over;
mod handshake;
mod http1;
mod http2;
mod inherited;
mod io;
mod lingering_close;
mod liveness;
mod proxy_protocol;
mod run;
mod slow_reader;
mod socket;
mod stream;
mod tcp_info;
mod tls;
mod unix;
mod worker_connections;

pub use connection_table::{ConnectionTable, Evictions};
pub use current_worker::WorkerUpdate;
pub use handed_over::{HANDOVER_VARIABLE, ListeningSockets, SocketRole};
pub use inherited::InheritedSockets;
pub use liveness::{LivenessMonitor, WorkerLiveness};
pub use run::{ConnectionTableHandle, Lifecycle, ListeningSocket, run};
pub use socket::{BindError, BoundListener, ListenSocket};
pub use tls::{SessionKeys, TlsContext, TlsContexts, TlsError};
