//! Indices and incarnations for volumes that come: both run short where many come and go.
//!
//! An incarnation is given out once in the life of a device, so the superblock reserves some ahead,
//! durably, and more when they are used up. An index is free when nothing mentions it any more: no
//! volume, no cached block, no checkpoint being made. When none is, blocks of volumes that are gone
//! are swept out; when there are none of those, the volume with the least to lose is forgotten. An
//! attach waits meanwhile.

use super::Engine;
use super::lifecycle::Copies;
use crate::bounds::Bound;
use crate::health::PassThroughReason;
use crate::limits::VOLUMES_MAX;
use crate::metadata::superblock::DeviceState;
use crate::mutant::Mutant;
use crate::outbox::Pending;
use crate::seam::{IoError, Payload};
use crate::store::Holding;
use crate::volume::{Volume, VolumeState};

/// What new volumes are distinguished by.
#[derive(Debug, Default)]
pub(super) struct Identities {
    /// Incarnations that are durably reserved and not given out: the next one, and the end.
    next: u32,
    end: u32,
    /// More of them are being reserved.
    reserving: bool,
    /// A sweep for indices is under way, up to this slot.
    sweeping: Option<u32>,
}

impl Identities {
    /// Incarnations `next..end` are reserved; others are not known of.
    pub(super) fn reserved(next: u32, end: u32) -> Self {
        Self { next, end, ..Self::default() }
    }

    /// Whether blocks of volumes that are gone are being taken out.
    pub(super) fn is_sweeping(&self) -> bool {
        self.sweeping.is_some()
    }

    /// Whether the superblock is being written.
    pub(super) fn is_reserving(&self) -> bool {
        self.reserving
    }
}

impl<P: Payload> Engine<P> {
    /// Whether there are an index and an incarnation for a new volume. What is missing has been asked
    /// for: [`continue_attaches`](Self::continue_attaches) is called when it is there.
    pub(super) fn has_identity(&mut self) -> bool {
        let (index, incarnation) = (self.has_index(), self.has_incarnation());
        index && incarnation
    }

    fn has_incarnation(&mut self) -> bool {
        if self.store.dead || self.identities.next < self.identities.end {
            return true;
        }
        if self.config.mutants.is(Mutant::IncarnationsRunOut) {
            // Taken for there, and then missed.
            return true;
        }
        let more = self.superblock.next_incarnation.checked_add(self.config.bounds.incarnations);
        let Some(more) = more else {
            // None is left on this device: it has to be formatted again, and this attach fails.
            return true;
        };
        // One copy of the superblock is written at a time.
        if !self.identities.reserving && !self.resize_marks() {
            self.identities.reserving = true;
            self.store.crossings.note(Bound::Incarnations);
            self.superblock.next_incarnation = more;
            self.write_superblock_for(Pending::Reserve { copies: Copies::Both });
        }
        false
    }

    /// A copy of the superblock that reserves more incarnations has been written. If that failed, the
    /// device is lost, and the attaches that wait go on without it.
    pub(super) fn reserve_done(&mut self, copies: Copies, result: Result<(), IoError>) {
        match (result, copies) {
            // The device was given up meanwhile, and needs none.
            _ if self.store.dead => self.identities.reserving = false,
            (Err(error), _) => {
                self.identities.reserving = false;
                self.store.count_device_error();
                self.lose_device(PassThroughReason::Failed(error));
            }
            (Ok(()), Copies::Both) => {
                self.write_superblock_for(Pending::Reserve { copies: Copies::Last });
            }
            (Ok(()), Copies::Last) => {
                let end = self.superblock.next_incarnation;
                self.identities.reserving = false;
                let next = end - self.config.bounds.incarnations;
                assert!(self.identities.end <= next, "an incarnation is given out once");
                assert_eq!(self.identities.next, self.identities.end, "those before are used up");
                self.identities.next = next;
                self.identities.end = end;
            }
        }
        self.continue_attaches();
        self.advance_resize();
        self.advance_lifecycle();
    }

    /// An incarnation that no volume had before.
    pub(super) fn take_incarnation(&mut self) -> Option<u32> {
        if self.store.dead {
            // It is recorded nowhere. A volume that is still there when a device comes gets another.
            return Some(0);
        }
        let next = self.identities.next;
        (next < self.identities.end).then(|| {
            self.identities.next += 1;
            next
        })
    }

