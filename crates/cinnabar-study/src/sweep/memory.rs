//! How much memory a simulation takes, and how much there is.
//!
//! No more is under way than fits, and a plan that can't fit is refused before anything is begun.

use super::load::Load;
use crate::timed::Pace;
use crate::timed::config::{Architecture, Config, Placement};
use std::fs;
use std::path::{Path, PathBuf};

/// What every simulation takes: histograms, events, buffers of a trace's reader.
const FIXED_BYTES: u64 = 16 << 20;
/// For each block that a host could have: a word for each tier.
const KNOWN_BYTES: u64 = 8;
/// For each block of a cache: two entries of a ring, and one of a syncer's list.
const CACHED_BYTES: u64 = 12;
/// For each block of a trace: its number, by a table that doubles when it is full.
const NUMBERED_BYTES: u64 = 48;
/// For each request under way: a job, and an event.
const JOB_BYTES: u64 = 128;
/// So many are under way at most.
const JOBS_MAX: u64 = 1 << 24;
/// The part of the machine's free memory that is used, in percent: others need some, too.
const USED_PERCENT: u64 = 80;
/// If the machine doesn't say.
const UNKNOWN_BYTES: u64 = 4 << 30;

/// Bytes that a simulation takes at most, roughly.
pub fn needed_bytes(config: &Config, load: &Load<'_>) -> u64 {
    let scaled = |blocks: u64| blocks / u64::from(config.scale.max(1));
    let hosts = u64::from(config.hosts);
    let at_server = config.placement == Placement::Server && config.flash_blocks > 0;
    let (known, mut bytes) = match *load {
        Load::Generated => (scaled(config.total_blocks), FIXED_BYTES),
        Load::Trace { pace, ios, blocks, .. } => {
            let jobs = if pace == Pace::Recorded { ios.min(JOBS_MAX) } else { 0 };
            let numbered = blocks.saturating_mul(NUMBERED_BYTES) + jobs * JOB_BYTES;
            // Tables grow by doubling, and for a moment there are two of them.
            (blocks.saturating_mul(3), FIXED_BYTES.saturating_add(numbered))
        }
    };
    let flashes = if at_server { 1 } else { hosts };
    let tables = known.saturating_mul(hosts + u64::from(at_server)).saturating_mul(KNOWN_BYTES);
    let cached = scaled(config.ram_blocks)
        .saturating_mul(hosts)
        .saturating_add(scaled(config.flash_blocks).saturating_mul(flashes));
    bytes = bytes.saturating_add(tables).saturating_add(cached.saturating_mul(CACHED_BYTES));
    if config.architecture == Architecture::Cinnabar {
        // The engine: at most 16 bytes for a cached block, 4 for a remembered one.
        bytes = bytes.saturating_add(scaled(config.flash_blocks).saturating_mul(20));
    }
    bytes
}

/// Bytes of memory that a sweep may take on this machine now: most of what is free, and no more than
/// its control groups allow.
pub fn available_bytes() -> u64 {
    let free = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available_of(&text));
    let free = free.unwrap_or(UNKNOWN_BYTES).min(group_bytes().unwrap_or(u64::MAX));
    free / 100 * USED_PERCENT
}

fn available_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// What is left of the smallest limit of the control groups that this process is in.
fn group_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let left = |folder: &Path| {
        let most = number(folder.join("memory.max"))?;
        let used = number(folder.join("memory.current"))?;
        // Cached files are counted as used, and given up when the memory is needed.
        let stat = fs::read_to_string(folder.join("memory.stat")).ok()?;
        let files = stat.lines().find_map(|line| line.strip_prefix("file ")?.trim().parse().ok());
        Some(most.saturating_sub(used.saturating_sub(files.unwrap_or(0))))
    };
    let folder = root.join(group);
    folder.ancestors().take_while(|folder| folder.starts_with(root)).filter_map(left).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_configuration_fits_four_gibibytes() {
        let config = Config::default();
        let bytes = needed_bytes(&config, &Load::Generated);
        assert!((2 << 30..4 << 30).contains(&bytes), "{bytes}: 8 bytes for each of 2^28 blocks");
        let scaled = Config { scale: 64, ..config };
        assert!(needed_bytes(&scaled, &Load::Generated) < bytes / 32);
        let two = Config { hosts: 2, ..config };
        assert!(needed_bytes(&two, &Load::Generated) > 2 * bytes - (1 << 30));
        let absurd = Config { flash_blocks: u64::MAX, ..config };
        assert_eq!(needed_bytes(&absurd, &Load::Generated), u64::MAX);
    }

    #[test]
    fn free_memory_is_read_as_the_kernel_writes_it() {
        let text = "MemTotal:       24000000 kB\nMemAvailable:   21000000 kB\n";
        assert_eq!(available_of(text), Some(21_000_000 * 1024));
        assert_eq!(available_of("MemTotal: 1 kB\n"), None);
        assert_eq!(available_of("MemAvailable: many kB\n"), None);
        assert!(available_bytes() > 0);
    }
}
