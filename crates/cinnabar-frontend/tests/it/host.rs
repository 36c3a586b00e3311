//! The smallest possible daemon around the server: a poll, and disks in memory or none at all.

use crate::memory::{Heap, Pool};
use cinnabar_engine::seam::units::{ByteSpan, Instant};
use cinnabar_engine::seam::{Failure, Op};
use cinnabar_frontend::nbd::{
    Body, Buffers, Command, Export, ExportId, Extent, ExtentKind, Incoming, Interest, Limits,
    Ready, Server, Ticket, Token, Want,
};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// What is behind an export.
pub(crate) enum Disk {
    /// Nothing: reads return whatever is in the buffer. For measuring.
    #[allow(dead_code, reason = "examples only")]
    Null,
    /// The bytes of the disk, in memory.
    Memory(Vec<u8>),
    /// Bytes whose requests are answered only when [`Host::answer_held`] is called.
    #[allow(dead_code, reason = "tests only")]
    Held(Vec<u8>),
}

/// Server, disks and loop.
pub(crate) struct Host {
    pub(crate) server: Server<Heap>,
    pub(crate) pool: Pool,
    pub(crate) held: Vec<Incoming<Heap>>,
    disks: BTreeMap<ExportId, Disk>,
    watched: BTreeMap<Token, (RawFd, PollFlags)>,
    /// Poll in the meanest way: each change is reported once, and never again.
    edges: Option<OwnedFd>,
    incoming: Vec<Incoming<Heap>>,
    started: std::time::Instant,
    /// How far the clock was put forward.
    pub(crate) skipped_ns: u64,
}

impl Host {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            server: Server::new(limits),
            pool: Pool::default(),
            held: Vec::new(),
            disks: BTreeMap::new(),
            watched: BTreeMap::new(),
            edges: None,
            incoming: Vec::new(),
            started: std::time::Instant::now(),
            skipped_ns: 0,
        }
    }

    /// The same with edge-triggered polling.
    #[allow(dead_code, reason = "tests only")]
    pub(crate) fn edge_triggered(limits: Limits) -> Self {
        let edges = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
        Self { edges: Some(edges), ..Self::new(limits) }
    }

    pub(crate) fn add(&mut self, export: Export, disk: Disk) {
        self.disks.insert(export.id, disk);
        self.server.add_export(export).expect("a valid export");
    }

    /// Its requests fail from now on.
    #[allow(dead_code, reason = "tests only")]
    pub(crate) fn forget_disk(&mut self, export: ExportId) {
        self.disks.remove(&export);
    }

    fn now(&self) -> Instant {
        let passed = u64::try_from(self.started.elapsed().as_nanos()).expect("a short test");
        Instant(passed + self.skipped_ns)
    }

    /// One turn of the loop, waiting at most `wait_ms`.
    pub(crate) fn turn(&mut self, wait_ms: i64) {
        self.watch();
        let wait_ms = if self.server.has_backlog() { 0 } else { wait_ms };
        let ready = self.wait(wait_ms);
        let now = self.now();
        for (token, ready) in ready {
            self.server.on_ready(token, ready);
        }
        if self.server.has_backlog() {
            self.server.resume(now, &mut self.pool, &mut self.incoming);
        }
        self.server.tick(now, &mut self.pool);
        let mut incoming = std::mem::take(&mut self.incoming);
        for request in incoming.drain(..) {
            if matches!(self.disks.get(&request.export), Some(Disk::Held(_))) {
                self.held.push(request);
            } else {
                self.answer(request);
            }
        }
        self.incoming = incoming;
        self.server.flush(now, &mut self.pool);
    }

    fn watch(&mut self) {
        for Interest { token, fd, want } in self.server.take_interests() {
            let Want::Watch { read, write } = want else {
                self.watched.remove(&token);
                continue;
            };
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, read);
            flags.set(PollFlags::OUT, write);
            let known = self.watched.insert(token, (fd, flags));
            let Some(edges) = &self.edges else { continue };
            // SAFETY: the server keeps descriptors open until it says that they are gone.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            let mut flags = EventFlags::IN | EventFlags::ET;
            flags.set(EventFlags::OUT, write);
            // Any change makes epoll report ready descriptors again, so only the necessary ones are
            // made.
            let data = EventData::new_u64(token.0);
            match known {
                None => epoll::add(edges, fd, data, flags).expect("epoll"),
                Some((_, old)) if old.contains(PollFlags::OUT) != write => {
                    epoll::modify(edges, fd, data, flags).expect("epoll");
                }
                Some(_) => {}
            }
        }
    }

    fn wait(&self, wait_ms: i64) -> Vec<(Token, Ready)> {
        let wait = Timespec { tv_sec: 0, tv_nsec: wait_ms * 1_000_000 };
        if let Some(edges) = &self.edges {
            let none = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
            let mut events = [none; 16];
            let count = epoll::wait(edges, &mut events[..], Some(&wait)).unwrap_or(0);
            let ready = |event: &Event| {
                let flags = event.flags;
                (Token(event.data.u64()), Ready::from_poll_bits(flags.bits()))
            };
            return events[..count].iter().map(ready).collect();
        }
        let mut fds: Vec<PollFd<'_>> = self
            .watched
            .values()
            .map(|(fd, flags)| {
                // SAFETY: the server keeps descriptors open until it says that they are gone.
                PollFd::from_borrowed_fd(unsafe { BorrowedFd::borrow_raw(*fd) }, *flags)
            })
            .collect();
        if poll(&mut fds, Some(&wait)).unwrap_or(0) == 0 {
            return Vec::new();
        }
        let tokens = self.watched.keys().zip(&fds);
        tokens
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|(token, fd)| (*token, Ready::from_poll_bits(u32::from(fd.revents().bits()))))
            .collect()
    }

    /// Answers the requests of held disks.
    #[allow(dead_code, reason = "tests only")]
    pub(crate) fn answer_held(&mut self) {
        for request in std::mem::take(&mut self.held) {
            self.answer(request);
        }
    }

    fn answer(&mut self, request: Incoming<Heap>) {
        let Incoming { ticket, export, command } = request;
        let result = match self.disks.get_mut(&export) {
            Some(Disk::Null) => Ok(null(command)),
            Some(Disk::Memory(bytes) | Disk::Held(bytes)) => Ok(execute(bytes, command)),
            None => {
                if let Command::Engine(Op::Read { data, .. } | Op::Write { data, .. })
                | Command::Prefetch { data, .. } = command
                {
                    self.pool.give(data);
                }
                Err(Failure::NoVolume)
            }
        };
        self.reply(ticket, result);
    }

    fn reply(&mut self, ticket: Ticket, result: Result<Body<Heap>, Failure>) {
        self.server.reply(ticket, result, &mut self.pool);
    }
}

