//! A digest of everything that decides what an engine will do next: two engines with the same one
//! answer the same events in the same way. For a search that cuts off states it has seen.
//!
//! What only counts (statistics, the order of arrivals as a number) is left out, and so are free
//! lists, which decide the names of what comes, not what it does. Each structure is taken apart
//! field by field, so that a new field does not compile until it is handled.

use super::Engine;
use crate::inflight::RangeLocks;
use crate::outbox::Outbox;
use crate::seam::Payload;
use crate::volume::Volume;
use std::fmt::{self, Debug, Write};
use std::hash::Hasher;

/// Text on its way into a hasher.
pub(crate) struct Text<'a, H>(pub(crate) &'a mut H);

impl<H: Hasher> Write for Text<'_, H> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// Adds what `value` says of itself.
pub(crate) fn add<H: Hasher>(hasher: &mut H, value: &dyn Debug) {
    write!(Text(hasher), "{value:?};").expect("a hasher takes everything");
}

impl<P: Payload + Debug> Engine<P> {
    /// Adds the state to `hasher`; see the module. Memory of requests is not looked into: that is the
    /// driver's.
    pub fn digest(&self, hasher: &mut impl Hasher) {
        let Self {
            config: _,
            superblock,
            store,
            volumes,
            requests,
            outbox,
            ready,
            paused,
            lifecycle,
            identities,
            attaching,
            now: _,
            wake,
            loader,
            report: _,
            awaiting_load,
            doubtful,
            checkpoint,
            checkpoint_sequence,
            checkpoint_failures,
            checkpoints: _,
            at_gate,
            at_journal,
            beat_at,
            log_flush,
            abandoning,
            replacing,
            reopening,
            resize,
            device_losses: _,
            devices,
            late,
            // As `requests` say.
            invalidations: _,
        } = self;
        store.digest(hasher);
        for volume in volumes {
            match volume {
                Some(volume) => digest_volume(volume, hasher),
                None => hasher.write_u8(0),
            }
        }
        let Outbox { actions: _, pending, flash_written_bytes: _ } = outbox;
        for (id, pending) in pending {
            add(hasher, &(id, pending));
        }
        for (id, active) in requests {
            add(hasher, &(id, active));
        }
        add(hasher, &(superblock, ready, paused, lifecycle, identities, wake, loader));
        add(hasher, &(awaiting_load, doubtful, checkpoint, checkpoint_sequence));
        add(hasher, &(checkpoint_failures, at_gate, at_journal, beat_at, log_flush));
        add(hasher, &(abandoning, replacing, reopening, attaching, devices, late, resize));
    }
}

fn digest_volume(volume: &Volume, hasher: &mut impl Hasher) {
    let Volume {
        spec,
        incarnation,
        state,
        counters: _,
        locks,
        detector,
        requests,
        group,
        share_target_blocks,
        writes,
        writes_flushed,
        written,
        beat,
        generation_bumped,
        awaiting_generation,
        bumping_generation,
        device_lost,
        sync_failed,
        replaces,
        late,
        discarded,
        invalidations: _,
        announced,
    } = volume;
    digest_locks(locks, hasher);
    if spec.bypass_sequential_bytes > 0 {
        add(hasher, detector);
    }
    add(hasher, &(spec, incarnation, state, requests, group, writes - writes_flushed, written));
    add(
        hasher,
        &(
            beat,
            generation_bumped,
            awaiting_generation,
            bumping_generation,
            device_lost,
            sync_failed,
            replaces,
            late,
            discarded,
            announced,
            share_target_blocks,
        ),
    );
}

fn digest_locks(locks: &RangeLocks, hasher: &mut impl Hasher) {
    for lock in locks.in_order() {
        add(hasher, &lock);
    }
}
