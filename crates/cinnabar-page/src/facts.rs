//! Numbers and words under an id: the same in the HTML of a view and in what keeps it live.
//!
//! An id is `cache:KEY` or `v:NAME:KEY`, `NAME` as in a path; keys are those of the status where it
//! has the number, `now_...` is a rate. `value` is the number as `GET /v1/status` has it, `text` what
//! people read.

use crate::html::{escaped, in_url};
use crate::rates::{Rate, Rates};
use crate::words;
use cinnabar_config::status::report::{CacheReport, StatusReport, VolumeReport};
use cinnabar_engine::seam::units::BLOCK_BYTES;
use cinnabar_text::{Unit, percent};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::LazyLock;

/// What is not known.
pub(crate) const UNKNOWN: &str = "\u{2013}";

/// What is shown where nothing is known any more.
static GONE: LazyLock<Fact> = LazyLock::new(|| Fact { text: UNKNOWN.into(), value: String::new() });

/// What is shown under an id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// For people.
    pub text: String,
    /// For programs.
    pub value: String,
}

/// What a viewer sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The cache, and rows of the first volumes: so many.
    Overview(usize),
    /// The cache, and a volume.
    Volume(String),
    /// The cache.
    #[default]
    Cache,
}

/// Numbers of a report, each with its name in the status.
macro_rules! named {
    ($report:ident: $($field:ident),+) => {
        [$((stringify!($field), $report.$field)),+]
    };
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts(BTreeMap<String, Fact>);

impl Facts {
    /// What is in this scope.
    pub fn of(scope: &Scope, status: &StatusReport, rates: Option<&Rates>) -> Self {
        let mut facts = Self::default();
        facts.add_cache(&status.cache, rates);
        let rate = |name: &str| rates.and_then(|rates| rates.volumes.get(name));
        match scope {
            Scope::Cache => {}
            Scope::Overview(rows) => {
                for volume in status.volumes.iter().take(*rows) {
                    facts.add_row(volume, rate(&volume.name));
                }
            }
            Scope::Volume(name) => {
                if let Some(volume) = status.volumes.iter().find(|volume| volume.name == *name) {
                    facts.add_row(volume, rate(name));
                    facts.add_volume(volume);
                }
            }
        }
        facts
    }

    /// Those that are other than before, by id; of those that are gone, that nothing is known.
    pub fn since<'f>(&'f self, before: &'f Self) -> BTreeMap<&'f str, &'f Fact> {
        let changed = self.0.iter().filter(|(id, fact)| before.0.get(*id) != Some(fact));
        let gone = before.0.keys().filter(|id| !self.0.contains_key(*id));
        let gone = gone.map(|id| (id.as_str(), &*GONE));
        changed.map(|(id, fact)| (id.as_str(), fact)).chain(gone).collect()
    }

    /// One of them.
    pub fn get(&self, id: &str) -> Option<&Fact> {
        self.0.get(id)
    }

    /// The element of one.
    pub(crate) fn html(&self, id: &str) -> String {
        let Fact { text, value } = self.0.get(id).unwrap_or(&GONE);
        let (id, value, text) = (escaped(id), escaped(value), escaped(text));
        format!("<data id=\"{id}\" value=\"{value}\">{text}</data>")
    }

    /// The element of a volume's.
    pub(crate) fn of_volume(&self, name: &str, key: &str) -> String {
        self.html(&volume_id(name, key))
    }

    fn put(&mut self, id: impl Into<String>, value: impl Display, text: impl Into<String>) {
        self.0.insert(id.into(), Fact { text: text.into(), value: value.to_string() });
    }

    fn add_cache(&mut self, cache: &CacheReport, rates: Option<&Rates>) {
        let mut put = |key: &str, value: &dyn Display, text: String| {
            self.put(format!("cache:{key}"), value, text);
        };
        let (state, sign) = (words::state(cache.state), words::sign(cache.state));
        put("state", &state, format!("{sign} {state}"));
        for (key, blocks) in [
            ("cached_blocks", cache.cached_blocks),
            ("capacity_blocks", cache.capacity_blocks),
            ("ram_blocks", cache.ram_blocks),
            ("detached_blocks", cache.detached_blocks),
            ("doubt_blocks", cache.doubt_blocks),
        ] {
            put(key, &blocks, size_of(blocks));
        }
        put("flash_written_bytes", &cache.flash_written_bytes, size(cache.flash_written_bytes));
        let counts = named!(cache:
            fills, evicted_blocks, rejected_blocks, returned_blocks, reinserted_blocks,
            throttled_blocks, segments_freed, checksum_failures, device_errors, device_losses,
            device_replacements, journal_records, journal_writes, journal_rebases, active_regions,
            checkpoints
        );
        for (key, count) in counts {
            put(key, &count, number(count));
        }
        let Some(rates) = rates else { return };
        self.add_rate("cache", &rates.all);
        let written = a_second(Unit::Bytes.show(rates.ssd_bytes));
        self.put("cache:now_ssd_bytes", decimal(rates.ssd_bytes), written);
        for (key, value) in [
            ("now_backend_read_us", rates.backend_read_us),
            ("now_backend_write_us", rates.backend_write_us),
        ] {
            let text = value.map_or_else(|| UNKNOWN.to_owned(), |us| Unit::Micros.show(us));
            let value = value.map(decimal).unwrap_or_default();
            self.put(format!("cache:{key}"), value, text);
        }
    }

    fn add_rate(&mut self, of: &str, rate: &Rate) {
        let mut put = |key: &str, value: Option<f64>, show: &dyn Fn(f64) -> String| {
            let text = value.map_or_else(|| UNKNOWN.to_owned(), show);
            let value = value.map(decimal).unwrap_or_default();
            self.put(format!("{of}:{key}"), value, text);
        };
        let count = |value: f64| Unit::Count.show(whole(value));
        put("now_iops", Some(rate.iops), &count);
        put("now_backend_iops", Some(rate.backend_iops), &count);
        put("now_spared_iops", Some(rate.iops - rate.backend_iops), &count);
        put("now_hit_ratio", rate.hit_ratio, &percent);
        put("now_read_us", rate.read_us, &|us| Unit::Micros.show(us));
        put("now_write_us", rate.write_us, &|us| Unit::Micros.show(us));
        let bytes = (rate.read_blocks + rate.written_blocks) * BLOCK_BYTES as f64;
        put("now_bytes", Some(bytes), &|bytes| a_second(Unit::Bytes.show(whole(bytes))));
    }

    fn add_row(&mut self, volume: &VolumeReport, rate: Option<&Rate>) {
        let name = &volume.name;
        let (state, sign) = (words::state(volume.state), words::sign(volume.state));
        self.put(volume_id(name, "state"), state, format!("{sign} {state}"));
        let mode = words::mode(volume.mode);
        self.put(volume_id(name, "mode"), mode, mode);
        let held = volume.cached_blocks;
        self.put(volume_id(name, "cached_blocks"), held, size_of(held));
        let share = volume.share_blocks;
        let text = if share == 0 { "shared".to_owned() } else { size_of(share) };
        self.put(volume_id(name, "share_blocks"), share, text);
        if let Some(rate) = rate {
            self.add_rate(&format!("v:{}", in_url(name)), rate);
        }
    }

    fn add_volume(&mut self, volume: &VolumeReport) {
        let name = &volume.name;
        let connections = u64::from(volume.connections);
        self.put(volume_id(name, "connections"), connections, number(connections));
        let counts = named!(volume:
            reads, writes, flushes, trims, zeroes, blocks_read, blocks_written, read_hits,
            read_hits_ram, read_hits_log, misses, partial_hits, write_hits, backend_reads,
            backend_writes, backend_flushes, backend_errors, backend_overdue, invalidation_waits,
            region_writes, invalidated_blocks, capped_blocks, refused
        );
        for (key, count) in counts {
            self.put(volume_id(name, key), count, number(count));
        }
        for (key, bytes) in [
            ("size_bytes", volume.size_bytes),
            ("backend_read_bytes", volume.backend_read_bytes),
            ("backend_write_bytes", volume.backend_write_bytes),
        ] {
            self.put(volume_id(name, key), bytes, size(bytes));
        }
        if let Some(log) = &volume.write_back {
            self.put(volume_id(name, "dirty_bytes"), log.dirty_bytes, size(log.dirty_bytes));
            let age = Unit::Seconds.show(log.dirty_age_s);
            self.put(volume_id(name, "dirty_age_s"), log.dirty_age_s, age);
            self.put(volume_id(name, "epochs"), log.epochs, number(log.epochs));
        }
    }
}

