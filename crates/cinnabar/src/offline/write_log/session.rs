//! A write log at work without an engine: its requests go straight to back ends, of each one at a time and
//! in order, and no cache is in between.

use super::LogDevice;
use cinnabar_backend::port::{self, IoMode, Port, PortEvent, io_error};
use cinnabar_backend::work::{Work, translate};
use cinnabar_backend::{Disk, FileId, Job, JobOp, Memory};
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, Instant};
use cinnabar_engine::{
    Answer, Failure, IoDone, IoError, IoId, IoOp, Op, Payload, RequestId, Slice, Slices,
};
use cinnabar_writeback::{Action, Command, Done, EngineId, Event, LogVolumeId, Refusal, WriteLog};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Marks the tokens of I/O on the back end.
const BACKEND: u64 = 1 << 63;
/// Marks the tokens of I/O on the log's mirror.
const MIRROR: u64 = 1 << 62;
/// Longest wait for something to happen.
const WAIT: Duration = Duration::from_millis(100);

/// See the module.
pub struct Session {
    log: WriteLog<Memory>,
    port: Box<dyn Port>,
    device: LogDevice,
    log_files: [Option<FileId>; 2],
    backends: Vec<Backend>,
    begun: std::time::Instant,
    events: Vec<Event<Memory>>,
    actions: Vec<Action<Memory>>,
    wake: Option<Instant>,
    next_id: u64,
    replies: Vec<(RequestId, Result<Answer<Memory>, Failure>)>,
    answers: Vec<(RequestId, Result<Done, Refusal>)>,
    /// The first error of a back end, and whose it is.
    failed: Option<(LogVolumeId, rustix::io::Errno)>,
    /// Nothing is written to the log's devices.
    keeps_log: bool,
}

/// Where the writes of a volume go.
struct Backend {
    disk: Arc<Disk>,
    file: FileId,
    place: LogVolumeId,
    waiting: VecDeque<(EngineId, Op<Memory>)>,
    /// The request being carried out.
    running: Option<Running>,
}

struct Running {
    id: EngineId,
    op: Op<Memory>,
    /// Blocks around a write that the disk can't take by sectors are read first.
    reading: Option<Memory>,
}

