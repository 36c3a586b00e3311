//! Another size of the log, and what follows from it.

use super::Store;
use crate::outbox::Outbox;
use crate::seam::Payload;

impl<P: Payload> Store<P> {
    /// Slots of flash, at its largest size, and of RAM.
    pub(crate) fn slots(&self) -> u32 {
        self.log.geometry.slots() + self.probation.len()
    }

    /// From now on only the first `bound` segments are filled. Tables keep the size that the largest
    /// log needs; what policies take for the size of the cache is the new one.
    pub(crate) fn set_bound(&mut self, bound: u32, outbox: &mut Outbox<P>) {
        for stream in self.log.streams() {
            if self.log.fills_beyond(stream, bound) {
                self.submit_chunk(stream, outbox);
                self.log.close_beyond(stream, bound);
            }
        }
        self.log.set_bound(bound);
        let capacity = self.log.capacity_blocks();
        self.counters.capacity_blocks = capacity;
        self.ghost.set_reach(capacity);
        self.regions.set_doubt_max(self.bounds.doubt_max(self.log.geometry.shards, capacity));
        self.cleaner.set_capacity(capacity, self.eviction, self.endurance);
    }
}
