//! Requests of guests and operators to volumes.

use super::moves::{Ask, Place};
use super::setup::VolumeSetup;
use super::world::World;
use crate::oracle::{ReadTicket, WriteTicket};
use crate::stamp::{Stamp, Stamped};
use cinnabar_driver::VolumeLife;
use cinnabar_engine::units::{ByteSpan, SECTOR_BYTES, VolumeId};
use cinnabar_engine::{Event, Op, Payload, Request, RequestId};

/// Requests under way at most.
const PENDING_MAX: usize = 64;

/// Where a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Away,
    Attaching,
    Attached(VolumeId),
    Leaving(VolumeId),
    Forgetting,
}

/// How the cache device was left with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Never,
    Sealed,
    Lost,
}

pub(super) struct Volume {
    pub(super) setup: VolumeSetup,
    pub(super) state: State,
    /// Its life in the machine, while it is not away.
    pub(super) life: Option<VolumeLife>,
    pub(super) left: Left,
    /// Errors and time-outs of its backend so far.
    pub(super) errors: u64,
    /// Its I/Os that are overdue.
    pub(super) overdue: u32,
    /// A flush has failed since it was attached: later ones must fail, too.
    pub(super) sync_failed: bool,
    /// Newest version of each sector.
    pub(super) versions: Vec<u32>,
    /// It stays away until it is attached by a move.
    pub(super) stays_away: bool,
}

impl Volume {
    pub(super) fn new(setup: VolumeSetup) -> Self {
        Self {
            setup,
            state: State::Away,
            life: None,
            left: Left::Never,
            errors: 0,
            overdue: 0,
            sync_failed: false,
            versions: vec![0; setup.sectors as usize],
            stays_away: false,
        }
    }
}

/// A request under way.
pub(super) struct Pending {
    pub(super) volume: usize,
    pub(super) asked: Asked,
    /// Errors of the volume's backend when it was submitted, and whether a flush had failed.
    pub(super) errors_before: u64,
    pub(super) sync_failed: bool,
}

#[derive(Debug)]
pub(super) enum Asked {
    Read { ticket: ReadTicket, span: ByteSpan },
    Write { ticket: WriteTicket, span: ByteSpan, data: Stamped, values: Vec<Stamp>, fua: bool },
    Zeroes { ticket: WriteTicket },
    Trim { ticket: WriteTicket },
    Flush { tick: u64 },
    Invalidate,
}

impl World {
    /// The bytes of a place, within its volume.
    fn span(&self, place: Place) -> (usize, ByteSpan) {
        let volume = usize::from(place.volume) % self.volumes.len();
        let sectors = self.volumes[volume].setup.sectors;
        let first = u64::from(place.block) * 8 % sectors / 8 * 8;
        let end = (first + u64::from(place.blocks.max(1)) * 8).min(sectors);
        let cut = u64::from(place.cut);
        let (first, end) =
            if end - first > 2 * cut { (first + cut, end - cut) } else { (first, end) };
        (volume, ByteSpan::new(first * SECTOR_BYTES, (end - first) * SECTOR_BYTES))
    }

    /// A guest or an operator asks for something, if the volume is there.
    pub(super) fn ask(&mut self, ask: Ask, place: Place) {
        let (volume, span) = self.span(place);
        self.batching = self.batching.saturating_sub(1);
        let State::Attached(id) = self.volumes[volume].state else { return };
        if self.pending.len() < PENDING_MAX {
            self.submit(volume, id, ask, span);
        }
    }

    pub(super) fn submit(&mut self, volume: usize, id: VolumeId, ask: Ask, span: ByteSpan) {
        let (asked, op) = self.prepare(volume, ask, span);
        let number = RequestId(self.number());
        let (first, count) = (span.offset / SECTOR_BYTES, span.len / SECTOR_BYTES);
        self.note(|world| {
            let version = world.volumes[volume].versions[first as usize];
            format!(
                "  request {}: {ask:?} volume {volume} sectors {first}+{count} v{version}",
                number.0
            )
        });
        let &Volume { errors: errors_before, sync_failed, .. } = &self.volumes[volume];
        self.pending.insert(number, Pending { volume, asked, errors_before, sync_failed });
        self.batch.push(Event::Submit(Request { id: number, volume: id, op }));
    }

