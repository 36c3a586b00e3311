//! What can be chosen of the storage client, the network and the file server, with the defaults of
//! the paper.
//!
//! Sizes are those of the real thing; [`Config::scale`] makes all of them, and the periods of the
//! syncers, smaller by one factor, which keeps hit shares and latencies and shortens the run.
//! `check.rs` says which settings make no sense.

use cinnabar_policy::named;
use std::fmt;
use std::str::FromStr;

/// Blocks of 4 KiB in a gibibyte.
pub const BLOCKS_PER_GIB: u64 = 1 << 18;

named! {
    "architecture":
    /// How RAM and flash of a host work together.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Architecture {
        /// Two caches, one behind the other: RAM writes to flash, flash writes to the file server.
        Naive = "naive",
        /// RAM writes to the file server, and flash is brought up to date afterwards; it is never dirty
        /// and has no write policy.
        Lookaside = "lookaside",
        /// One LRU list over the frames of both; a block stays in the frame it came into.
        Unified = "unified",
        /// The production engine in place of the flash cache.
        Cinnabar = "cinnabar",
    }
}

named! {
    "placement of flash":
    /// Where the flash is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Placement {
        /// In each host.
        Client = "client",
        /// In the file server, one for all hosts.
        Server = "server",
    }
}

/// When a written block goes on to the level below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePolicy {
    /// `s`: at once, and the writer waits.
    Sync,
    /// `a`: at once, and no thread waits.
    Async,
    /// `pN`: a syncer writes what is dirty every so many seconds.
    Periodic(u32),
    /// `n`: when it is evicted, and the thread that needs the room waits.
    Never,
}

/// How a device or the file server takes requests that come together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// All at once, each in its own time: a delay centre.
    Delay,
    /// So many at a time, the others wait in order of arrival.
    Servers(u32),
}

named! {
    "kind of link":
    /// Which way the packets of a link keep each other waiting.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Duplex {
        /// Only those of the same direction.
        Full = "full",
        /// Packets of both directions wait for each other.
        Half = "half",
    }
}

named! {
    "treatment of background writes":
    /// How packets of writes that no thread waits for, those of syncers included, affect other packets.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Background {
        /// They are sent when no other packet waits; a packet in flight is not interrupted.
        Yield = "yield",
        /// They go in turn with the others.
        Queue = "queue",
        /// They take their own time and delay no other packet, as if the link had unlimited bandwidth.
        Free = "free",
    }
}

/// What the measured part finds in flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// What the warm-up left there.
    Warm,
    /// Nothing; RAM is as the warm-up left it, or empty, too.
    Cold {
        /// Is RAM empty, too?
        ram_too: bool,
    },
    /// What the production engine finds again after a crash; RAM is as the warm-up left it.
    Crash,
    /// The same after a clean stop.
    Stop,
}

named! {
    "order of frames":
    /// Which frames of the unified architecture are filled first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum FrameOrder {
        /// RAM, then flash.
        RamFirst = "ram-first",
        /// Both, in proportion to their sizes.
        Spread = "spread",
    }
}

/// What things take, in nanoseconds; the values of the paper's slides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// Reading a block from RAM.
    pub ram_read_ns: u64,
    /// Writing a block to RAM.
    pub ram_write_ns: u64,
    /// Reading a block from flash.
    pub flash_read_ns: u64,
    /// Writing a block to flash.
    pub flash_write_ns: u64,
    /// Any packet on the network.
    pub packet_ns: u64,
    /// The data of a block on the network, on top of the packet.
    pub block_transfer_ns: u64,
    /// The file server reads a block that it has read ahead.
    pub filer_fast_read_ns: u64,
    /// The file server reads a block that it has not.
    pub filer_slow_read_ns: u64,
    /// The file server writes a block.
    pub filer_write_ns: u64,
}

