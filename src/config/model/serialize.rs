//! A configuration as a tree of values, each as `proxy.yaml` writes it. It is used to compare configurations, and to
//! hash them. A new setting that is serialized needs no change here.

use std::{fmt::Display, sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue, StatusCode};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Value, json};

use super::{
    Algorithm, Condition, Config, Endpoint, FieldText, HostPattern, KeyRecipe, PathPattern, Rate, Route,
    Secret, Statuses,
    display::{format_concurrency, format_duration, format_size},
};
use crate::config::settings::of_the_instance;

impl Config {
    /// Every setting, by its key. Routes and bans refer to policies and upstreams by name; secrets are masked.
    pub fn values(&self) -> Value {
        // This fails only for a path that is not UTF-8, and every path was text in the file.
        let mut values = serde_json::to_value(self).unwrap_or_default();
        let routes = values.get_mut("routes").and_then(Value::as_array_mut);
        for (value, route) in routes.into_iter().flatten().zip(&self.routes) {
            let upstream = |route: &Route| {
                route
                    .action
                    .upstream()
                    .and_then(|index| self.upstreams.get(index))
                    .map(|upstream| &*upstream.name)
            };
            let policies = route.all_policies();
            let policies = policies.iter().filter_map(|&index| self.policies.get(index));
            let policies: Vec<&str> = policies.map(|policy| policy.name.as_str()).collect();
            value["upstream"] = json!(upstream(route));
            if let Some(split) = &route.split {
                let upstreams = split.routes.iter().map(upstream).zip(&split.weights);
                let upstreams = upstreams.map(|(name, weight)| json!({ "name": name, "weight": weight }));
                value["upstreams"] = upstreams.collect();
                value["upstream"] = Value::Null;
                value["split_by"] = json!(split.by);
            }
            value["policies"] = json!(policies);
        }
        let bans = values.get_mut("bans").and_then(Value::as_array_mut);
        for (value, rule) in bans.into_iter().flatten().zip(&self.bans) {
            if let Some(policies) = &rule.policies {
                let policies = policies.iter().filter_map(|&index| self.policies.get(index));
                value["policies"] = policies.map(|policy| policy.name.as_str()).collect();
            }
        }
        let policies = values.get_mut("policies").and_then(Value::as_array_mut);
        for (value, policy) in policies.into_iter().flatten().zip(&self.policies) {
            if let (Algorithm::Concurrency, [tier]) = (policy.algorithm, policy.tiers.as_slice()) {
                value["limits"] = json!([format_concurrency(tier.limit)]);
                value["lease"] = json!(format_duration(tier.window));
            }
        }
        values
    }
}

impl Config {
    /// [`Config::values`] of the settings that affect requests. Instances that decide alike have the same.
    pub fn decisive_values(&self) -> Value {
        let mut values = self.values();
        for path in of_the_instance() {
            let (parent, key) = path.rsplit_once('.').unwrap_or(("", &path));
            let mut parent = parent.split('.').filter(|key| !key.is_empty());
            let parent = parent.try_fold(&mut values, |value, key| value.get_mut(key));
            if let Some(Value::Object(parent)) = parent {
                parent.remove(key);
            }
        }
        values
    }
}

macro_rules! serialize_displayed {
    ($($type:ty),+) => {
        $(impl Serialize for $type {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        })+
    };
}

serialize_displayed!(Condition, HostPattern, KeyRecipe, PathPattern, Rate, Statuses);

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str("***")
    }
}

impl Serialize for Endpoint {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let url = self.base_url();
        if self.weight == 1 && !self.drain {
            return to.serialize_str(&url);
        }
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("url", &url)?;
        if self.weight != 1 {
            map.serialize_entry("weight", &self.weight)?;
        }
        if self.drain {
            map.serialize_entry("drain", &self.drain)?;
        }
        map.end()
    }
}