impl Session {
    /// A log on its device. Of a volume without a back end nothing is destaged, and what only that has
    /// can't be read.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(
        log: WriteLog<Memory>,
        device: impl Into<LogDevice>,
        backends: impl IntoIterator<Item = (Arc<Disk>, LogVolumeId)>,
    ) -> std::io::Result<Self> {
        let mut port = port::open(IoMode::Auto).map_err(std::io::Error::other)?;
        let device = device.into();
        let mut log_files = [None, None];
        for (file, disk) in log_files.iter_mut().zip(device.disks()) {
            *file = disk.as_ref().map(|disk| port.register(Arc::clone(disk))).transpose()?;
        }
        let backends = backends.into_iter().map(|(disk, place)| {
            let file = port.register(Arc::clone(&disk))?;
            Ok::<_, std::io::Error>(Backend {
                disk,
                file,
                place,
                waiting: VecDeque::new(),
                running: None,
            })
        });
        let backends = backends.collect::<Result<_, _>>()?;
        Ok(Self {
            log,
            port,
            device,
            log_files,
            backends,
            begun: std::time::Instant::now(),
            events: Vec::new(),
            actions: Vec::new(),
            wake: None,
            next_id: 0,
            replies: Vec::new(),
            answers: Vec::new(),
            failed: None,
            keeps_log: false,
        })
    }

    /// What is destaged from now on is not recorded: the log stays as it is.
    pub(super) fn keep_log(&mut self) {
        self.keeps_log = true;
    }

    pub fn log(&self) -> &WriteLog<Memory> {
        &self.log
    }

    /// The first error of a back end, if there was one, and whose it is.
    pub fn failed(&self) -> Option<(LogVolumeId, rustix::io::Errno)> {
        self.failed
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn new_id(&mut self) -> RequestId {
        self.next_id += 1;
        RequestId(self.next_id)
    }

    /// A request to the volume at a place, carried out.
    ///
    /// # Errors
    /// Why it failed, or an I/O error if nothing can happen any more.
    pub fn request(
        &mut self,
        place: LogVolumeId,
        op: Op<Memory>,
    ) -> Result<Answer<Memory>, Failure> {
        let id = self.new_id();
        self.events.push(Event::Submit(id, place, op));
        loop {
            self.turn().map_err(|_| Failure::Io(IoError::Io))?;
            if let Some(at) = self.replies.iter().position(|(of, _)| *of == id) {
                return self.replies.swap_remove(at).1;
            }
        }
    }

    /// Gives a command; its answer comes with [`answer`](Self::answer).
    pub fn command(&mut self, command: Command) -> RequestId {
        let id = self.new_id();
        self.events.push(Event::Control(id, command));
        id
    }

    /// The answer to a command, if it is there.
    pub fn answer(&mut self, id: RequestId) -> Option<Result<Done, Refusal>> {
        let at = self.answers.iter().position(|(of, _)| *of == id)?;
        Some(self.answers.swap_remove(at).1)
    }

    /// Carries a command out.
    ///
    /// # Errors
    /// Why it was refused.
    pub fn carry_out(&mut self, command: Command) -> Result<Done, Refusal> {
        let id = self.command(command);
        loop {
            self.turn().map_err(|_| Refusal::Lost)?;
            if let Some(answer) = self.answer(id) {
                return answer;
            }
        }
    }

    /// Does what there is to do, and waits for a moment if that is nothing.
    ///
    /// # Errors
    /// If the kernel's I/O can't be used any more.
    pub fn turn(&mut self) -> std::io::Result<()> {
        self.apply();
        let mut happened = Vec::new();
        let now = self.now();
        let until = self.wake.map_or(WAIT, |at| Duration::from_nanos(at.since_ns(now)).min(WAIT));
        let idle = self.events.is_empty();
        self.port.wait(Some(if idle { until } else { Duration::ZERO }), &mut happened)?;
        for event in happened {
            match event {
                PortEvent::Done(done) if done.token & BACKEND != 0 => {
                    self.backend_done((done.token & !BACKEND) as usize, done.result);
                }
                PortEvent::Done(done) => {
                    let result = done.result.map_err(io_error);
                    let (half, id) = (usize::from(done.token & MIRROR != 0), done.token & !MIRROR);
                    let done = IoDone { pages: done.pages, ..IoDone::new(IoId(id), result) };
                    self.device.done(half, done);
                    self.carry_out_log_io();
                }
                PortEvent::Restarted { .. } => {
                    for backend in &self.backends {
                        // Before any later answer.
                        let command = Command::Restarted(backend.place);
                        self.events.push(Event::Control(RequestId(0), command));
                    }
                }
                PortEvent::Ready { .. } | PortEvent::Woken => {}
            }
        }
        if self.wake.is_some_and(|at| at <= self.now()) {
            self.wake = None;
            self.events.push(Event::Wake);
        }
        self.apply();
        Ok(())
    }

    fn apply(&mut self) {
        if !self.events.is_empty() {
            let now = self.now();
            self.log.apply(now, &mut self.events, &mut self.actions);
        }
        for action in std::mem::take(&mut self.actions) {
            match action {
                Action::Log(id, op) => {
                    let before = self.log.reads_again(id);
                    self.device.submit(id, op, before);
                }
                Action::Memory(_) => unreachable!("it was opened without a write memory"),
                Action::Engine(id, place, op) => {
                    // Without a back end it is away: nothing is answered.
                    let own = |backend: &&mut Backend| backend.place == place;
                    if let Some(backend) = self.backends.iter_mut().find(own) {
                        backend.waiting.push_back((id, op));
                    }
                }
                Action::Reply(id, result) => self.replies.push((id, result)),
                Action::Answer(id, result) => self.answers.push((id, result)),
                Action::WakeAt(at) => {
                    self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
                }
            }
        }
        self.device.advance(&self.log);
        self.carry_out_log_io();
        (0..self.backends.len()).for_each(|which| self.begin_next(which));
    }

    /// What is to be done on the log's devices, and what has been.
    fn carry_out_log_io(&mut self) {
        let mut out = self.device.take();
        if self.keeps_log {
            let changes = |op: &IoOp<Memory>| matches!(op, IoOp::WriteMeta { .. } | IoOp::Flush);
            loop {
                let kept: Vec<_> = out.ios.extract_if(.., |(_, _, op)| changes(op)).collect();
                if kept.is_empty() {
                    break;
                }
                for (half, id, _) in kept {
                    self.device.done(half, IoDone::new(id, Ok(())));
                }
                // What follows from that on two halves.
                let next = self.device.take();
                out.done.extend(next.done);
                out.ios.extend(next.ios);
            }
        }
        self.events.extend(out.done.into_iter().map(Event::LogDone));
        for (half, id, op) in out.ios {
            let (_, Work::Port(op)) = translate(op) else {
                unreachable!("a log's device is not asked for proofs")
            };
            let file = self.log_files[half].expect("a half that is in use is there");
            let token = id.0 | if half == 1 { MIRROR } else { 0 };
            self.port.submit(Job { token, file, op });
        }
    }

    /// Begins the next request of a back end.
    fn begin_next(&mut self, which: usize) {
        let backend = &mut self.backends[which];
        if backend.running.is_some() {
            return;
        }
        let Some((id, op)) = backend.waiting.pop_front() else { return };
        let align = u64::from(backend.disk.align_bytes());
        let reading = match &op {
            Op::Write { span, .. } if span.offset % align != 0 || span.len % align != 0 => {
                Some(Memory::alloc(span.blocks() as u32))
            }
            _ => None,
        };
        let job = match (&reading, &op) {
            (Some(memory), Op::Write { span, .. }) => {
                let offset = span.first_block() * BLOCK_BYTES;
                JobOp::Read { offset, pages: Vec::new(), data: blocks(memory, span.blocks()) }
            }
            (None, op) => job_of(op),
            (Some(_), _) => unreachable!("only writes are read before"),
        };
        backend.running = Some(Running { id, op, reading });
        self.port.submit(Job { token: BACKEND | which as u64, file: backend.file, op: job });
    }

    fn backend_done(&mut self, which: usize, result: Result<(), rustix::io::Errno>) {
        let backend = &mut self.backends[which];
        let running = backend.running.as_mut().expect("one request at a time");
        if let Err(errno) = result {
            self.failed.get_or_insert((backend.place, errno));
        } else if let Some(memory) = running.reading.take() {
            let Op::Write { span, data, fua } = &running.op else {
                unreachable!("only writes are read before")
            };
            let head = span.head_bytes();
            memory.copy_from(head, data, head, span.len);
            let (offset, data) = (span.first_block() * BLOCK_BYTES, blocks(&memory, span.blocks()));
            let op = JobOp::Write { offset, pages: Vec::new(), data, fua: *fua };
            self.port.submit(Job { token: BACKEND | which as u64, file: backend.file, op });
            return;
        }
        let Running { id, op, .. } = backend.running.take().expect("just looked at");
        let answer = match op {
            Op::Read { data, .. } | Op::Write { data, .. } => Answer::Data(data),
            _ => Answer::Done,
        };
        let result = result.map(|()| answer).map_err(|errno| Failure::Io(io_error(errno)));
        self.events.push(Event::EngineDone(id, result));
        self.begin_next(which);
    }
}

fn blocks(memory: &Memory, count: u64) -> Slices<Memory> {
    std::iter::once(Slice { data: memory.clone(), at: 0, len: count * BLOCK_BYTES }).collect()
}

/// A request that the disk can take as it is.
fn job_of(op: &Op<Memory>) -> JobOp {
    let part = |span: &ByteSpan, data: &Memory| {
        let slice = Slice { data: data.clone(), at: span.head_bytes(), len: span.len };
        std::iter::once(slice).collect()
    };
    let pages = Vec::new();
    match op {
        Op::Read { span, data } => {
            JobOp::Read { offset: span.offset, pages, data: part(span, data) }
        }
        Op::Write { span, data, fua } => {
            JobOp::Write { offset: span.offset, pages, data: part(span, data), fua: *fua }
        }
        Op::Flush => JobOp::Flush,
        Op::Trim { span, .. } => JobOp::Trim { span: *span },
        Op::WriteZeroes { span, may_punch, .. } => {
            JobOp::WriteZeroes { span: *span, may_punch: *may_punch }
        }
        Op::Invalidate { .. } => unreachable!("a write log does not ask for this"),
    }
}