/// Everything that can be chosen. The default is the paper's base configuration: one host with 8
/// threads, 8 GB of RAM, 64 GB of flash, a working set of 60 GB on a file server of 1 TB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// How RAM and flash work together.
    pub architecture: Architecture,
    /// Where the flash is.
    pub placement: Placement,
    /// Blocks of RAM in each host; 0 is none.
    pub ram_blocks: u64,
    /// Blocks of flash in each host, or in the file server; 0 is none.
    pub flash_blocks: u64,
    /// When RAM writes its blocks on.
    pub ram_policy: WritePolicy,
    /// When flash writes its blocks on; without a word `a`. The lookaside architecture has none.
    pub flash_policy: Option<WritePolicy>,
    /// Writes that a syncer has under way at most.
    pub syncer_depth: u32,
    /// Writes that a host has under way in the background at most, those of syncers apart; a writer
    /// beyond that waits for its own.
    pub async_depth: u32,
    /// What things take.
    pub timings: Timings,
    /// A write to flash takes so many times as long: what keeping its index on flash costs.
    pub flash_write_factor: f64,
    /// How flash takes requests that come together.
    pub flash_service: Service,
    /// How the file server does.
    pub filer_service: Service,
    /// Which way packets keep each other waiting.
    pub duplex: Duplex,
    /// Does the fixed time of a packet keep the link busy, or only its data?
    pub packet_holds_link: bool,
    /// How packets that no thread waits for affect other packets.
    pub background: Background,
    /// Do all hosts have one link to the file server, or each its own?
    pub one_link: bool,
    /// Share of reads, 0 to 1, that the file server has read ahead.
    pub fast_read_share: f64,
    /// Blocks behind a missed one that a host asks for with it.
    pub prefetch_blocks: u32,
    /// Is a block that leaves flash dirty read from there first, or is it still at hand?
    pub eviction_reads_flash: bool,
    /// Which frames of the unified architecture are filled first.
    pub frame_order: FrameOrder,
    /// What the measured part finds in flash.
    pub restart: Restart,
    /// Number of hosts.
    pub hosts: u32,
    /// Threads of each host.
    pub threads: u32,
    /// Mean pause of a thread between two operations, in nanoseconds; each is drawn, from 0 to twice that.
    pub pause_ns: u64,
    /// Have all hosts one working set, or each its own?
    pub shared_set: bool,
    /// Blocks of a working set.
    pub working_set_blocks: u64,
    /// Blocks on the file server.
    pub total_blocks: u64,
    /// Share of I/O, 0 to 1, that goes anywhere on the file server.
    pub outside_share: f64,
    /// Share of I/O, 0 to 1, that is writing.
    pub write_share: f64,
    /// What each host reads and writes in all, as a multiple of its working set.
    pub volume_multiple: f64,
    /// Share of that, 0 to 1, that comes before measuring begins.
    pub warm_up_share: f64,
    /// Popularity within the working set: 1 is uniform; with k, the block of rank r is asked for in
    /// proportion to r^(1/k - 1), so 5 is near a Zipf distribution with exponent 0.8.
    pub popularity_power: u32,
    /// Blocks of an operation, one behind the other.
    pub operation_blocks: u32,
    /// Blocks of one operation, made up or of a trace, that are under way at a time.
    pub operation_depth: u32,
    /// Fixes everything that chance decides.
    pub seed: u64,
    /// Divides sizes and the periods of syncers.
    pub scale: u32,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            ram_read_ns: 400,
            ram_write_ns: 400,
            flash_read_ns: 88_000,
            flash_write_ns: 21_000,
            packet_ns: 8_200,
            block_transfer_ns: 32_768,
            filer_fast_read_ns: 92_000,
            filer_slow_read_ns: 7_952_000,
            filer_write_ns: 92_000,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            architecture: Architecture::Naive,
            placement: Placement::Client,
            ram_blocks: 8 * BLOCKS_PER_GIB,
            flash_blocks: 64 * BLOCKS_PER_GIB,
            ram_policy: WritePolicy::Periodic(1),
            flash_policy: None,
            syncer_depth: 8,
            async_depth: 1 << 22,
            timings: Timings::default(),
            flash_write_factor: 1.0,
            flash_service: Service::Delay,
            filer_service: Service::Delay,
            duplex: Duplex::Full,
            packet_holds_link: true,
            background: Background::Yield,
            one_link: false,
            fast_read_share: 0.9,
            prefetch_blocks: 0,
            eviction_reads_flash: false,
            frame_order: FrameOrder::Spread,
            restart: Restart::Warm,
            hosts: 1,
            threads: 8,
            pause_ns: 0,
            shared_set: false,
            working_set_blocks: 60 * BLOCKS_PER_GIB,
            total_blocks: 1024 * BLOCKS_PER_GIB,
            outside_share: 0.2,
            write_share: 0.3,
            volume_multiple: 4.0,
            warm_up_share: 0.5,
            popularity_power: 1,
            operation_blocks: 1,
            operation_depth: 32,
            seed: 1,
            scale: 1,
        }
    }
}

impl Config {
    /// A size in blocks, scaled; what is there at all stays there.
    pub(super) fn scaled(&self, blocks: u64) -> u64 {
        if blocks == 0 { 0 } else { (blocks / u64::from(self.scale)).max(1) }
    }

    /// The write policy of flash, said or not.
    pub fn flash_policy(&self) -> WritePolicy {
        self.flash_policy.unwrap_or(WritePolicy::Async)
    }
}

impl fmt::Display for WritePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sync => f.write_str("s"),
            Self::Async => f.write_str("a"),
            Self::Periodic(seconds) => write!(f, "p{seconds}"),
            Self::Never => f.write_str("n"),
        }
    }
}

/// No write policy has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no write policy {0:?}: s, a, n, or p with seconds, as p5")]
pub struct UnknownWritePolicy(pub String);

impl FromStr for WritePolicy {
    type Err = UnknownWritePolicy;

    fn from_str(text: &str) -> Result<Self, UnknownWritePolicy> {
        let unknown = || UnknownWritePolicy(text.to_owned());
        match text {
            "s" => Ok(Self::Sync),
            "a" => Ok(Self::Async),
            "n" => Ok(Self::Never),
            _ => {
                let digits = text.strip_prefix('p').ok_or_else(unknown)?;
                if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(unknown());
                }
                digits.parse().map(Self::Periodic).map_err(|_| unknown())
            }
        }
    }
}
