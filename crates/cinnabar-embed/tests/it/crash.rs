//! A process that embeds the cache is killed with `kill -9` while it writes, again and again.
//!
//! The latter says on its standard output what it is about to write, and what was acknowledged; the
//! former reads every block afterwards: it holds the newest acknowledged write, or a later one that
//! was under way, and it stays that.

use crate::CHILD;
use crate::rig::{MIB, Rig, Rng, idle, stamp};
use anyhow::{Context, Result, bail, ensure};
use cinnabar_embed::{Buffer, Cache, Completion, Request, Start, Volume, Warmth};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

pub(crate) const SIZE: u64 = 12 * MIB;
pub(crate) const BLOCKS: u64 = SIZE / 4096;
/// What is written, across the boundary between two shards at 4 MiB; the rest is read only and
/// must stay warm.
const WRITTEN: u64 = BLOCKS / 2;
const DEPTH: usize = 8;
/// What is written in a round must leave room for what is only read: up to a second of
/// [`DEPTH`] writes of at most 16 KiB every other millisecond.
const DEVICE: u64 = 256 * MIB;
const PAUSE: Duration = Duration::from_millis(2);
const ROUNDS: u64 = 5;

/// A block that a write of this version left; version 0 is the fresh file.
pub(crate) fn content(block: u64, version: u64) -> [u8; 4096] {
    let mut bytes = stamp(block);
    for place in bytes.chunks_exact_mut(8) {
        place[7] = 0;
        place[4..7].copy_from_slice(&version.to_le_bytes()[..3]);
    }
    bytes
}

/// The version of a block, if it is whole and its own.
pub(crate) fn version_of(block: u64, bytes: &[u8]) -> Result<u64> {
    let version = u64::from(bytes[4]) | u64::from(bytes[5]) << 8 | u64::from(bytes[6]) << 16;
    ensure!(*bytes == content(block, version), "block {block} is torn, or another's");
    Ok(version)
}

/// Serves itself until it is killed.
pub(crate) fn child(folder: &Path) {
    if let Err(error) = write_for_ever(&Rig::at(folder).with_device(DEVICE)) {
        say(&format!("error {error:?}").replace('\n', " "));
        std::process::exit(1);
    }
}

/// One line, at once: what is in the pipe outlives us.
pub(crate) fn say(line: &str) {
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).expect("the parent listens");
}

fn write_for_ever(rig: &Rig) -> Result<()> {
    let (mut cache, volume) = rig.open_with("data")?;
    let mut all = vec![0; SIZE as usize];
    cache.read(volume, 0, &mut all)?;
    // What was read goes to the SSD within a second.
    idle(&mut cache, 1500)?;
    let counters = cache.counters();
    say(&format!("warm {}", counters.cached_blocks - counters.ram_blocks - counters.staged_blocks));
    let mut versions: Vec<u64> = (0..WRITTEN)
        .map(|block| version_of(block, &all[block as usize * 4096..][..4096]))
        .collect::<Result<_>>()?;
    let mut rng = Rng(u64::from(std::process::id()));
    let mut done: Vec<Completion> = Vec::new();
    loop {
        while cache.under_way() < DEPTH {
            submit(&mut cache, volume, &mut versions, &mut rng)?;
        }
        cache.poll(None, &mut done)?;
        for Completion { tag, result } in done.drain(..) {
            if let Some(_buffer) = result? {
                say(&format!("done {} {} {}", tag >> 40, tag >> 32 & 0xff, tag & 0xffff_ffff));
            }
        }
        std::thread::sleep(PAUSE);
    }
}

/// A write of one to four blocks, or now and then a flush.
pub(crate) fn submit(
    cache: &mut Cache,
    volume: Volume,
    versions: &mut [u64],
    rng: &mut Rng,
) -> Result<()> {
    if rng.below(20) == 0 {
        return Ok(cache.submit(volume, 0, Request::Flush)?);
    }
    let count = 1 + rng.below(4);
    let first = rng.below(WRITTEN - count + 1);
    let range = first as usize..(first + count) as usize;
    // One version for the whole write, newer than any of its blocks'.
    let version = versions[range.clone()].iter().max().copied().unwrap_or_default() + 1;
    versions[range].fill(version);
    let mut data = Buffer::new(first * 4096, count * 4096);
    for (block, place) in (first..).zip(data.chunks_exact_mut(4096)) {
        place.copy_from_slice(&content(block, version));
    }
    say(&format!("begin {first} {count} {version}"));
    let tag = first << 40 | count << 32 | version;
    let durable = rng.below(8) == 0;
    Ok(cache.submit(volume, tag, Request::Write { offset: first * 4096, data, durable })?)
}

/// What may be found in each block.
pub(crate) struct Expected {
    pub(crate) acknowledged: Vec<u64>,
    pub(crate) begun: Vec<u64>,
    /// Cache devices that were replaced.
    pub(crate) replaced: u64,
    /// Blocks on the SSD before the writing began.
    on_flash: u64,
    writes: u64,
}

