//! Looks at every point before anything is simulated: settings that don't go together, and memory.

use super::keys::{self, KEYS};
use super::survey::Survey;
use super::{Origin, Plan, Point};
use crate::sweep::Job;
use crate::timed::{Config, ConfigError as Impossible};
use cinnabar_text::{ConfigError, show_size};

/// Checks all points.
///
/// # Errors
/// The first one that is impossible or needs more than `memory_bytes`, with the line of the key that
/// is to blame.
pub fn check(
    plan: &Plan,
    points: &[Point],
    survey: Option<&Survey>,
    memory_bytes: u64,
) -> Result<(), ConfigError> {
    for point in points {
        point.config.check().map_err(|error| impossible(plan, point, &error))?;
        let bytes = needed(plan, point, survey);
        if bytes > memory_bytes {
            return Err(too_large(plan, point, bytes, memory_bytes));
        }
    }
    Ok(())
}

/// Bytes of memory that the simulation of a point takes.
pub fn needed(plan: &Plan, point: &Point, survey: Option<&Survey>) -> u64 {
    match (survey, &plan.trace) {
        (Some(survey), Some(trace)) => survey.memory_bytes(&point.config, trace.pace),
        _ => Job::generated("", point.config).memory_bytes(),
    }
}

fn impossible(plan: &Plan, point: &Point, error: &Impossible) -> ConfigError {
    let key = keys::of_field(error.key);
    let name = key.map_or(error.key, |key| key.name);
    let kept_in = match key.map(keys::Key::unit).as_deref() {
        Some("size") => ", in blocks of 4 KiB",
        Some("time") => ", in nanoseconds",
        _ => "",
    };
    let message = format!("{name}: {}", in_words_of_plans(&error.message));
    let message = if error.message.contains(" is not from ") { message + kept_in } else { message };
    let message =
        if plan.axes.is_empty() { message } else { format!("{message} ({})", point.name) };
    let origin = key.map_or(Origin::Default, |key| point.origins[keys::place(key)]);
    at(plan, origin, message, in_words_of_plans(&error.hint))
}

/// The simulator's settings by the names that plans have for them.
fn in_words_of_plans(text: &str) -> String {
    // Words only: `hosts` is a key, and a word of its own in a sentence.
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut words = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_part) {
        let end = rest[start..].find(|c| !is_part(c)).map_or(rest.len(), |length| start + length);
        words += &rest[..start];
        let word = &rest[start..end];
        let key = KEYS.iter().find(|key| key.field == word && word.contains('_'));
        words += key.map_or(word, |key| key.name);
        rest = &rest[end..];
    }
    words + rest
}

fn too_large(plan: &Plan, point: &Point, bytes: u64, limit: u64) -> ConfigError {
    let sizes = |config: &Config| {
        let hosts = u64::from(config.hosts);
        [
            ("flash.size", config.flash_blocks.saturating_mul(hosts)),
            ("ram.size", config.ram_blocks.saturating_mul(hosts)),
            ("filer.size", config.total_blocks.saturating_mul(hosts)),
        ]
    };
    let largest = sizes(&point.config).into_iter().max_by_key(|(_, blocks)| *blocks);
    let blamed = largest.map_or("filer.size", |(name, _)| name);
    // What was left at its default is not to blame if something else was written.
    let place = |name: &str| keys::place(keys::find(name).expect("it is a key"));
    let written = [blamed, "hosts.count", "flash.size", "ram.size", "filer.size"]
        .into_iter()
        .find(|name| point.origins[place(name)] != Origin::Default);
    let origin = written.map_or(Origin::Default, |name| point.origins[place(name)]);
    let origin = match (&plan.trace, origin) {
        (Some(trace), Origin::Default) => trace.origin,
        (_, origin) => origin,
    };
    let message = format!(
        "{}: simulating it takes about {} of memory, and {} can be used",
        point.name,
        show_size(bytes),
        show_size(limit)
    );
    let hint = match plan.trace {
        None => "choose a larger scale, or smaller sizes; --memory says how much may be used",
        Some(_) => {
            "choose smaller caches, fewer hosts or a part of the trace; --memory says how much may be used"
        }
    };
    at(plan, origin, message, hint.to_owned())
}

fn at(plan: &Plan, origin: Origin, message: String, hint: String) -> ConfigError {
    let message = if origin == Origin::Flag { format!("--set: {message}") } else { message };
    ConfigError { file: plan.file.clone(), line: origin.line(), message, hint }
}