    fn prepare(&mut self, volume: usize, ask: Ask, span: ByteSpan) -> (Asked, Op<Stamped>) {
        let (first, count) = (span.offset / SECTOR_BYTES, span.len / SECTOR_BYTES);
        match ask {
            Ask::Read => {
                let ticket = self.oracle.read_submitted(volume, first, count);
                let data = Stamped::alloc(span.blocks() as u32);
                (Asked::Read { ticket, span }, Op::Read { span, data })
            }
            Ask::Write { fua } => {
                let values = self.new_values(volume, first, count);
                let data = Stamped::alloc(span.blocks() as u32);
                data.set((span.head_bytes() / SECTOR_BYTES) as usize, &values);
                let ticket = self.oracle.write_submitted(volume, first, values.clone());
                let op = Op::Write { span, data: data.clone(), fua };
                (Asked::Write { ticket, span, data, values, fua }, op)
            }
            Ask::Zero { trim, fua } => {
                let values = vec![Stamp::ZERO; count as usize];
                let ticket = self.oracle.write_submitted(volume, first, values);
                if trim {
                    (Asked::Trim { ticket }, Op::Trim { span, fua })
                } else {
                    (Asked::Zeroes { ticket }, Op::WriteZeroes { span, fua, may_punch: true })
                }
            }
            Ask::Flush => (Asked::Flush { tick: self.oracle.flush_submitted() }, Op::Flush),
            Ask::Invalidate => (Asked::Invalidate, Op::Invalidate { span }),
        }
    }

    /// Stamps of a version that was never written.
    pub(super) fn new_values(&mut self, volume: usize, first: u64, count: u64) -> Vec<Stamp> {
        let versions = &mut self.volumes[volume].versions;
        let next = |sector: u64| {
            versions[sector as usize] += 1;
            Stamp::new(volume, sector, u64::from(versions[sector as usize]))
        };
        (first..first + count).map(next).collect()
    }

    /// Another host writes a volume that no engine has, unless the operator has excluded that: long
    /// enough after the last session that the proof must tell.
    pub(super) fn foreign(&mut self, place: Place) {
        let (volume, span) = self.span(place);
        let &Volume { state, left, setup, .. } = &self.volumes[volume];
        let known = left != Left::Never || self.is_known_elsewhere(volume);
        if state != State::Away || setup.exclusive && known {
            return;
        }
        // After a clean detach there is no window in which it may go unnoticed.
        if left == Left::Lost || self.is_known_elsewhere(volume) {
            self.pass_ns(super::setup::SECOND_NS * 4);
        }
        let (first, count) = (span.offset / SECTOR_BYTES, span.len / SECTOR_BYTES);
        let values = self.new_values(volume, first, count);
        self.media.backends[volume].write_behind(first, &values);
        self.oracle.written_behind(volume, first, values);
        self.note(|_| format!("  another host writes volume {volume} sectors {first}+{count}"));
    }

    /// Reads every sector of every volume that is attached.
    pub(super) fn sweep(&mut self) -> Result<(), crate::violation::Violation> {
        for volume in 0..self.volumes.len() {
            let State::Attached(id) = self.volumes[volume].state else { continue };
            let sectors = self.volumes[volume].setup.sectors;
            for first in (0..sectors).step_by(512) {
                let count = 512.min(sectors - first);
                let span = ByteSpan::new(first * SECTOR_BYTES, count * SECTOR_BYTES);
                self.submit(volume, id, Ask::Read, span);
            }
            self.settle()?;
        }
        Ok(())
    }
}
