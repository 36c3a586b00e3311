//! What may happen next.

use super::{Asked, Held, Reading, State, World};
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::plan::{Mode, Plan, VolumePlan};
use cinnabar_engine::units::{ByteSpan, SECTOR_BYTES, VolumeId};
use cinnabar_engine::volume::VolumeSpec;
use cinnabar_engine::{Command, Event, IoDone, IoError, IoOp, Op, Payload};
use cinnabar_sim::medium::Media;
use cinnabar_sim::medium::proof::judge;
use cinnabar_sim::rng::Rng;
use cinnabar_sim::{Machine, Stamp, Stamped};
use std::collections::BTreeSet;

/// Requests and commands under way, about.
const ASKED_MAX: usize = 12;

fn bytes(first: u64, count: u64) -> ByteSpan {
    ByteSpan::new(first * SECTOR_BYTES, count * SECTOR_BYTES)
}

impl World {
    pub(super) fn step(&mut self) {
        match self.rng.below(100) {
            0..38 => self.request(),
            38..80 => self.advance(),
            80..94 => match self.wake {
                Some(at) if at <= self.now.plus_ns(2_000_000_000) => {
                    self.now = self.now.max(at);
                    self.wake = None;
                    self.event(Event::Wake);
                }
                _ => {}
            },
            94..97 => self.manage(),
            97 if self.faults && self.rng.chance(0.2) => {
                let guests = |asked: &Asked| matches!(asked, Asked::Read(_) | Asked::Other);
                let oldest = self.asked.iter().find(|(_, asked)| guests(asked));
                if let Some(id) = oldest.map(|(id, _)| *id) {
                    self.event(Event::Late(id));
                }
            }
            98 if self.faults => self.abandon(),
            99 if self.faults && self.rng.chance(0.1) => self.crash(),
            _ => {}
        }
    }

    /// The operator gives the cache device up, more likely one that is lost.
    fn abandon(&mut self) {
        let busy = |asked: &Asked| matches!(asked, Asked::Abandon | Asked::Replace);
        if !self.asked.values().any(busy) && (self.is_lost() || self.rng.chance(0.05)) {
            self.command(Asked::Abandon, Command::Abandon);
        }
    }

    /// First sector and number of sectors of a request: mostly within the block that the volume's
    /// requests are about, or beside it.
    fn place(&mut self, index: usize) -> (u64, u64) {
        let sectors = self.media.backends[index].sectors();
        if self.rng.chance(0.4) {
            self.hot[index] = self.rng.below(sectors) / 8 * 8;
        }
        let (hot, last) = (self.hot[index], sectors / 8 * 8);
        let block = self.rng.pick(&[hot, hot, hot, hot + 8, hot.saturating_sub(8), last]);
        let first = (block + self.rng.below(8)).min(sectors - 1);
        let count = match self.rng.below(50) {
            0..35 => self.rng.within(1..9 - first % 8),
            35..45 => self.rng.within(1..25),
            45..49 => self.rng.within(1..9),
            _ => self.rng.within(1..sectors + 1),
        };
        (first, count.min(sectors - first))
    }

    /// New values for sectors of a backend.
    fn values(&mut self, index: usize, (first, count): (u64, u64)) -> Vec<Stamp> {
        self.version += 1;
        (first..first + count).map(|sector| Stamp::new(index, sector, self.version)).collect()
    }

    fn request(&mut self) {
        let index = self.rng.below(4) as usize;
        let State::Attached(volume) = self.states[index] else { return };
        if self.asked.len() > ASKED_MAX {
            return;
        }
        let (first, count) = self.place(index);
        let (span, fua) = (bytes(first, count), self.rng.chance(0.1));
        let data = Stamped::alloc(span.blocks() as u32);
        let mut asked = Asked::Other;
        let op = match self.rng.below(20) {
            0..9 => {
                let values = self.values(index, (first, count));
                data.set((span.head_bytes() / SECTOR_BYTES) as usize, &values);
                Op::Write { span, data, fua }
            }
            9..14 => {
                let now = self.media.backends[index].sectors_of(first..first + count);
                let held = now.iter().map(|stamp| vec![*stamp]).collect();
                asked =
                    Asked::Read(Reading { volume: index, first, held, excused: BTreeSet::new() });
                Op::Read { span, data }
            }
            14 => Op::Trim { span, fua },
            15 => Op::WriteZeroes { span, fua, may_punch: self.rng.chance(0.5) },
            16 => Op::Flush,
            17 | 18 => Op::Invalidate { span },
            _ => return self.disturb(index, volume),
        };
        self.submit(volume, op, asked);
    }

