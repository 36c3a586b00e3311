//! The smallest possible daemon around the vhost-user server: a poll and disks in memory. For tests
//! and fuzzing.

use super::memory::{Heap, Pool};
use super::vhost_guest::Link;
use cinnabar_engine::seam::units::{ByteSpan, Instant};
use cinnabar_engine::seam::{Failure, Op};
use cinnabar_frontend::vhost::{
    Body, Command, Export, ExportId, Incoming, Interest, Limits, Ready, Server, Token, Want,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes of the disks.
pub(crate) const DISK: usize = (1 << 20) + 512;

/// Server, disk and loop.
pub(crate) struct Host {
    pub(crate) server: Server<Heap>,
    pub(crate) pool: Pool,
    pub(crate) disk: Vec<u8>,
    /// Requests wait here until they are answered by hand.
    pub(crate) hold: bool,
    pub(crate) held: Vec<Incoming<Heap>>,
    /// What was asked of the disk, in order: kind, offset, length, durable.
    pub(crate) seen: Vec<(char, u64, u64, bool)>,
    pub(crate) woken: Arc<AtomicUsize>,
    pub(crate) now: Instant,
    watched: BTreeMap<Token, (RawFd, PollFlags)>,
    incoming: Vec<Incoming<Heap>>,
    directory: Option<tempfile::TempDir>,
}

/// What a new disk holds: every sector another byte than its neighbours.
fn pattern() -> &'static Vec<u8> {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| (0..DISK).map(|at| (at / 512 % 251) as u8).collect())
}

pub(crate) fn export() -> Export {
    Export {
        id: ExportId(1),
        name: "golden".into(),
        size_bytes: DISK as u64,
        read_only: false,
        min_block_bytes: 512,
        queues_max: 4,
        memory_bytes_max: 16 << 40,
    }
}

