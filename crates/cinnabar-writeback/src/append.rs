//! Guests' requests: what is written goes to the log, what is read is looked up there first.

use crate::bounds::{Bound, Bounds};
use crate::commit::{Chunk, Identity, Who};
use crate::format::SEGMENT_PAGES;
use crate::format::chunk::{Entry, RangeKind};
use crate::log::{EngineIo, LogIo, READS_MAX, WriteLog};
use crate::memory::{Kept, Spot};
use crate::mutant::Mutant;
use crate::read::{Read, Source, layers_of};
use crate::seam::{Action, LogVolumeId};
use crate::slots::{ALL_SECTORS, Held, checksum_seed};
use crate::throttle;
use crate::volume::{Volume, Waiting};
use cinnabar_engine::limits::DATA_BYTES_MAX;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, Instant, SECTOR_BYTES, sector_runs};
use cinnabar_engine::{Answer, Failure, IoError, IoOp, Op, Payload, RequestId, Slice};

impl<P: Payload> WriteLog<P> {
    pub(crate) fn submit(&mut self, id: RequestId, LogVolumeId(place): LogVolumeId, op: Op<P>) {
        let Some(volume) = self.volumes[usize::from(place)].as_ref() else {
            return self.reply(id, Err(Failure::NoVolume));
        };
        if volume.attaching.is_some() || volume.discarding.is_some() || self.closed {
            return self.reply(id, Err(Failure::NoVolume));
        }
        if self.lost || volume.damaged {
            return self.reply(id, Err(Failure::Io(IoError::Io)));
        }
        self.touched.add(place);
        let early = self.config.mutants.is(Mutant::SizeTooEarly);
        let size = if early { volume.record.size_bytes } else { volume.size_bytes };
        let span = match op {
            Op::Read { span, .. } | Op::Write { span, .. } => {
                (span.len <= DATA_BYTES_MAX).then_some(span)
            }
            Op::Trim { span, .. } | Op::WriteZeroes { span, .. } => Some(span),
            Op::Flush => Some(ByteSpan::new(0, SECTOR_BYTES)),
            Op::Invalidate { .. } => None,
        };
        let fits = |span: &ByteSpan| {
            span.len > 0
                && span.offset.is_multiple_of(SECTOR_BYTES)
                && span.len.is_multiple_of(SECTOR_BYTES)
                && span.offset.checked_add(span.len).is_some_and(|end| end <= size)
        };
        if span.as_ref().is_none_or(|x| !fits(x)) {
            return self.reply(id, Err(Failure::Invalid));
        }
        match op {
            Op::Read { span, data } => self.read(id, place, span, data),
            Op::Flush => {
                let closes_epoch = false;
                let keeps = self.config.mutants.is(Mutant::FlushKeepsEpoch);
                if !keeps {
                    self.close_epoch(place);
                }
                let who = Who::Guest { id, answer: Answer::Done, closes_epoch };
                self.volume(place).commits.await_durable(who, Instant::default());
            }
            op => self.volume(place).waiting.push_back(Waiting { id, op, done: 0 }),
        }
    }

    /// The time of a request is over. One that waits for room is answered; all others wait for a
    /// device that has its own bound.
    pub(crate) fn late(&mut self, id: RequestId) {
        for volume in self.volumes.iter_mut().flatten() {
            if let Some(at) = volume.waiting.iter().position(|waiting| waiting.id == id) {
                volume.waiting.remove(at);
                // What waits behind it may fit.
                let place = volume.record.volume;
                self.touched.add(place);
                return self.reply(id, Err(Failure::Io(IoError::TimedOut)));
            }
        }
    }