    /// Another writer, or a server that restarts and has lost writes, and the invalidation that says so.
    fn disturb(&mut self, index: usize, volume: VolumeId) {
        let changed = if self.rng.chance(0.5) {
            let (first, count) = self.place(index);
            let values = self.values(index, (first, count));
            self.change(index, true, |media, _| media.backends[index].write_behind(first, &values))
        } else {
            self.lose(index)
        };
        for sector in changed {
            self.submit(volume, Op::Invalidate { span: bytes(sector, 1) }, Asked::Behind);
        }
    }

    /// A backend loses writes that no flush covers.
    fn lose(&mut self, index: usize) -> Vec<u64> {
        self.change(index, true, |media, rng| drop(media.backends[index].lose(rng)))
    }

    /// Lets something change a backend, for which reads under way are `excused` or not. Gives the
    /// sectors that are not what they were.
    fn change(
        &mut self,
        index: usize,
        excused: bool,
        change: impl FnOnce(&mut Media, &mut Rng),
    ) -> Vec<u64> {
        let sectors = 0..self.media.backends[index].sectors();
        let before = self.media.backends[index].sectors_of(sectors.clone()).to_vec();
        change(&mut self.media, &mut self.rng);
        let after = self.media.backends[index].sectors_of(sectors.clone());
        let pairs = sectors.zip(before.iter().zip(after));
        let changed: Vec<u64> =
            pairs.filter(|(_, (before, after))| before != after).map(|(s, _)| s).collect();
        for asked in self.asked.values_mut() {
            let Asked::Read(reading) = asked else { continue };
            if reading.volume != index {
                continue;
            }
            for &sector in &changed {
                let place = sector.checked_sub(reading.first).map(|place| place as usize);
                if let Some(held) = place.and_then(|place| reading.held.get_mut(place)) {
                    held.push(after[sector as usize]);
                    reading.excused.extend(excused.then_some(sector));
                }
            }
        }
        changed
    }

    /// An I/O happens, ends, fails or takes too long.
    fn advance(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.rng.below(self.held.len() as u64) as usize;
        let Held { transfer, touched, device } = &self.held[at];
        let (backend, id, touched) = (transfer.backend(), transfer.request.id, *touched);
        let flushes = matches!(transfer.request.op, IoOp::Flush | IoOp::Prove);
        if backend.is_none() && *device != self.device {
            // It was given up with its device.
            self.held.remove(at);
            return self.event(Event::IoDone(IoDone::new(id, Err(IoError::Io))));
        }
        if !touched && self.rng.chance(0.3) {
            return self.touch(at, 1);
        }
        let fails = match (self.faults, backend) {
            (false, _) => 0.0,
            (true, None) => 0.000_5,
            (true, Some(_)) if flushes => 0.02,
            (true, Some(_)) => 0.06,
        };
        if self.rng.chance(fails / 2.0) {
            return self.event(Event::Overdue(id));
        }
        if !self.rng.chance(fails) {
            self.touch(at, 1);
            return self.end(at, Ok(()));
        }
        match backend {
            // Each shard flushes for itself, and only the one that fails would know.
            Some(index) if flushes && self.setup.shards == 1 && self.rng.chance(0.7) => {
                self.lose(index);
            }
            _ if !touched && self.rng.chance(0.5) => self.touch(at, 2),
            _ => {}
        }
        self.end(at, Err(IoError::Io));
    }

