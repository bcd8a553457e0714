//! Makes the cost of a policy of its settings.

use std::sync::Arc;

use crate::{
    config::{
        identity::settings::IdentitySources,
        policies::{
            algorithm::Algorithm,
            cost::{
                BYTES, Cost, CostSettings, DEFAULT_MAX_REQUEST, Measure, MissingCost, NumberSource, Preset,
                Reserve, ReserveSettings, ResponseCost, ResponseNumber, ResponseNumberSettings,
            },
            limits::max_admissible,
        },
        reader::{Cursor, MappingCursor},
        settings::{Read, opened},
        value::{Invalid, MAX_BYTES, MAX_LIMIT, choice, field_name, json_path, number, rate::Quota, size},
    },
    request_values::OutputBounds,
};

/// The largest cost with `sliding_log`, which stores each unit by itself.
const MAX_LOGGED_UNITS: u64 = 1_000;

/// Reads a number of units, or the header that holds it. `limits`: the algorithm and the limits of the policy, unless they
/// are wrong.
pub(in crate::config) fn cost(
    value: Cursor<'_>,
    kind: Option<Algorithm>,
    limits: Option<(Algorithm, &[Quota])>,
    identity: IdentitySources,
) -> Option<Cost> {
    let admitted = |text: &str| admitted(text, kind, limits);
    if value.scalar().is_some() {
        return value.parse(admitted).map(Cost::Fixed);
    }
    let mut mapping = opened::<CostSettings<'_>>(value)?;
    let settings = CostSettings::fields(&mut mapping)?;
    report_mixed(&mapping, &settings);
    if settings.response.is_some() {
        mapping.finish();
        return response_cost(&settings).map(|cost| Cost::Response(Arc::new(cost)));
    }
    let CostSettings { header, default: default_value, max: max_value, .. } = settings;
    if header.is_some() {
        mapping.report_if_missing("max", "the highest cost to accept, such as `max: 100`");
    } else if !mapping.has_or_misspells("header") && !mapping.has_or_misspells("response") {
        let help = "the header in which trusted proxies send the cost, `header: x-cost`; or what the response tells, \
                    `response: openai`";
        mapping.report("nothing says where the cost is", help.to_owned());
    }
    mapping.finish();
    let default = default_value.map_or(Some(1), |value| value.parse(admitted));
    let name = header?.parse(field_name);
    if !identity.has_trusted_proxies {
        let help = "add the gateway that sets it to `trusted_proxies`, or write a number";
        value.report("no trusted_proxies are configured, so this header is never trusted", help.to_owned());
    }
    let (max, default) = (max_value?.parse(|text| units(text, kind))?, default?);
    if let (Some(value), Some((algorithm, tiers))) = (max_value, limits) {
        warn_above(value, max, max_admissible(algorithm, tiers));
    }
    if default > max {
        default_value.unwrap_or(value).report("`default` is larger than `max`", None);
    }
    Some(Cost::Header { name: name?, default, max })
}

/// Reads a number of units.
fn units(text: &str, kind: Option<Algorithm>) -> Result<u64, Invalid> {
    let units = number(1..=MAX_LIMIT)(text)?;
    if units > MAX_LOGGED_UNITS && kind == Some(Algorithm::SlidingLog) {
        return Err(Invalid::new("is more than sliding_log can record at once")
            .expected("from 1 to 1000; other algorithms allow more"));
    }
    Ok(units)
}

/// Reads a number of units that these limits can admit. The arguments are those of [`cost`].
pub(in crate::config) fn admitted(
    text: &str,
    kind: Option<Algorithm>,
    limits: Option<(Algorithm, &[Quota])>,
) -> Result<u64, Invalid> {
    let units = units(text, kind)?;
    match limits {
        Some((algorithm, tiers)) if units > max_admissible(algorithm, tiers).0 => {
            Err(never_admitted(max_admissible(algorithm, tiers)))
        }
        _ => Ok(units),
    }
}

/// Warns if a request may cost more than `most`, the highest cost that this setting admits: it would be denied at any time.
pub(in crate::config) fn warn_above(value: Cursor<'_>, max: u64, (most, setting): (u64, &str)) {
    if max > most {
        let message = format!(
            "requests may cost up to {max}, but {setting} is {most}: one that costs more is always denied"
        );
        value.warn(message, format!("set `max: {most}`, or raise {setting}"));
    }
}

