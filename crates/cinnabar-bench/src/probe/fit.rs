//! From what was measured to the settings of a model that behaves alike.
//!
//! Pure.
//!
//! # How
//! * The latency of one block at depth 1 is taken as it is, as percentiles.
//! * What a further block costs at depth 1 is the slope of a straight line through that mean,
//!   fitted to the means of the larger sizes by their relative errors: `slope`.
//! * How much the device does at a time, its depth, is Little's law: operations of one block a
//!   second, at whatever depth there are most, times their latency at depth 1.
//! * Its bandwidth is the most bytes a second in any cell, but at least what makes a further block
//!   cost no more than its slope. What of the slope the bandwidth doesn't explain is the cost of a
//!   block.
//!
//! So a preset promises nothing that was not seen: a device that could do more at depths beyond
//! those measured is fitted by one that can't.

use super::curve;
use super::plan::{Cell, Op};
use super::window::Measured;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_model::{Latency, SimSpec};

/// Why nothing can be fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a preset needs reads of 4 KiB at depth 1")]
pub struct Unfit;

/// The model of a device.
///
/// # Errors
/// [`Unfit`] without reads of a block at depth 1.
pub fn fit(measured: &[Measured]) -> Result<SimSpec, Unfit> {
    let read = Service::of(measured, Op::Read).ok_or(Unfit)?;
    let write = Service::of(measured, Op::Write);
    let services = [Some(&read), write.as_ref()];
    let services = || services.into_iter().flatten();
    let seen = measured.iter().map(Measured::bytes_per_s).fold(0.0, f64::max);
    // The flattest slope decides: a model has one bandwidth for reads and writes.
    let slope = services().map(|one| one.slope_ns).fold(f64::INFINITY, f64::min);
    let bandwidth = if slope > 0.0 { seen.max(BLOCK_BYTES as f64 * 1e9 / slope) } else { 0.0 };
    let shared_ns = if bandwidth > 0.0 { BLOCK_BYTES as f64 * 1e9 / bandwidth } else { 0.0 };
    let block_ns = |one: &Service| whole((one.slope_ns - shared_ns).max(0.0));
    let depth = services().map(|one| one.parallel).fold(1.0, f64::max);
    let flush = measured.iter().find(|one| one.cell.op == Op::Flush);
    let as_read = write.as_ref().unwrap_or(&read);
    Ok(SimSpec {
        read_block_ns: block_ns(&read),
        write_block_ns: block_ns(as_read),
        write: as_read.first.clone(),
        flush: flush.map_or_else(|| read.first.clone(), |one| curve::percentiles(&one.latencies)),
        depth: u32::try_from(whole(depth.round())).unwrap_or(u32::MAX),
        bandwidth: whole(bandwidth),
        read: read.first,
        ..SimSpec::free()
    })
}

/// What is known of one operation.
struct Service {
    /// Of one block at depth 1.
    first: Latency,
    /// What each further block costs, in ns.
    slope_ns: f64,
    /// How many are served at a time.
    parallel: f64,
}

impl Service {
    fn of(measured: &[Measured], op: Op) -> Option<Self> {
        let of = |one: &&Measured| one.cell.op == op && one.operations() > 0;
        let cells = || measured.iter().filter(of);
        let base = Cell { op, size_bytes: BLOCK_BYTES, depth: 1 };
        let base = cells().find(|one| one.cell == base)?;
        let alone = cells().filter(|one| one.cell.depth == 1);
        let means = alone.map(|one| (further_blocks(one.cell.size_bytes), one.mean_ns()));
        let most = cells().filter(|one| one.cell.size_bytes == BLOCK_BYTES).map(Measured::iops);
        Some(Self {
            first: curve::percentiles(&base.latencies),
            slope_ns: slope(base.mean_ns(), means),
            parallel: most.fold(0.0, f64::max) * base.mean_ns() / 1e9,
        })
    }
}

/// Blocks behind the first.
fn further_blocks(size_bytes: u64) -> f64 {
    (size_bytes / BLOCK_BYTES).saturating_sub(1) as f64
}

/// The slope of the line through `(0, first)` that is closest to the points in relative terms; not
/// below 0.
fn slope(first: f64, points: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (mut above, mut below) = (0.0, 0.0);
    for (blocks, mean) in points.filter(|(blocks, mean)| *blocks > 0.0 && *mean > 0.0) {
        let weight = blocks / (mean * mean);
        above += weight * (mean - first);
        below += weight * blocks;
    }
    if below > 0.0 { (above / below).max(0.0) } else { 0.0 }
}

fn whole(number: f64) -> u64 {
    #[expect(clippy::cast_sign_loss, reason = "nothing here is negative, and the cast saturates")]
    let whole = number as u64;
    whole
}

#[cfg(test)]
mod tests;
