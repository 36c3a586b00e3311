//! What the manager says of its plans, as the control API sends it.

use cinnabar_config::settings::VolumeMode;
use cinnabar_policy::sizing::Prices;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A plan, and what it was made of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanReport {
    /// Number of the interval behind which it was made; that of the open one, if it was asked for.
    pub interval: u64,
    /// When it was made, in milliseconds since 1970.
    pub made_ms: u64,
    /// When the interval began, in microseconds of the daemon's clock.
    pub start_us: u64,
    /// When it ended.
    pub end_us: u64,
    /// How long it was, in seconds.
    pub seconds: f64,
    /// Who divided the cache.
    pub allocator: String,
    /// At these prices.
    pub prices: PricesReport,
    /// The cache, in bytes.
    pub capacity_bytes: u64,
    /// Requests of all volumes in the interval.
    pub requests: u64,
    /// Blocks they referred to.
    pub references: u64,
    /// Sampled accesses of the interval that were dropped, or came late: the plan may differ from one
    /// made of a recording.
    pub lost: u64,
    /// Of what it was made and what it says, in one number; plans of a recording of the same requests
    /// have the same.
    pub digest: String,
    /// How long it took to make, in microseconds.
    pub took_us: u64,
    /// About how many bytes of RAM the manager takes.
    pub ram_bytes: u64,
    /// The budget of SSD writes; absent: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetReport>,
    /// It was carried out.
    pub applied: bool,
    /// Why it was not, or was in part only; empty if all is well.
    #[serde(default)]
    pub trouble: String,
    /// Its volumes.
    pub volumes: Vec<ShareReport>,
}

/// Latencies in microseconds, and what else counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PricesReport {
    /// They were measured, as far as there was something to measure.
    pub measured: bool,
    /// A read of the SSD.
    pub ssd_read_us: f64,
    /// A write of the SSD.
    pub ssd_write_us: f64,
    /// A read of a back end.
    pub backend_read_us: f64,
    /// A write of a back end.
    pub backend_write_us: f64,
    /// What a microsecond of a write counts, one of a read being 1.
    pub omega: f64,
    /// The price of a block written to the SSD.
    pub lambda_us: f64,
}

/// A budget of SSD writes, and what it took to hold it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BudgetReport {
    /// Bytes that may be written in a day.
    pub bytes_per_day: u64,
    /// What a block written costs for it, in microseconds; part of `lambda_us`.
    pub price_us: f64,
    /// Nothing goes to flash now.
    pub throttled: bool,
    /// Times that it came to that since the start.
    pub closures: u64,
    /// For how long, in seconds.
    pub throttled_seconds: f64,
    /// Bytes that were written all the same: what was under way, and metadata.
    pub overdrawn_bytes: u64,
}

/// A volume's part of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShareReport {
    /// Its name.
    pub volume: String,
    /// What it does, as the manager knows it: earlier intervals count with what they still weigh.
    pub mix: MixReport,
    /// What the allocator gives it, in bytes; absent if volumes share the cache, or it was not seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_bytes: Option<u64>,
    /// What the allocator would do with its writes: `bypass`, `read-only`, `write-through` or
    /// `write-back`.
    pub policy: String,
    /// What it is to have now, within bounds and steps, in bytes; absent: no share of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_bytes: Option<u64>,
    /// The same by the last plan that was carried out before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_bytes: Option<u64>,
    /// Why that is not as planned.
    pub why: String,
    /// What the cache has granted when the plan was made, in bytes; absent: no share of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted_bytes: Option<u64>,
    /// What it held then, in bytes.
    pub held_bytes: u64,
    /// The operator's minimum, in bytes.
    pub min_bytes: u64,
    /// The operator's maximum, in bytes.
    pub max_bytes: u64,
    /// The operator has pinned it to so many bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_bytes: Option<u64>,
    /// Its mode then.
    pub mode: VolumeMode,
    /// The manager may change that.
    pub auto_mode: bool,
    /// But it does not: the operator has set it while it served.
    #[serde(default)]
    pub mode_by_operator: bool,
    /// The part of its reads that hit with what it is to have, from 0 to 1, in a cache that keeps
    /// everything.
    pub expected_hits: f64,
    /// The same with what the allocator gives it.
    #[serde(default)]
    pub planned_hits: f64,
    /// The part of the reads of this interval that did hit; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual_hits: Option<f64>,
    /// What the next GiB would add to the part that hits.
    pub next_gib_hits: f64,
    /// The part of its reads that hit in caches of some sizes.
    pub curve: Vec<CurvePoint>,
}

/// What a volume does, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MixReport {
    /// Read.
    pub reads: u64,
    /// Written.
    pub writes: u64,
    /// Reads after a read.
    pub rar: u64,
    /// Reads after a write.
    pub raw: u64,
    /// Writes after a read.
    pub war: u64,
    /// Writes after a write.
    pub waw: u64,
    /// Different blocks of the interval.
    pub working_set: u64,
    /// The size that reaches nearly all hits of reads.
    pub useful: u64,
    /// The part of the blocks that was looked at, from 0 to 1.
    pub sampled: f64,
}

/// A size of cache and what it brings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CurvePoint {
    /// In bytes.
    pub size_bytes: u64,
    /// The part of reads that hit, from 0 to 1.
    pub hits: f64,
}

/// Why a volume has the share that it has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExplainReport {
    /// The plan that was asked for, with this volume's part of it alone.
    pub plan: PlanReport,
    /// The others, those first to which the next GiB would bring most.
    pub neighbours: Vec<NeighbourReport>,
    /// Volumes beside these.
    pub more_neighbours: u64,
    /// The volume's curve at more sizes, evenly apart; empty for a plan of the past.
    #[serde(default)]
    pub curve: Vec<CurvePoint>,
    /// What kept blocks of this volume out of the cache, most first; since its attach.
    pub not_cached: Vec<ReasonReport>,
    /// In sentences.
    pub words: Vec<String>,
}

/// Another volume, beside one that is explained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NeighbourReport {
    /// Its name.
    pub volume: String,
    /// What it is to have, in bytes.
    pub target_bytes: u64,
    /// What it holds, in bytes.
    pub held_bytes: u64,
    /// Of its reads, blocks that the next GiB would have hit.
    pub next_gib_reads: f64,
}

/// A reason, and how many blocks it is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReasonReport {
    /// In words.
    pub reason: String,
    /// Blocks.
    pub blocks: u64,
    /// Of the cache as a whole: by volume this is not counted.
    pub of_cache: bool,
}

/// Plans, the newest last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HistoryReport {
    /// Plans; of each, its volumes without their curves.
    pub plans: Vec<PlanReport>,
    /// What the operator has pinned.
    pub pins: Vec<PinReport>,
}

/// A volume that the operator has pinned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PinReport {
    /// Its name.
    pub volume: String,
    /// To so many bytes.
    pub size_bytes: u64,
}

impl PricesReport {
    /// As the allocator gets them.
    pub const fn new(prices: &Prices, measured: bool) -> Self {
        let Prices { ssd_read_us, ssd_write_us, backend_read_us, backend_write_us, .. } = *prices;
        let (omega, lambda_us) = (prices.omega, prices.lambda_us);
        Self {
            measured,
            ssd_read_us,
            ssd_write_us,
            backend_read_us,
            backend_write_us,
            omega,
            lambda_us,
        }
    }
}