/// The error for a cost of more than `most` units, the highest that this setting admits: no request could ever pay it.
pub(in crate::config) fn never_admitted((most, setting): (u64, &str)) -> Invalid {
    Invalid::new(format!("is more than {setting}, so no request would ever be admitted"))
        .expected(format!("set at most {most}, or raise {setting}"))
}

/// Reports settings of a cost in a header beside a cost in the response.
fn report_mixed(mapping: &MappingCursor<'_>, settings: &CostSettings<'_>) {
    let (of_header, of_response) =
        (["header", "default", "max"], ["response", "reserve", "missing", "most", "max_request"]);
    let (others, help) = match (settings.header, settings.response) {
        (_, Some(_)) => (of_header.as_slice(), "the response tells the cost; remove it"),
        (Some(_), None) => (of_response.as_slice(), "a header of the request tells the cost; remove it"),
        (None, None) => return,
    };
    for key in others {
        if let Some(location) = mapping.key_location(key) {
            let kept = if settings.response.is_some() { "response" } else { "header" };
            mapping.report_at(location, format!("`{key}` does not go with `{kept}`"), help.to_owned());
        }
    }
    if settings.response.is_some() {
        let help = "what a request takes until its response has ended, such as `reserve: 1000`";
        mapping.report_if_missing("reserve", help);
    }
}

fn response_cost(settings: &CostSettings<'_>) -> Option<ResponseCost> {
    let measure = measure(settings.response?);
    let counts_bytes = settings.response.and_then(Cursor::scalar) == Some(BYTES);
    let has_preset =
        matches!(&measure, Some(Measure::Sum(numbers)) if numbers.iter().any(ResponseNumber::is_of_preset));
    let reserve = settings.reserve.and_then(|value| reserve(value, counts_bytes, has_preset));
    let missing = match settings.missing {
        None => Some(MissingCost::Reserved),
        Some(value) => value.parse(|text| match text {
            "reserved" => Ok(MissingCost::Reserved),
            _ if text.starts_with(|first: char| !first.is_ascii_digit()) => {
                Err(Invalid::new("is no cost").expected("write `reserved`, or the units to charge"))
            }
            _ => number(0..=MAX_LIMIT)(text).map(MissingCost::Units),
        }),
    };
    let max_request =
        settings.max_request.map_or(Some(DEFAULT_MAX_REQUEST), |value| value.parse(size(1 << 10..=64 << 20)));
    let measure = measure?;
    let body = match ResponseCost::in_body(&measure) {
        Ok(body) => body,
        Err(reason) => {
            settings.response?.report(reason, "remove some".to_owned());
            return None;
        }
    };
    let reserve = reserve?;
    let most = match settings.most {
        None => None,
        Some(value) => Some(most(value, &reserve)?),
    };
    Some(ResponseCost { measure, body, reserve, most, missing: missing?, max_request: max_request? })
}

/// The most units that a request may ask for.
fn most(value: Cursor<'_>, reserve: &Reserve) -> Option<u64> {
    let most = value.parse(number(1..=MAX_LIMIT))?;
    if reserve.bounds.is_none() && !reserve.prompt {
        let help = "such as `reserve: { json: max_tokens, default: 1000 }`; or remove `most`".to_owned();
        value.report("no request tells how much it reserves", help);
    }
    if reserve.default > most {
        let help = format!("write at least {}, or a smaller `default`", reserve.default);
        value.report("is less than what a request without a number reserves", help);
    }
    Some(most)
}

