//! The files of `deploy/`.

pub mod dashboards;
mod files;
mod kubernetes;
