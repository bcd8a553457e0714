//! Routers.

use std::collections::BTreeSet;

use super::{generator::Writer, requests::Aim};

/// Rules for all that other routers leave over.
const FOR_ALL: [&str; 3] = ["PathPrefix(`/`)", "HostRegexp(`^.+$`)", "PathPrefix(`/`) && !Host(`c.test`)"];

impl Writer<'_> {
    pub fn routers(&mut self) {
        let count = self.dice.number(2..7);
        let has_last = self.dice.chance(60);
        // The one with what is unknown.
        let chosen = self.dice.number(1..=count);
        let mut priorities = BTreeSet::new();
        let mut last: Option<(String, Aim)> = None;
        for nth in 1..=count {
            // Several routers with one rule: for other entry points, or for TLS and not.
            let (rule, aim) = match last.take().filter(|_| nth < count && self.dice.chance(10)) {
                Some(known) => {
                    self.met("a rule of two routers");
                    known
                }
                None => {
                    let mut aim = Aim::default();
                    match has_last && nth == count {
                        true => (self.dice.pick(&FOR_ALL).to_owned(), aim),
                        false => (self.rule(&mut aim), aim),
                    }
                }
            };
            last = Some((rule.clone(), Aim { listeners: Vec::new(), ..aim.clone() }));
            let (mut rule, mut aim) = (rule, aim);
            let is_last = has_last && nth == count;
            let is_old = !is_last && nth != chosen && self.dice.chance(5);
            if is_old {
                aim = Aim::default();
                rule = self.old_rule(&mut aim);
            }
            self.block(format!("r{nth}"), |writer| {
                if is_old {
                    writer.line("ruleSyntax: v2");
                }
                writer.router(rule, aim, nth == chosen, is_last, &mut priorities);
            });
        }
    }

    fn router(
        &mut self,
        mut rule: String,
        mut aim: Aim,
        is_chosen: bool,
        is_last: bool,
        priorities: &mut BTreeSet<usize>,
    ) {
        let mut service = self.dice.pick(&self.services).to_owned();
        let mut entry_points = self.named_entry_points().filter(|_| !is_last);
        let count = self.dice.weighted(&[(5, 0), (5, 1), (3, 2), (1, 3)]) / if is_last { 2 } else { 1 };
        let mut middlewares = self.some_middlewares(count);
        if self.dice.chance(20) {
            middlewares.iter_mut().for_each(|name| *name += "@file");
        }
        if is_chosen {
            self.unknown_of_router(&mut rule, &mut middlewares, &mut service, &mut entry_points);
        }
        self.line(format!("rule: '{rule}'"));
        if let Some(names) = &entry_points {
            self.line(format!("entryPoints: [{}]", names.join(", ")));
        }
        let names = entry_points.unwrap_or_else(|| self.default_entry_points());
        self.tls_of_router(&names, &mut aim);
        self.priority(&rule, priorities);
        if !middlewares.is_empty() {
            self.line(format!("middlewares: [{}]", middlewares.join(", ")));
        }
        let redirects = middlewares.iter().any(|name| name.starts_with("redirectScheme"));
        if redirects && self.dice.chance(50) && !middlewares.iter().any(|name| name.starts_with("headers")) {
            "noop@internal".clone_into(&mut service);
        }
        self.line(format!("service: {service}"));
        self.aims.push(aim);
    }

    fn named_entry_points(&mut self) -> Option<Vec<&'static str>> {
        let names: Vec<_> = self.entry_points.iter().map(|entry_point| entry_point.name).collect();
        let count = self.dice.weighted(&[(5, 0), (5, 1), (2, 2)]);
        (count > 0).then(|| {
            self.met("entryPoints");
            self.dice.some(count, &names)
        })
    }

    /// Whether it is for TLS, and so at which listeners it answers.
    fn tls_of_router(&mut self, names: &[&'static str], aim: &mut Aim) {
        let points: Vec<_> = self
            .entry_points
            .iter()
            .filter(|entry_point| names.contains(&entry_point.name))
            .cloned()
            .collect();
        // An entry point for TLS and plain HTTP at once is rare.
        let is_tls = match points.as_slice() {
            [only] if only.name == "websecure" => self.dice.chance(if only.is_tls { 45 } else { 90 }),
            points => self.dice.chance(if points.iter().all(|point| point.is_tls) { 45 } else { 3 }),
        };
        if is_tls {
            self.met("tls of a router");
            // Hosts with other options than the rest of a listener are closed.
            let tls = self.dice.weighted(&[
                (28, "{}"),
                (4, "{ domains: [{ main: a.test }] }"),
                (1, "{ options: strict }"),
            ]);
            if tls.contains("strict") {
                self.met("tls options of a router");
                self.has_strict_tls = true;
            }
            self.line(format!("tls: {tls}"));
        }
        for entry_point in points {
            aim.listeners.extend(self.listener(entry_point.name, is_tls || entry_point.is_tls));
        }
    }

    /// No two routers have one priority: which of them Traefik asks first, it does not say.
    fn priority(&mut self, rule: &str, priorities: &mut BTreeSet<usize>) {
        let own = self.dice.weighted(&[(8, 0), (1, 1), (1, 5), (1, 100)]);
        let mut priority = if own == 0 { rule.len() } else { own };
        while !priorities.insert(priority) {
            priority += 1;
        }
        if priority != rule.len() {
            self.met("priority");
            self.line(format!("priority: {priority}"));
        }
    }
}
