//! Plans as text for a terminal.

use cinnabar_manager::report::{ExplainReport, HistoryReport, PlanReport, ShareReport};
use cinnabar_text::cli::output;
use cinnabar_text::{Failure, Table, show_size};
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// A plan; with `diff` what changes of it only.
pub(super) fn plan(plan: &PlanReport, diff: bool) -> String {
    let header =
        ["VOLUME", "PLANNED", "TARGET", "GRANTED", "HELD", "POLICY", "HITS", "EXPECTED", "WHY"];
    let mut table = Table::new(1, &header).least(&["POLICY", "HITS", "GRANTED", "EXPECTED"]);
    let changes = |share: &&ShareReport| !diff || share.target_bytes != share.before_bytes;
    for share in plan.volumes.iter().filter(changes) {
        table.push(vec![
            share.volume.clone(),
            size(share.planned_bytes),
            size(share.target_bytes),
            size(share.granted_bytes),
            show_size(share.held_bytes),
            share.policy.clone(),
            share.actual_hits.map_or_else(|| "-".into(), percent),
            percent(share.expected_hits),
            share.why.clone(),
        ]);
    }
    let mut text = format!(
        "{} divides {}, in {} us; a miss costs {:.0} us, a hit {:.0} us ({})\n",
        plan.allocator,
        show_size(plan.capacity_bytes),
        plan.took_us,
        plan.prices.backend_read_us,
        plan.prices.ssd_read_us,
        if plan.prices.measured { "measured, as far as there was I/O" } else { "as told" },
    );
    if table.rows.is_empty() {
        text += "nothing changes\n";
    } else {
        text += &output::table(&table);
    }
    if let Some(budget) = &plan.budget {
        // Writing to a string does not fail.
        let _ok = writeln!(
            text,
            "SSD budget: {} a day; a block written costs {:.0} us for it{}",
            show_size(budget.bytes_per_day),
            budget.price_us,
            if budget.throttled { "; nothing goes to flash now" } else { "" },
        );
    }
    if !plan.trouble.is_empty() {
        // Writing to a string does not fail.
        let _ok = writeln!(text, "note: {}", plan.trouble);
    }
    text
}

/// What one volume is to have.
///
/// # Errors
/// If the plan with it was not carried out.
pub(super) fn target(plan: &PlanReport, name: &str) -> Result<String, Failure> {
    if !plan.applied {
        let message =
            format!("{name} is pinned, but the plan was not carried out: {}", plan.trouble);
        return Err(Failure::at_run_time(message, "the next plan tries it again"));
    }
    let share = plan.volumes.iter().find(|share| share.volume == name);
    let mut text = share.map_or_else(String::new, |share| {
        format!("{name} is to have {} ({})\n", size(share.target_bytes), share.why)
    });
    if !plan.trouble.is_empty() {
        // Writing to a string does not fail.
        let _ok = writeln!(text, "note: {}", plan.trouble);
    }
    Ok(text)
}

/// Why a volume has what it has.
pub(super) fn explained(report: &ExplainReport) -> String {
    let mut text = String::new();
    let Some(own) = report.plan.volumes.first() else { return text };
    for words in &report.words {
        text += words;
        text.push('\n');
    }
    let mix = &own.mix;
    let counts = [
        ("reads", mix.reads),
        ("writes", mix.writes),
        ("reads after reads", mix.rar),
        ("reads after writes", mix.raw),
        ("writes after reads", mix.war),
        ("writes after writes", mix.waw),
    ];
    let mut table = Table::new(1, &["BLOCKS", "COUNT"]);
    for (name, count) in counts {
        table.push(vec![name.to_owned(), count.to_string()]);
    }
    text.push('\n');
    text += &output::table(&table);
    let mut table = Table::new(0, &["CACHE", "READ HITS"]);
    for point in &own.curve {
        table.push(vec![show_size(point.size_bytes), percent(point.hits)]);
    }
    text.push('\n');
    text += &output::table(&table);
    let mut table = Table::new(1, &["NEIGHBOUR", "TARGET", "HELD", "NEXT GIB HITS"]);
    for one in &report.neighbours {
        table.push(vec![
            one.volume.clone(),
            show_size(one.target_bytes),
            show_size(one.held_bytes),
            format!("{:.0}", one.next_gib_reads),
        ]);
    }
    if !table.rows.is_empty() {
        text.push('\n');
        text += &output::table(&table);
    }
    let mut table = Table::new(1, &["NOT CACHED BECAUSE", "BLOCKS"]);
    for one in &report.not_cached {
        let of = if one.of_cache { " (all volumes)" } else { "" };
        table.push(vec![format!("{}{of}", one.reason), one.blocks.to_string()]);
    }
    if !table.rows.is_empty() {
        text.push('\n');
        text += &output::table(&table);
    }
    text
}

