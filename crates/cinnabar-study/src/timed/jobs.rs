//! What is under way: an operation of a thread, a block of it, a write in the background.
//!
//! A job is a small state machine; its stage says what the next event for it means. Jobs live in one
//! table, and a number that is free is used again.

use super::agenda::JOBS_MAX;

/// Whose work a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A thread, which has one operation after the other.
    Thread,
    /// An operation that arrived at a time of its own.
    Arrived,
    /// One block of an operation of several.
    Part,
    /// A write that no thread waits for.
    Background,
    /// A write of the syncer of a tier.
    Syncer(u8),
    /// A block read ahead.
    Fetch,
    /// The clock of the syncer of a tier.
    Tick(u8),
    /// The arrivals of a trace.
    Arrivals,
    /// A direction of a link, 0 up and 1 down, with packets that wait until no other is sent.
    Idle(u8),
    /// An I/O of the production engine, or its clock.
    Engine,
    /// An I/O of the production engine that no thread waits for.
    EngineUnseen,
}

/// What the next event means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// A thread takes its next operation.
    Take,
    /// A read or write is done.
    Finish,
    /// Flash was read: the block goes into RAM.
    FlashRead,
    /// A request for a block is at the file server's flash.
    ServerRead,
    /// That flash was read: the block goes on the link.
    ServerData,
    /// A request for a block is at the file server's queue.
    FilerArrived,
    /// The file server has read a block.
    FilerRead,
    /// A block has come over the link.
    DataArrived,
    /// A block leaves RAM downwards.
    Down,
    /// A block is to be written to flash, its frame is free.
    FlashWrite,
    /// It was.
    FlashWritten,
    /// A block sets out for the file server.
    ToFiler,
    /// It is at the file server's queue.
    FilerWriteArrived,
    /// It was written there.
    FilerWritten,
    /// A block that left RAM is where its policy wants it.
    DownDone,
    /// There is room: the block of a write is stored.
    Store,
    /// It was.
    Stored,
    /// The production engine has read what was asked of it.
    EngineRead,
    /// It has written it.
    EngineWritten,
    /// It is to be woken.
    EngineWake,
    /// A request of its is at the file server.
    EngineServe,
    /// The file server has done it.
    EngineServed,
    /// An I/O of its is done.
    EngineDone,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) kind: Kind,
    pub(super) stage: Stage,
    /// What follows when the file server has written.
    pub(super) back: Stage,
    /// What follows when a block is down: [`Stage::Store`] or [`Stage::Finish`].
    pub(super) then: Stage,
    pub(super) write: bool,
    pub(super) measured: bool,
    /// At the file server already, not in the host.
    pub(super) at_server: bool,
    /// The frame it writes to is in flash.
    pub(super) in_flash: bool,
    pub(super) host: u16,
    pub(super) block: u32,
    /// The block on its way down: its own, or one that had to leave.
    pub(super) moving: u32,
    /// The job that it is a part of.
    pub(super) parent: u32,
    pub(super) parts: u32,
    pub(super) started_ns: u64,
    /// Blocks of the operation that no part has yet.
    pub(super) next_key: u64,
    pub(super) end_key: u64,
}

impl Job {
    pub(super) fn new(kind: Kind, host: usize, stage: Stage) -> Self {
        Self {
            kind,
            stage,
            back: Stage::DownDone,
            then: Stage::Finish,
            write: false,
            measured: false,
            at_server: false,
            in_flash: false,
            host: host as u16,
            block: 0,
            moving: 0,
            parent: 0,
            parts: 0,
            started_ns: 0,
            next_key: 0,
            end_key: 0,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Jobs {
    table: Vec<Job>,
    free: Vec<u32>,
}

impl Jobs {
    /// A number for a job.
    ///
    /// # Panics
    /// If there are too many; the model stops before.
    #[inline]
    pub(super) fn add(&mut self, job: Job) -> u32 {
        if let Some(id) = self.free.pop() {
            self.table[id as usize] = job;
            return id;
        }
        assert!(self.table.len() < JOBS_MAX, "a job's number fits its bits");
        self.table.push(job);
        self.table.len() as u32 - 1
    }

    /// Jobs at a time so far, at most.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn free(&mut self, id: u32) {
        self.free.push(id);
    }
}

impl std::ops::Index<u32> for Jobs {
    type Output = Job;

    #[inline]
    fn index(&self, id: u32) -> &Job {
        &self.table[id as usize]
    }
}

impl std::ops::IndexMut<u32> for Jobs {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut Job {
        &mut self.table[id as usize]
    }
}