fn null(command: Command<Heap>) -> Body<Heap> {
    match command {
        Command::Engine(Op::Read { data, .. } | Op::Write { data, .. })
        | Command::Prefetch { data, .. } => Body::Data(data),
        Command::Engine(_) | Command::BlockStatus { .. } => Body::Done,
    }
}

fn execute(disk: &mut [u8], command: Command<Heap>) -> Body<Heap> {
    let range = |span: ByteSpan| {
        let at = usize::try_from(span.offset).expect("a small disk");
        at..at + usize::try_from(span.len).expect("a small disk")
    };
    match command {
        Command::Engine(Op::Read { span, data }) | Command::Prefetch { span, data } => {
            data.fill(span.head_bytes(), &disk[range(span)]);
            Body::Data(data)
        }
        Command::Engine(Op::Write { span, data, .. }) => {
            disk[range(span)].copy_from_slice(data.slice(span.head_bytes(), span.len));
            Body::Data(data)
        }
        Command::Engine(Op::Trim { span, .. } | Op::WriteZeroes { span, .. }) => {
            disk[range(span)].fill(0);
            Body::Done
        }
        Command::Engine(Op::Flush | Op::Invalidate { .. }) => Body::Done,
        Command::BlockStatus { span, .. } => Body::Extents(
            disk[range(span)]
                .chunks(4096)
                .map(|chunk| {
                    let zero = chunk.iter().all(|byte| *byte == 0);
                    let kind = if zero { ExtentKind::Hole } else { ExtentKind::Data };
                    Extent { len: chunk.len() as u64, kind }
                })
                .collect(),
        ),
    }
}