/// The plans of late, a line each.
pub(super) fn history(history: &HistoryReport) -> String {
    let header = [
        "AGO",
        "INTERVAL",
        "ALLOCATOR",
        "REQUESTS",
        "LOST",
        "VOLUMES",
        "LARGEST",
        "APPLIED",
        "DIGEST",
    ];
    let mut table = Table::new(1, &header).least(&["DIGEST", "LOST", "REQUESTS"]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64);
    for plan in &history.plans {
        let largest = plan.volumes.iter().max_by_key(|share| share.target_bytes);
        let largest = largest
            .filter(|share| share.target_bytes.is_some())
            .map(|share| format!("{} {}", share.volume, size(share.target_bytes)));
        table.push(vec![
            format!("{} s", now.saturating_sub(plan.made_ms) / 1000),
            plan.interval.to_string(),
            plan.allocator.clone(),
            plan.requests.to_string(),
            plan.lost.to_string(),
            plan.volumes.len().to_string(),
            largest.unwrap_or_else(|| "-".into()),
            if plan.applied { "yes".into() } else { format!("no: {}", plan.trouble) },
            plan.digest.clone(),
        ]);
    }
    let mut text = if table.rows.is_empty() {
        "no plan was made yet: one follows each interval with requests in it\n".to_owned()
    } else {
        output::table(&table)
    };
    for pin in &history.pins {
        // Writing to a string does not fail.
        let _ok = writeln!(text, "pinned: {} to {}", pin.volume, show_size(pin.size_bytes));
    }
    text
}

fn size(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".into(), show_size)
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> PlanReport {
        let share = |name: &str, target_bytes, before_bytes| ShareReport {
            volume: name.into(),
            target_bytes: Some(target_bytes),
            before_bytes,
            // Whole segments: hardly ever what a plan says.
            granted_bytes: Some(4 << 20),
            why: "pinned".into(),
            ..ShareReport::default()
        };
        let volumes = vec![
            share("same", 5 << 20, Some(5 << 20)),
            share("grows", 9 << 20, Some(4 << 20)),
            share("new", 4 << 20, None),
        ];
        PlanReport { volumes, applied: true, ..PlanReport::default() }
    }

    #[test]
    fn a_difference_is_one_from_the_plan_before() {
        let text = plan(&sample(), true);
        assert!(text.contains("grows") && text.contains("new") && !text.contains("same"), "{text}");
        assert!(plan(&sample(), false).contains("same"));
    }

    #[test]
    fn a_pin_that_does_not_hold_yet_is_a_failure() {
        let mut plan = PlanReport { trouble: "12 have one together".into(), ..sample() };
        let text = target(&plan, "same").expect("it was carried out");
        assert_eq!(text, "same is to have 5.0 MiB (pinned)\nnote: 12 have one together\n");
        (plan.applied, plan.trouble) = (false, "the device is gone".into());
        let failure = target(&plan, "same").expect_err("it was not");
        assert!(failure.message.ends_with("not carried out: the device is gone"), "{failure:?}");
        assert_eq!(failure.code, 1);
    }
}
