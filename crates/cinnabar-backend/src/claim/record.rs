//! What a claim says.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes of a volume may be in a write log and nowhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The host with the log, for people.
    pub host: String,
    /// Identity of the log.
    pub write_log: [u8; 16],
    /// Where the log is on that host, for people.
    pub device: PathBuf,
    /// The volume's name.
    pub volume: String,
    /// Which use of the volume's place in the log.
    pub incarnation: u64,
    /// Raised each time that the volume joins, after the log has the number durably: a log with a lower one is an
    /// older copy, and lacks what came later. 0 before that, and in claims of releases that did not count.
    pub number: u64,
    /// When it was made: RFC 3339, UTC.
    pub since: String,
    /// The back end has all the writes again, and another program than the daemon brought them there:
    /// what any cache holds of the volume is old. The next daemon that opens the back end drops that,
    /// and then the claim.
    pub rescued: bool,
}

impl Claim {
    /// A claim of this host, made now. `device` is where the log is.
    pub fn new(write_log: [u8; 16], device: &Path, volume: &str, incarnation: u64) -> Self {
        let device = std::path::absolute(device).unwrap_or_else(|_| device.to_owned());
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            host: host(),
            write_log,
            // The file is text.
            device: PathBuf::from(device.to_string_lossy().into_owned()),
            volume: volume.to_owned(),
            incarnation,
            number: 0,
            since: utc(since.as_secs()),
            rescued: false,
        }
    }

    /// Whether it was made for this incarnation of a volume in this log.
    pub fn is_of(&self, write_log: [u8; 16], incarnation: u64) -> bool {
        self.write_log == write_log && self.incarnation == incarnation
    }
}

/// Name of this host, and a part of a hash of its machine id: many hosts are called `localhost`.
fn host() -> String {
    let line = |path| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let (name, machine) = (line("/proc/sys/kernel/hostname"), line("/etc/machine-id"));
    let name = if name.is_empty() { "a host without a name".to_owned() } else { name };
    if machine.is_empty() {
        return name;
    }
    // The id itself is not for others to read (machine-id(5)).
    format!("{name} (machine {:08x})", crc32c::crc32c(machine.as_bytes()))
}

/// Seconds since 1970 as a date and time. Years begin in March here, so that the leap day is the last
/// one of its year.
pub(super) fn utc(seconds: u64) -> String {
    const DAYS_400_YEARS: u64 = 146_097;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // 1970-01-01 is day 719468 from 0000-03-01 on.
    let days = days + 719_468;
    let (era, day) = (days / DAYS_400_YEARS, days % DAYS_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}
