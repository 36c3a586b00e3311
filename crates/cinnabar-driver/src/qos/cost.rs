//! What a request counts against reservation, limit and weight.

use crate::qos::limits::LENGTH_MAX;
use std::ops::AddAssign;

/// What a request does at the back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A read of so many bytes.
    Read {
        /// Bytes.
        length: u32,
    },
    /// A write of so many bytes.
    Write {
        /// Bytes.
        length: u32,
    },
    /// Trim or zeroes: no data go over the wire, whatever the length.
    Clear,
    /// A flush. It counts as any request, and waits for its turn.
    Flush,
    /// A change proof: exempt, for a volume's belief must not wait for its guest's load.
    Proof,
    /// A change of the volume's generation: exempt for the same reason.
    Generation,
}

impl Op {
    /// What it costs, or nothing if it is exempt: then it is neither counted nor does it wait.
    pub const fn cost(self) -> Option<Cost> {
        match self {
            Self::Read { length } | Self::Write { length } => Some(Cost::of_length(length)),
            Self::Clear | Self::Flush => Some(Cost::of_length(0)),
            Self::Proof | Self::Generation => None,
        }
    }
}

/// A cost in units of 1/65,536 I/O: an I/O costs `1 + length / 64 KiB` (mClock, section 3.2, with
/// 64 KiB as the length whose transfer takes as long as reaching it).
///
/// So 4 KiB cost 1.0625 and 1 MiB costs 17. Rates "in I/Os a second" are meant in this measure
/// everywhere: of 4 KiB reads a limit of 1,000 lets 941 through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(u64);

impl Cost {
    /// Units of an I/O without data.
    pub const UNIT: u64 = 65_536;
    /// No cost: where sums begin.
    pub const ZERO: Self = Self(0);

    /// Of an I/O of so many bytes; beyond [`LENGTH_MAX`] they don't count.
    pub const fn of_length(bytes: u32) -> Self {
        let counted = if bytes > LENGTH_MAX { LENGTH_MAX } else { bytes };
        Self(Self::UNIT + counted as u64)
    }

    /// In units of 1/65,536 I/O.
    pub const fn units(self) -> u64 {
        self.0
    }

    /// In thousandths of an I/O, rounded down.
    pub const fn milli_ios(self) -> u64 {
        (self.0 as u128 * 1000 / Self::UNIT as u128) as u64
    }

    /// How long the cost takes at a rate above zero, in ns, rounded down: a reservation is never short.
    pub(crate) fn ns_down(self, iops: u32) -> u64 {
        self.0 * 1_000_000_000 / (u64::from(iops) * Self::UNIT)
    }

    /// The same, rounded up: a limit is never exceeded.
    pub(crate) fn ns_up(self, iops: u32) -> u64 {
        (self.0 * 1_000_000_000).div_ceil(u64::from(iops) * Self::UNIT)
    }

    /// Its part of a proportional share, in virtual time. 16 bits behind the point keep the error
    /// below 3 in a million at the largest weight.
    pub(crate) fn virtual_time(self, weight: u32) -> u128 {
        (u128::from(self.0) << 16) / u128::from(weight)
    }
}

// The time that a request takes up is computed in 64 bits.
const _: () = assert!((Cost::UNIT + LENGTH_MAX as u64) < u64::MAX / 1_000_000_000);

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_count_by_64_kib() {
        let milli = |op: Op| op.cost().map(Cost::milli_ios);
        assert_eq!(milli(Op::Read { length: 4096 }), Some(1062));
        assert_eq!(milli(Op::Write { length: 65_536 }), Some(2000));
        assert_eq!(milli(Op::Write { length: 1 << 20 }), Some(17_000));
        assert_eq!(milli(Op::Flush), Some(1000));
        assert_eq!(milli(Op::Clear), Some(1000));
        assert_eq!((milli(Op::Proof), milli(Op::Generation)), (None, None));
        assert_eq!(Cost::of_length(u32::MAX), Cost::of_length(LENGTH_MAX));
    }

    #[test]
    fn rounding_favours_the_promise() {
        let cost = Cost::of_length(0);
        assert_eq!((cost.ns_down(3), cost.ns_up(3)), (333_333_333, 333_333_334));
        assert_eq!((cost.ns_down(1000), cost.ns_up(1000)), (1_000_000, 1_000_000));
        let largest = Cost::of_length(u32::MAX);
        assert_eq!(largest.ns_up(1), 513_000_000_000);
    }
}