pub(super) fn displayed<S: Serializer>(value: &impl Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

pub(super) fn optional_displayed<S: Serializer>(
    value: &Option<impl Display>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => to.collect_str(value),
        None => to.serialize_none(),
    }
}

/// `off` for what is turned off.
pub(super) fn or_off<S: Serializer>(value: &Option<impl Serialize>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => value.serialize(to),
        None => to.serialize_str("off"),
    }
}

pub(super) fn displayed_each<S: Serializer>(values: &[impl Display], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(values.iter().map(ToString::to_string))
}

pub(super) fn shared<T: Serialize, S: Serializer>(values: &[Arc<T>], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(values.iter().map(Arc::as_ref))
}

pub(super) fn duration<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format_duration(*value))
}

pub(super) fn optional_duration<S: Serializer>(value: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => duration(value, to),
        None => to.serialize_none(),
    }
}

pub(super) fn size<S: Serializer>(bytes: &usize, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format_size(*bytes))
}

pub(super) fn optional_size<S: Serializer>(bytes: &Option<usize>, to: S) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => size(bytes, to),
        None => to.serialize_none(),
    }
}

/// As its type serializes it.
pub(super) fn plain<T: Serialize, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    value.serialize(to)
}

/// A share of 1, as a percentage.
pub(super) fn percentage<S: Serializer>(share: &f64, to: S) -> Result<S::Ok, S::Error> {
    // Shares are read from decimals, and 0.07 × 100 is not quite 7.
    let percent = (share * 1e8).round() / 1e6;
    to.collect_str(&format_args!("{percent}%"))
}

pub(super) fn status<S: Serializer>(status: &StatusCode, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u16(status.as_u16())
}

pub(super) fn header_value<S: Serializer>(value: &HeaderValue, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&String::from_utf8_lossy(value.as_bytes()))
}

pub(super) fn headers<S: Serializer>(
    headers: &[(HeaderName, HeaderValue)],
    to: S,
) -> Result<S::Ok, S::Error> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    to.collect_map(headers.iter().map(|(name, value)| (name.as_str(), text(value))))
}

pub(super) fn fields<S: Serializer>(fields: &[(HeaderName, FieldText)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(fields.iter().map(|(name, value)| (name.as_str(), value)))
}

pub(super) fn optional_shared<T: Serialize, S: Serializer>(
    value: &Option<Arc<T>>,
    to: S,
) -> Result<S::Ok, S::Error> {
    value.as_deref().serialize(to)
}

pub(super) fn pairs<S: Serializer>(pairs: &[(String, String)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

/// A number that means the same as the setting left out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "that is how serde asks")]
pub(super) fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A URL with `***` in place of the user info and of the query.
pub(super) fn url_without_credentials<S: Serializer>(url: &Secret, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&without_credentials(url.reveal()))
}

/// [`url_without_credentials`] for each of these.
pub(super) fn urls_without_credentials<S: Serializer>(urls: &[Secret], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(urls.iter().map(|url| without_credentials(url.reveal())))
}

fn without_credentials(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?***"));
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://***@{host}{query}"),
        None => format!("{scheme}://{rest}{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_urls_are_masked() {
        for (url, shown) in [
            ("redis://me:pass@host:6379/1", "redis://***@host:6379/1"),
            ("redis://:p@ss@host", "redis://***@host"),
            ("rediss://host", "rediss://host"),
            ("unix:///run/redis.sock?db=1&pass=word", "unix:///run/redis.sock?***"),
        ] {
            assert_eq!(without_credentials(url), shown);
        }
    }

    #[test]
    fn shares_are_percentages_without_the_noise_of_binary_fractions() {
        let text = |share: f64| percentage(&share, serde_json::value::Serializer).unwrap();
        for (share, percent) in
            [(0.07, "7%"), (0.005, "0.5%"), (1.0, "100%"), (0.0, "0%"), (0.00001, "0.001%")]
        {
            assert_eq!(text(share), percent);
        }
    }
}
