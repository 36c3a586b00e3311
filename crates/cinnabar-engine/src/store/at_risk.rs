//! What of the cache a crash at this moment need not bring back, though it is on flash.

use super::Store;
use crate::log::SegmentState;
use crate::seam::Payload;

/// Blocks on flash that are in flight, in a sense: see the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtRisk {
    /// In segments that are being emptied, or are about to be: they are recorded as void before the
    /// first block leaves.
    pub leaving: u64,
    /// In segments of which no record is durable yet that says that they are in use.
    pub unannounced: u64,
}

impl std::ops::Add for AtRisk {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            leaving: self.leaving + other.leaving,
            unannounced: self.unannounced + other.unannounced,
        }
    }
}

impl<P: Payload> Store<P> {
    /// See [`AtRisk`]. Looks at every descriptor of these segments.
    pub(crate) fn at_risk(&self) -> AtRisk {
        let mut at_risk = AtRisk::default();
        let slots = self.log.geometry.segment_slots();
        for (index, segment) in (0..).zip(&self.log.segments) {
            let leaving = segment.state == SegmentState::Cleaning;
            let unannounced = !self.journal.is_durable(segment.announced);
            if segment.state == SegmentState::Free || !leaving && !unannounced {
                continue;
            }
            let first = index * slots;
            let cached = |slot: &u32| self.descriptors.key(*slot).is_some();
            let blocks = (first..first + slots).filter(cached).count() as u64;
            let sum = if leaving { &mut at_risk.leaving } else { &mut at_risk.unannounced };
            *sum += blocks;
        }
        at_risk
    }
}
