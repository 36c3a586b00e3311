//! A write log with its devices, driven step by step: for tests that say what happens when.

use crate::disk::Disk;
use crate::memory::Mem;
use crate::memory_file::MemFile;
use crate::ssd::Ssd;
use cinnabar_engine::units::{ByteSpan, Instant};
use cinnabar_engine::{Answer, Failure, IoDone, IoError, Op, Payload, RequestId};
use cinnabar_writeback::memory::{Host, MemoryAt, open_with};
use cinnabar_writeback::recover::{OpenError, format};
use cinnabar_writeback::{Action, Command, Config, Done, Event, LogVolumeId, Refusal, WriteLog};
use std::collections::BTreeMap;

const SEGMENTS: u32 = 8;
/// Sectors of each back end.
const SECTORS: usize = 16_384 * 8;

fn open(
    ssd: &Ssd,
    config: Config,
    file: Option<&(MemFile, u64)>,
) -> Result<WriteLog<Mem>, OpenError> {
    let memory = file.map(|(file, nonce)| MemoryAt {
        file,
        path: "/dev/shm/memory",
        nonce: *nonce,
        may_be_lost: false,
    });
    let bytes = cinnabar_writeback::format::bytes_of(SEGMENTS);
    open_with(ssd, bytes, config, &Host { boot: [1; 16], memory })
}

/// See the module.
pub(crate) struct Rig {
    pub(crate) log: WriteLog<Mem>,
    pub(crate) ssd: Ssd,
    pub(crate) disks: BTreeMap<LogVolumeId, Disk>,
    pub(crate) config: Config,
    /// The write memory, and how often it was used again.
    pub(crate) file: Option<(MemFile, u64)>,
    pub(crate) now: Instant,
    pub(crate) wake: Option<Instant>,
    pub(crate) replies: BTreeMap<RequestId, Result<Answer<Mem>, Failure>>,
    pub(crate) answers: BTreeMap<RequestId, Result<Done, Refusal>>,
    next: u64,
}

impl Rig {
    pub(crate) fn new(config: Config) -> Self {
        Self::on(config, None)
    }

    /// With a write memory of so many pages.
    pub(crate) fn with_memory(config: Config, pages: u32) -> Self {
        Self::on(config, Some((MemFile::new(pages), 1)))
    }

    fn on(config: Config, file: Option<(MemFile, u64)>) -> Self {
        let ssd = Ssd::default();
        let bytes = cinnabar_writeback::format::bytes_of(SEGMENTS);
        format(&ssd, bytes, [9; 16]).expect("it is large enough");
        let log = open(&ssd, config, file.as_ref()).expect("just formatted");
        Self {
            log,
            file,
            ssd,
            disks: BTreeMap::new(),
            config,
            now: Instant(1),
            wake: None,
            replies: BTreeMap::new(),
            answers: BTreeMap::new(),
            next: 0,
        }
    }

    pub(crate) fn apply(&mut self, event: Event<Mem>) {
        let (mut events, mut actions) = (vec![event], Vec::new());
        self.log.apply(self.now, &mut events, &mut actions);
        for action in actions {
            if self.file.as_ref().is_some_and(|(file, _)| file.is_killed()) {
                return;
            }
            match action {
                Action::Log(id, op) => self.ssd.submit(id, op),
                Action::Memory(op) => op.carry_out(&self.file.as_ref().expect("there is one").0),
                Action::Engine(id, place, op) => {
                    let disk = self.disks.entry(place).or_insert_with(|| Disk::new(SECTORS));
                    disk.submit(id, op);
                }
                Action::Reply(id, result) => {
                    assert!(self.replies.insert(id, result).is_none(), "answered once");
                }
                Action::Answer(id, result) => {
                    assert!(self.answers.insert(id, result).is_none(), "answered once");
                }
                Action::WakeAt(at) => self.wake = Some(self.wake.map_or(at, |wake| wake.min(at))),
            }
        }
    }

    pub(crate) fn submit(&mut self, place: LogVolumeId, op: Op<Mem>) -> RequestId {
        self.next += 1;
        let id = RequestId(self.next);
        self.apply(Event::Submit(id, place, op));
        id
    }

