//! Clients that hold all they can get, or ask for all that can be served. They don't listen to what the server says.

use super::front_end::FrontEnd;
use super::{HOSTILE_DISKS, beside};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const BLOCK_STATUS: u16 = 7;
/// The longest request.
const LONG: u32 = 32 << 20;
const DISK: u32 = super::DISK as u32;
/// Between two tries to connect, or looks whether it was thrown out.
const STEP: Duration = Duration::from_millis(1);

/// Connections that hold replies which they don't read.
const HOLDERS: usize = 9;
/// Until others come.
const HOLDERS_ALONE: Duration = Duration::from_secs(1);

/// What is done beside the victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Attack {
    Nothing,
    BusyLoops,
    HoldMemory,
    UnreadReplies,
    FloodReads,
    FloodStatus,
    FloodLongReads,
    HalfOpen,
    VhostReads,
    VhostLongReads,
    LateLogs,
    StuckLog,
    HungBackEnds,
}

/// What one connection does.
#[derive(Clone, Debug)]
enum Script {
    /// Says this and nothing more.
    Say(Vec<u8>),
    /// Says the first and then the second again and again, and takes what comes.
    Flood(Vec<u8>, Vec<u8>),
}

impl Attack {
    pub(super) const fn says(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::BusyLoops => "two busy loops",
            Self::HoldMemory => "26 connections that hold memory: unread replies, unsent payloads",
            Self::UnreadReplies => "64 connections that read no replies of 32 MiB",
            Self::FloodReads => "64 connections, cached 4 KiB reads without a pause",
            Self::FloodStatus => "64 connections, block status without a pause",
            Self::FloodLongReads => "8 connections, cached 32 MiB reads without a pause",
            Self::HalfOpen => "128 connections to each of 8 disks that say nothing",
            Self::VhostReads => "a vhost-user front end, 32 reads of 4 KiB without a pause",
            Self::VhostLongReads => "a vhost-user front end, 32 reads of 1 MiB without a pause",
            Self::LateLogs => "a vhost-user front end with 2 TiB and late logs of dirty pages",
            Self::StuckLog => "nobody reads the log, and 8 connections fill it",
            Self::HungBackEnds => "80 of 400 back ends hang, with 8 requests each",
        }
    }

    /// Whether it comes over the vhost-user socket of the first disk.
    pub(super) const fn is_vhost(self) -> bool {
        matches!(self, Self::VhostReads | Self::VhostLongReads | Self::LateLogs)
    }

    /// The disk and the script of each connection.
    fn connections(self) -> Vec<(String, Script)> {
        let on_first = |count, script: Script| vec![(disk(0), script); count];
        let hello = || hello(&disk(0));
        let flood = |kind, len, times| Script::Flood(hello(), request(kind, 0, len).repeat(times));
        match self {
            Self::Nothing
            | Self::BusyLoops
            | Self::VhostReads
            | Self::VhostLongReads
            | Self::LateLogs => Vec::new(),
            Self::HoldMemory => {
                let unread = request(READ, 0, LONG).repeat(3);
                let mut all = on_first(HOLDERS, Script::Say([hello(), unread].concat()));
                // What is left of 1 GiB, by halves: what one export could have before exports were counted.
                let (mut free, mut size) = ((1 << 30) - HOLDERS as u32 * 3 * LONG, LONG);
                while size >= 4096 {
                    if size > free / 2 {
                        size /= 2;
                        continue;
                    }
                    let unsent = [hello(), request(WRITE, 0, size), vec![0]].concat();
                    all.push((disk(0), Script::Say(unsent)));
                    free -= size;
                }
                all
            }
            Self::StuckLog => on_first(8, Script::Say(b"GARBAGE!".repeat(10))),
            Self::HungBackEnds => {
                let asks = [request(READ, 0, 4096), request(FLUSH, 0, 0)].concat().repeat(4);
                let of = |name: String| {
                    let hello = self::hello(&name);
                    let script = Script::Say([hello, asks.clone()].concat());
                    (name, script)
                };
                (0..beside::HUNG).map(beside::hung).map(of).collect()
            }
            Self::UnreadReplies => {
                on_first(64, Script::Say([hello(), request(READ, 0, LONG)].concat()))
            }
            Self::FloodReads => on_first(64, flood(READ, 4096, 512)),
            Self::FloodStatus => on_first(64, flood(BLOCK_STATUS, DISK, 512)),
            Self::FloodLongReads => on_first(8, flood(READ, LONG, 4)),
            Self::HalfOpen => {
                let of = |number| vec![(disk(number), Script::Say(Vec::new())); 128];
                (0..HOSTILE_DISKS).flat_map(of).collect()
            }
        }
    }
}

/// The name of a disk of the hostile tenant.
pub(super) fn disk(number: usize) -> String {
    format!("hostile{number}")
}

