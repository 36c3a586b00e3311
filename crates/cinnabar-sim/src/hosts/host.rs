//! A host: its daemon, which dies and is started again, and what outlives it.

use crate::hosts::HostOptions;
use crate::hosts::clocks::Clock;
use crate::hosts::profile::Profile;
use crate::machine::{Factory, Machine};
use crate::medium::{Backend, CacheDevice, Media};
use crate::shards::{ShardedFactory, Shards};
use crate::stamp::Stamped;
use crate::violation::{Kind, Violation};
use cinnabar_driver::ownership::{Attempt, Record, Trust};
use cinnabar_driver::{Ownership, VolumeLife};
use cinnabar_engine::units::Instant;
use cinnabar_engine::volume::ProofToken;
use cinnabar_engine::{Event, RequestId};
use std::collections::VecDeque;

/// See the module.
pub(super) struct Host {
    /// Its daemon runs, frozen or not.
    pub(super) up: bool,
    /// Runs of its daemon: what belongs to an earlier one is void.
    pub(super) run: u64,
    /// It does nothing before this.
    pub(super) frozen: Option<Instant>,
    /// It reaches no other host and no image before this.
    pub(super) cut: Option<Instant>,
    pub(super) clock: Clock,
    /// When the last look began that has shown its lock, by its clock.
    pub(super) seen_ns: u64,
    /// When the last one began.
    pub(super) looked_ns: u64,
    /// A look is under way.
    pub(super) looks: bool,
    /// Whose lease this attempt has outwaited.
    pub(super) waited_for: Option<usize>,
    pub(super) machine: Option<Shards<Stamped>>,
    /// Its cache device; the image is lent to it while it does I/O there.
    pub(super) media: Media,
    pub(super) own: Ownership,
    /// What is durable of owners.
    pub(super) record: Record,
    /// A record that is being made durable.
    pub(super) recording: Option<(Record, Trust)>,
    /// The volume's generation, durable.
    pub(super) generation: u64,
    /// The volume, while the engine has it.
    pub(super) life: Option<VolumeLife>,
    /// The image, while it is open for writing.
    pub(super) session: Option<usize>,
    /// It owns the volume: from `Serve` to the end of `Release`.
    pub(super) holds: bool,
    /// It is about to own it: from `Lock` to `Serve`, or until what it has opened is let go of.
    pub(super) claims: bool,
    /// What the image proved as it was opened.
    pub(super) proof: Option<ProofToken>,
    /// What may be believed in this attachment.
    pub(super) trust: Trust,
    /// The attempt under way rests on the operator's word alone.
    pub(super) by_force: bool,
    /// Requests that wait for the volume, in order.
    pub(super) waiting: VecDeque<RequestId>,
    /// Requests of the other host that are yet to be answered; the newest is refused first.
    pub(super) asked: Vec<(u64, Attempt)>,
    /// When the engine wants to be woken, and the number of that wish.
    pub(super) wake: Option<(Instant, u64)>,
    pub(super) inbox: VecDeque<Event<Stamped>>,
    /// The engine takes its events just now.
    pub(super) busy: bool,
    /// It could not take the volume, and will try again.
    pub(super) retries: bool,
}

impl Host {
    /// A host with an empty cache device, whose daemon does not run yet.
    pub(super) fn new(number: u8, profile: &Profile, options: &HostOptions, clock: Clock) -> Self {
        let format = Factory::<Stamped>::format(&mut ShardedFactory, &profile.setup, number);
        // The image takes the place of this one while the host does I/O there.
        let nothing = Backend::new(0, 8, 512, false);
        let record = Record::default();
        Self {
            up: false,
            run: 0,
            frozen: None,
            cut: None,
            clock,
            seen_ns: 0,
            looked_ns: 0,
            looks: false,
            waited_for: None,
            machine: None,
            media: Media::new(CacheDevice::new(&format), vec![nothing]),
            own: Ownership::standby(profile.storage.fence(), record).with_mutants(options.mutants),
            record,
            recording: None,
            generation: 1,
            life: None,
            session: None,
            holds: false,
            claims: false,
            proof: None,
            trust: Trust::ProofOnly,
            by_force: false,
            waiting: VecDeque::new(),
            asked: Vec::new(),
            wake: None,
            inbox: VecDeque::new(),
            busy: false,
            retries: false,
        }
    }

    /// Its daemon is started: a standby.
    pub(super) fn begin(
        &mut self,
        profile: &Profile,
        options: &HostOptions,
    ) -> Result<(), Violation> {
        assert!(!self.up, "one daemon at a time");
        let superblocks = self.media.cache.superblocks();
        let machine = ShardedFactory.start(&profile.setup, &superblocks);
        let lost = |error| Violation::new(Kind::Warmth, format!("no superblock: {error}"));
        self.machine = Some(machine.map_err(lost)?);
        let own = Ownership::standby(profile.storage.fence(), self.record);
        self.own = own.with_mutants(options.mutants);
        (self.up, self.run) = (true, self.run + 1);
        Ok(())
    }

    /// Its daemon is gone.
    pub(super) fn end(&mut self) {
        (self.up, self.frozen, self.cut, self.machine) = (false, None, None, None);
        (self.life, self.session, self.holds) = (None, None, false);
        (self.by_force, self.busy, self.retries) = (false, false, false);
        (self.claims, self.proof) = (false, None);
        (self.wake, self.recording) = (None, None);
        self.waiting.clear();
        self.asked.clear();
        self.inbox.clear();
    }

    /// Whether the engine serves the volume.
    pub(super) fn serves(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.serving().is_some())
    }

    /// Blocks read from its cache since the volume was attached.
    pub(super) fn read_hits(&self) -> u64 {
        let id = self.life.as_ref().and_then(VolumeLife::id);
        let counters = id.zip(self.machine.as_ref()).and_then(|(id, m)| m.volume_counters(id));
        counters.map_or(0, |counters| counters.read_hits)
    }
}
