//! Load and verification inside a guest: direct I/O on a disk, every sector of which says what it is.
//!
//! Started by the guests of the end-to-end tests (`clients/guest`), and by the tests themselves on
//! the files behind the disks. In round *n* every sector of a region becomes version *n*, in pieces
//! of random size and order, while others are read back; then the disk is flushed, and the round is
//! reported. So after a crash each sector must be of the last reported round, or later.

use anyhow::{Context, Result, bail, ensure};
use e2e::rng::Rng;
use e2e::stamps::{self, SECTOR};
use e2e::{MIB, stamps::ZEROS};
use std::fs::File;
use std::io::Write as _;
use std::ops::{Range, RangeInclusive};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: guest-io pound DISK VOLUME MIB LOW HIGH THREADS PROGRESS STOP
       guest-io check DISK VOLUME MIB LOW HIGH";
/// Longest request in sectors.
const PIECE_MAX: u64 = 64;
/// Alignment that any disk takes.
const ALIGN: usize = 4096;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let [command, disk, volume, mib, low, high, ref rest @ ..] = args[..] else { bail!("{USAGE}") };
    let region = Region {
        disk: open(disk).with_context(|| format!("opening {disk}"))?,
        volume: volume.parse()?,
        sectors: mib.parse::<u64>()? * MIB / SECTOR as u64,
        found: low.parse()?..=high.parse()?,
    };
    match (command, rest) {
        ("check", []) => region.check(),
        ("pound", [threads, progress, stop]) => {
            region.pound(threads.parse()?, Path::new(progress), Path::new(stop))
        }
        _ => bail!("{USAGE}"),
    }
}

fn open(path: &str) -> Result<File> {
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    Ok(File::options().read(true).write(true).custom_flags(direct).open(path)?)
}

/// The first sectors of a disk.
struct Region {
    disk: File,
    volume: u64,
    sectors: u64,
    /// Versions that may be there at first.
    found: RangeInclusive<u64>,
}

impl Region {
    /// Reads everything once.
    fn check(&self) -> Result<()> {
        let mut seen = vec![0; self.sectors as usize];
        Slice::new(self, 0..self.sectors, &mut seen, 0).learn()?;
        let (oldest, newest) = (seen.iter().min(), seen.iter().max());
        println!("{} sectors of versions {oldest:?} to {newest:?}", self.sectors);
        Ok(())
    }

    /// Writes and reads, round after round, until the file `stop` is there; ends with a check.
    fn pound(&self, threads: u64, progress: &Path, stop: &Path) -> Result<()> {
        let mut versions = vec![ZEROS; self.sectors as usize];
        let share = self.sectors.div_ceil(threads);
        let mut slices: Vec<Slice<'_>> = (0..)
            .step_by(share as usize)
            .zip(versions.chunks_mut(share as usize))
            .map(|(first, seen)| Slice::new(self, first..first + seen.len() as u64, seen, first))
            .collect();
        in_parallel(&mut slices, Slice::learn)?;
        let mut version = *self.found.end();
        while !stop.exists() {
            version += 1;
            in_parallel(&mut slices, |slice| slice.round(version))?;
            self.disk.sync_data().context("flushing")?;
            let mut told = File::options().append(true).open(progress)?;
            told.write_all(format!("round {version} of {}\n", self.volume).as_bytes())?;
        }
        in_parallel(&mut slices, Slice::verify)?;
        let requests: u64 = slices.iter().map(|slice| slice.requests).sum();
        let slowest = slices.iter().map(|slice| slice.slowest).max().unwrap_or_default();
        println!("version {version}, {requests} requests, the slowest took {slowest:?}");
        Ok(())
    }
}

fn in_parallel<'a, 'b>(
    slices: &'a mut [Slice<'b>],
    work: impl Fn(&mut Slice<'b>) -> Result<()> + Sync,
) -> Result<()>
where
    'b: 'a,
{
    thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = slices.iter_mut().map(|slice| scope.spawn(|| work(slice))).collect();
        all.into_iter().try_for_each(|one| one.join().expect("no thread panics"))
    })
}

/// Sectors that one thread has to itself, so that it knows what is right.
struct Slice<'a> {
    region: &'a Region,
    sectors: Range<u64>,
    versions: &'a mut [u64],
    rng: Rng,
    buffer: Vec<u8>,
    requests: u64,
    slowest: Duration,
}