    /// Appends what waits, as far as there is room. In order: what waits is not overtaken.
    pub(crate) fn admit_waiting(&mut self, place: u16) {
        let mut bounds = self.config.bounds;
        if let Some(memory) = &self.memory {
            bounds.append_blocks = bounds.append_blocks.min(u64::from(memory.pages()) / 2);
        }
        while let Some(Waiting { op, done, .. }) = self.volume(place).waiting.front() {
            let entries = entries_of(op, *done, &bounds);
            // Those that were slowed down go on when the destage does, which they hurry.
            if self.volume(place).is_slowed() || !self.has_all_room(place, entries, &bounds) {
                if self.group(LogVolumeId(place)).is_some_and(|group| group.damaged) {
                    // Nothing of the group is destaged any more.
                    self.fail_waiting(place, Failure::Io(IoError::Io));
                }
                return;
            }
            self.volume(place).pay(entries);
            let waiting = self.volume(place).waiting.front_mut().expect("just looked at");
            if let Op::Write { span, data, .. } = &waiting.op {
                let (span, data, from) = (*span, data.clone(), waiting.done);
                waiting.done += entries;
                let ends = waiting.done == span.blocks();
                self.crossings.note_if(!ends, Bound::AppendBlocks);
                self.write(place, span, &data, (from, entries));
                if !ends {
                    continue;
                }
            }
            let Waiting { id, op, .. } =
                self.volume(place).waiting.pop_front().expect("just looked at");
            match op {
                Op::Write { data, fua, .. } => self.appended(id, place, fua, Answer::Data(data)),
                Op::Trim { span, fua } => self.range(id, place, span, fua, RangeKind::Trim),
                Op::WriteZeroes { span, fua, may_punch } => {
                    let kind = if may_punch { RangeKind::Punch } else { RangeKind::Zero };
                    self.range(id, place, span, fua, kind);
                }
                Op::Read { .. } | Op::Flush | Op::Invalidate { .. } => {
                    unreachable!("only what is appended waits")
                }
            }
        }
        self.short.remove(place);
    }

    /// Whether so many entries have room in the log, and in the write memory. If not, the volume waits
    /// for it.
    fn has_all_room(&mut self, place: u16, entries: u64, bounds: &Bounds) -> bool {
        let fits_open = self.volumes[usize::from(place)]
            .as_ref()
            .expect("a volume at this place")
            .has_room(entries, (&self.segments, u32::MAX), bounds);
        // Looked up only where another segment is needed.
        let reserve = if fits_open { 0 } else { self.reserve(place) };
        let pages = self.group_pages(place);
        let Self { volumes, segments, config, .. } = self;
        let volume = volumes[usize::from(place)].as_ref().expect("a volume at this place");
        // Of what others leave, a part stays free for them.
        let free = u64::from(segments.free_count()) * u64::from(SEGMENT_PAGES);
        let fits = throttle::within(config, pages + entries, pages + free) || pages == 0;
        let ranges = volume.records.len().max(volume.zeros.len()) >= bounds.ranges;
        let room = volume.has_room(entries, (segments, reserve), bounds);
        let has_room = !self.lost && fits && room;
        if has_room && self.has_memory(place, entries) {
            return true;
        }
        self.crossings.note_if(ranges, Bound::Ranges);
        self.crossings.note_if(!fits, Bound::Room);
        if self.short.is_empty() {
            // Others may hold what is missing.
            self.touch_all();
        }
        self.short.add(place);
        false
    }

    /// Free segments that a volume leaves to those that have none: volumes whose back ends are away may hold all
    /// others, and one with a living back end goes on with a segment. At most half of the log.
    fn reserve(&self, place: u16) -> u32 {
        let most = self.segments.all.len() as u32 / 2;
        let has_none = |volume: &Volume<P>| volume.segments.is_empty();
        // More are free than are reserved, and a step takes: no need to count.
        let plenty = self.segments.free_count() > most + 1;
        let own = self.volumes[usize::from(place)].as_ref().expect("a volume at this place");
        if plenty || has_none(own) || self.config.mutants.is(Mutant::ReserveTaken) {
            return 0;
        }
        let without = self.volumes.iter().flatten().filter(|of| of.attached && has_none(of));
        (without.count() as u32).min(most)
    }

