//! Windows of the calendar: settings that have no effect without them, and counts that start anew while Redis is away.

use crate::config::{
    model::{CalendarUnit, Mode, OnStoreError, Policy, StoreSettings, Window},
    reader::Cursor,
};

/// `value`: the settings of `policy`.
pub(in crate::config) fn warn(value: Cursor<'_>, policy: &Policy, store: &StoreSettings) {
    let of_overrides = policy.overrides.iter().flat_map(|other| &other.tiers);
    let windows: Vec<Window> = policy.tiers.iter().chain(of_overrides).map(|tier| tier.window).collect();
    let has_calendar = policy.has_calendar();
    let has_months = windows.contains(&Window::Calendar(CalendarUnit::Month));
    if let Some(zone) = value.entry("time_zone").filter(|_| !has_calendar) {
        let help =
            "a limit such as `1000/month` or `100/day` follows the zone; `1d` is 24 hours from midnight UTC";
        zone.warn(
            "no limit of this policy is the calendar's, so the time zone has no effect",
            help.to_owned(),
        );
    }
    if let Some(day) = value.entry("reset_day").filter(|_| !has_months) {
        day.warn(
            "no limit of this policy is by month, so the reset day has no effect",
            "a limit by month is written `1000/month`".to_owned(),
        );
    }
    let is_local = policy.on_store_error == OnStoreError::Local && policy.mode == Mode::Enforce;
    if has_calendar && is_local && store.redis.is_some() {
        let of = value.entry("on_store_error").unwrap_or(value);
        let message =
            "while Redis is away, each instance counts this limit in memory, from zero at each outage";
        let help = "write `on_store_error: deny` to admit nothing meanwhile, or `on_store_error: allow` to admit all";
        of.warn(message, help.to_owned());
    }
}
