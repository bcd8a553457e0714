//! Plugins, and which of them applies where.

use std::cmp::Reverse;

use super::{
    Kong,
    values::{flag, given, is_named, reference},
};
use crate::offline::convert::document::{Fields, Item};

/// What a plugin is for. Without any of these, it is global.
#[derive(Clone, Default)]
pub(super) struct PluginScope {
    pub(super) service: Option<usize>,
    pub(super) route: Option<usize>,
    pub(super) consumer: Option<String>,
    /// It is for consumers of a group.
    pub(super) has_group: bool,
}

pub(super) struct Plugin<'d> {
    pub(super) name: &'d str,
    pub(super) item: Item<'d>,
    pub(super) scope: PluginScope,
}

impl<'d> Plugin<'d> {
    pub(super) fn config(&self) -> Fields<'d> {
        self.item.fields().fields("config")
    }

    /// How specific it is (kong/runloop/plugins_iterator.lua, `lookup_cfg`).
    fn rank(&self) -> (usize, bool, bool) {
        let PluginScope { service, route, consumer, .. } = &self.scope;
        let is_for = [consumer.is_some(), route.is_some(), service.is_some()];
        (is_for.iter().filter(|is_for| **is_for).count(), is_for[0], is_for[1])
    }
}

impl<'d> Kong<'d> {
    pub(super) fn collect_plugins(&mut self, root: &Fields<'d>) {
        let global = PluginScope::default();
        let mut all: Vec<(Fields<'d>, PluginScope)> = Vec::new();
        for (nth, service) in self.services.iter().enumerate() {
            all.push((service.fields(), PluginScope { service: Some(nth), ..global.clone() }));
        }
        for (nth, (_, route)) in self.routes.iter().enumerate() {
            all.push((route.fields(), PluginScope { route: Some(nth), ..global.clone() }));
        }
        for (name, consumer) in &self.consumers.all {
            all.push((consumer.fields(), PluginScope { consumer: Some(name.clone()), ..global.clone() }));
        }
        for group in root.items("consumer_groups") {
            all.push((group.fields(), PluginScope { has_group: true, ..global.clone() }));
        }
        root.items("plugins").into_iter().for_each(|plugin| self.collect_plugin(plugin, &global));
        for (entity, scope) in all {
            entity.items("plugins").into_iter().for_each(|plugin| self.collect_plugin(plugin, &scope));
        }
    }

    /// Adds a plugin, unless it is disabled, for TCP alone, or for an entity that is not in this file. A plugin that
    /// stands in an entity may name others.
    fn collect_plugin(&mut self, item: Item<'d>, outer: &PluginScope) {
        let fields = item.fields();
        let service = given(&fields, "service").map(|item| self.service_named(item));
        let route = given(&fields, "route").map(|item| {
            let name = reference(item)?;
            self.routes.iter().position(|(_, route)| is_named(*route, name))
        });
        if service == Some(None) || route == Some(None) {
            return self.note(
                item,
                "the plugin is for a service or a route that is not in this file: not converted",
            );
        }
        let protocols = fields.texts("protocols");
        let is_http = protocols.is_empty()
            || protocols.iter().any(|one| one.starts_with("http") || one.starts_with("grpc"));
        if !is_http || flag(&fields, "enabled", true) == Ok(false) {
            return;
        }
        let consumer = given(&fields, "consumer").and_then(reference).map(|name| self.consumers.name(name));
        let scope = PluginScope {
            service: service.flatten().or(outer.service),
            route: route.flatten().or(outer.route),
            consumer: consumer.or_else(|| outer.consumer.clone()),
            has_group: outer.has_group || given(&fields, "consumer_group").is_some(),
        };
        self.plugins.push(Plugin { name: fields.text("name").unwrap_or_default(), item, scope });
    }

    /// The numbers of the plugins for a route. They may be for some consumers only.
    pub(super) fn plugins_of(&self, route: usize) -> Vec<usize> {
        let service = self.routes.get(route).and_then(|(service, _)| *service);
        let is_for = |Plugin { scope, .. }: &Plugin<'_>| {
            scope.route.is_none_or(|of| of == route) && scope.service.is_none_or(|of| Some(of) == service)
        };
        let plugins = self.plugins.iter().enumerate();
        plugins.filter(|(_, plugin)| is_for(plugin)).map(|(nth, _)| nth).collect()
    }

    /// The plugin with this name that applies to requests of a consumer, or of none: the most specific one.
    pub(super) fn effective(&self, name: &str, route: usize, consumer: Option<&str>) -> Option<usize> {
        let candidates = self.plugins_of(route).into_iter().filter_map(|nth| {
            let plugin = self.plugins.get(nth)?;
            let of = plugin.scope.consumer.as_deref();
            let is_for = plugin.name == name && !plugin.scope.has_group && (of.is_none() || of == consumer);
            is_for.then(|| (plugin.rank(), Reverse(nth)))
        });
        candidates.max().map(|(_, Reverse(nth))| nth)
    }
}
