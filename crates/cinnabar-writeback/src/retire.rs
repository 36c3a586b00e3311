//! What the destage does: reads of the log, requests of the engine, the record, and the slots that are
//! free afterwards.

use crate::bounds::Bound;
use crate::commit::Who;
use crate::destage::{
    Cursor, Destage, Run, Step, Write, first_epoch, gather, oldest_epoch, writes_of,
};
use crate::format::SEGMENT_PAGES;
use crate::format::chunk::RangeKind;
use crate::log::{EngineIo, LogIo, READS_MAX, WriteLog};
use crate::mutant::Mutant;
use crate::pace::{Ready, Sent};
use crate::ranges::RangeRecord;
use crate::seam::EngineId;
use crate::slots::ALL_SECTORS;
use crate::volume::Volume;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, Instant, sector_runs};
use cinnabar_engine::{Failure, IoError, IoOp, Op, Payload, Slice};

impl<P: Payload> WriteLog<P> {
    /// Goes on with the destage of a volume.
    pub(crate) fn destage(&mut self, place: u16) {
        let volume = self.volume(place);
        let idle = matches!(volume.destage, Destage::Idle(_));
        // A volume that is being given up has nothing to send.
        let goes = (volume.attaching.is_some() || volume.discarding.is_some()) && idle;
        if !volume.attached || volume.damaged || goes || self.lost {
            return;
        }
        let (now, closed) = (self.now, self.closed);
        match self.volume(place).destage {
            Destage::Idle(_) | Destage::Running(_) if closed => {}
            Destage::Idle(at) if at > now => self.wake_at(at),
            Destage::Idle(_) => self.begin_epoch(place),
            Destage::Running(_) => self.go_on(place),
            Destage::Retiring { upto, end } => self.retire_some(place, upto, end),
            Destage::Durable | Destage::Recording { .. } => {}
        }
    }

    fn begin_epoch(&mut self, place: u16) {
        let (now, after) = (self.now, self.config.destage_after_ns);
        if !self.volume(place).is_dirty() {
            return;
        }
        let all = self.segments.all.len() as u64;
        let pressed = self.is_pressed(place);
        let Self { volumes, segments, slots, .. } = self;
        let used = |segment: u32| segments.all[segment as usize].used;
        let volume = volumes[usize::from(place)].as_mut().expect("a volume at this place");
        let pressed = pressed || volume.pages * 4 > all * u64::from(SEGMENT_PAGES);
        if volume.oldest.is_none() {
            volume.oldest = first_epoch(volume, slots, &used);
        }
        let Some(epoch) = volume.oldest else { return };
        if epoch == volume.epoch {
            let due = volume.epoch_since.unwrap_or(now).plus_ns(after);
            if due > now && !pressed {
                return self.wake_at(due);
            }
            self.close_epoch(place);
        }
        if self.oldest_of_others(place).is_some_and(|(oldest, _)| oldest < epoch) {
            return;
        }
        let Self { volumes, segments, slots, .. } = self;
        let used = |segment: u32| segments.all[segment as usize].used;
        let volume = volumes[usize::from(place)].as_ref().expect("a volume at this place");
        let found = oldest_epoch(volume, slots, &used);
        let (epoch, last) = found.expect("the oldest chunk is of an epoch");
        let undurable = !self.config.mutants.is(Mutant::UndurableDestaged);
        let volume = self.volume(place);
        if volume.commits.durable < last && undurable {
            volume.destage = Destage::Durable;
            volume.commits.await_durable(Who::Destage, Instant::default());
            return;
        }
        volume.destage = Destage::Running(Run::new(epoch, last));
        self.go_on(place);
    }

    /// Gives up the epoch on its way, whose data are not wanted any more: a back end that does not
    /// answer is not waited for.
    pub(crate) fn give_up_run(&mut self, place: u16) {
        if !matches!(self.volume(place).destage, Destage::Running(_)) {
            return;
        }
        for (_, io) in &mut self.ios {
            if matches!(io, LogIo::Destage { place: of, .. } if *of == place) {
                *io = LogIo::Nobody;
            }
        }
        for (_, io) in &mut self.asked {
            if matches!(io, EngineIo::Write { place: of, .. } | EngineIo::Flush { place: of } if *of == place)
            {
                *io = EngineIo::Nobody;
            }
        }
        self.volume(place).destage = Destage::default();
    }

