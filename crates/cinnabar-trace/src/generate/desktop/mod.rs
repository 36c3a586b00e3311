//! Days of one desktop in a virtual machine, made up: the workload of Mercury's desktop experiment.
//!
//! A model, not a recording: every morning the same system files are read, applications are started
//! again, recent documents are opened again, and small writes go on all day. [`parameters`] holds
//! the model's numbers and their reasons; `docs/guide/replay.md` describes them for users. The same
//! settings and seed give the same records on every machine.

mod background;
mod browser;
mod day;
mod disk;
mod documents;
mod machine;
pub mod parameters;
mod script;

use crate::record::Record;
use machine::Machine;

/// What can be chosen; the rest is in [`parameters`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Fixes everything that chance decides.
    pub seed: u64,
    /// How many days, each a working day: 1 to [`parameters::DAYS_MAX`].
    pub days: u32,
    /// Reads and writes of an average day; files grow with it, so the working set does, too.
    pub requests_per_day: u32,
    /// Size of the disk in bytes: at least [`parameters::DISK_BYTES_PER_REQUEST`] for each request
    /// of a day.
    pub disk_bytes: u64,
    /// Length of a day in microseconds. A shorter day is the same day, faster.
    pub day_us: u64,
    /// A whole scan of what is stored (a virus scanner, a backup) in the evening of every so many
    /// days; 0 is never. It comes on top of `requests_per_day`.
    pub scan_every_days: u32,
    /// Share, 0 to 1, of the writes of one block that are of some of its sectors only.
    pub partial_writes: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            days: 4,
            requests_per_day: 45_000,
            disk_bytes: 40 << 30,
            day_us: parameters::DAY_US,
            scan_every_days: 0,
            partial_writes: 0.05,
        }
    }
}

/// Settings that no desktop can have.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum DesktopError {
    #[error("{0} days: from 1 to {most} can be asked for", most = parameters::DAYS_MAX)]
    Days(u32),
    #[error(
        "{0} requests a day: from {least} to {most} can be asked for",
        least = parameters::REQUESTS_MIN,
        most = parameters::REQUESTS_MAX
    )]
    Requests(u32),
    #[error(
        "a disk of {disk_bytes} bytes is too small for {requests_per_day} requests a day: \
         at least {bytes_min} bytes"
    )]
    SmallDisk { disk_bytes: u64, requests_per_day: u32, bytes_min: u64 },
    #[error("a disk of {0} bytes is larger than a trace can address")]
    LargeDisk(u64),
    /// Too short, or the days end beyond what a record can say.
    #[error(
        "a day of {0} microseconds: from {least} to {most} can be asked for",
        least = parameters::DAY_US_MIN,
        most = parameters::DAY_US_MAX
    )]
    Day(u64),
    #[error("a share of partial writes of {0}: from 0 to 1 can be asked for")]
    PartialWrites(f64),
}

/// The records of all days, in order of time; at most one day of them is in memory.
#[derive(Debug)]
pub struct Desktop {
    machine: Machine,
    day: u32,
    records: std::vec::IntoIter<Record>,
}

impl Desktop {
    /// A desktop that was never started.
    ///
    /// # Errors
    /// Settings out of range.
    pub fn new(settings: Settings) -> Result<Self, DesktopError> {
        settings.check()?;
        Ok(Self { machine: Machine::new(settings), day: 0, records: Vec::new().into_iter() })
    }
}

impl Iterator for Desktop {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        loop {
            if let Some(record) = self.records.next() {
                return Some(record);
            }
            if self.day == self.machine.settings().days {
                return None;
            }
            self.records = self.machine.day(self.day).into_iter();
            self.day += 1;
        }
    }
}

impl Settings {
    fn check(&self) -> Result<(), DesktopError> {
        use parameters as p;
        if !(1..=p::DAYS_MAX).contains(&self.days) {
            return Err(DesktopError::Days(self.days));
        }
        if !(p::REQUESTS_MIN..=p::REQUESTS_MAX).contains(&self.requests_per_day) {
            return Err(DesktopError::Requests(self.requests_per_day));
        }
        let bytes_min = u64::from(self.requests_per_day) * p::DISK_BYTES_PER_REQUEST;
        if self.disk_bytes < bytes_min {
            let Self { disk_bytes, requests_per_day, .. } = *self;
            return Err(DesktopError::SmallDisk { disk_bytes, requests_per_day, bytes_min });
        }
        if self.disk_bytes > Record::END_BYTES_MAX {
            return Err(DesktopError::LargeDisk(self.disk_bytes));
        }
        if !(p::DAY_US_MIN..=p::DAY_US_MAX).contains(&self.day_us) {
            return Err(DesktopError::Day(self.day_us));
        }
        if !(0.0..=1.0).contains(&self.partial_writes) {
            return Err(DesktopError::PartialWrites(self.partial_writes));
        }
        Ok(())
    }
}