    /// Appends some blocks of a write: `count` of them, from its `from`th on.
    fn write(&mut self, place: u16, span: ByteSpan, data: &P, (from, count): (u64, u64)) {
        let head = span.first_block() * BLOCK_BYTES;
        let first = span.first_block() + from;
        // One private copy: a guest may change its memory. Of pages that may be replaced none keeps
        // the others of its request in RAM.
        let replaced = self.volume(place).commits.keeps();
        let together = (!replaced).then(|| P::alloc(count as u32));
        for (n, block) in (0..).zip(first..first + count) {
            let at = block * BLOCK_BYTES;
            let (from, to) = (span.offset.max(at), span.end().min(at + BLOCK_BYTES));
            let alone = || (P::alloc(1), 0);
            let (pages, base) =
                together.as_ref().map_or_else(alone, |pages| (pages.clone(), n * BLOCK_BYTES));
            if to - from < BLOCK_BYTES {
                pages.zero(base, BLOCK_BYTES);
            }
            pages.copy_from(base + from - at, data, from - head, to - from);
            let sectors = self.volume(place).sectors(span, block);
            self.append(place, block, sectors, (pages, base));
        }
    }

    /// Appends some sectors of a block; the rest of the page is zeros.
    fn append(&mut self, place: u16, block: u64, mut sectors: u8, (page, base): (P, u64)) {
        if self.replace(place, block, sectors, (&page, base)) {
            return;
        }
        let (seed, now) = (self.seed, self.now);
        let drops = self.config.mutants.is(Mutant::OlderVersionDropped);
        let forgets = self.config.mutants.is(Mutant::WriteKeepsRange);
        let bounds = self.config.bounds;
        let Self { volumes, segments, slots, crossings, memory, actions, .. } = self;
        let volume = volumes[usize::from(place)].as_mut().expect("a volume at this place");
        let of = volume.identity();
        volume.open_chunk(now, true, segments, slots, (&bounds, crossings));
        if forgets && volume.zeros.holds(block) {
            volume.zeros.cut(block, block + 1);
        }
        if sectors != ALL_SECTORS {
            sectors |= volume.merge(block, sectors, (&page, base), slots);
        }
        let slot = volume.next_slot(segments);
        let incarnation = volume.record.incarnation;
        let chunk = volume.commits.open.as_mut().expect("just opened");
        let seed = checksum_seed(seed, incarnation, chunk.number as u32, block);
        let checksum = page.checksum(base, seed);
        assert_eq!(slot, chunk.first + 1 + chunk.data.len() as u32, "pages follow their header");
        chunk.entries.push(Entry::Data { block, sectors, checksum });
        chunk.data.push((page.clone(), base));
        publish_newest(memory, (&of, chunk), Some((page, base)), actions);
        slots.set_data(slot, Held { block, sectors, checksum });
        if drops {
            slots.remove(place, block);
        }
        slots.supersede(slot);
        volume.zeros.cut(block, block + 1);
    }

    /// Puts sectors of a block in the place of an older version that is in the write memory and was not
    /// sent. False: there is none.
    fn replace(&mut self, place: u16, block: u64, sectors: u8, (page, base): (&P, u64)) -> bool {
        let across_range = self.config.mutants.is(Mutant::ReplacedAcrossRange);
        let Self { volumes, slots, memory, actions, counters, seed, .. } = self;
        let volume = volumes[usize::from(place)].as_mut().expect("a volume at this place");
        let Some(memory) = memory.as_mut().filter(|_| volume.commits.keeps()) else { return false };
        // What is zeroed is written behind the range.
        if volume.zeros.holds(block) && !across_range {
            return false;
        }
        let (of, epoch) = (volume.identity(), volume.epoch);
        let Some(slot) = slots.find(place, block) else { return false };
        if volume.commits.replaceable(slot, epoch).is_none() {
            return false;
        }
        let mut all = sectors;
        if sectors != ALL_SECTORS {
            all |= volume.merge(block, sectors, (page, base), slots);
        }
        let chunk = volume.commits.replaceable(slot, epoch).expect("just found");
        let seed = checksum_seed(*seed, of.incarnation, chunk.number as u32, block);
        let held = Held { block, sectors: all, checksum: page.checksum(base, seed) };
        let at = (slot - chunk.first - 1) as usize;
        let index = chunk.entry_of(at);
        chunk.data[at] = (page.clone(), base);
        chunk.entries[index] = Entry::Data { block, sectors: all, checksum: held.checksum };
        slots.rewrite(slot, held);
        let older = chunk.kept.as_ref().map(|kept| kept[index]);
        let spot = Spot { index, replaces: older };
        let newer = memory.publish(&of, chunk, spot, Some((page.clone(), base)), actions);
        chunk.kept.as_mut().expect("it is in memory")[index] = newer;
        counters.absorbed += 1;
        true
    }

