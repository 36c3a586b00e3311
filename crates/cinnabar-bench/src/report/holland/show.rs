//! What the experiments found as text for the terminal.

use super::PAGE;
use super::found::{Found, FoundCheck, FoundExperiment, Listed};
use cinnabar_text::Table;
use std::path::Path;

/// Where the differences are explained.
pub(crate) const WHY: &str =
    "docs/design/timed-simulator.md says why, under \"Against an independent model\"";

/// The experiments that there are.
pub fn list(rows: &[Listed], room: Option<usize>) -> String {
    let mut table = Table::new(1, &["EXPERIMENT", "RESULT", "RUNS", "TITLE"]);
    for row in rows {
        table.push(vec![
            row.name.to_owned(),
            row.claim.map_or("-".to_owned(), |claim| claim.to_string()),
            row.configurations.to_string(),
            row.title.to_owned(),
        ]);
    }
    table.render(room)
}

/// Everything found.
pub fn all(found: &Found, out: &Path, room: Option<usize>) -> String {
    let page = out.join(PAGE);
    format!(
        "{}\n{}\n{} runs, {:.0} M block I/Os in {:.1} s ({:.1} s of CPU), {:.2} M a second; digest {}\n{}\n",
        checks(found, room),
        differences(found, room),
        found.configurations,
        found.block_ios as f64 / 1e6,
        found.seconds,
        found.cpu_seconds,
        found.block_ios_per_second / 1e6,
        found.digest,
        page.display()
    )
}

fn checks(found: &Found, room: Option<usize>) -> String {
    let mut table = Table::new(2, &["RESULT", "CHECK", "MEASURED", "CLAIMED", ""]);
    for experiment in &found.experiments {
        for check in &experiment.checks {
            table.push(vec![
                result(experiment),
                check.what.clone(),
                check.shown(),
                check.bound_shown(),
                holds(check).to_owned(),
            ]);
        }
    }
    table.render(room)
}

/// "1 working-set": which result, and whose.
pub(crate) fn result(experiment: &FoundExperiment) -> String {
    let number = experiment.claim.map_or("-".to_owned(), |claim| claim.to_string());
    format!("{number} {}", experiment.name)
}

/// Whether a check holds, in words.
pub(crate) fn holds(check: &FoundCheck) -> &'static str {
    match check.holds {
        Some(true) => "holds",
        Some(false) => "FAILS",
        None => "",
    }
}

fn differences(found: &Found, room: Option<usize>) -> String {
    let all = found.targets().count();
    let beyond: Vec<_> = found.targets().filter(|(_, target)| !target.within).collect();
    let mut text = format!(
        "{} of {all} values of an independent model are met (reads within 3 %, writes within 5 % \
         or 0.5 us, shares within 2 points)\n",
        all - beyond.len()
    );
    if beyond.is_empty() {
        return text;
    }
    let mut table = Table::new(2, &["EXPERIMENT", "DIFFERS", "DERIVED", "MEASURED", "BY"]);
    for (experiment, target) in beyond {
        let [derived, measured, difference] = target.shown();
        table.push(vec![
            experiment.name.to_owned(),
            target.what.clone(),
            derived,
            measured,
            difference,
        ]);
    }
    text += &table.render(room);
    text + WHY + "\n"
}