impl Expected {
    /// Takes a line of the child's; true when it is warm.
    fn hear(&mut self, line: &str) -> Result<bool> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| -> Result<u64> {
            words.get(at).context("a short line")?.parse().context("a number")
        };
        match words[0] {
            "warm" => {
                self.on_flash = number(1)?;
                return Ok(true);
            }
            "begin" | "done" => {
                let (first, count, version) = (number(1)?, number(2)?, number(3)?);
                let newest =
                    if words[0] == "begin" { &mut self.begun } else { &mut self.acknowledged };
                for known in &mut newest[first as usize..(first + count) as usize] {
                    *known = (*known).max(version);
                }
                self.writes += u64::from(words[0] == "done");
            }
            "replaced" => self.replaced += 1,
            _ => bail!("the child said: {line}"),
        }
        Ok(false)
    }
}

pub(crate) fn killed_at_any_moment() -> Result<()> {
    let rig = Rig::new()?.with_device(DEVICE);
    rig.file("data", SIZE)?;
    // The fresh file is version 0.
    let (mut cache, volume) = rig.open_with("data")?;
    for block in 0..BLOCKS {
        cache.write(volume, block * 4096, &content(block, 0))?;
    }
    cache.close()?;
    let mut found = vec![0; WRITTEN as usize];
    let mut rng = Rng(2026);
    for round in 0..ROUNDS {
        let expected =
            run_and_kill(CHILD, &rig, &found, Duration::from_millis(50 + rng.below(900)))?;
        found = look(&rig, &expected).with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

/// Runs a child until it has written for a while, `after` its first acknowledgement, and kills it.
pub(crate) fn run_and_kill(
    which: &str,
    rig: &Rig,
    found: &[u64],
    after: Duration,
) -> Result<Expected> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(which)
        .arg(rig.path(""))
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().context("it has a standard output")?;
    let (heard, lines) = std::sync::mpsc::channel();
    let listener = std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if heard.send(line).is_err() {
                break;
            }
        }
    });
    let mut expected = Expected {
        acknowledged: found.to_vec(),
        begun: found.to_vec(),
        replaced: 0,
        on_flash: 0,
        writes: 0,
    };
    let begun = hear_first_write(&lines, &mut expected);
    std::thread::sleep(after);
    child.kill()?;
    let status = child.wait()?;
    begun?;
    ensure!(status.signal() == Some(9), "it ended by itself: {status}");
    listener.join().ok().context("the listener ended")?;
    while let Ok(line) = lines.try_recv() {
        expected.hear(&line)?;
    }
    Ok(expected)
}

/// Until something was acknowledged, however busy the machine is.
fn hear_first_write(lines: &Receiver<String>, expected: &mut Expected) -> Result<()> {
    let next = || lines.recv_timeout(Duration::from_mins(1)).context("waiting for the child");
    ensure!(expected.hear(&next()?)?, "it wrote before it was warm");
    while expected.writes == 0 {
        expected.hear(&next()?)?;
    }
    Ok(())
}

/// Reads everything, twice through the cache and once past it.
fn look(rig: &Rig, expected: &Expected) -> Result<Vec<u64>> {
    let (mut cache, volume) = rig.open_with("data")?;
    let load = cache.wait_loaded()?.context("there is a device")?;
    ensure!(load.start == Start::Crashed, "{load:?}");
    let warmth = cache.warmth(volume)?;
    ensure!(matches!(warmth, Warmth::Warm { .. }), "{warmth:?}");
    let mut first = vec![0; SIZE as usize];
    cache.read(volume, WRITTEN * 4096, &mut first[(WRITTEN * 4096) as usize..])?;
    let misses = cache.volume_counters(volume)?.misses;
    let never_there = BLOCKS - expected.on_flash;
    ensure!(never_there * 20 <= BLOCKS, "only {} blocks were on the SSD", expected.on_flash);
    ensure!(misses <= never_there + BLOCKS / 200, "{misses} misses among what nobody wrote");
    cache.read(volume, 0, &mut first[..(WRITTEN * 4096) as usize])?;
    let mut second = vec![0; SIZE as usize];
    cache.read(volume, 0, &mut second)?;
    ensure!(first == second, "what was read once stays");
    cache.close()?;
    ensure!(std::fs::read(rig.path("data"))? == first, "the backend says the same");

    let mut found = Vec::new();
    for block in 0..BLOCKS {
        let version = version_of(block, &first[block as usize * 4096..][..4096])?;
        let at = block as usize;
        let (oldest, newest) = match expected.acknowledged.get(at) {
            Some(acknowledged) => (*acknowledged, expected.begun[at]),
            None => (0, 0),
        };
        ensure!(
            (oldest..=newest).contains(&version),
            "block {block} has version {version}, not {oldest} to {newest}"
        );
        if block < WRITTEN {
            found.push(version);
        }
    }
    Ok(found)
}
