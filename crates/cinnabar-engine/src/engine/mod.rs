//! The state machine: one event at a time, in order, to the end.
//!
//! Called by drivers.

use crate::config::Config;
use crate::counters::{CacheCounters, RamBytes, VolumeCounters};
use crate::metadata::superblock::Superblock;
use crate::seam::{Action, Event, Payload};
use crate::units::{Instant, VolumeId};
use std::marker::PhantomData;

/// The cache. One owner, no locks.
pub struct Engine<P> {
    payload: PhantomData<P>,
}

impl<P: Payload> Engine<P> {
    /// An engine over a device with this superblock. The first command must be `Open`.
    pub fn new(_config: Config, _superblock: Superblock) -> Self {
        Self { payload: PhantomData }
    }

    /// Takes all `events`, in order, and appends what is to be done to `actions`.
    pub fn apply(
        &mut self,
        _now: Instant,
        events: &mut Vec<Event<P>>,
        _actions: &mut Vec<Action<P>>,
    ) {
        events.clear();
    }

    /// Counters of the cache.
    pub fn cache_counters(&self) -> CacheCounters {
        CacheCounters::default()
    }

    /// Counters of an attached volume.
    pub fn volume_counters(&self, _volume: VolumeId) -> Option<VolumeCounters> {
        None
    }

    /// RAM held, by part.
    pub fn ram_bytes(&self) -> RamBytes {
        RamBytes::default()
    }
}