impl<'a> Slice<'a> {
    fn new(region: &'a Region, sectors: Range<u64>, versions: &'a mut [u64], seed: u64) -> Self {
        let buffer = vec![0; PIECE_MAX as usize * SECTOR + 2 * ALIGN];
        let rng = Rng::new(seed + region.found.end() * 7919);
        Self { region, sectors, versions, rng, buffer, requests: 0, slowest: Duration::ZERO }
    }

    /// Reads what is there, which must be of a version that may be there.
    fn learn(&mut self) -> Result<()> {
        for sectors in self.pieces(false) {
            let volume = self.region.volume;
            let data = self.read(sectors.clone())?;
            let mut versions = Vec::new();
            for (sector, bytes) in sectors.clone().zip(data.chunks_exact(SECTOR)) {
                let place = || format!("sector {sector}");
                versions.push(stamps::version(bytes, volume, sector).with_context(place)?);
            }
            for (sector, version) in sectors.zip(versions) {
                let found = &self.region.found;
                ensure!(found.contains(&version), "sector {sector}: {version}, not {found:?}");
                self.versions[(sector - self.sectors.start) as usize] = version;
            }
        }
        Ok(())
    }

    /// Makes everything `version`, and reads between.
    fn round(&mut self, version: u64) -> Result<()> {
        for sectors in self.pieces(true) {
            self.write(sectors.clone(), version)?;
            let len = 1 + self.rng.below(PIECE_MAX.min(self.versions.len() as u64));
            let first = self.rng.below(self.versions.len() as u64 - len + 1) + self.sectors.start;
            self.expect(first..first + len)?;
        }
        Ok(())
    }

    /// Reads everything, which must be what was written.
    fn verify(&mut self) -> Result<()> {
        self.pieces(false).into_iter().try_for_each(|sectors| self.expect(sectors))
    }

    /// All sectors, cut into requests of random size, if wanted in random order.
    fn pieces(&mut self, shuffled: bool) -> Vec<Range<u64>> {
        let mut pieces = Vec::new();
        let mut first = self.sectors.start;
        while first < self.sectors.end {
            let end = (first + 1 + self.rng.below(PIECE_MAX)).min(self.sectors.end);
            pieces.push(first..end);
            first = end;
        }
        for last in (1..pieces.len()).rev().filter(|_| shuffled) {
            pieces.swap(last, self.rng.below(last as u64 + 1) as usize);
        }
        pieces
    }

    fn expect(&mut self, sectors: Range<u64>) -> Result<()> {
        let volume = self.region.volume;
        let start = (sectors.start - self.sectors.start) as usize;
        let right = self.versions[start..][..(sectors.end - sectors.start) as usize].to_vec();
        let data = self.read(sectors.clone())?;
        for ((sector, bytes), right) in sectors.zip(data.chunks_exact(SECTOR)).zip(right) {
            let place = || format!("sector {sector}");
            let version = stamps::version(bytes, volume, sector).with_context(place)?;
            ensure!(version == right, "sector {sector}: {version}, not {right}");
        }
        Ok(())
    }

    fn read(&mut self, sectors: Range<u64>) -> Result<&[u8]> {
        let (place, offset) = self.request(&sectors);
        let start = Instant::now();
        self.region
            .disk
            .read_exact_at(&mut self.buffer[place.clone()], offset)
            .with_context(|| format!("reading sectors {sectors:?}"))?;
        self.slowest = self.slowest.max(start.elapsed());
        Ok(&self.buffer[place])
    }

    fn write(&mut self, sectors: Range<u64>, version: u64) -> Result<()> {
        let (place, offset) = self.request(&sectors);
        stamps::fill(&mut self.buffer[place.clone()], self.region.volume, sectors.start, version);
        let start = Instant::now();
        self.region
            .disk
            .write_all_at(&self.buffer[place], offset)
            .with_context(|| format!("writing sectors {sectors:?}"))?;
        self.slowest = self.slowest.max(start.elapsed());
        let first = (sectors.start - self.sectors.start) as usize;
        self.versions[first..][..(sectors.end - sectors.start) as usize].fill(version);
        Ok(())
    }

    /// Where in the buffer a request lies: at any sector of a page, for guests do that, too.
    fn request(&mut self, sectors: &Range<u64>) -> (Range<usize>, u64) {
        self.requests += 1;
        let misaligned = self.rng.below(2) * self.rng.below((ALIGN / SECTOR) as u64);
        let start = self.buffer.as_ptr().align_offset(ALIGN) + misaligned as usize * SECTOR;
        let len = (sectors.end - sectors.start) as usize * SECTOR;
        (start..start + len, sectors.start * SECTOR as u64)
    }
}
