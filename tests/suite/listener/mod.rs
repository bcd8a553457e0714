//! How connections begin: TLS, and the PROXY headers of load balancers.

mod proxy_protocol;
mod tls;