    /// Whether something waits for a volume's destage.
    pub(crate) fn is_pressed(&self, place: u16) -> bool {
        // Others may wait for what this volume holds.
        let all = self.segments.all.len() as u64;
        let scarce = !self.short.is_empty() && u64::from(self.segments.free_count()) * 4 <= all;
        let at = |place: u16| self.volumes[usize::from(place)].as_ref();
        let members = at(place).expect("a volume at this place").members;
        let presses = |volume: &Volume<P>| {
            !volume.drains.is_empty() || !volume.waiting.is_empty() || volume.drains_first.is_some()
        };
        scarce || members.iter().filter_map(at).any(presses)
    }

    fn run(&mut self, place: u16) -> &mut Run<P> {
        let Destage::Running(run) = &mut self.volume(place).destage else {
            panic!("an epoch is on its way")
        };
        run
    }

    /// Goes on with an epoch once nothing of it is under way.
    fn go_on(&mut self, place: u16) {
        let (now, retry) = (self.now, self.config.retry_ns);
        let stalls = self.config.mutants.is(Mutant::PaceStalls);
        if !self.run(place).ready.is_empty() && !stalls {
            self.send_writes(place);
        }
        let run = self.run(place);
        if !run.is_quiet() {
            return;
        }
        if let Some(failure) = run.failed {
            let volume = self.volume(place);
            volume.failing = Some(failure);
            if volume.has_no_room() {
                // A trim that no flush covers may make room, once it is durable.
                volume.commits.await_durable(Who::Nothing, Instant::default());
            }
            self.volume(place).destage = Destage::Idle(now.plus_ns(retry));
            return self.wake_at(now.plus_ns(retry));
        }
        if run.window.iter().any(|page| page.data.is_some()) {
            return self.write_window(place);
        }
        let Self { volumes, segments, slots, config, crossings, .. } = self;
        let most = config.bounds.window_pages;
        let volume = volumes[usize::from(place)].as_mut().expect("a volume at this place");
        let Destage::Running(mut run) = std::mem::take(&mut volume.destage) else {
            unreachable!("just looked at")
        };
        let used = |segment: u32| segments.all[segment as usize].used;
        let step = gather(volume, &mut run, slots, &used, (most, config.mutants));
        let is_full = step == Step::Window && run.window.len() >= most;
        crossings.note_if(is_full && !run.at_end, Bound::WindowPages);
        volume.destage = Destage::Running(run);
        match step {
            Step::Window => self.read_window(place),
            Step::Range(range) => self.write_range(place, range),
            Step::End => self.end_epoch(place),
        }
    }

    /// Reads the pages of the window; those that follow one another together.
    fn read_window(&mut self, place: u16) {
        let mut first = 0;
        loop {
            let run = self.run(place);
            let Some(start) = run.window.get(first).map(|page| page.slot) else { return };
            let rest = run.window[first..].iter().zip(start..).take(SEGMENT_PAGES as usize);
            let len = rest.take_while(|(page, slot)| page.slot == *slot).count();
            self.read_pages(place, (first, len), 0);
            first += len;
        }
    }

    fn read_pages(&mut self, place: u16, (first, count): (usize, usize), before: u8) {
        let memory = P::alloc(count as u32);
        let run = self.run(place);
        run.reading += 1;
        let slot = run.window[first].slot;
        for (n, page) in run.window[first..first + count].iter_mut().enumerate() {
            page.data = Some((memory.clone(), n as u64 * BLOCK_BYTES));
        }
        let len = count as u64 * BLOCK_BYTES;
        let data = std::iter::once(Slice { data: memory, at: 0, len }).collect();
        let op = IoOp::Read { offset: crate::format::offset_of(slot), data };
        self.log(LogIo::Destage { place, first, count, before }, op);
    }

    /// Pages of the window have been read. Those that can't be used are read again, each by itself: of a
    /// log on two devices each half may have the only good copy of some of them.
    pub(crate) fn destage_read(
        &mut self,
        place: u16,
        (first, count): (usize, usize),
        before: u8,
        result: Result<(), IoError>,
    ) {
        if self.lost {
            return;
        }
        let pages = &self.run(place).window[first..first + count];
        let all: Vec<(u32, P, u64)> = pages
            .iter()
            .map(|page| {
                let (data, at) = page.data.as_ref().expect("being read");
                (page.slot, data.clone(), *at)
            })
            .collect();
        let trusts = self.config.mutants.is(Mutant::DestageUnverified);
        let sound = |(slot, data, at): &(u32, P, u64)| trusts || self.is_sound(*slot, data, *at);
        let bad = (first..).zip(&all).filter(|(_, page)| result.is_err() || !sound(page));
        let bad: Vec<usize> = bad.map(|(page, _)| page).collect();
        if before + 1 < READS_MAX {
            for page in bad {
                self.read_pages(place, (page, 1), before + 1);
            }
        } else if !bad.is_empty() {
            self.lose_dirty(place);
        }
        self.run(place).reading -= 1;
    }

