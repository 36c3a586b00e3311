//! How many I/Os of a volume are under way, on whatever thread, so that its backend is let go of,
//! lock included, once the last of them has ended: what still writes must keep the next owner out.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

/// See the module.
#[derive(Debug, Default)]
pub struct IoCount {
    under_way: AtomicU32,
    /// The engine has let go of the volume: the thread that ends its last I/O says so.
    gone: AtomicBool,
}

impl IoCount {
    /// An I/O begins.
    pub fn begin(&self) {
        self.under_way.fetch_add(1, Relaxed);
    }

    /// An I/O has ended. True: it was the last one of a volume that the engine has let go of.
    ///
    /// # Panics
    /// If none was under way.
    #[must_use]
    pub fn end(&self) -> bool {
        // In one order with `leave` and `is_quiet`, so that one of the two threads sees the other.
        let before = self.under_way.fetch_sub(1, SeqCst);
        assert!(before > 0, "an I/O ends once");
        before == 1 && self.gone.load(SeqCst)
    }

    /// So many are under way, those included that are held back.
    pub fn get(&self) -> u32 {
        self.under_way.load(Relaxed)
    }

    /// The engine has let go of the volume.
    pub(crate) fn leave(&self) {
        self.gone.store(true, SeqCst);
    }

    /// None is under way; to be asked after [`leave`](Self::leave).
    pub(crate) fn is_quiet(&self) -> bool {
        self.under_way.load(SeqCst) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_of_a_volume_that_is_gone_tells() {
        let count = IoCount::default();
        count.begin();
        assert!(!count.end(), "the volume serves");
        count.begin();
        count.begin();
        count.leave();
        assert!(!count.is_quiet() && count.get() == 2);
        assert!(!count.end());
        assert!(count.end());
        assert!(count.is_quiet());
    }
}
