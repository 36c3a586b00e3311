//! The machines of `cinnabar serve --demo` at work: a thread each, a client of its volume over NBD
//! like any other.
//!
//! The demonstration starts this program, and ends it by closing its stdin: so does its death.

use cinnabar_bench::drive::{DriveError, Observer, Pace, Played, Timed, drive};
use cinnabar_bench::target::{Target, UnitSpec};
use cinnabar_text::Failure;
use cinnabar_text::cli::logging;
use cinnabar_trace::demo::{GUESTS, Guest};
use cinnabar_trace::generate::demo::requests;
use cinnabar_trace::{Op, Record};
use std::convert::Infallible;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Until a machine whose disk failed tries again.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// Until a request of a volume that is not there is given up, in seconds.
const GIVE_UP_S: u64 = 3;
/// How long an end waits for requests under way; the end of the process cuts off the rest.
const END_MAX: Duration = Duration::from_secs(5);
/// How often an end looks whether they are done.
const LOOK: Duration = Duration::from_millis(10);

/// Where the demonstration is.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cinnabar-lab demo-load /tmp/cinnabar-demo-x7f3")]
pub(super) struct Args {
    /// The demonstration's folder, with the sockets of its volumes
    folder: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    logging::init()?;
    let load = Load::start(&args.folder)
        .map_err(|error| Failure::at_run_time(format!("the machines can't work: {error}"), ""))?;
    until_end_of(io::stdin());
    drop(load);
    Ok(())
}

/// Reads until there is no more to come.
fn until_end_of(mut input: impl Read) {
    let mut piece = [0; 512];
    loop {
        match input.read(&mut piece) {
            Ok(1..) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return,
        }
    }
}

/// All machines at work, until it is dropped.
#[derive(Debug)]
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts them; their volumes are served.
    fn start(folder: &Path) -> io::Result<Self> {
        let mut load = Self { stop: Arc::default(), threads: Vec::new() };
        for guest in GUESTS {
            let (stop, socket) = (Arc::clone(&load.stop), socket(folder, &guest));
            let thread = thread::Builder::new().name(format!("demo-{}", guest.name));
            load.threads.push(thread.spawn(move || work(&guest, &socket, &stop))?);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && begun.elapsed() < END_MAX {
                thread::sleep(LOOK);
            }
            if thread.is_finished() && thread.join().is_err() {
                tracing::error!("a machine of the demonstration ended unexpectedly");
            }
        }
    }
}

/// Where a machine finds its volume.
fn socket(folder: &Path, guest: &Guest) -> PathBuf {
    folder.join(format!("{}.sock", guest.name))
}

/// One machine. Its volume may be removed, changed or cut off like any other: it goes on as soon as it can.
fn work(guest: &Guest, socket: &Path, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let Err(error) = session(guest, socket, stop) else { continue };
        tracing::info!("{} lost its disk, and tries again: {error}", guest.name);
        let lost = Instant::now();
        while lost.elapsed() < AGAIN_AFTER && !stop.load(Ordering::Relaxed) {
            thread::sleep(LOOK);
        }
    }
}

fn session(guest: &Guest, socket: &Path, stop: &AtomicBool) -> Result<(), DriveError<Infallible>> {
    let unit = UnitSpec {
        name: guest.name.into(),
        places: vec![format!(
            "nbd,connections=1,give_up_s={GIVE_UP_S}:unix:{}:{}",
            socket.display(),
            guest.name
        )],
        read_only: false,
        cached: false,
    };
    let mut target = Target::open(&[unit], None)?;
    let pace = Pace::Open { from_ns: 0, speed: 1.0 };
    drive(&mut target, &mut requests(guest).map(|one| Ok(timed(&one))), pace, &mut Until(stop))?;
    Ok(target.close()?)
}

/// A request as it is driven.
const fn timed(record: &Record) -> Timed {
    Timed {
        at_ns: record.ts_us * 1000,
        unit: 0,
        write: matches!(record.op, Op::Write),
        offset: record.offset_bytes,
        len: record.length_bytes,
        stream: 0,
    }
}

/// Looks ten times a second whether it is time to end.
struct Until<'a>(&'a AtomicBool);

impl Observer for Until<'_> {
    fn played(&mut self, _: &Played) {}

    fn tick(&mut self, _: Duration, _: &Target) -> bool {
        !self.0.load(Ordering::Relaxed)
    }
}
