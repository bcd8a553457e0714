//! The files of `deploy/`.

mod dashboards;
mod files;
