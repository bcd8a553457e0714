//! A configuration as a tree of values, each as `proxy.yaml` writes it. It is used to compare configurations, and to
//! hash them. A new setting that is serialized needs no change here.

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Value, json};

use crate::config::{
    listeners::settings::Secret,
    policies::{algorithm::Algorithm, calendar::TimeZone, settings::Statuses},
    resolved::Config,
    routes::{policies::RoutePolicy, settings::Route},
    settings,
    upstreams::endpoint::Endpoint,
    value::{
        key::{Condition, KeyRecipe},
        patterns::{HostPattern, PathPattern},
        rate::{Quota, Rate},
    },
    written::format::format_concurrency,
};

impl Config {
    /// Every setting, by its key. Routes and bans refer to policies and upstreams by name; secrets are masked.
    pub fn values(&self) -> Value {
        self.values_with_routes(|_| true)
    }

    /// [`Config::values`] with only those routes that are `wanted`: there may be many.
    pub fn values_with_routes(&self, wanted: impl Fn(&Route) -> bool) -> Value {
        // This fails only for a path that is not UTF-8, and every path was text in the file.
        let mut values = serde_json::to_value(self).unwrap_or_default();
        let routes = self.routes.iter().filter(|route| wanted(route));
        values["routes"] = routes.map(|route| self.route_values(route)).collect();
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
                value["lease"] = json!(tier.window.to_string());
            }
        }
        values
    }

    /// The part of [`Config::values`] for one of its routes.
    pub fn route_values(&self, route: &Route) -> Value {
        let mut value = serde_json::to_value(route).unwrap_or_default();
        let upstream = |route: &Route| {
            let index = route.action.upstream()?;
            Some(&*self.upstreams.get(index)?.name)
        };
        value["upstream"] = json!(upstream(route));
        if let Some(split) = &route.split {
            let is_same = |other: &Route| other.policies == route.policies;
            let differ = !split.routes.iter().all(is_same);
            let upstreams = split.routes.iter().zip(&split.weights).map(|(route, weight)| {
                let mut share = json!({ "name": upstream(route), "weight": weight });
                if differ {
                    share["policies"] = self.policy_values(&route.policies);
                }
                share
            });
            value["upstreams"] = upstreams.collect();
            value["upstream"] = Value::Null;
            value["split_by"] = json!(split.by);
        }
        value["policies"] = self.policy_values(&route.policies);
        value
    }

    /// The policies of a route: names, and prices where there are some.
    fn policy_values(&self, policies: &[RoutePolicy]) -> Value {
        let value = |of: &RoutePolicy| {
            let name = &self.policies.get(of.policy)?.name;
            Some(of.price.map_or_else(|| json!(name), |price| json!({ "name": name, "cost": price })))
        };
        policies.iter().filter_map(value).collect()
    }

    /// Leaves of [`Config::values`] the settings that affect requests. Instances that decide alike have the same.
    pub fn retain_decisive(values: &mut Value) {
        for path in settings::of_the_instance() {
            let (parent, key) = path.rsplit_once('.').unwrap_or(("", &path));
            let mut parent = parent.split('.').filter(|key| !key.is_empty());
            let parent = parent.try_fold(&mut *values, |value, key| value.get_mut(key));
            if let Some(Value::Object(parent)) = parent {
                parent.remove(key);
            }
        }
    }

    /// The keys of the settings whose values a reload does not show when it lists the changes.
    pub fn confidential() -> Vec<&'static str> {
        settings::confidential()
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

serialize_displayed!(Condition, HostPattern, KeyRecipe, PathPattern, Quota, Rate, Statuses, TimeZone);

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
