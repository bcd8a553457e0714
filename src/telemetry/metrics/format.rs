//! The two exposition formats of metrics.

use std::collections::HashSet;

/// The format of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpositionFormat {
    /// Prometheus' text format, which every scraper reads:
    /// <https://prometheus.io/docs/instrumenting/exposition_formats/>.
    Text,
    /// <https://prometheus.io/docs/specs/om/open_metrics_spec/>
    OpenMetrics,
}

impl ExpositionFormat {
    /// The format for a request with this `Accept`: OpenMetrics only if it is listed.
    pub fn from_accept(accept: &str) -> Self {
        let named = accept.split(',').any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let is_named =
                parts.next().is_some_and(|of| of.eq_ignore_ascii_case("application/openmetrics-text"));
            // RFC 9110, 12.4.2: a weight of 0 is a refusal.
            is_named && !parts.any(|part| part.strip_prefix("q=").and_then(|q| q.parse().ok()) == Some(0.0))
        });
        if named { Self::OpenMetrics } else { Self::Text }
    }

    /// The media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Converts an OpenMetrics page to the text format, in which HELP and TYPE of counters include `_total`, and UNIT and
/// EOF do not exist.
pub(super) fn as_text(page: &str) -> String {
    let typed = |line: &str| {
        let name = line.strip_prefix("# TYPE ")?.strip_suffix(" counter")?;
        Some(name.to_owned())
    };
    let counters: HashSet<String> = page.lines().filter_map(typed).collect();
    let mut text = String::with_capacity(page.len());
    for line in page.lines().filter(|line| !line.starts_with("# UNIT ") && *line != "# EOF") {
        let described = line.strip_prefix("# HELP ").map(|rest| ("# HELP ", rest));
        let described = described.or_else(|| line.strip_prefix("# TYPE ").map(|rest| ("# TYPE ", rest)));
        match described.and_then(|(kind, rest)| Some((kind, rest.split_once(' ')?))) {
            Some((kind, (name, rest))) if counters.contains(name) => {
                text.extend([kind, name, "_total ", rest]);
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_those_who_name_it() {
        // The header of Prometheus 2.
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(ExpositionFormat::from_accept(prometheus), ExpositionFormat::OpenMetrics);
        for other in ["", "*/*", "text/plain", "text/plain;version=0.0.4, application/openmetrics-text;q=0"] {
            assert_eq!(ExpositionFormat::from_accept(other), ExpositionFormat::Text, "{other}");
        }
    }

    #[test]
    fn in_text_a_counter_s_name_has_its_suffix_everywhere() {
        let page = "# HELP a Things.\n# TYPE a counter\na_total{of=\"x\"} 3\n# HELP b Size.\n# UNIT b bytes\n# TYPE b gauge\nb 4\n# EOF\n";
        let text = "# HELP a_total Things.\n# TYPE a_total counter\na_total{of=\"x\"} 3\n# HELP b Size.\n# TYPE b gauge\nb 4\n";
        assert_eq!(as_text(page), text);
    }
}
