//! What must hold between any two events; checked whole by tests and the simulator, for it reads
//! every descriptor.
//!
//! Called by the virtual driver.

use super::Engine;
use crate::seam::Payload;

impl<P: Payload> Engine<P> {
    /// Checks that address map, descriptors, probation, segments and counters agree.
    ///
    /// # Panics
    /// If they don't; the message says which.
    pub fn check_invariants(&self) {
        self.store.check_invariants();
        for (index, volume) in self.volumes.iter().enumerate() {
            let Some(volume) = volume else { continue };
            assert!(self.store.holdings[index].alive, "a known volume's holding lives");
            let of = |a: &&super::Active<P>| usize::from(a.volume) == index;
            let requests = self.requests.iter().map(|(_, active)| active).filter(of).count();
            assert_eq!(requests, volume.requests as usize, "requests of volume {index}");
            let c = &volume.counters;
            assert_eq!(c.read_hits + c.misses, c.blocks_read, "read blocks are hits or misses");
        }
    }
}