    /// The lowest index that no volume has, no cached block mentions, and no checkpoint being made.
    fn free_index(&self) -> Option<usize> {
        let free = |index: &usize| {
            let used = self.volumes.get(*index).is_some_and(Option::is_some);
            let cached = self.store.holdings.get(*index).is_some_and(|h| h.cached_blocks > 0);
            let named = |writer: &_| crate::store::CheckpointWriter::names(writer, *index as u16);
            // While the index is being loaded it is unknown which blocks it mentions.
            let loading = self.loader.is_some() && *index < self.store.holdings.len();
            !used && !cached && !loading && !self.checkpoint.as_ref().is_some_and(named)
        };
        (0..self.config.bounds.volumes).find(free)
    }

    /// Whether an index is free; begins to make one free if not.
    fn has_index(&mut self) -> bool {
        if self.free_index().is_some() {
            self.identities.sweeping = None;
            return true;
        }
        self.store.crossings.note(Bound::Volumes);
        let gone = |index: usize| self.volumes.get(index).is_none_or(Option::is_none);
        let dead = (0..self.store.holdings.len()).any(gone);
        // One whose end is being recorded is gone in a moment, or can be forgotten then.
        let ends = |volume: &Volume| matches!(volume.state, VolumeState::Sealing(..));
        let dead = dead || self.volumes.iter().flatten().any(ends);
        if !dead && !self.forget_least() {
            // All are attached: this one attach fails, nothing is waited for.
            return true;
        }
        if self.free_index().is_some() {
            // The one that was forgotten held nothing: nothing would come back to this attach.
            return true;
        }
        // Else loading or a checkpoint keeps them: they end by themselves, and look here then.
        let idle = self.identities.sweeping.is_none() && self.loader.is_none();
        if idle && self.store.holds_dead() {
            self.identities.sweeping = Some(0);
            self.wake_at(self.now);
        }
        false
    }

    /// Forgets the volume with the fewest blocks among those that are not attached.
    fn forget_least(&mut self) -> bool {
        let sealed = |v: &Volume| v.state == VolumeState::Sealed;
        let least = (0..self.volumes.len())
            .filter(|index| self.volumes[*index].as_ref().is_some_and(sealed))
            .min_by_key(|index| self.store.holdings[*index].cached_blocks);
        if let Some(index) = least {
            self.bury(index as u16);
        }
        least.is_some()
    }

    /// Takes out some blocks of volumes that are gone. What they left on flash is invalid already: their
    /// incarnation is recorded as dropped.
    pub(super) fn continue_sweep(&mut self) {
        let Some(from) = self.identities.sweeping.filter(|_| self.loader.is_none()) else { return };
        let slots = self.store.slots();
        let step = u32::try_from(self.config.bounds.replay_blocks * 8).unwrap_or(u32::MAX);
        let stop = slots.min(from.saturating_add(step));
        self.store.sweep_dead(from..stop);
        self.identities.sweeping = (stop < slots).then_some(stop);
        if stop < slots {
            self.wake_at(self.now);
        }
        self.continue_attaches();
    }

    /// Takes the lowest free index.
    pub(super) fn take_index(&mut self) -> Option<u16> {
        let index = self.free_index()?;
        if self.volumes.len() <= index {
            self.volumes.resize_with(index + 1, || None);
        }
        if self.store.holdings.len() <= index {
            self.store.holdings.resize(index + 1, Holding::default());
        }
        assert!(index < usize::from(VOLUMES_MAX), "a descriptor has room for an index");
        assert_eq!(self.store.holdings[index].cached_blocks, 0, "no block of another has it");
        Some(index as u16)
    }