/// The handshake to its end, with block status.
fn hello(export: &str) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat();
    let option = |kind: u32, data: &[u8]| {
        let len = (data.len() as u32).to_be_bytes();
        [b"IHAVEOPT", &kind.to_be_bytes()[..], &len, data].concat()
    };
    let context = [text(export), 1_u32.to_be_bytes().to_vec(), text("base:allocation")].concat();
    let (structured, set_context) = (option(8, &[]), option(10, &context));
    [3_u32.to_be_bytes().to_vec(), structured, set_context, option(1, export.as_bytes())].concat()
}

fn request(kind: u16, offset: u64, len: u32) -> Vec<u8> {
    let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
    request.extend([0, 0]);
    request.extend(kind.to_be_bytes());
    request.extend([7; 8]);
    request.extend(offset.to_be_bytes());
    request.extend(len.to_be_bytes());
    request
}

/// An attack under way, by one thread: it takes the CPU time that one guest's process takes.
pub(super) struct Hostile {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Hostile {
    pub(super) fn start(attack: Attack, socket: impl Fn(&str) -> PathBuf) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        // The first ones have got theirs before the others come.
        let wait = |number| if number < HOLDERS { STEP } else { HOLDERS_ALONE };
        let connection = |(number, (disk, script)): (usize, (String, Script))| {
            let wait = if attack == Attack::HoldMemory { wait(number) } else { STEP };
            Connection::new(socket(&disk), script, wait)
        };
        let mut all: Vec<_> =
            attack.connections().into_iter().enumerate().map(connection).collect();
        let idle = if attack == Attack::BusyLoops { 2 } else { 0 };
        let mut threads = Vec::new();
        for _ in 0..idle {
            let over = Arc::clone(&over);
            threads.push(thread::spawn(move || while !over.load(Ordering::Relaxed) {}));
        }
        if attack.is_vhost() {
            let (over, socket) = (Arc::clone(&over), socket(&disk(0)));
            let front_end = FrontEnd::new().expect("files in memory");
            threads.push(thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let done = match attack {
                        Attack::VhostReads => front_end.flood(&socket, 1, &over),
                        Attack::VhostLongReads => front_end.flood(&socket, 4, &over),
                        _ => front_end.come_and_go(&socket),
                    };
                    // What it is told is of no interest.
                    if done.is_err() {
                        thread::sleep(STEP);
                    }
                }
            }));
        }
        let is_over = Arc::clone(&over);
        threads.push(thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let gone_on = all.iter_mut().filter_map(Connection::go_on).count();
                if gone_on == 0 {
                    thread::sleep(STEP);
                }
            }
        }));
        Self { over, threads }
    }

    pub(super) fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a hostile client does not panic");
        }
    }
}

/// A connection, made again whenever it ends.
struct Connection {
    socket: PathBuf,
    script: Script,
    stream: Option<UnixStream>,
    /// What is said now, and how much of it was.
    saying: Vec<u8>,
    said: usize,
    /// It connects so long after that.
    ended: Instant,
    wait: Duration,
}

impl Connection {
    fn new(socket: PathBuf, script: Script, wait: Duration) -> Self {
        let ended = Instant::now();
        Self { socket, script, stream: None, saying: Vec::new(), said: 0, ended, wait }
    }

    /// Does what can be done without waiting; `None`: nothing.
    fn go_on(&mut self) -> Option<()> {
        let gone_on = match &mut self.stream {
            Some(stream) => Self::talk(stream, &self.script, &mut self.saying, &mut self.said),
            None if self.ended.elapsed() < self.wait => Ok(false),
            None => self.connect(),
        };
        match gone_on {
            Ok(gone_on) => gone_on.then_some(()),
            Err(_thrown_out) => {
                (self.stream, self.ended, self.wait) = (None, Instant::now(), STEP);
                None
            }
        }
    }

    fn connect(&mut self) -> std::io::Result<bool> {
        let stream = UnixStream::connect(&self.socket)?;
        stream.set_nonblocking(true)?;
        let (Script::Say(first) | Script::Flood(first, _)) = &self.script;
        (self.saying, self.said, self.stream) = (first.clone(), 0, Some(stream));
        Ok(true)
    }

    fn talk(
        stream: &mut UnixStream,
        script: &Script,
        saying: &mut Vec<u8>,
        said: &mut usize,
    ) -> std::io::Result<bool> {
        let mut gone_on = false;
        if let Script::Flood(_, again) = script {
            if *said == saying.len() {
                saying.clone_from(again);
                *said = 0;
            }
            let mut piece = [0; 16 << 10];
            gone_on |= done(stream.read(&mut piece))?.is_some_and(|len| len > 0);
        } else if *said == saying.len() {
            // Nothing is read: only that it was hung up is of interest.
            let mut fds = [PollFd::new(&*stream, PollFlags::empty())];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            return match poll(&mut fds, Some(&at_once))? {
                0 => Ok(false),
                _ => Err(ErrorKind::ConnectionReset.into()),
            };
        }
        if let Some(len) = done(stream.write(&saying[*said..]))? {
            *said += len;
            gone_on = true;
        }
        Ok(gone_on)
    }
}

/// `None`: not now.
fn done(result: std::io::Result<usize>) -> std::io::Result<Option<usize>> {
    match result {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(len) => Ok(Some(len)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
