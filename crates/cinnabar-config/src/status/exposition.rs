//! Which text format of metrics a scraper asks for, and the older one made of the newer.
//!
//! The library writes `OpenMetrics`. A client that does not ask for it (curl, older scrapers, `promtool
//! check metrics`) gets the Prometheus text format 0.0.4: there a family has the name of its samples,
//! `_total` and `_info` included, there is no type `info`, and comments other than HELP and TYPE mean
//! nothing.

use std::fmt::Write;

/// The newer one.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The older one, the Prometheus text format.
pub const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether a request with this `Accept` asks for `OpenMetrics`, and for nothing else more.
pub fn wants_openmetrics(accept: &str) -> bool {
    let wanted = quality(accept, "application/openmetrics-text");
    wanted > 0.0 && wanted >= quality(accept, "text/plain")
}

/// How much a media type is wanted: 0 if it is not named. Wildcards ask for nothing in particular.
fn quality(accept: &str, media_type: &str) -> f64 {
    let of = |entry: &str| {
        let mut parts = entry.split(';').map(str::trim);
        if !parts.next()?.eq_ignore_ascii_case(media_type) {
            return None;
        }
        let given = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        Some(given.map_or(1.0, |given| given.trim().parse().unwrap_or(0.0)))
    };
    accept.split(',').filter_map(of).fold(0.0, f64::max)
}

/// `OpenMetrics` as Prometheus text.
pub fn text_of(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help = None;
    for line in openmetrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map(|(_, words)| words);
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (end, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            // Writing to a string does not fail.
            if let Some(help) = help.take() {
                let _ok = writeln!(text, "# HELP {name}{end} {}", help.replace("\\\"", "\""));
            }
            let _ok = writeln!(text, "# TYPE {name}{end} {kind}");
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_goes_to_those_who_ask_for_it() {
        // What Prometheus sends, by version.
        let new = "application/openmetrics-text;version=1.0.0;q=0.5,\
            application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let old = "text/plain;version=0.0.4;q=1,*/*;q=0.1";
        for (accept, wanted) in [
            (new, true),
            (old, false),
            ("application/openmetrics-text", true),
            ("Application/OpenMetrics-Text; version=1.0.0", true),
            ("application/openmetrics-text;q=0", false),
            ("application/openmetrics-text;q=0.3, text/plain;q=0.5", false),
            ("*/*", false),
            ("", false),
            ("text/html,;;q=x", false),
        ] {
            assert_eq!(wants_openmetrics(accept), wanted, "{accept:?}");
        }
    }

    #[test]
    fn families_have_the_names_of_their_samples() {
        let text = text_of(
            "# HELP a_build A \\\"version\\\".\n# TYPE a_build info\na_build_info{version=\"1\"} 1\n\
             # HELP a_reads Reads.\n# TYPE a_reads counter\n# UNIT a_reads seconds\na_reads_total 2\n\
             # HELP a_size Size.\n# TYPE a_size gauge\na_size 3\n# EOF\n",
        );
        assert_eq!(
            text,
            "# HELP a_build_info A \"version\".\n# TYPE a_build_info gauge\na_build_info{version=\"1\"} 1\n\
             # HELP a_reads_total Reads.\n# TYPE a_reads_total counter\na_reads_total 2\n\
             # HELP a_size Size.\n# TYPE a_size gauge\na_size 3\n"
        );
    }
}
