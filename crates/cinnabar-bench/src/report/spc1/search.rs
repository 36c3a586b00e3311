//! A search for the highest load, as text.

use super::show::ms;
use crate::spc1::{MaxReport, Maximum};
use cinnabar_text::{Table, percent};

/// The steps of each search, then what was found.
pub fn render(report: &MaxReport, room: Option<usize>) -> String {
    let mut text = String::new();
    let mut sums = Table::new(2, &["limit", &format!("mean of {:.0} ms", report.limit_ms)]);
    for (name, maximum) in [("without", &report.without), ("with", &report.with)] {
        let Some(maximum) = maximum else { continue };
        text += &steps(maximum, room);
        text.push('\n');
        let found = match maximum.bsu_max {
            0 => "not even 1 BSU".into(),
            bsu => format!("{bsu} BSU, {:.0} IOPS, mean {}", maximum.iops, ms(maximum.mean_ms)),
        };
        sums.push(vec![format!("{name} cache"), found]);
    }
    if let Some(ratio) = report.ratio {
        sums.push(vec!["ratio".into(), format!("{ratio:.2}")]);
    }
    sums.push(vec!["mix, seed".into(), format!("{}, {}", report.mix, report.seed)]);
    text + &sums.render(room)
}

fn steps(maximum: &Maximum, room: Option<usize>) -> String {
    let warmed = maximum.warming.as_ref().map_or_else(String::new, |warming| {
        let last = warming.hit_ratios.last().copied().unwrap_or(0.0);
        format!(
            "warmed by {} I/Os in {:.0} s, read hits {last:.3}{}\n",
            warming.ios,
            warming.seconds,
            if warming.steady { "" } else { " and still rising" }
        )
    });
    let mut table = Table::new(
        0,
        &[
            "BSU",
            "IOPS",
            "MEAN",
            "P50",
            "P99",
            "READ HITS",
            "READS CUT",
            "ALL CUT",
            "STEADY",
            "KEPT UP",
            "WITHIN",
        ],
    )
    .least(&["P50", "KEPT UP", "STEADY", "ALL CUT", "P99"]);
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    for step in &maximum.steps {
        // Given up before it was measured.
        let played = step.iops > 0.0;
        let told = |text: String| if played { text } else { "-".into() };
        table.push(vec![
            step.bsu.to_string(),
            told(format!("{:.0}", step.iops)),
            ms(step.latency.mean_ms),
            ms(step.latency.p50_ms),
            ms(step.latency.p99_ms),
            step.hit_ratio.map_or("-".into(), |ratio| format!("{ratio:.3}")),
            told(percent(step.reads_cut)),
            told(percent(step.all_cut)),
            yes(step.steady),
            yes(step.kept_up),
            yes(step.within),
        ]);
    }
    format!("cache: {}\n{warmed}{}", maximum.cache, table.render(room))
}