impl Host {
    pub(crate) fn new(limits: Limits) -> Self {
        let woken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&woken);
        let waker = Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        Self {
            server: Server::new(limits, waker),
            pool: Pool::default(),
            disk: pattern().clone(),
            hold: false,
            held: Vec::new(),
            seen: Vec::new(),
            woken,
            now: Instant(1),
            watched: BTreeMap::new(),
            incoming: Vec::new(),
            directory: None,
        }
    }

    /// The same with an export at a socket in a temporary directory.
    pub(crate) fn serving(limits: Limits, export: Export) -> Self {
        let mut host = Self::new(limits);
        // In memory where there is such a place: fuzzing makes many.
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let directory = directory.expect("a temporary directory");
        let path = directory.path().join("vm.sock");
        let socket = cinnabar_frontend::vhost::SocketSpec { path, mode: None, group: None };
        host.server.add(export, socket).expect("a valid export");
        host.directory = Some(directory);
        host
    }

    #[allow(dead_code, reason = "tests only")]
    pub(crate) fn socket(&self) -> std::path::PathBuf {
        self.directory.as_ref().expect("it serves").path().join("vm.sock")
    }

    /// A front-end that is connected.
    pub(crate) fn connect(&mut self, export: ExportId) -> Link {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets");
        assert!(self.server.adopt(export, theirs));
        Link(ours)
    }

    /// Turns of the loop until nothing is left to do.
    pub(crate) fn settle(&mut self) {
        for _ in 0..200 {
            if !self.turn(0) {
                return;
            }
        }
        panic!("the loop never rests");
    }

    /// One turn, waiting at most `wait_ms`. True if anything happened.
    pub(crate) fn turn(&mut self, wait_ms: i64) -> bool {
        self.turn_with(wait_ms, || {})
    }

    /// The same; `between` runs when the loop knows what is ready and has looked at none of it.
    pub(crate) fn turn_with(&mut self, wait_ms: i64, between: impl FnOnce()) -> bool {
        self.watch();
        let backlog = self.server.has_backlog();
        let ready = self.wait(if backlog { 0 } else { wait_ms });
        between();
        for (token, ready) in &ready {
            self.server.on_ready(*token, *ready, self.now, &mut self.incoming);
        }
        if self.server.has_backlog() {
            self.server.resume(self.now, &mut self.pool, &mut self.incoming);
        }
        self.server.tick(self.now, &mut self.pool);
        self.carry_out();
        self.server.flush(self.now, &mut self.pool);
        backlog || !ready.is_empty() || self.server.has_backlog()
    }

    /// Looks at the rings without waiting, then answers.
    pub(crate) fn poll_rings(&mut self) -> bool {
        let found = self.server.poll(self.now);
        if found {
            self.server.resume(self.now, &mut self.pool, &mut self.incoming);
        }
        self.carry_out();
        self.server.flush(self.now, &mut self.pool);
        found
    }

    fn carry_out(&mut self) {
        for request in std::mem::take(&mut self.incoming) {
            let Command::Engine(op) = &request.command else { panic!("only the engine's") };
            self.seen.push(describe(op));
            if self.hold { self.held.push(request) } else { self.answer(request) }
        }
    }

    fn watch(&mut self) {
        for Interest { token, fd, want } in self.server.take_interests() {
            assert!(token.is_vhost());
            let Want::Watch { read, write } = want else {
                self.watched.remove(&token);
                continue;
            };
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, read);
            flags.set(PollFlags::OUT, write);
            self.watched.insert(token, (fd, flags));
        }
    }

    fn wait(&self, wait_ms: i64) -> Vec<(Token, Ready)> {
        let wait = Timespec { tv_sec: 0, tv_nsec: wait_ms * 1_000_000 };
        let mut fds: Vec<PollFd<'_>> = self
            .watched
            .values()
            .map(|(fd, flags)| {
                // SAFETY: the server keeps descriptors open until it says that they are gone.
                PollFd::from_borrowed_fd(unsafe { BorrowedFd::borrow_raw(*fd) }, *flags)
            })
            .collect();
        let _ = poll(&mut fds, Some(&wait));
        let tokens = self.watched.keys().zip(&fds);
        tokens
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|(token, fd)| (*token, Ready::from_poll_bits(u32::from(fd.revents().bits()))))
            .collect()
    }

    /// Answers the requests that wait, newest first if `reverse`.
    pub(crate) fn answer_held(&mut self, reverse: bool) {
        let mut held = std::mem::take(&mut self.held);
        if reverse {
            held.reverse();
        }
        for request in held {
            self.answer(request);
        }
    }

    pub(crate) fn answer(&mut self, request: Incoming<Heap>) {
        let Command::Engine(op) = request.command else { panic!("only the engine's") };
        let body = execute(&mut self.disk, op);
        self.server.reply(request.ticket, Ok(body), &mut self.pool);
    }

    /// Answers a request with an error, giving up its buffer.
    #[allow(dead_code, reason = "tests only")]
    pub(crate) fn fail(&mut self, request: Incoming<Heap>, failure: Failure) {
        use cinnabar_frontend::vhost::Buffers;
        if let Command::Engine(Op::Read { data, .. } | Op::Write { data, .. }) = request.command {
            self.pool.give(data);
        }
        self.server.reply(request.ticket, Err(failure), &mut self.pool);
    }

    /// Whether everything came back.
    pub(crate) fn is_clear(&self) -> bool {
        let stats = self.server.stats();
        (self.pool.out(), stats.held_requests, stats.held_bytes) == (0, 0, 0)
    }
}

fn describe(op: &Op<Heap>) -> (char, u64, u64, bool) {
    match op {
        Op::Read { span, .. } => ('r', span.offset, span.len, false),
        Op::Write { span, fua, .. } => ('w', span.offset, span.len, *fua),
        Op::Trim { span, fua } => ('t', span.offset, span.len, *fua),
        Op::WriteZeroes { span, fua, .. } => ('z', span.offset, span.len, *fua),
        Op::Flush | Op::Invalidate { .. } => ('f', 0, 0, false),
    }
}

fn execute(disk: &mut [u8], op: Op<Heap>) -> Body<Heap> {
    let range = |span: ByteSpan| span.offset as usize..span.end() as usize;
    match op {
        Op::Read { span, data } => {
            data.fill(span.head_bytes(), &disk[range(span)]);
            Body::Data(data)
        }
        Op::Write { span, data, .. } => {
            disk[range(span)].copy_from_slice(data.slice(span.head_bytes(), span.len));
            Body::Data(data)
        }
        Op::Trim { span, .. } | Op::WriteZeroes { span, .. } => {
            disk[range(span)].fill(0);
            Body::Done
        }
        Op::Flush | Op::Invalidate { .. } => Body::Done,
    }
}
