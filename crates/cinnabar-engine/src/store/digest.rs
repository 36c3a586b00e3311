//! What of the store decides what it will do next; see [`Engine::digest`](crate::Engine::digest).

use super::Store;
use crate::engine::add_digest as add;
use crate::seam::Payload;
use std::hash::{Hash, Hasher};

impl<P: Payload> Store<P> {
    pub(crate) fn digest(&self, hasher: &mut impl Hasher) {
        let Self {
            seed: _,
            uuid: _,
            eviction: _,
            endurance: _,
            map,
            filling,
            descriptors,
            ghost,
            probation,
            partials,
            rehearsal,
            buffers,
            log,
            cleaner,
            holdings,
            counters: _,
            chunk_age_ns_max: _,
            journal,
            session,
            barrier,
            opened,
            unflushed_log,
            dead,
            admits,
            index,
            bounds: _,
            crossings: _,
            mutants: _,
        } = self;
        map.table().hash(hasher);
        if let Some(filling) = filling {
            filling.digest(hasher);
        }
        descriptors.table().hash(hasher);
        ghost.table().hash(hasher);
        for block in 0..buffers.used() {
            hasher.write_u32(buffers.data().checksum(u64::from(block) * 4096, 0));
        }
        partials.digest(hasher);
        add(hasher, &(probation, log, cleaner, holdings, session, barrier, opened));
        add(hasher, &(unflushed_log, dead, admits, index, rehearsal));
        journal.digest(hasher);
    }
}