    /// An epoch can't be written as a whole: nothing of it, or of later ones, is.
    fn lose_dirty(&mut self, place: u16) {
        let volume = self.volume(place);
        volume.damaged = true;
        for member in volume.members.iter() {
            self.touched.add(member);
            for (id, ..) in std::mem::take(&mut self.volume(member).drains) {
                self.answer(id, Err(crate::seam::Refusal::Damaged));
            }
        }
        self.fail_waiting(place, Failure::Io(IoError::Io));
        self.short.remove(place);
    }

    fn write_window(&mut self, place: u16) {
        let mut window = std::mem::take(&mut self.run(place).window);
        let at_end = self.run(place).at_end;
        let most = self.config.bounds.destage_blocks;
        let writes = writes_of(&window, (most, self.config.mutants));
        let is_full = writes.iter().any(|write| write.pages.len() >= most);
        self.crossings.note_if(is_full && writes.len() > 1, Bound::DestageBlocks);
        let alone = at_end && writes.len() == 1 && self.run(place).writes == 0;
        let single = alone
            && (writes[0].sectors == ALL_SECTORS || sector_runs(writes[0].sectors).count() == 1);
        for Write { block, pages, sectors } in writes {
            let memory = if let [page] = pages[..] {
                window[page].data.take().expect("it was read")
            } else {
                let memory = P::alloc(pages.len() as u32);
                for (n, page) in pages.iter().enumerate() {
                    let (data, at) = window[*page].data.as_ref().expect("it was read");
                    memory.copy_from(n as u64 * BLOCK_BYTES, data, *at, BLOCK_BYTES);
                }
                (memory, 0)
            };
            self.write_blocks(place, (block, pages.len() as u64), sectors, memory, single);
        }
        if single {
            self.run(place).durable = true;
        }
        self.send_writes(place);
        let run = self.run(place);
        if run.writing == 0 && run.ready.is_empty() {
            self.go_on(place);
        }
    }

    fn write_blocks(
        &mut self,
        place: u16,
        (block, count): (u64, u64),
        sectors: u8,
        (data, at): (P, u64),
        fua: bool,
    ) {
        let size = self.volume(place).size_bytes;
        let start = block * BLOCK_BYTES;
        let parts: Vec<(u64, u64)> = if sectors == ALL_SECTORS {
            vec![(0, count * BLOCK_BYTES)]
        } else {
            sector_runs(sectors).collect()
        };
        let single = parts.len() == 1;
        for (from, len) in parts {
            let len = len.min(size.saturating_sub(start + from));
            if len == 0 {
                continue;
            }
            // A request's memory covers the blocks around its span, and what it does not write of them
            // is the engine's to use: no two requests have the same.
            let data = if at == 0 && single {
                data.clone()
            } else {
                let own = P::alloc(count as u32);
                own.copy_from(0, &data, at, count * BLOCK_BYTES);
                own
            };
            let span = ByteSpan::new(start + from, len);
            let run = self.run(place);
            run.writes += 1;
            run.ready.push_back(Ready { span, data, fua });
        }
    }

    fn write_range(&mut self, place: u16, range: RangeRecord) {
        let RangeRecord { block, count, kind, .. } = range;
        let size = self.volume(place).size_bytes;
        let offset = block * BLOCK_BYTES;
        let len = (u64::from(count) * BLOCK_BYTES).min(size.saturating_sub(offset));
        if len == 0 {
            return self.go_on(place);
        }
        let (span, fua) = (ByteSpan::new(offset, len), false);
        let op = match kind {
            RangeKind::Trim => Op::Trim { span, fua },
            RangeKind::Zero => Op::WriteZeroes { span, fua, may_punch: false },
            RangeKind::Punch => Op::WriteZeroes { span, fua, may_punch: true },
        };
        let run = self.run(place);
        run.writing += 1;
        run.writes += 1;
        let io = EngineIo::Write { place, blocks: 0, sent: Sent { at: self.now, alone: false } };
        self.ask(io, place, op);
    }

    /// All of the epoch is at the back end: it is made durable there.
    fn end_epoch(&mut self, place: u16) {
        let skips = self.config.mutants.is(Mutant::NoFlushBetweenEpochs);
        let run = self.run(place);
        if run.repeat {
            let (epoch, last) = (run.epoch, run.last);
            *run = Run::new(epoch, last);
            return self.go_on(place);
        }
        if run.writes == 0 || run.durable || skips {
            return self.retire_epoch(place);
        }
        run.flushing = true;
        self.ask(EngineIo::Flush { place }, place, Op::Flush);
    }

