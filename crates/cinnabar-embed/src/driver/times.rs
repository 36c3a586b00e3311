//! How long the cache device's operations take.

use cinnabar_backend::model::OpKind;
use cinnabar_backend::work::IoInfo;

/// Counts and sums since the cache was opened, of operations that succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTimes {
    /// Reads: of hits, of blocks carried forward, of the index.
    pub reads: u64,
    /// Their times together, in ns.
    pub read_ns: u64,
    /// Writes: of chunks, of the journal, of the index.
    pub writes: u64,
    /// Their times together, in ns.
    pub write_ns: u64,
}

impl DeviceTimes {
    pub(super) fn add(&mut self, what: IoInfo, ns: u64) {
        match what.kind {
            OpKind::Read => {
                self.reads += 1;
                self.read_ns += ns;
            }
            OpKind::Write => {
                self.writes += 1;
                self.write_ns += ns;
            }
            OpKind::Flush | OpKind::Discard => {}
        }
    }
}
