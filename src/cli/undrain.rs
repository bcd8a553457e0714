//! `tollgate undrain UPSTREAM ENDPOINT`: a drained endpoint takes requests again.

use std::process::ExitCode;

use clap::ValueHint;
use http::Method;

use super::{
    client::{self, AdminError, EXIT_CODES, Options, unshared},
    terminal::printable,
};
use crate::admin::dto::Undrained;

/// Let a drained endpoint take requests again
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
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
pub(super) fn run(args: &Args) -> ExitCode {
    client::print_result(output(args))
}

pub(super) fn output(args: &Args) -> Result<String, AdminError> {
    let parameters = [("upstream", Some(args.upstream.as_str())), ("endpoint", Some(args.endpoint.as_str()))];
    let target = client::with_query("/v1/drains", &parameters);
    client::request(&args.options, Method::DELETE, &target, |undrained: &Undrained| {
        let [endpoint, upstream] = [&undrained.endpoint, &undrained.upstream].map(|text| printable(text));
        let place = if undrained.shared { "" } else { " at this instance" };
        let outcome = match undrained.drained_by_configuration {
            false => format!("takes requests again{place}.\n"),
            true => "is still drained, by `drain: true` in the configuration.\n".to_owned(),
        };
        format!("{endpoint} of upstream {upstream} {outcome}{}", unshared(undrained.shared))
    })
}
