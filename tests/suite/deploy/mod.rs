//! The files of `deploy/`.

pub mod dashboards;
mod debian;
mod files;
mod kubernetes;
