//! The numbers of the desktop model, with their reasons.
//!
//! They were chosen from what is published about desktops before any cache was tried on the result;
//! `docs/guide/replay.md` names the sources.

/// Most days of one trace.
pub const DAYS_MAX: u32 = 3660;
/// Fewest requests of a day: below, boot and applications are a handful of requests.
pub const REQUESTS_MIN: u32 = 1000;
/// Most requests of a day, all of which are in memory at a time.
pub const REQUESTS_MAX: u32 = 10_000_000;
/// Room that the files of each request of a day need, in bytes.
pub const DISK_BYTES_PER_REQUEST: u64 = 128 << 10;
/// A day of 24 hours, in microseconds.
pub const DAY_US: u64 = 24 * 3600 * 1_000_000;
/// The shortest day: a second.
pub const DAY_US_MIN: u64 = 1_000_000;
/// The longest day: a week.
pub const DAY_US_MAX: u64 = 7 * DAY_US;

/// What a day's requests are for, as shares of `requests_per_day`.
///
/// Reads are 55 %, and by bytes two thirds: laptops divide their requests evenly (Dirik), virtual
/// desktops read a third of the requests and two thirds of the bytes (Capo), and Mercury's desktops
/// sent half of the requests when "almost all" reads were hits, so they read about half.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// The boot: the same files every morning, 16 % of its requests writes (Klein).
    pub boot_reads: f64,
    /// Those writes.
    pub boot_writes: f64,
    /// The user's profile, and what starts with it.
    pub logon_reads: f64,
    /// What logging on leaves behind.
    pub logon_writes: f64,
    /// Applications being started: most accesses are to programs and system files (Capo).
    pub application_reads: f64,
    /// Documents and mail opened.
    pub document_reads: f64,
    /// Documents saved, new ones among them.
    pub document_writes: f64,
    /// The browser reading its cache.
    pub browser_reads: f64,
    /// The browser writing its cache and state, even for a page that is only looked at (Sui).
    pub browser_writes: f64,
    /// Single reads of programs that run already (Sui), of directories, and of what an indexer finds.
    pub background_reads: f64,
    /// Journals and logs, appended in small pieces, round and round.
    pub journal_writes: f64,
    /// Directories, file tables, the registry: the same few blocks (Capo: rich in metadata).
    pub metadata_writes: f64,
    /// The paging file, in clusters.
    pub paging_writes: f64,
    /// System files and programs replaced by updates.
    pub update_writes: f64,
}

/// They add up to 1.
pub const SHARES: Shares = Shares {
    boot_reads: 0.13,
    boot_writes: 0.025,
    logon_reads: 0.06,
    logon_writes: 0.01,
    application_reads: 0.17,
    document_reads: 0.08,
    document_writes: 0.035,
    browser_reads: 0.05,
    browser_writes: 0.13,
    background_reads: 0.06,
    journal_writes: 0.14,
    metadata_writes: 0.07,
    paging_writes: 0.02,
    update_writes: 0.02,
};

/// A day has up to so much more or less to do than the average one, boot and logon apart.
pub(super) const DAY_VARIES: f64 = 0.1;

/// Applications installed; the k-th most popular is started with a probability of about 1/k.
pub(super) const APPLICATIONS: usize = 40;
/// Reads of an application's first start of a day, on average, as a share of a day's requests: ten
/// MiB or so. Some are three tenths of that, some seventeen.
pub(super) const APPLICATION_SIZE: f64 = 0.01;
/// Part of it that is read again when it is started again the same day: the rest is in the guest's
/// own memory. Warm starts do read, here and there (Sui).
pub(super) const WARM_START: f64 = 0.15;
/// How often one of a script's files is passed over, or changes places with its neighbour.
pub(super) const FILE_SKIPPED: f64 = 0.03;
/// See [`FILE_SKIPPED`].
pub(super) const FILE_SWAPPED: f64 = 0.05;

/// Documents that are opened again and again, as a share of a day's requests: 1500 of 45,000.
pub(super) const RECENT_DOCUMENTS: f64 = 1.0 / 30.0;
/// How often what is opened is an old document, never seen in the trace.
pub(super) const OLD_DOCUMENT: f64 = 0.15;
/// How often what is saved is a new document.
pub(super) const NEW_DOCUMENT: f64 = 0.5;

