//! Clients that hold all they can get, or ask for all that can be served. They don't listen to what the server says.

use super::HOSTILE_DISKS;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const READ: u16 = 0;
const WRITE: u16 = 1;
const BLOCK_STATUS: u16 = 7;
/// The longest request.
const LONG: u32 = 32 << 20;
const DISK: u32 = super::DISK as u32;
/// Between two tries to connect, or looks whether it was thrown out.
const STEP: Duration = Duration::from_millis(20);

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
}

/// What one connection does.
#[derive(Clone, Debug)]
enum Script {
    /// Says this and nothing more.
    Say(Vec<u8>),
    /// Says the first and then the second for ever, and takes what comes.
    Flood(Vec<u8>, Vec<u8>),
}

impl Attack {
    pub(super) const ALL: [Self; 8] = [
        Self::Nothing,
        Self::BusyLoops,
        Self::HoldMemory,
        Self::UnreadReplies,
        Self::FloodReads,
        Self::FloodStatus,
        Self::FloodLongReads,
        Self::HalfOpen,
    ];

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
        }
    }

    /// The disk and the script of each connection.
    fn connections(self) -> Vec<(usize, Script)> {
        let on_first = |count, script: Script| vec![(0, script); count];
        let hello = || hello(&disk(0));
        let flood = |kind, len, times| Script::Flood(hello(), request(kind, 0, len).repeat(times));
        match self {
            Self::Nothing | Self::BusyLoops => Vec::new(),
            Self::HoldMemory => {
                let unread = request(READ, 0, LONG).repeat(3);
                let mut all = on_first(9, Script::Say([hello(), unread].concat()));
                // Each takes half of what those before it left.
                for size in (0..17).map(|halvings| (LONG >> halvings).max(4096)) {
                    let unsent = [hello(), request(WRITE, 0, size), vec![0]].concat();
                    all.push((0, Script::Say(unsent)));
                }
                all
            }
            Self::UnreadReplies => {
                on_first(64, Script::Say([hello(), request(READ, 0, LONG)].concat()))
            }
            Self::FloodReads => on_first(64, flood(READ, 4096, 512)),
            Self::FloodStatus => on_first(64, flood(BLOCK_STATUS, DISK, 512)),
            Self::FloodLongReads => on_first(8, flood(READ, LONG, 4)),
            Self::HalfOpen => {
                let of = |disk| vec![(disk, Script::Say(Vec::new())); 128];
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

/// An attack under way.
pub(super) struct Hostile {
    over: Arc<AtomicBool>,
    /// The stream of each connection, to end it.
    streams: Vec<Arc<Mutex<Option<UnixStream>>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Hostile {
    pub(super) fn start(attack: Attack, socket: impl Fn(&str) -> PathBuf) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (mut streams, mut threads) = (Vec::new(), Vec::new());
        for _ in 0..if attack == Attack::BusyLoops { 2 } else { 0 } {
            let over = Arc::clone(&over);
            threads.push(thread::spawn(move || while !over.load(Ordering::Relaxed) {}));
        }
        for (number, script) in attack.connections() {
            let (over, stream) = (Arc::clone(&over), Arc::default());
            let (socket, at) = (socket(&disk(number)), Arc::clone(&stream));
            streams.push(stream);
            threads.push(thread::spawn(move || come_back(&socket, &script, &over, &at)));
            // One after the other: each takes of what those before it left.
            if attack == Attack::HoldMemory {
                thread::sleep(STEP);
            }
        }
        Self { over, streams, threads }
    }

    pub(super) fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        for stream in self.streams {
            if let Some(stream) = &*stream.lock().unwrap_or_else(PoisonError::into_inner) {
                // The server may have done so before.
                let _gone = stream.shutdown(Shutdown::Both);
            }
        }
        for thread in self.threads {
            thread.join().expect("a hostile client does not panic");
        }
    }
}

/// A connection, made again whenever it ends.
fn come_back(socket: &Path, script: &Script, over: &AtomicBool, at: &Mutex<Option<UnixStream>>) {
    while !over.load(Ordering::Relaxed) {
        let connected = UnixStream::connect(socket).and_then(|stream| {
            *at.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream.try_clone()?);
            Ok(stream)
        });
        // Thrown out or turned away: it tries again.
        let _ended = connected.and_then(|stream| match script {
            Script::Say(text) => say(stream, text, over),
            Script::Flood(hello, again) => flood(stream, hello, again, over),
        });
        thread::sleep(STEP);
    }
}

fn say(mut stream: UnixStream, text: &[u8], over: &AtomicBool) -> std::io::Result<()> {
    stream.write_all(text)?;
    while !over.load(Ordering::Relaxed) {
        // Nothing is read: only that it was hung up is of interest.
        let mut fds = [PollFd::new(&stream, PollFlags::empty())];
        let wait = Timespec { tv_sec: 0, tv_nsec: STEP.as_nanos() as i64 };
        if poll(&mut fds, Some(&wait))? > 0 {
            return Ok(());
        }
    }
    Ok(())
}

fn flood(
    mut stream: UnixStream,
    hello: &[u8],
    again: &[u8],
    over: &AtomicBool,
) -> std::io::Result<()> {
    let mut replies = stream.try_clone()?;
    let reader = thread::spawn(move || {
        let mut piece = vec![0; 256 << 10];
        while replies.read(&mut piece).is_ok_and(|len| len > 0) {}
    });
    let mut said = stream.write_all(hello);
    while said.is_ok() && !over.load(Ordering::Relaxed) {
        said = stream.write_all(again);
    }
    let _gone = stream.shutdown(Shutdown::Both);
    reader.join().expect("it only reads");
    said
}