    /// Lets an I/O happen on its medium, or the first of so many parts of it.
    fn touch(&mut self, at: usize, parts: usize) {
        if self.held[at].touched {
            return;
        }
        let mut held = self.held.swap_remove(at);
        held.touched = true;
        let units = 0..held.transfer.units() / parts;
        let transfer = &mut held.transfer;
        if let Some(index) = transfer.backend() {
            self.change(index, false, |media, _| media.effect(transfer, units));
        } else {
            self.media.effect(transfer, units);
        }
        self.held.push(held);
        let last = self.held.len() - 1;
        self.held.swap(at, last);
    }

    fn end(&mut self, at: usize, result: Result<(), IoError>) {
        let held = self.held.remove(at);
        let zeroes =
            matches!(held.transfer.request.op, IoOp::WriteZeroes { .. } | IoOp::Trim { .. });
        let able = held.transfer.backend().is_none_or(|index| self.media.backends[index].can_zero);
        let refused = zeroes && !able && !held.touched;
        let result = if refused { Err(IoError::Unsupported) } else { result };
        let tick = self.tick();
        let done = self.media.finish(held.transfer, result, tick).expect("untouched memory");
        self.event(Event::IoDone(done));
    }

    /// A volume comes, changes or goes.
    fn manage(&mut self) {
        let index = self.rng.below(4) as usize;
        match self.states[index] {
            State::Away => {
                if self.sealed[index] && self.rng.chance(0.5) {
                    let place = self.place(index);
                    let values = self.values(index, place);
                    self.media.backends[index].write_behind(place.0, &values);
                }
                self.attach(index);
            }
            State::Attached(volume) => match self.rng.below(4) {
                0 => {
                    self.states[index] = State::Detaching(volume);
                    self.command(Asked::Detach(index), Command::Detach(volume));
                }
                1 if index == 0 => self.grow(index, volume),
                _ => self.change_mode(volume),
            },
            State::Detached(volume) => {
                self.states[index] = State::Sealing(volume);
                let proof = self.media.backends[index].proof();
                self.command(Asked::Seal(index), Command::Seal(volume, Some(proof)));
            }
            State::Attaching | State::Detaching(_) | State::Sealing(_) => {}
        }
    }

    fn grow(&mut self, index: usize, volume: VolumeId) {
        self.version += 1;
        let backend = &mut self.media.backends[index];
        let sectors = backend.sectors() + 8;
        backend.grow(sectors, self.version);
        let grow = Command::Grow(volume, sectors * SECTOR_BYTES, Some(backend.proof()));
        self.command(Asked::Other, grow);
    }

    fn change_mode(&mut self, volume: VolumeId) {
        let mode = match self.rng.below(5) {
            0 => Mode::WriteAround,
            1 => Mode::PassThrough,
            _ => Mode::WriteThrough,
        };
        let change = VolumePlan { mode: Some(mode), ..VolumePlan::unchanged(volume) };
        let admits = self.rng.pick(&[None, None, Some(false), Some(true)]);
        self.admits = admits.unwrap_or(self.admits);
        self.event(Event::Adopt(Plan { volumes: vec![change], admits }));
    }

    fn attach(&mut self, index: usize) {
        let name = format!("volume-{index}");
        let then = self.machine.recorded(&name);
        let backend = &mut self.media.backends[index];
        backend.begin_attachment();
        let proof = backend.proof();
        let spec = VolumeSpec {
            align_bytes: backend.align_bytes as u32,
            belief: judge(&then, Some(&proof), Mutants::default()),
            proof: Some(proof),
            generation: backend.generation_with(Some(self.device)),
            bypass_sequential_bytes: self.rng.pick(&[0, 0, 16 << 10]),
            bypass_large_bytes: self.rng.pick(&[0, 0, 8 << 10]),
            ..VolumeSpec::new(name, backend.sectors() * SECTOR_BYTES)
        };
        self.states[index] = State::Attaching;
        self.sealed[index] = false;
        self.command(Asked::Attach(index), Command::Attach(spec));
    }
}