    fn range(&mut self, id: RequestId, place: u16, span: ByteSpan, fua: bool, kind: RangeKind) {
        let (size, bounds) = (self.volume(place).size_bytes, self.config.bounds);
        let inside = |at: u64| at == size || at.is_multiple_of(BLOCK_BYTES);
        let first = span.offset.div_ceil(BLOCK_BYTES);
        let end = if inside(span.end()) { span.end_block() } else { span.end() / BLOCK_BYTES };
        if kind != RangeKind::Trim {
            // Of a block that is zeroed in part, sectors are written.
            let mut edges = vec![span.first_block(), span.end_block() - 1];
            edges.dedup();
            for block in edges.into_iter().filter(|block| *block < first || *block >= end) {
                let (page, sectors) = (P::alloc(1), self.volume(place).sectors(span, block));
                page.zero(0, BLOCK_BYTES);
                self.append(place, block, sectors, (page, 0));
            }
        }
        self.crossings.note_if(end.saturating_sub(first) > bounds.range_blocks, Bound::RangeBlocks);
        let mut block = first;
        while block < end {
            let count = (end - block).min(bounds.range_blocks);
            let Self { volumes, segments, slots, now, crossings, memory, actions, .. } = self;
            let volume = volumes[usize::from(place)].as_mut().expect("a volume at this place");
            volume.open_chunk(*now, false, segments, slots, (&bounds, crossings));
            volume.push_range(Entry::Range { block, count: count as u32, kind });
            let of = volume.identity();
            let chunk = volume.commits.open.as_mut().expect("just opened");
            publish_newest(memory, (&of, chunk), None, actions);
            block += count;
        }
        self.appended(id, place, fua, Answer::Done);
    }

    fn appended(&mut self, id: RequestId, place: u16, fua: bool, answer: Answer<P>) {
        let free = u64::from(self.segments.free_count()) * u64::from(SEGMENT_PAGES);
        let (now, config, pages) = (self.now, self.config, self.group_pages(place));
        let volume = self.volume(place);
        let age = volume.age_ns(now);
        let not_before = now.plus_ns(throttle::delay_ns(&config, (pages, pages + free), age));
        let who = Who::Guest { id, answer, closes_epoch: fua };
        if fua {
            volume.commits.await_durable(who, not_before);
        } else {
            volume.commits.await_written(who, not_before);
        }
    }

    fn read(&mut self, id: RequestId, place: u16, span: ByteSpan, data: P) {
        let volume = self.volumes[usize::from(place)].as_ref().expect("a volume at this place");
        let (layers, asks) = layers_of(volume, &self.slots, span, self.config.mutants);
        let read = self.reads.insert(Read {
            id,
            place,
            span,
            data: data.clone(),
            asks,
            outstanding: u32::from(asks),
            failed: None,
            layers,
        });
        if asks {
            self.volume(place).pace.reads();
            self.ask(EngineIo::Read { read }, place, Op::Read { span, data });
        }
        for layer in 0..self.reads[read].layers.len() {
            if let Source::Slot(slot, _) = self.reads[read].layers[layer].from {
                if !self.config.mutants.is(Mutant::ReadUnpinned) {
                    self.segments.pin(slot);
                }
                self.reads[read].outstanding += 1;
                self.read_slot(read, layer, slot, 0);
            }
        }
        self.end_read(read);
    }

    fn read_slot(&mut self, read: usize, layer: usize, slot: u32, before: u8) {
        let page = P::alloc(1);
        self.reads[read].layers[layer].from = Source::Slot(slot, Some(page.clone()));
        let data = std::iter::once(Slice { data: page, at: 0, len: BLOCK_BYTES }).collect();
        let op = IoOp::Read { offset: crate::format::offset_of(slot), data };
        self.log(LogIo::Read { read, layer, before }, op);
    }

