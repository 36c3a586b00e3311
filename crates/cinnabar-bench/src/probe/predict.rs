//! What a model itself answers to the plan of a probe, on a clock of its own: to say how well a
//! preset fits before anybody uses it.
//!
//! Pure and seeded.

use super::offsets::Offsets;
use super::plan::{Cell, Op, Pattern};
use super::window::{Measured, Moment, Window};
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_model::{OpKind, SimModel, SimSpec};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Operations of a cell; enough for the mean of a disk's seeks within one per cent.
const OPERATIONS: u64 = 20_000;

/// What a device of `device_bytes` that is exactly this model would be measured as. Its own time is
/// chosen so that each cell has thousands of operations.
///
/// # Panics
/// If not even one operation of the cell fits on the device.
pub fn predict(spec: &SimSpec, cell: Cell, pattern: Pattern, device_bytes: u64) -> Measured {
    let mut model = SimModel::new(spec.clone(), device_bytes);
    let size_bytes = if cell.op == Op::Flush { BLOCK_BYTES } else { cell.size_bytes };
    let mut offsets = Offsets::new(pattern, 1, size_bytes, device_bytes);
    // As the measurement does where there are fewer places than operations.
    let depth = u64::from(cell.depth).min(offsets.places());
    let mut window = Window::new(cell, 0, Duration::ZERO, Duration::MAX);
    // End, beginning and place of what is under way.
    let mut under_way = BinaryHeap::new();
    let mut start = |now: u64, offsets: &mut Offsets| {
        let at = offsets.take();
        let kind = if cell.op == Op::Read { OpKind::Read } else { OpKind::Write };
        let end = model.schedule(now, kind, at, size_bytes).complete_at_ns;
        match cell.op {
            Op::Flush => {
                let flushed = model.schedule(end, OpKind::Flush, 0, 0).complete_at_ns;
                Reverse((flushed, end, at))
            }
            Op::Read | Op::Write => Reverse((end, now, at)),
        }
    };
    for _ in 0..depth {
        under_way.push(start(0, &mut offsets));
    }
    for _ in 0..OPERATIONS + depth {
        let Some(Reverse((end, began, at))) = under_way.pop() else { break };
        let moment = |at| Moment { at, lost_ns: 0 };
        window.ended(moment(began), moment(end));
        offsets.free(at);
        under_way.push(start(end, &mut offsets));
    }
    window.into_measured()
}
