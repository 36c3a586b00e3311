//! The sixteen volumes: every number of the set is here, and the same table is in the guide.
//!
//! The volumes are named for servers of the kinds that are in the published one-week traces of MSR
//! Cambridge (D. Narayanan, A. Donnelly, A. Rowstron, "Write off-loading", FAST 2008), but nothing
//! here is fitted to those: shares of writes are of their order, sizes and rates are round numbers.
//! They were set down before any allocator was tried on them.

/// What kind of volume it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 60 to 95 % writes, mostly over what was written before.
    Written,
    /// Read in long loops and scans.
    Read,
    /// Reads and writes of the same popular blocks.
    Mixed,
}

impl Kind {
    /// In one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Read => "read",
            Self::Mixed => "mixed",
        }
    }
}

/// One volume. Percentages are whole numbers, so that the guide can show just them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// What the server would be.
    pub name: &'static str,
    /// What kind of volume it is.
    pub kind: Kind,
    /// Blocks that are ever touched, in GiB at scale 1.
    pub footprint_gib: f64,
    /// Requests a second at scale 1, on average over a day.
    pub per_second: f64,
    /// Share of requests that write.
    pub write_percent: u32,
    /// Zipf's exponent of reads and writes.
    pub alpha: f64,
    /// Part of the footprint that writes go to.
    pub written_percent: u32,
    /// Share of the writes that go to a log, round and round in a quarter of the written part.
    pub log_percent: u32,
    /// Share of the reads that go to what is written.
    pub read_back_percent: u32,
    /// Part of the footprint that is read in a loop.
    pub loop_percent: u32,
    /// Share of the reads that go on with it.
    pub looped_percent: u32,
    /// Share of the reads that go on with a scan of a tenth of the footprint.
    pub scanned_percent: u32,
    /// Hours of the day in which it is three times as busy as else.
    pub busy: (u32, u32),
}

const fn written(
    name: &'static str,
    numbers: [f64; 3],
    percents: [u32; 4],
    busy: (u32, u32),
) -> Row {
    let [footprint_gib, per_second, alpha] = numbers;
    let [write_percent, written_percent, log_percent, read_back_percent] = percents;
    Row {
        name,
        kind: Kind::Written,
        footprint_gib,
        per_second,
        write_percent,
        alpha,
        written_percent,
        log_percent,
        read_back_percent,
        loop_percent: 0,
        looped_percent: 0,
        scanned_percent: 0,
        busy,
    }
}

const fn read(name: &'static str, numbers: [f64; 3], percents: [u32; 4], busy: (u32, u32)) -> Row {
    let [footprint_gib, per_second, alpha] = numbers;
    let [write_percent, loop_percent, looped_percent, scanned_percent] = percents;
    Row {
        name,
        kind: Kind::Read,
        footprint_gib,
        per_second,
        write_percent,
        alpha,
        written_percent: 10,
        log_percent: 0,
        read_back_percent: 5,
        loop_percent,
        looped_percent,
        scanned_percent,
        busy,
    }
}

const fn mixed(name: &'static str, numbers: [f64; 3], write_percent: u32, busy: (u32, u32)) -> Row {
    let [footprint_gib, per_second, alpha] = numbers;
    Row {
        name,
        kind: Kind::Mixed,
        footprint_gib,
        per_second,
        write_percent,
        alpha,
        written_percent: 100,
        log_percent: 0,
        read_back_percent: 100,
        loop_percent: 0,
        looped_percent: 0,
        scanned_percent: 0,
        busy,
    }
}

/// All of them; a volume's number is its place. Of `written` the numbers are GiB, requests a second,
/// exponent; percent of writes, of the footprint written, of writes to the log, of reads read back. Of
/// `read` the percents are those of writes, of the footprint in the loop, of reads looped and scanned.
pub const VOLUMES: [Row; 16] = [
    written("print-spool", [1.0, 20.0, 0.9], [89, 60, 40, 10], (8, 18)),
    written("source-control", [2.0, 15.0, 1.0], [75, 50, 20, 20], (9, 19)),
    written("project-home", [4.0, 25.0, 0.9], [88, 60, 20, 10], (9, 18)),
    written("staging", [2.0, 15.0, 0.9], [85, 60, 30, 10], (0, 24)),
    written("hardware-monitor", [0.5, 20.0, 1.1], [65, 70, 50, 15], (0, 24)),
    written("research", [0.5, 10.0, 1.0], [91, 70, 40, 10], (10, 20)),
    written("terminal-server", [1.0, 15.0, 1.0], [82, 50, 30, 20], (8, 18)),
    written("web-proxy", [2.0, 60.0, 0.8], [95, 80, 60, 5], (8, 22)),
    read("media", [12.0, 60.0, 0.7], [8, 40, 60, 20], (18, 24)),
    read("backup-source", [20.0, 80.0, 0.6], [10, 50, 50, 40], (0, 6)),
    read("build-cache", [6.0, 60.0, 0.9], [25, 30, 60, 5], (9, 19)),
    read("web-content", [8.0, 50.0, 0.9], [5, 20, 40, 10], (8, 22)),
    mixed("mail", [6.0, 50.0, 0.9], 45, (8, 18)),
    mixed("database", [10.0, 80.0, 1.0], 30, (0, 24)),
    mixed("home-folders", [5.0, 30.0, 0.8], 40, (8, 18)),
    mixed("test-machines", [3.0, 40.0, 0.7], 55, (20, 24)),
];