    pub(crate) fn control(&mut self, command: Command) -> RequestId {
        self.next += 1;
        let id = RequestId(self.next);
        self.apply(Event::Control(id, command));
        id
    }

    /// Writes blocks, each sector with this value.
    pub(crate) fn write(
        &mut self,
        place: LogVolumeId,
        block: u64,
        blocks: u64,
        value: u64,
    ) -> RequestId {
        let data = Mem::of(0, &vec![value; blocks as usize * 8]);
        let span = ByteSpan::new(block * 4096, blocks * 4096);
        self.submit(place, Op::Write { span, data, fua: false })
    }

    /// Ends an I/O of the log's device.
    pub(crate) fn end_log(&mut self, which: usize, result: Result<(), IoError>) {
        let id = self.ssd.end(which).id;
        self.apply(Event::LogDone(IoDone::new(id, result)));
    }

    /// Ends all I/O of the log's device that there is, and what follows from it.
    pub(crate) fn settle_log(&mut self) {
        while self.ssd.under_way() > 0 {
            self.end_log(0, Ok(()));
        }
    }

    /// Ends a request of an engine; false if there is none.
    pub(crate) fn end_engine(&mut self) -> bool {
        let busy = self.disks.values_mut().find(|disk| disk.under_way() > 0);
        let Some(disk) = busy else { return false };
        let (id, answer) = disk.end(0).expect("the first one waits for nothing");
        self.apply(Event::EngineDone(id, Ok(answer)));
        true
    }

    /// All requests of engines under way fail.
    pub(crate) fn fail_engine(&mut self) {
        while let Some(disk) = self.disks.values_mut().find(|disk| disk.under_way() > 0) {
            let id = disk.fail(0);
            self.apply(Event::EngineDone(id, Err(Failure::Io(IoError::Io))));
        }
    }

    /// Everything that is under way ends, and time goes on as far as the log has asked for.
    pub(crate) fn settle(&mut self) {
        for _ in 0..200_000 {
            self.settle_log();
            if self.end_engine() {
                continue;
            }
            let Some(at) = self.wake.take() else { return };
            self.now = self.now.max(at);
            self.apply(Event::Wake);
        }
        panic!("it never comes to rest");
    }

    pub(crate) fn attach(&mut self, name: &str, blocks: u64, incarnation: u64) -> LogVolumeId {
        self.attach_to("", name, (blocks, incarnation))
    }

    /// In a write group.
    pub(crate) fn attach_to(
        &mut self,
        group: &str,
        name: &str,
        (blocks, incarnation): (u64, u64),
    ) -> LogVolumeId {
        let (name, group, size_bytes) = (name.to_owned(), group.to_owned(), blocks * 4096);
        let id = self.control(Command::Attach { name, size_bytes, incarnation, group });
        self.settle_log();
        match self.answers.get(&id) {
            Some(Ok(Done::Attached(place))) => *place,
            other => panic!("attach: {other:?}"),
        }
    }

    pub(crate) fn ok(&self, id: RequestId) -> bool {
        self.replies.get(&id).is_some_and(Result::is_ok)
    }

    /// The first sectors of blocks, as a guest reads them.
    pub(crate) fn read(&mut self, place: LogVolumeId, block: u64, blocks: u64) -> Vec<Option<u64>> {
        let span = ByteSpan::new(block * 4096, blocks * 4096);
        let data = Mem::alloc(blocks as u32);
        let id = self.submit(place, Op::Read { span, data: data.clone() });
        while !self.replies.contains_key(&id) {
            self.settle_log();
            assert!(self.replies.contains_key(&id) || self.end_engine(), "a read is answered");
        }
        assert!(self.ok(id), "{:?}", self.replies[&id]);
        (0..blocks as usize).map(|n| data.value(n * 8)).collect()
    }

    pub(crate) fn reopen(&mut self) -> Result<(), OpenError> {
        if let Some((file, nonce)) = &mut self.file {
            file.revive();
            *nonce += 1;
        }
        self.log = open(&self.ssd, self.config, self.file.as_ref())?;
        self.wake = None;
        self.disks.values_mut().for_each(Disk::forget);
        Ok(())
    }
}