/// The id of something of a volume.
pub(crate) fn volume_id(name: &str, key: &str) -> String {
    format!("v:{}:{key}", in_url(name))
}

/// Bytes, with three digits.
pub(crate) fn size(bytes: u64) -> String {
    Unit::Bytes.show(bytes as f64)
}

/// Blocks, as bytes with three digits.
pub(crate) fn size_of(blocks: u64) -> String {
    Unit::Bytes.show(blocks as f64 * BLOCK_BYTES as f64)
}

/// A count with three digits.
pub(crate) fn number(count: u64) -> String {
    Unit::Count.show(count as f64)
}

/// A change of a part, with the decimal that [`percent`] has.
pub(crate) fn change(part: f64) -> String {
    let text = percent(part);
    // A change that is not seen has no sign.
    match text.trim_start_matches('-') {
        "0.0 %" => "0.0 %".to_owned(),
        _ if part > 0.0 => format!("+{text}"),
        _ => text,
    }
}

/// So much each second.
pub(crate) fn a_second(text: String) -> String {
    text + "/s"
}

/// Rates below a thousand have no decimals that mean anything.
fn whole(value: f64) -> f64 {
    if value.abs() >= 10.0 { value.round() } else { (value * 10.0).round() / 10.0 }
}

fn decimal(value: f64) -> String {
    format!("{value:.3}")
}

#[cfg(test)]
mod tests {
    use super::change;

    #[test]
    fn a_change_has_a_sign_if_it_is_seen() {
        let shown = [0.085, -0.002, 0.0, 0.0004, -0.0004].map(change);
        assert_eq!(shown, ["+8.5 %", "-0.2 %", "0.0 %", "0.0 %", "0.0 %"]);
    }
}
