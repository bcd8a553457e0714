//! What another configuration changes, in words; and what of it can't be changed while requests are served.

mod parts;
#[cfg(test)]
mod tests;
mod words;

use crate::config::model::{Abuse, AccessLog, Admin, ClientLimits, Config, Store};
use words::{plain, time, without_credentials};

/// From one configuration to the next.
pub(super) struct Difference {
    /// The next one, but for what needs a restart: that is as it was.
    pub(super) in_force: Config,
    /// What is in force now and was not before. Empty: nothing.
    pub(super) changed: Vec<String>,
    /// What needs a restart, with both values.
    pub(super) needs_restart: Vec<String>,
}

impl Difference {
    /// From `old`, which is in force, to `new`, which is written in the file. `is_logged`: whether there is an access log
    /// at all.
    pub(super) fn between(old: &Config, new: Config, is_logged: bool) -> Self {
        let mut needs_restart = Lines::default();
        let in_force = keep(old, new, is_logged, &mut needs_restart);
        Self { changed: changed(old, &in_force), needs_restart: needs_restart.0, in_force }
    }
}

/// A list of changes, each told as `what: old → new`.
#[derive(Debug, Default)]
struct Lines(Vec<String>);

impl Lines {
    fn tell(&mut self, line: impl Into<String>) {
        self.0.push(line.into());
    }

    /// Tells two values as `show` does, if they differ.
    fn compare<T: PartialEq + ?Sized>(&mut self, what: &str, old: &T, new: &T, show: impl Fn(&T) -> String) {
        if old != new {
            self.tell(format!("{what}: {} → {}", show(old), show(new)));
        }
    }

    /// Of values that would be long, or are nobody's business.
    fn note<T: PartialEq + ?Sized>(&mut self, what: &str, old: &T, new: &T) {
        if old != new {
            self.tell(format!("{what}: changed"));
        }
    }
}

/// The new configuration with the old one's values where no others can be had without a restart.
fn keep(old: &Config, new: Config, is_logged: bool, lines: &mut Lines) -> Config {
    lines.compare("listeners", &old.listeners, &new.listeners, |listeners| {
        let addresses: Vec<_> = listeners.iter().map(|listener| listener.address.to_string()).collect();
        addresses.join(", ")
    });
    let Admin { address, token } = &new.admin;
    lines.compare("admin.address", &old.admin.address, address, ToString::to_string);
    lines.note("admin.token", &old.admin.token, token);
    lines.compare("workers", &old.workers, &new.workers, words::workers);
    stores(&old.store, &new.store, lines);
    let access_log = access_log(&old.access_log, &new.access_log, is_logged, lines);
    lines.compare("log", &old.log, &new.log, |log| format!("{}, {}", plain(&log.level), plain(&log.format)));
    lines.compare("tracing", &old.tracing, &new.tracing, |tracing| {
        tracing.as_ref().map_or_else(|| "none".to_owned(), |to| format!("{} of {}", to.otlp, to.sample))
    });
    Config {
        listeners: old.listeners.clone(),
        admin: old.admin.clone(),
        workers: old.workers,
        store: old.store.clone(),
        access_log,
        log: old.log,
        tracing: old.tracing.clone(),
        ..new
    }
}

fn stores(old: &Store, new: &Store, lines: &mut Lines) {
    lines.compare("store.memory.max_keys", &old.memory.max_keys, &new.memory.max_keys, usize::to_string);
    match (&old.redis, &new.redis) {
        (None, None) => {}
        (None, Some(redis)) => lines.tell(format!("store: memory → {}", without_credentials(&redis.url))),
        (Some(redis), None) => lines.tell(format!("store: {} → memory", without_credentials(&redis.url))),
        (Some(old), Some(new)) => {
            lines.compare("store.redis.url", &old.url, &new.url, without_credentials);
            lines.note("store.redis.tls", &old.tls, &new.tls);
            lines.compare("store.redis.timeout", &old.timeout, &new.timeout, time);
            lines.compare("store.redis.connections", &old.connections, &new.connections, u32::to_string);
            lines.compare("store.redis.prefix", &old.prefix, &new.prefix, String::clone);
            lines.compare("store.redis.breaker", &old.breaker, &new.breaker, |breaker| {
                format!("{} failures, {}", breaker.failures, time(&breaker.retry_after))
            });
        }
    }
}

/// Format and share may change at any time, as long as there is somebody who writes.
fn access_log(old: &AccessLog, new: &AccessLog, is_written: bool, lines: &mut Lines) -> AccessLog {
    if !is_written {
        lines.compare("access_log.format", &old.format, &new.format, plain);
        return old.clone();
    }
    lines.compare("access_log.to", &old.to, &new.to, words::destination);
    AccessLog { to: old.to.clone(), ..new.clone() }
}

/// Each of two configurations' settings that differ.
fn changed(old: &Config, new: &Config) -> Vec<String> {
    let mut lines = Lines::default();
    // Without `..`: whatever comes new has to be told as well.
    let Config {
        listeners: _,
        admin: _,
        workers: _,
        trusted_proxies,
        client_address,
        request_id,
        user,
        store: _,
        policies: _,
        bans,
        abuse,
        upstreams: _,
        routes: _,
        client_limits,
        reply_headers,
        forwarded,
        access_log,
        log: _,
        tracing: _,
        shutdown,
        source: _,
    } = new;
    parts::policies(old, new, &mut lines);
    parts::bans(&old.bans, bans, &mut lines);
    parts::upstreams(old, new, &mut lines);
    parts::routes(old, new, &mut lines);
    lines.compare("trusted_proxies", &old.trusted_proxies, trusted_proxies, |nets| words::list(nets));
    lines.note("client_address.header", &old.client_address.header, &client_address.header);
    let prefix = |of: &u8| format!("/{of}");
    lines.compare(
        "client_address.ipv6_prefix",
        &old.client_address.ipv6_prefix,
        &client_address.ipv6_prefix,
        prefix,
    );
    lines.compare("request_id", &old.request_id, request_id, ToString::to_string);
    lines.compare("user", &old.user, user, |sources| words::sources(sources));
    let Abuse { retain, users, secret } = abuse;
    lines.compare("abuse.retain", &old.abuse.retain, retain, time);
    lines.compare("abuse.users", &old.abuse.users, users, plain);
    lines.note("abuse.secret", &old.abuse.secret, secret);
    limits(&old.client_limits, client_limits, &mut lines);
    lines.compare("reply_headers.ratelimit", &old.reply_headers.ratelimit, &reply_headers.ratelimit, plain);
    lines.compare("reply_headers.via", &old.reply_headers.via, &reply_headers.via, String::clone);
    lines.compare("forwarded", &old.forwarded, forwarded, plain);
    lines.compare("access_log.format", &old.access_log.format, &access_log.format, plain);
    lines.compare("access_log.sample", &old.access_log.sample, &access_log.sample, f64::to_string);
    lines.compare("shutdown.drain", &old.shutdown.drain, &shutdown.drain, time);
    lines.0
}

fn limits(old: &ClientLimits, new: &ClientLimits, lines: &mut Lines) {
    let ClientLimits { header_size, headers, header_timeout, idle_timeout, connections } = new;
    lines.compare("client_limits.header_size", &old.header_size, header_size, usize::to_string);
    lines.compare("client_limits.headers", &old.headers, headers, usize::to_string);
    lines.compare("client_limits.header_timeout", &old.header_timeout, header_timeout, time);
    lines.compare("client_limits.idle_timeout", &old.idle_timeout, idle_timeout, time);
    lines.compare("client_limits.connections", &old.connections, connections, usize::to_string);
}