/// Objects in the browser's cache, as a share of a day's requests. At 7 % of these written a day,
/// one is overwritten within a day.
pub(super) const BROWSER_OBJECTS: f64 = 1.0 / 16.0;
/// How often the browser writes its state (history, cookies, index) rather than an object.
pub(super) const BROWSER_STATE: f64 = 0.45;

/// Blocks of the journal, as a share of a day's requests: 16 MiB at 45,000, written round about
/// once a day, its last block again and again. Half of the bytes a desktop writes are written again within a day (Capo).
pub(super) const JOURNAL_BLOCKS: f64 = 1.0 / 11.0;
/// How often a group of journal writes ends with a flush, which is not counted as a request.
pub(super) const JOURNAL_FLUSH: f64 = 0.1;
/// Metadata blocks that are written, as a share of a day's requests, the k-th at about 1/k.
pub(super) const METADATA_WRITTEN: f64 = 1.0 / 11.0;
/// Metadata blocks that are read, as a share of a day's requests, the k-th at about 1/k.
pub(super) const METADATA_READ: f64 = 1.0;
/// Blocks of the paging file, as a share of a day's requests: a day and a half of writing.
pub(super) const PAGING_BLOCKS: f64 = 0.48;

/// Hours of the day: when the machine is switched on (up to half an hour later), the pause at noon,
/// and the end of work.
pub(super) const BOOT_HOUR: f64 = 8.0;
/// See [`BOOT_HOUR`].
pub(super) const NOON: std::ops::Range<f64> = 12.0..12.75;
/// See [`BOOT_HOUR`].
pub(super) const LAST_HOUR: f64 = 17.5;
/// When a scan begins and ends.
pub(super) const SCAN_HOURS: std::ops::Range<f64> = 19.0..23.0;
/// A scan reads this much of the disk, in requests of 64 KiB.
pub(super) const SCANNED: f64 = 0.1;

/// Bursts of work a day; what a user does falls into one of them, between them little happens. All
/// desktops and laptops are bursty (Hsu and Smith; Riska and Riedel).
pub(super) const BURSTS: usize = 60;
/// Mean time, in seconds, between a burst's begin and what belongs to it.
pub(super) const BURST_SECONDS: f64 = 20.0;
/// Mean time between two requests of a boot: 188 a second (Klein).
pub(super) const BOOT_GAP_SECONDS: f64 = 1.0 / 188.0;
/// Mean time between two requests of anything else that is done at a stretch.
pub(super) const GAP_SECONDS: f64 = 0.008;
/// Mean time between switching on and logging on, after the boot.
pub(super) const LOGON_SECONDS: f64 = 60.0;

/// Values and how often each is meant; the weights add up to 1.
pub(super) type Odds = &'static [(u64, f64)];
/// Requests that read one file of the system or of a program.
pub(super) const FILE_REQUESTS: Odds = &[(1, 0.45), (2, 0.2), (4, 0.2), (8, 0.1), (16, 0.05)];
/// Requests that read one document.
pub(super) const DOCUMENT_REQUESTS: Odds = &[(2, 0.3), (4, 0.3), (8, 0.2), (16, 0.15), (32, 0.05)];
/// Blocks of a request that is alone.
pub(super) const LONE_BLOCKS: Odds = &[(1, 0.5), (2, 0.2), (4, 0.2), (8, 0.1)];
/// Blocks of a request among others in a file: 4 to 64 KiB.
pub(super) const RUN_BLOCKS: Odds = &[(1, 0.15), (2, 0.15), (4, 0.3), (8, 0.25), (16, 0.15)];
pub(super) const JOURNAL_WRITE_BLOCKS: Odds = &[(1, 0.5), (2, 0.3), (4, 0.2)];
/// Blocks of a write to metadata or to the browser's state.
pub(super) const STATE_BLOCKS: Odds = &[(1, 0.8), (2, 0.2)];
/// Blocks of an object in the browser's cache; a slot has room for the largest.
pub(super) const OBJECT_BLOCKS: Odds = &[(1, 0.3), (2, 0.25), (3, 0.1), (4, 0.35)];
pub(super) const OBJECT_SLOT_BLOCKS: u64 = 4;
/// Blocks of a cluster of the paging file, and of a request of a scan.
pub(super) const CLUSTER_BLOCKS: u64 = 16;