    pub(crate) fn engine_done(&mut self, id: EngineId, failed: Option<Failure>) {
        match self.asked.remove(id.0 as usize) {
            EngineIo::Read { read } => {
                let place = self.reads[read].place;
                self.volume(place).pace.reads();
                if let Some(failure) = failed {
                    self.reads[read].failed = Some(failure);
                }
                self.reads[read].outstanding -= 1;
                self.end_read(read);
            }
            EngineIo::Nobody => {}
            _ if self.lost => {}
            EngineIo::Write { place, blocks, sent } => {
                self.touched.add(place);
                let took_ns = self.now.since_ns(sent.at);
                let run = self.run(place);
                run.writing -= 1;
                if let Some(failure) = failed {
                    run.failed = Some(failure);
                    run.ready.clear();
                } else if blocks > 0 {
                    let volume = self.volume(place);
                    volume.pace.wrote(blocks, sent, took_ns);
                    volume.earn(blocks);
                }
            }
            EngineIo::Flush { place } => {
                self.touched.add(place);
                let run = self.run(place);
                run.flushing = false;
                match failed {
                    Some(failure) => run.failed = Some(failure),
                    None => run.durable = true,
                }
                if run.failed.is_none() && !run.repeat {
                    self.retire_epoch(place);
                }
            }
        }
    }

    /// The back end has the epoch durably: this is recorded before anything else is sent there.
    fn retire_epoch(&mut self, place: u16) {
        let run = self.run(place);
        if run.repeat {
            let (epoch, last) = (run.epoch, run.last);
            *run = Run::new(epoch, last);
            return;
        }
        let (upto, epoch, end) = (run.last, run.epoch, run.cursor);
        let hurries = self.config.mutants.is(Mutant::GapNotAwaited);
        let volume = self.volume(place);
        volume.failing = None;
        volume.record.retired = upto;
        volume.record.retired_epoch = epoch;
        volume.prune_gaps();
        if upto == volume.commits.last
            && let Some(gap) = volume.drains_first
        {
            volume.record.gaps = vec![gap];
            if hurries {
                volume.session = gap.session;
                volume.drains_first = None;
            }
        }
        // What a write of the record that is under way says is older than this.
        let early = self.config.mutants.is(Mutant::RecordTooEarly);
        let needs = self.record(place, 1) - u64::from(early);
        self.volume(place).destage = Destage::Recording { upto, end, needs };
        let early = [Mutant::RecordNotAwaited, Mutant::SegmentFreedEarly];
        if early.iter().any(|mutant| self.config.mutants.is(*mutant)) {
            self.volume(place).destage = Destage::Retiring { upto, end };
        }
    }

    /// Retires some slots of an epoch, oldest first. Reads see the same data before and after.
    fn retire_some(&mut self, place: u16, upto: u64, end: Cursor) {
        let Self { volumes, segments, slots, config, crossings, .. } = self;
        let volume = volumes[usize::from(place)].as_mut().expect("a volume at this place");
        volume.oldest = None;
        let (mut left, mut end) = (config.bounds.retire_pages, end);
        loop {
            let segment = *volume.segments.front().expect("an epoch has a segment");
            let used = segments.all[segment as usize].used;
            let is_last = end.segment == 0;
            let pages = if is_last { end.page } else { used };
            let first = std::mem::take(&mut volume.retired_pages);
            for page in first..pages {
                slots.retire(segment * SEGMENT_PAGES + page);
            }
            if is_last {
                volume.retired_pages = pages.max(first);
                break;
            }
            volume.segments.pop_front();
            volume.pages -= u64::from(used);
            segments.retire(segment);
            end.segment -= 1;
            left = left.saturating_sub(pages);
            if left == 0 {
                crossings.note_if(true, Bound::RetirePages);
                volume.destage = Destage::Retiring { upto, end };
                let now = self.now;
                return self.wake_at(now);
            }
        }
        volume.zeros.retire(upto);
        segments.made_room = true;
        while volume.records.front().is_some_and(|range| range.number <= upto) {
            volume.records.pop_front();
        }
        volume.destage = Destage::default();
        if upto == volume.commits.last && volume.commits.open.is_none() {
            // Nothing is left: the segment being filled goes, too.
            volume.has_open = false;
            volume.retired_pages = 0;
            for segment in volume.segments.drain(..) {
                volume.pages -= u64::from(segments.all[segment as usize].used);
                segments.retire(segment);
            }
        }
        self.destage(place);
    }
}
