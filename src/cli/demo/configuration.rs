//! The configuration of the demo.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use crate::config::{
    self, Lookup, SystemLookup,
    model::{AccessLogFormat, Config},
};

/// The shipped configuration.
const SHIPPED: &str = include_str!("../../../proxy.yaml");

/// Two plans, the keys of the customers that have them, and the history of what they use.
const PLANS: &str = r#"
api_keys: { store: true, data: "${DIRECTORY}/keys.json", required: false }
history: { store: { file: "${DIRECTORY}/history.db" } }
plans:
  free: { per-minute: 10/1m, monthly: 1000/month }
  pro: { per-minute: 600/1m, monthly: 1000000/month }
"#;

/// Lines for sections that the shipped configuration has, and the beginning of each section.
const OF_SECTIONS: [(&str, &str); 3] = [
    ("\nuser:\n", "  - api_key: customer\n"),
    (
        "\npolicies:\n",
        "  per-minute: { algorithm: sliding_window, key: customer, limit: 10/1m }\n  \
           monthly: { algorithm: fixed_window, key: customer, limit: 1000/month }\n",
    ),
    (
        "\nroutes:\n",
        "  - { name: usage, path: /usage, usage: true, require: api_key }\n  \
           - { name: reports, path: /reports/*, upstream: api, policies: [per-minute, monthly], require: api_key }\n",
    ),
];

/// The shipped configuration with the demo's origin as the upstream and plans for customers, and without the access
/// log, which would hide the tour.
pub(super) fn configuration(sources: &DemoSources) -> Result<Config, config::Errors> {
    let mut text = SHIPPED.to_owned() + PLANS;
    for (section, lines) in OF_SECTIONS {
        text = text.replacen(section, &format!("{section}{lines}"), 1);
    }
    let mut config = config::parse("proxy.yaml (as shipped)", &text, sources)?;
    config.access_log.format = AccessLogFormat::Off;
    Ok(config)
}

/// The environment, with the address of the demo's origin and the directory of its files.
#[derive(Clone)]
pub(super) struct DemoSources {
    pub(super) origin: SocketAddr,
    pub(super) directory: PathBuf,
}

impl Lookup for DemoSources {
    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "ORIGIN" => Some(format!("http://{}", self.origin)),
            "DIRECTORY" => Some(self.directory.to_string_lossy().into_owned()),
            other => SystemLookup.variable(other),
        }
    }

    fn read_text(&self, path: &Path) -> io::Result<String> {
        SystemLookup.read_text(path)
    }

    fn read_bytes(&self, path: &Path) -> io::Result<Vec<u8>> {
        SystemLookup.read_bytes(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_configuration_is_valid_and_has_all_that_is_added() {
        let sources = DemoSources { origin: "127.0.0.1:3000".parse().unwrap(), directory: "/tmp".into() };
        let config = configuration(&sources).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!((config.routes.len(), config.user.len()), (4, 2));
        let policies: Vec<&str> = config.policies.iter().map(|policy| policy.name.as_str()).collect();
        assert_eq!(policies, ["per-minute", "monthly", "per-ip", "inspect", "login", "api_keys"]);
        assert_eq!(config.plan_names(), ["free", "pro"]);
    }
}
