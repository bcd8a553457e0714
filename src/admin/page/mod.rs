//! The admin port's pages. The HTML is rendered on the server and can be read without JavaScript; JavaScript adds
//! actions and live updates.

mod address;
mod assets;
mod audit;
mod bans;
mod blocked;
mod certificates;
mod chart;
mod components;
mod dialogs;
mod explain;
mod format;
mod history;
mod incidents;
mod key_sets;
mod keys;
mod layout;
mod limits;
mod login;
mod overview;
mod peaks;
mod policies;
mod routes;
mod store;
#[cfg(test)]
mod tests;
mod timeline;
mod upstreams;
mod user;

pub(super) use self::{
    layout::PageFrame,
    routes::{is_page, is_public, redirect_to_login, routes},
};
