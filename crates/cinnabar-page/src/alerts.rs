//! What an operator should look at, and what would help; made of the status alone.

use crate::data::Data;
use crate::facts::size;
use crate::html::{el, name, wrap};
use cinnabar_config::status::raw::{LogHalfState, State};
use cinnabar_config::status::report::{CacheReport, HealthReport, QosGroupReport, VolumeReport};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Something does not work.
    Error,
    /// Something works, but not as configured, or not for long.
    Warning,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alert {
    pub(crate) level: Level,
    pub(crate) volume: Option<String>,
    pub(crate) text: String,
    /// What would help.
    pub(crate) hint: String,
}

/// The write log is nearly full from here on.
const LOG_FULL: f64 = 0.8;
/// Alerts that are shown; the rest is counted.
const SHOWN_MAX: usize = 20;

/// All of them, the worst first.
pub(crate) fn alerts(data: &Data) -> Vec<Alert> {
    let mut all = Vec::new();
    of_cache(&data.report.cache, &mut all);
    for volume in &data.report.volumes {
        of_volume(volume, &mut all);
    }
    for group in &data.report.qos_groups {
        of_group(group, &mut all);
    }
    if data.report.cache.throttled {
        let text = "The budget of SSD writes is used up: nothing goes to flash now.".to_owned();
        push(&mut all, Level::Warning, text, "Raise ssd_budget in [manager], or wait: it refills.");
    }
    all.sort_by_key(|alert| alert.level);
    all
}

pub(crate) fn html(alerts: &[Alert], what: &str) -> String {
    if alerts.is_empty() {
        return wrap("p class=\"good\"", &format!("\u{2713} {what}"));
    }
    let mut html = String::from("<ul class=\"alerts\">\n");
    for alert in alerts.iter().take(SHOWN_MAX) {
        let (class, sign) = match alert.level {
            Level::Error => ("error", "\u{2717} Error: "),
            Level::Warning => ("warning", "! Warning: "),
        };
        let of = alert.volume.as_deref().map(|volume| name(volume) + ": ").unwrap_or_default();
        let inner = wrap("strong", sign) + &of + &el("span", &alert.text);
        let hint = if alert.hint.is_empty() {
            String::new()
        } else {
            el("span class=\"hint\"", &format!(" {}", alert.hint))
        };
        html += &wrap(&format!("li class=\"{class}\""), &(inner + &hint));
        html.push('\n');
    }
    if alerts.len() > SHOWN_MAX {
        html += &el("li", &format!("and {} more", alerts.len() - SHOWN_MAX));
    }
    html + "</ul>\n"
}

fn push(all: &mut Vec<Alert>, level: Level, text: String, hint: &str) {
    all.push(Alert { level, volume: None, text, hint: hint.to_owned() });
}

fn of_cache(cache: &CacheReport, all: &mut Vec<Alert>) {
    match cache.state {
        State::Serving | State::Stopping => {}
        State::Starting => {
            let text = "The cache is being loaded; requests pass through meanwhile.".to_owned();
            push(all, Level::Warning, text, "");
        }
        state => {
            let reason = if cache.reason.is_empty() { "no reason is known" } else { &cache.reason };
            let level = if state == State::Failed { Level::Error } else { Level::Warning };
            let hint = match cache.health {
                HealthReport::PassThrough { .. } => {
                    "Volumes pass through. Bring another device in: cinnabar cache replace DEVICE"
                }
                _ => "The log of the daemon says more.",
            };
            push(all, level, format!("The cache: {reason}."), hint);
        }
    }
    if cache.checksum_failures > 0 {
        let text = format!("{} blocks had a wrong checksum.", cache.checksum_failures);
        push(
            all,
            Level::Warning,
            text,
            "They were read from the back end. Look at the SSD's health.",
        );
    }
    if cache.device_errors > 0 {
        let text = format!("{} reads or writes of the SSD have failed.", cache.device_errors);
        push(all, Level::Warning, text, "Look at the SSD's health; cinnabar cache replace DEVICE");
    }
    if !cache.resize_failed.is_empty() {
        let text = format!("The last resize has failed: {}.", cache.resize_failed);
        push(all, Level::Warning, text, "cinnabar cache resize SIZE tries it again.");
    }
    let Some(log) = &cache.write_log else { return };
    if !log.reason.is_empty() {
        let text = format!("The write log can't be used: {}.", log.reason);
        push(all, Level::Error, text, "docs/guide/write-back.md says what to do.");
    }
    if log.used_bytes as f64 > log.size_bytes as f64 * LOG_FULL {
        let text =
            format!("The write log holds {} of {}.", size(log.used_bytes), size(log.size_bytes));
        push(all, Level::Warning, text, "Back ends are slower than guests write: look at them.");
    }
    for half in log.halves.iter().filter(|half| half.state == LogHalfState::Missing) {
        let text = format!("A half of the write log is missing: {}. {}", half.device, half.reason);
        push(all, Level::Warning, text, "docs/guide/write-back.md says how to bring one in.");
    }
}

fn of_volume(volume: &VolumeReport, all: &mut Vec<Alert>) {
    let mut add = |level, text: String, hint: &str| {
        let of = Some(volume.name.clone());
        all.push(Alert { level, volume: of, text, hint: hint.to_owned() });
    };
    let reason = if volume.reason.is_empty() { "no reason is known" } else { &volume.reason };
    match volume.state {
        State::Failed => add(Level::Error, format!("does not serve: {reason}."), ""),
        State::Waiting => {
            let hint = "It is tried again by itself.";
            add(Level::Error, format!("is waiting: {reason}."), hint);
        }
        State::Degraded => add(Level::Warning, format!("is degraded: {reason}."), ""),
        _ => {}
    }
    if volume.backend_overdue_now > 0 {
        let text = format!("{} back-end operations are overdue.", volume.backend_overdue_now);
        add(Level::Warning, text, "Look at the back end, and at backend_timeout_s.");
    }
    if let Some(log) = &volume.write_back
        && log.damaged
    {
        let hint = "cinnabar volume remove --discard-dirty gives them up.";
        add(Level::Error, "some of its writes in the log are damaged.".into(), hint);
    }
    if let Some(hybrid) = &volume.hybrid
        && hybrid.lost_objects > 0
    {
        let text = format!("{} objects that should be there are missing.", hybrid.lost_objects);
        add(Level::Error, text, "docs/guide/hybrid.md says what to do.");
    }
    if let Some(migration) = &volume.migration
        && !migration.reason.is_empty()
    {
        add(Level::Warning, format!("the last move: {}.", migration.reason), "");
    }
}

fn of_group(group: &QosGroupReport, all: &mut Vec<Alert>) {
    if group.oversold_iops > 0 {
        let text = format!(
            "Group {}: {} I/Os a second are reserved beyond what the back end does.",
            group.name, group.oversold_iops
        );
        push(all, Level::Warning, text, "Lower iops_reservation of its volumes.");
    }
}
