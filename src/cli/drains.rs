//! `tollgate drain` and `undrain`: whether an endpoint takes new requests.

use std::process::ExitCode;

use clap::ValueHint;
use http::Method;

use super::{
    client::{self, AdminError, EXIT_CODES, Options, place, unshared},
    terminal::printable,
};
use crate::admin::dto::{Drained, NewDrain, Undrained};

/// Drain an endpoint on all instances: it takes no new requests until it is undrained
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct DrainArgs {
    /// The name of the upstream, as in proxy.yaml
    #[arg(value_hint = ValueHint::Other)]
    pub upstream: String,
    /// The URL of the endpoint, as `tollgate upstreams` lists it: http://10.0.0.5:3000
    #[arg(value_hint = ValueHint::Url)]
    pub endpoint: String,
    /// A note for others who look at the endpoint, up to 256 characters
    #[arg(long, default_value = "", value_hint = ValueHint::Other)]
    pub reason: String,
    /// Drain even the last endpoint that takes requests: from then on each request to the upstream gets 503
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub options: Options,
}

/// Sends the request and prints the response.
pub(super) fn drain(args: &DrainArgs) -> ExitCode {
    client::print_result(drained(args))
}

fn drained(args: &DrainArgs) -> Result<String, AdminError> {
    let DrainArgs { upstream, endpoint, reason, force, options } = args.clone();
    let drain = NewDrain { upstream, endpoint, reason, force };
    client::post_json(&options, Method::POST, "/v1/drains", &drain, describe)
}

fn describe(Drained { drain, shared }: &Drained) -> String {
    let [endpoint, upstream] = [&drain.endpoint, &drain.upstream].map(|text| printable(text));
    let place = place(*shared);
    format!(
        "{endpoint} of upstream {upstream} is drained{place}: it takes no new requests, and those in flight go on.\n{}",
        unshared(*shared)
    )
}

/// Let a drained endpoint take requests again
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct UndrainArgs {
    /// The name of the upstream, as in proxy.yaml
    #[arg(value_hint = ValueHint::Other)]
    pub upstream: String,
    /// The URL of the endpoint, as `tollgate upstreams` lists it: http://10.0.0.5:3000
    #[arg(value_hint = ValueHint::Url)]
    pub endpoint: String,
    #[command(flatten)]
    pub options: Options,
}

/// Sends the request and prints the response.
pub(super) fn undrain(args: &UndrainArgs) -> ExitCode {
    client::print_result(undrained(args))
}

fn undrained(args: &UndrainArgs) -> Result<String, AdminError> {
    let parameters = [("upstream", Some(args.upstream.as_str())), ("endpoint", Some(args.endpoint.as_str()))];
    let target = client::with_query("/v1/drains", &parameters);
    client::request(&args.options, Method::DELETE, &target, |undrained: &Undrained| {
        let [endpoint, upstream] = [&undrained.endpoint, &undrained.upstream].map(|text| printable(text));
        let place = place(undrained.shared);
        let outcome = match undrained.drained_by_configuration {
            false => format!("takes requests again{place}.\n"),
            true => "is still drained, by `drain: true` in the configuration.\n".to_owned(),
        };
        format!("{endpoint} of upstream {upstream} {outcome}{}", unshared(undrained.shared))
    })
}

#[cfg(test)]
mod tests {
    use super::{super::client::testing::options, *};
    use crate::admin::testing::Harness;

    #[test]
    fn an_endpoint_is_drained_and_undrained_and_mistakes_are_named() {
        let harness = Harness::start(Some("s3cret"));
        let drain = |upstream: &str, endpoint: &str, force| {
            let options = options(harness.address, Some("s3cret"));
            let (upstream, endpoint, reason) = (upstream.into(), endpoint.into(), "a new disk".into());
            drained(&DrainArgs { upstream, endpoint, reason, force, options })
                .map_err(|failure| failure.to_string())
        };
        let url = "http://127.0.0.1:3000";
        assert_eq!(drain("apo", url, false).unwrap_err(), "no upstream is named apo; the upstreams are api");
        assert_eq!(
            drain("api", "http://127.0.0.1:1", false).unwrap_err(),
            "upstream api has no endpoint http://127.0.0.1:1; its endpoints are http://127.0.0.1:3000"
        );
        assert!(drain("api", url, false).unwrap_err().contains("force it (tollgate drain --force;"));
        assert_eq!(
            drain("api", "HTTP://127.0.0.1:3000/", true).unwrap(),
            "http://127.0.0.1:3000 of upstream api is drained: it takes no new requests, and those in flight go on.\n"
        );
        let undrain = || {
            let options = options(harness.address, Some("s3cret"));
            let args = UndrainArgs { upstream: "api".into(), endpoint: url.into(), options };
            undrained(&args).map_err(|failure| failure.to_string())
        };
        assert_eq!(undrain().unwrap(), "http://127.0.0.1:3000 of upstream api takes requests again.\n");
        assert_eq!(undrain().unwrap_err(), "endpoint http://127.0.0.1:3000 of upstream api is not drained");
    }
}