/// What of a response is its cost.
fn measure(value: Cursor<'_>) -> Option<Measure> {
    let preset = |preset| NumberSource::Preset { preset, ask: false };
    if value.scalar().is_some() {
        return value.parse(|text| {
            if text == BYTES {
                return Ok(Measure::Bytes);
            }
            let presets = Preset::ALL.map(|preset| (preset.name(), preset));
            let one = choice(&presets)(text).map_err(|_| {
                Invalid::new("is nothing that a response tells").expected(
                    "openai, anthropic, gemini, bytes, or where the number is: `{ json: usage.total_tokens }`",
                )
            })?;
            Ok(Measure::Sum(vec![ResponseNumber { source: preset(one), times: 1 }]))
        });
    }
    if value.is_mapping() {
        return Some(Measure::Sum(vec![response_number(value)?]));
    }
    let items = value.list()?;
    if items.is_empty() {
        value.report(
            "nothing of the response is counted",
            "such as `[{ json: usage.total_tokens }]`".to_owned(),
        );
    }
    if items.len() > MAX_NUMBERS {
        value.report(format!("a cost adds up at most {MAX_NUMBERS} numbers"), "remove some".to_owned());
    }
    let count = items.len();
    let numbers: Vec<ResponseNumber> = items.into_iter().filter_map(response_number).collect();
    (numbers.len() == count && count > 0).then_some(Measure::Sum(numbers))
}

/// Of one cost.
const MAX_NUMBERS: usize = 16;
const MAX_BOUNDS: usize = 16;

fn response_number(item: Cursor<'_>) -> Option<ResponseNumber> {
    let mut mapping = opened::<ResponseNumberSettings<'_>>(item)?;
    let ResponseNumberSettings { preset, json, header, trailer, times, ask } =
        ResponseNumberSettings::fields(&mut mapping)?;
    let presets = Preset::ALL.map(|preset| (preset.name(), preset));
    let source = match (preset, json, header, trailer) {
        (Some(value), None, None, None) => {
            value.parse(choice(&presets)).map(|preset| NumberSource::Preset { preset, ask })
        }
        (None, Some(value), None, None) => value.parse(json_path).map(NumberSource::Json),
        (None, None, Some(value), None) => value.parse(field_name).map(NumberSource::Header),
        (None, None, None, Some(value)) => value.parse(field_name).map(NumberSource::Trailer),
        _ => {
            let help = "such as `{ json: usage.output_tokens, times: 4 }`; a list adds up several";
            let keys = ["preset", "json", "header", "trailer"];
            if !keys.into_iter().any(|key| mapping.peek(key).is_none() && mapping.has_or_misspells(key)) {
                item.report("each number is exactly one preset, json, header or trailer", help.to_owned());
            }
            None
        }
    };
    if ask
        && !matches!(source, None | Some(NumberSource::Preset { preset: Preset::OpenAi, .. }))
        && let Some(location) = mapping.key_location("ask")
    {
        let help = "the others send their usage unasked; remove it, or write `preset: openai`".to_owned();
        mapping.report_at(location, "only OpenAI's streams are asked for their usage", help);
    }
    mapping.finish();
    Some(ResponseNumber { source: source?, times })
}

fn reserve(value: Cursor<'_>, counts_bytes: bool, has_preset: bool) -> Option<Reserve> {
    let fixed = |units| Reserve { json: Vec::new(), bounds: None, default: units, max: units, prompt: false };
    if value.scalar().is_some() {
        return value
            .parse(|text| match counts_bytes {
                true => size(1..=MAX_BYTES)(text).map(|bytes| bytes as u64),
                false => number(1..=MAX_LIMIT)(text),
            })
            .map(fixed);
    }
    if counts_bytes {
        value.report(
            "expected a size",
            "such as `reserve: 1MiB`; no request tells the bytes of its response".to_owned(),
        );
        return None;
    }
    let ReserveSettings { json, default, max, prompt } = ReserveSettings::read(value)?;
    let paths = match json {
        None => Vec::new(),
        Some(value) if value.scalar().is_some() => vec![value.parse(json_path)?],
        Some(value) => {
            let paths = value.unique_items(|item| item.parse(json_path));
            if value.is_empty_list() {
                value.report("no name is listed", "such as `[max_completion_tokens, max_tokens]`".to_owned());
            }
            paths
        }
    };
    if paths.len() > MAX_BOUNDS {
        let message = format!("a request is asked for at most {MAX_BOUNDS} numbers");
        json.unwrap_or(value).report(message, "remove some".to_owned());
    }
    let bounds = (!paths.is_empty()).then(|| OutputBounds::new(&paths, has_preset));
    if let Some(prompt) = prompt {
        prompt.parse(choice(&[("estimate", ())]))?;
    }
    let default = default?;
    if default > max {
        value.report("`default` is larger than `max`", None);
    }
    Some(Reserve { json: paths, bounds, default, max, prompt: prompt.is_some() })
}
