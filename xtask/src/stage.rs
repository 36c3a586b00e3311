//! Stages: named pieces of work with a time, an outcome and a summary.

use crate::traces;
use anyhow::Result;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// How a stage ended, if it did not fail.
#[derive(Debug)]
pub(crate) enum Done {
    /// It ran; parts of it may have been skipped, for these reasons.
    Passed(Vec<String>),
    /// It did not run, for this reason.
    Skipped(String),
}

/// A stage: its name, what it does, and what runs beside it.
pub(crate) struct Stage {
    name: &'static str,
    run: Box<dyn Fn() -> Result<Done> + Send + Sync>,
    beside: Vec<Stage>,
}

impl Stage {
    /// A stage, and its name on the command line.
    pub(crate) fn new(
        name: &'static str,
        run: impl Fn() -> Result<Done> + Send + Sync + 'static,
    ) -> Self {
        Self { name, run: Box::new(run), beside: Vec::new() }
    }

    /// These stages run one after the other while this one waits.
    pub(crate) fn beside(self, beside: Vec<Stage>) -> Self {
        Self { beside, ..self }
    }

    fn names(&self) -> Vec<&'static str> {
        [self.name].into_iter().chain(self.beside.iter().map(|stage| stage.name)).collect()
    }
}

struct Row {
    name: &'static str,
    time: Duration,
    done: Result<Done>,
}

/// Runs stages one after the other, failed ones not stopping the rest, and ends with a summary
/// whose last line is `CHORE: N passed, N failed, N skipped`.
pub(crate) fn run_all(chore: &str, stages: &[Stage], only: &[String]) -> ExitCode {
    let names: Vec<&str> = stages.iter().flat_map(Stage::names).collect();
    if let Some(unknown) = only.iter().find(|name| !names.contains(&name.as_str())) {
        eprintln!("error: no stage {unknown:?}\nhint: the stages are {}", names.join(", "));
        return ExitCode::from(2);
    }
    let begun = Instant::now();
    let wanted = |stage: &Stage| only.is_empty() || only.iter().any(|name| name == stage.name);
    let rows: Vec<Row> = stages.iter().flat_map(|stage| run_beside(stage, &wanted)).collect();
    let failed = rows.iter().any(|row| row.done.is_err());
    print!("{}", summary(chore, &rows, begun.elapsed()));
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// A stage and those beside it, of those that are `wanted`.
fn run_beside(stage: &Stage, wanted: &(impl Fn(&Stage) -> bool + Sync)) -> Vec<Row> {
    thread::scope(|scope| {
        let first = wanted(stage).then(|| scope.spawn(|| run_one(stage)));
        let beside = stage.beside.iter().filter(|stage| wanted(stage)).map(run_one);
        let mut rows: Vec<Row> = beside.collect();
        rows.extend(first.map(|first| first.join().expect("a stage does not panic")));
        rows
    })
}

fn run_one(stage: &Stage) -> Row {
    println!("\n=== {}", stage.name);
    let start = Instant::now();
    let done = (stage.run)();
    let row = Row { name: stage.name, time: start.elapsed(), done };
    println!("=== {}: {} ({:.1} s)", row.name, verdict(&row.done), row.time.as_secs_f64());
    if let Err(error) = &row.done {
        eprintln!("{error:#}");
    }
    row
}

fn verdict(done: &Result<Done>) -> String {
    match done {
        Ok(Done::Passed(skipped)) if skipped.is_empty() => "passed".into(),
        Ok(Done::Passed(skipped)) => format!("passed, {} part(s) skipped", skipped.len()),
        Ok(Done::Skipped(reason)) => format!("skipped: {reason}"),
        Err(_) => "FAILED".into(),
    }
}

/// One line a stage, one a skipped part, one for all parts that need traces from elsewhere, the total.
/// A skipped part counts as skipped, beside the stage it belongs to.
/// `total` is less than the sum of what ran side by side.
fn summary(chore: &str, rows: &[Row], total: Duration) -> String {
    let mut text = String::from("\n");
    let (mut passed, mut failed, mut skipped, mut traces) = (0, 0, 0, 0);
    for row in rows {
        let seconds = row.time.as_secs_f64();
        let _ = writeln!(text, "{:<10} {seconds:>7.1} s  {}", row.name, verdict(&row.done));
        match &row.done {
            Ok(Done::Passed(parts)) => {
                passed += 1;
                skipped += parts.len();
                let (without_traces, others): (Vec<_>, Vec<_>) =
                    parts.iter().partition(|part| part.contains(traces::VARIABLE));
                traces += without_traces.len();
                for part in others {
                    let _ = writeln!(text, "{:<10} skipped: {part}", "");
                }
            }
            Ok(Done::Skipped(_)) => skipped += 1,
            Err(_) => failed += 1,
        }
    }
    let _ = writeln!(text, "{:<10} {:>7.1} s", "total", total.as_secs_f64());
    if traces > 0 {
        let _ = writeln!(
            text,
            "left out: {traces} parts of tests, for traces that are not in the tree; \
             set {}=FOLDER to have them",
            traces::VARIABLE
        );
    }
    let _ = writeln!(text, "{chore}: {passed} passed, {failed} failed, {skipped} skipped");
    text
}

#[cfg(test)]
mod tests {
    use super::{Done, Row, Stage, run_beside, summary};
    use anyhow::anyhow;
    use std::time::Duration;

    #[test]
    fn stages_side_by_side_are_all_reported() {
        let passes = |name| Stage::new(name, || Ok(Done::Passed(Vec::new())));
        let fails = Stage::new("c", || Err(anyhow!("broken")));
        let stage = passes("a").beside(vec![passes("b"), fails]);
        assert_eq!(stage.names(), ["a", "b", "c"]);
        let rows = run_beside(&stage, &|stage| stage.name != "b");
        let names: Vec<_> = rows.iter().map(|row| (row.name, row.done.is_ok())).collect();
        assert_eq!(names, [("c", false), ("a", true)]);
    }

    #[test]
    fn last_line_counts_skipped_parts() {
        let row = |done| Row { name: "x", time: Duration::ZERO, done };
        let rows = [
            row(Ok(Done::Passed(vec!["a".into(), "b".into()]))),
            row(Ok(Done::Skipped("no kernel".into()))),
            row(Err(anyhow!("broken"))),
        ];
        let text = summary("ci", &rows, Duration::ZERO);
        assert_eq!(text.lines().last(), Some("ci: 1 passed, 1 failed, 3 skipped"));
        assert!(!text.contains("left out"), "{text}");
    }

    #[test]
    fn missing_traces_are_one_line() {
        let part = |name| format!("no trace {name} (CINNABAR_TRACES names the folder)");
        let parts = vec![part("a"), "e2e needs fio".to_owned(), part("b")];
        let row = Row { name: "test", time: Duration::ZERO, done: Ok(Done::Passed(parts)) };
        let text = summary("ci", &[row], Duration::ZERO);
        let of_traces: Vec<_> = text.lines().filter(|line| line.contains("CINNABAR")).collect();
        assert_eq!(of_traces.len(), 1, "{text}");
        assert!(of_traces[0].starts_with("left out: 2 parts"), "{text}");
        assert!(text.contains("skipped: e2e needs fio"), "{text}");
        assert!(text.ends_with("ci: 1 passed, 0 failed, 3 skipped\n"), "{text}");
    }
}