    /// A page has been read for a guest. What does not match its checksum is read again.
    pub(crate) fn slot_read(
        &mut self,
        read: usize,
        layer: usize,
        before: u8,
        result: Result<(), IoError>,
    ) {
        let Source::Slot(slot, Some(page)) = &self.reads[read].layers[layer].from else {
            panic!("a slot was read")
        };
        let (slot, page) = (*slot, page.clone());
        let trusts =
            [Mutant::ReadUnverified, Mutant::ReadUnpinned].map(|m| self.config.mutants.is(m));
        let sound = trusts.contains(&true) || self.is_sound(slot, &page, 0);
        if result.is_err() || !sound {
            if before + 1 < READS_MAX && !self.lost {
                return self.read_slot(read, layer, slot, before + 1);
            }
            self.reads[read].failed = Some(Failure::Io(IoError::Io));
        }
        if !self.config.mutants.is(Mutant::ReadUnpinned) {
            self.segments.unpin(slot);
        }
        self.reads[read].outstanding -= 1;
        self.end_read(read);
    }

    /// Whether a page read from a slot is what was written there.
    pub(crate) fn is_sound(&self, slot: u32, data: &P, at: u64) -> bool {
        let held = self.slots.data(slot).expect("a page of data");
        let owner = self.volumes[usize::from(self.slots.owner(slot))].as_ref();
        let incarnation = owner.expect("a segment in use has an owner").record.incarnation;
        let (_, _, number) = self.slots.chunk_of(slot);
        let seed = checksum_seed(self.seed, incarnation, number, held.block);
        data.checksum(at, seed) == held.checksum
    }

    pub(crate) fn end_read(&mut self, read: usize) {
        if self.reads[read].outstanding > 0 {
            return;
        }
        let read = self.reads.remove(read);
        let Read { id, place, span, data, failed, layers, asks, .. } = read;
        // A command may wait for the last read to end.
        self.touched.add(place);
        if let Some(failure) = failed {
            return self.reply(id, Err(failure));
        }
        for layer in &layers {
            layer.lay(span, &data);
        }
        if !asks {
            self.volume(place).answered_blocks += span.blocks();
        }
        self.reply(id, Ok(Answer::Data(data)));
    }
}

/// Entries that the next step of a request may take.
fn entries_of<P>(op: &Op<P>, done: u64, bounds: &Bounds) -> u64 {
    match op {
        // A write may be larger than the log: it goes step by step.
        Op::Write { span, .. } => (span.blocks() - done).min(bounds.append_blocks),
        // Two edges, and the ranges between them.
        Op::Trim { span, .. } | Op::WriteZeroes { span, .. } => {
            2 + span.blocks().div_ceil(bounds.range_blocks)
        }
        Op::Read { .. } | Op::Flush | Op::Invalidate { .. } => {
            unreachable!("only what is appended waits")
        }
    }
}

/// Stores the newest entry of a chunk that is in the write memory.
fn publish_newest<P: Clone>(
    memory: &mut Option<Kept>,
    (of, chunk): (&Identity, &mut Chunk<P>),
    data: Option<(P, u64)>,
    actions: &mut Vec<Action<P>>,
) {
    if chunk.kept.is_none() {
        return;
    }
    let memory = memory.as_mut().expect("a chunk is kept there");
    let spot = Spot { index: chunk.entries.len() - 1, replaces: None };
    let page = memory.publish(of, chunk, spot, data, actions);
    chunk.kept.as_mut().expect("just looked at").push(page);
}

impl<P: Payload> crate::volume::Volume<P> {
    /// Completes a page that holds some sectors of a block with what RAM knows of the others; says
    /// which sectors came to it.
    fn merge(
        &self,
        block: u64,
        has: u8,
        (page, base): (&P, u64),
        slots: &crate::slots::Slots,
    ) -> u8 {
        // A range over older versions: those are of no concern.
        if self.zeros.holds(block) {
            return ALL_SECTORS;
        }
        let Some(newest) = slots.find(self.record.volume, block) else { return 0 };
        let (mut covered, mut version) = (has, Some(newest));
        while let Some(slot) = version
            && let Some((data, at)) = self.commits.data_of(slot)
        {
            let held = slots.data(slot).expect("a version has data");
            for (from, len) in sector_runs(held.sectors & !covered) {
                page.copy_from(base + from, data, at + from, len);
            }
            covered |= held.sectors;
            version = slots.older(slot);
        }
        covered & !has
    }
}