    /// A session on the device begins: incarnations for it, and for all volumes that may be there already.
    pub(super) fn reserve_for_session(&mut self) {
        let there = if self.reopening { self.config.bounds.volumes as u32 } else { 0 };
        let next = self.superblock.next_incarnation;
        assert_eq!(self.store.session, next, "a session's number is the first of its incarnations");
        let end = next + self.config.bounds.incarnations + there;
        assert!(next < end, "a session has incarnations of its own");
        self.superblock.next_incarnation = end;
        let crashed = self.superblock.state == DeviceState::InUse { regions: true };
        // What a session before has said of regions counts until a clean stop.
        let regions = crashed || self.config.bounds.regions > 0;
        self.superblock.state =
            if self.config.crash_safe { DeviceState::InUse { regions } } else { DeviceState::Cold };
        self.identities = Identities::reserved(next, end);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rig::{Rig, volume};
    use crate::bounds::Bounds;
    use crate::config::{Config, Eviction};
    use crate::mutant::{Mutant, Mutants};
    use crate::seam::{Answer, Command, Failure, Op, Payload};
    use crate::units::{BLOCK_BYTES, ByteSpan, VolumeId};
    use crate::volume::VolumeSpec;

    fn config(mutants: Mutants) -> Config {
        let bounds = Bounds { incarnations: 3, volumes: 4, replay_blocks: 1, ..Bounds::default() };
        Config { eviction: Eviction::Clock, bounds, mutants, ..Config::default() }
    }

    /// Attaches a volume that proves nothing, reads a block, and lets go of it.
    fn come_and_go(rig: &mut Rig, name: &str, exclusive: bool) -> Result<VolumeId, Failure> {
        let volume = come(rig, name, exclusive)?;
        rig.ask(vec![Command::Detach(volume)]);
        rig.ask(vec![Command::Seal(volume, None)]);
        Ok(volume)
    }

    fn come(rig: &mut Rig, name: &str, exclusive: bool) -> Result<VolumeId, Failure> {
        let spec = VolumeSpec { exclusive, ..volume(name) };
        let attach = rig.ask(vec![Command::Attach(spec)])[0];
        let Answer::Attached { volume, .. } = rig.answer(attach)? else { panic!("an attach") };
        let data = super::super::rig::Nothing::alloc(1);
        let read = rig.submit(volume, Op::Read { span: ByteSpan::new(0, BLOCK_BYTES), data });
        rig.answer(read).expect("it is read");
        Ok(volume)
    }

    #[test]
    fn volumes_may_come_and_go_for_as_long_as_the_daemon_lives() {
        let mut rig = Rig::open_with(config(Mutants::default()), 4080);
        for n in 0..50 {
            let came = come_and_go(&mut rig, &format!("ci-{n}"), false);
            assert!(came.is_ok(), "attach {n}: {came:?}");
        }
        // No incarnation was given out twice, and the next session's are others.
        let given = rig.engine.superblock().next_incarnation;
        let rig = rig.next_session(config(Mutants::default()));
        assert!(given >= 50 && rig.engine.superblock().next_incarnation >= given);
    }

    #[test]
    fn a_session_that_runs_out_of_incarnations_is_found() {
        let mut rig = Rig::open_with(config(Mutants::only(Mutant::IncarnationsRunOut)), 4080);
        let came = (0..50).map(|n| come_and_go(&mut rig, &format!("ci-{n}"), false));
        assert!(came.into_iter().any(|came| came == Err(Failure::Limit)));
    }

    /// Each leaves a block behind that may be believed again, until its index is needed.
    #[test]
    fn volumes_that_are_gone_for_now_make_room_for_those_that_come() {
        let mut rig = Rig::open_with(config(Mutants::default()), 4080);
        for n in 0..50 {
            let came = come_and_go(&mut rig, &format!("vm-{n}"), true);
            assert!(came.is_ok(), "attach {n}: {came:?}");
        }
        assert_eq!(rig.engine.store.counters().cached_blocks, 4, "the last four");
    }

    /// No sweep and no checkpoint ends after which the attach could go on.
    #[test]
    fn a_volume_that_held_nothing_makes_room_at_once() {
        let mut rig = Rig::open_with(config(Mutants::default()), 4080);
        for n in 0..10 {
            let spec = VolumeSpec { exclusive: true, ..volume(&format!("vm-{n}")) };
            let attach = rig.ask(vec![Command::Attach(spec)])[0];
            let Ok(Answer::Attached { volume, .. }) = rig.answer(attach) else {
                panic!("attach {n} was not answered well")
            };
            rig.ask(vec![Command::Detach(volume)]);
            rig.ask(vec![Command::Seal(volume, None)]);
        }
    }

    /// What the lost device held of them is nothing any more.
    #[test]
    fn volumes_of_a_lost_device_keep_no_index() {
        let mut rig = Rig::open_with(config(Mutants::default()), 4080);
        for name in ["a", "b", "c", "d"] {
            come_and_go(&mut rig, name, true).expect("there is room");
        }
        let abandoned = rig.ask(vec![Command::Abandon])[0];
        rig.answer(abandoned).expect("it is given up");
        for n in 0..10 {
            let came = come_and_go(&mut rig, &format!("vm-{n}"), true);
            assert!(came.is_ok(), "attach {n}: {came:?}");
        }
    }

    /// Loses the device while the ends of four volumes are being recorded; whether a fifth, which needs
    /// the index of one of them, is answered.
    fn is_answered_after_a_loss_amid_seals(mutants: Mutants) -> bool {
        let mut rig = Rig::open_with(config(mutants), 4080);
        let all = ["a", "b", "c", "d"].map(|name| come(&mut rig, name, true).expect("room"));
        for id in rig.ask(all.map(Command::Detach).into()) {
            rig.answer(id).expect("it is detached");
        }
        rig.holds = true;
        let sealed = rig.ask(all.map(|volume| Command::Seal(volume, None)).into());
        assert!(sealed.iter().all(|id| !rig.is_answered(*id)), "they wait for the journal");
        rig.ask(vec![Command::Abandon]);
        for id in sealed {
            rig.answer(id).expect("it has another generation");
        }
        let came = rig.ask(vec![Command::Attach(volume("e"))])[0];
        let answered = rig.is_answered(came);
        assert!(!answered || rig.answer(came).is_ok(), "it passes through");
        answered
    }

    #[test]
    fn volumes_whose_end_was_being_recorded_on_a_lost_device_keep_no_index() {
        assert!(is_answered_after_a_loss_amid_seals(Mutants::default()), "it is never answered");
    }

    #[test]
    fn the_mutant_whose_lost_volumes_keep_their_indices_is_found() {
        let mutant = Mutants::only(Mutant::LostVolumeKeepsIndex);
        assert!(!is_answered_after_a_loss_amid_seals(mutant));
    }

    /// The sweep that it waits for ends with the old device, and the next one has other identities.
    #[test]
    fn an_attach_that_waits_for_a_lost_devices_index_goes_on_with_the_next_device() {
        let mut rig = Rig::open_with(config(Mutants::default()), 4080);
        for name in ["a", "b", "c", "d"] {
            come_and_go(&mut rig, name, true).expect("there is room");
        }
        rig.ask(vec![Command::Abandon]);
        rig.holds_wakes = true;
        let came = rig.ask(vec![Command::Attach(volume("e"))])[0];
        assert!(!rig.is_answered(came), "the sweep goes on with the next wake");
        let next = super::super::rig::superblock(4080);
        let replaced = rig.ask(vec![Command::Replace(Box::new(next))])[0];
        rig.answer(replaced).expect("another device is there");
        rig.wake();
        assert!(rig.answer(came).is_ok());
    }

    #[test]
    fn attaches_wait_for_the_device_and_fail_with_it() {
        let mut rig = Rig::open_with(config(Mutants::default()), 4080);
        rig.holds = true;
        let names = ["a", "b", "c", "d", "e"];
        let asked = rig.ask(names.map(|name| Command::Attach(volume(name))).into());
        rig.release();
        let mut answers = asked.into_iter().map(|id| rig.answer(id));
        assert!(answers.by_ref().take(4).all(|answer| answer.is_ok()));
        assert!(matches!(answers.next(), Some(Err(Failure::Limit))), "all four are attached");
    }

    #[test]
    fn a_device_that_is_given_up_keeps_no_attach_waiting() {
        let mut rig = Rig::open_with(config(Mutants::default()), 4080);
        rig.holds = true;
        let asked = rig.ask(["a", "b", "c", "d"].map(|name| Command::Attach(volume(name))).into());
        rig.ask(vec![Command::Abandon]);
        for id in asked {
            assert!(matches!(rig.answer(id), Ok(Answer::Attached { .. })), "it passes through");
        }
        rig.release();
    }
}
