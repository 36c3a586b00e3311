//! Why a cell of the table falls short, by what the same accesses give with other settings.
//!
//! Read misses: *way* if the engine meets the bar with one way of admission throughout; *air* if it
//! does so with `endurance = "hits"`, which leaves half the air; else the best of these, and what
//! it has over the bar. Flash writes: *reinserted* or *metadata* if the bar would be met without
//! those; *admitted* if what came in alone is over it.

use super::Settings;
use cinnabar_engine::{Admission, Endurance};
use cinnabar_study::hits::Outcome;

/// `max`: read misses of the bar. `again` plays the accesses with other settings, or nothing.
pub(crate) fn of_misses(
    max: f64,
    again: &dyn Fn(Settings) -> Result<Option<Outcome>, String>,
) -> Result<String, String> {
    let mut tried = Vec::new();
    for admission in Admission::ALL {
        let settings = Settings { endurance: Endurance::Balanced, admission: Some(admission) };
        let Some(outcome) = again(settings)? else { return Ok("misses".to_owned()) };
        tried.push((outcome.counts.read_misses, format!("way ({})", admission.name())));
    }
    let less_air = Settings { endurance: Endurance::Hits, admission: None };
    if let Some(outcome) = again(less_air)? {
        tried.push((outcome.counts.read_misses, "air".to_owned()));
    }
    let (misses, name) = tried.into_iter().min().expect("some were tried");
    let over = misses as f64 / max;
    Ok(if over <= 1.0 {
        format!("misses: {name}")
    } else if over.is_finite() {
        format!("misses: best {name}, {over:.2} x the bar")
    } else {
        format!("misses: best {name}, {misses} for none")
    })
}

/// `max`: flash writes of the bar.
pub(crate) fn of_flash(engine: &Outcome, max: f64) -> String {
    let reasons = engine.reasons.unwrap_or_default();
    let admitted = reasons.kept_room + reasons.kept_used + reasons.kept_returned;
    let written = engine.counts.flash_writes;
    let metadata = written - admitted - reasons.reinserted;
    let without = |part: u64| (written - part) as f64 <= max;
    let name = if admitted as f64 > max {
        "admitted"
    } else if without(metadata) {
        "metadata"
    } else if without(reasons.reinserted) {
        "reinserted"
    } else {
        "reinserted, metadata"
    };
    format!("flash: {name}")
}
