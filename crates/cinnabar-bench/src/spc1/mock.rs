//! Generator and engine alone: media that take no time and hold nothing, and no pace.
//!
//! Tells what the benchmark and the cache themselves cost an I/O. The generator has a thread of its
//! own, as another machine's would be.

use super::BenchError;
use super::report::{cpu_time, mix_name};
use cinnabar_backend::memory;
use cinnabar_engine::Config;
use cinnabar_engine::counters::VolumeCounters;
use cinnabar_engine::plan::Mode;
use cinnabar_engine::volume::VolumeSpec;
use cinnabar_study::instant::plain_volume;
use cinnabar_study::{CacheSetup, InstantCache};
use cinnabar_trace::generate::spc1::{BLOCK_BYTES, Generator, Io, Settings};
use serde::Serialize;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// I/Os handed over at a time.
const BATCH: usize = 1024;
const BATCHES: usize = 16;
/// Requests that the engine sees at a time.
const ENGINE_BATCH: usize = 32;

/// What it came to: the contract of `--json`.
#[derive(Clone, Debug, Serialize)]
pub struct MockReport {
    /// Of this form.
    pub version: u32,
    /// `spc1-mock`.
    pub benchmark: &'static str,
    /// Business scaling units.
    pub bsu: u32,
    /// `pblio` or `spc1`.
    pub mix: &'static str,
    /// What gives the same I/Os again.
    pub seed: u64,
    /// Sizes of ASU1 to ASU3 in bytes.
    pub asu_bytes: [u64; 3],
    pub elapsed_s: f64,
    /// I/Os done.
    pub ios: u64,
    /// I/Os a second.
    pub iops: f64,
    /// CPU time for an I/O, in us; of all threads.
    pub cpu_us_per_io: f64,
    /// Blocks that fit into the cache; 0: none.
    pub capacity_blocks: u64,
    /// Blocks cached at the end.
    pub cached_blocks: u64,
    /// Read blocks of ASU1 and ASU2 found in the cache, of all.
    pub hit_ratio: f64,
    /// The same over the second half of the time.
    pub hit_ratio_late: f64,
    /// Share of reads that would not have reached the storage, over the second half.
    pub reads_cut_late: f64,
    /// Share of all I/Os that would not, over the second half.
    pub all_cut_late: f64,
    /// RAM of index and descriptors a block of capacity, in bytes.
    pub ram_bytes_per_block: f64,
    /// RAM of the ghost a block of capacity, in bytes.
    pub ghost_bytes_per_block: f64,
}

/// Runs generator and engine for `length`, over a cache of so many bytes of blocks (0: none).
///
/// # Errors
/// [`BenchError`].
pub fn mock(
    settings: &Settings,
    cache_bytes: u64,
    length: Duration,
    tell: &mut dyn FnMut(Duration, u64) -> bool,
) -> Result<MockReport, BenchError> {
    let mut generator = Generator::new(settings.clone())?;
    let mut engine = Mock::new(settings, cache_bytes);
    let (full, batches) = sync_channel::<Vec<Io>>(BATCHES);
    let (empty, used) = sync_channel::<Vec<Io>>(BATCHES);
    let cpu = cpu_time();
    let begin = Instant::now();
    let played = std::thread::scope(|scope| {
        scope.spawn(move || generate(&mut generator, &full, &used));
        // The generator ends when the engine takes no more.
        play(&mut engine, batches, &empty, begin, length, tell)
    });
    let elapsed = begin.elapsed();
    let cpu = cpu_time().saturating_sub(cpu);
    let (ios, middle) = played?;
    Ok(engine.report(settings, &Played { ios, middle, elapsed, cpu }))
}

fn generate(generator: &mut Generator, full: &SyncSender<Vec<Io>>, used: &Receiver<Vec<Io>>) {
    loop {
        let mut batch = used.try_recv().unwrap_or_default();
        batch.clear();
        batch.extend(generator.take(BATCH));
        if full.send(batch).is_err() {
            return;
        }
    }
}

fn play(
    engine: &mut Mock,
    batches: Receiver<Vec<Io>>,
    empty: &SyncSender<Vec<Io>>,
    begin: Instant,
    length: Duration,
    tell: &mut dyn FnMut(Duration, u64) -> bool,
) -> Result<(u64, VolumeCounters), BenchError> {
    let (mut ios, mut middle) = (0, None);
    for batch in batches {
        for io in &batch {
            engine.submit(io);
        }
        ios += batch.len() as u64;
        let elapsed = begin.elapsed();
        if middle.is_none() && elapsed >= length / 2 {
            middle = Some(engine.counters());
        }
        if elapsed >= length {
            break;
        }
        if !tell(elapsed, ios) {
            return Err(BenchError::Interrupted);
        }
        // Room for it is of no importance.
        let _kept = empty.try_send(batch);
    }
    engine.cache.settle();
    Ok((ios, middle.unwrap_or_default()))
}

struct Played {
    ios: u64,
    middle: VolumeCounters,
    elapsed: Duration,
    cpu: Duration,
}

struct Mock {
    cache: InstantCache,
    volumes: [cinnabar_engine::units::VolumeId; super::ASUS],
    capacity: u64,
}

impl Mock {
    fn new(settings: &Settings, cache_bytes: u64) -> Self {
        // Whole segments of 255 blocks and a header.
        let capacity = (cache_bytes / BLOCK_BYTES / 255).max(8) * 255;
        let mut cache = InstantCache::new(CacheSetup::single(capacity, Config::default()));
        for (start, len) in cache.tables() {
            memory::advise_huge(start, len);
        }
        cache.set_batch(ENGINE_BATCH);
        cache.set_request_ns(1_000_000_000 / u64::from(settings.bsu * 50));
        let names = ["asu1", "asu2", "asu3"];
        let volumes = std::array::from_fn(|asu| {
            let plain = plain_volume(names[asu], settings.asu_blocks[asu]);
            let mode = if asu == 2 || cache_bytes == 0 { Mode::PassThrough } else { plain.mode };
            cache.attach(VolumeSpec { mode, ..plain })
        });
        Self { cache, volumes, capacity: if cache_bytes == 0 { 0 } else { capacity } }
    }

    fn submit(&mut self, io: &Io) {
        let volume = self.volumes[usize::from(io.asu)];
        if io.write {
            self.cache.write(volume, io.block, u64::from(io.blocks));
        } else {
            self.cache.read(volume, io.block, u64::from(io.blocks));
        }
    }

    fn counters(&mut self) -> VolumeCounters {
        self.volumes.map(|volume| self.cache.volume_counters(volume)).into_iter().sum()
    }

    fn report(&mut self, settings: &Settings, played: &Played) -> MockReport {
        let Played { ios, middle, elapsed, cpu } = *played;
        let all = self.counters();
        let ram = self.cache.ram_bytes();
        let ratio = |part: u64, of: u64| part as f64 / of.max(1) as f64;
        let late = |of: fn(&VolumeCounters) -> u64| of(&all) - of(&middle);
        let reached = late(|all| all.backend_reads);
        let asked = late(|all| all.reads);
        MockReport {
            version: super::report::VERSION,
            benchmark: "spc1-mock",
            bsu: settings.bsu,
            mix: mix_name(settings.mix),
            seed: settings.seed,
            asu_bytes: settings.asu_blocks.map(|blocks| blocks * BLOCK_BYTES),
            elapsed_s: elapsed.as_secs_f64(),
            ios,
            iops: ios as f64 / elapsed.as_secs_f64(),
            cpu_us_per_io: cpu.as_secs_f64() * 1e6 / ios.max(1) as f64,
            capacity_blocks: self.capacity,
            cached_blocks: self.cache.cache_counters().cached_blocks,
            hit_ratio: ratio(all.read_hits, all.blocks_read),
            hit_ratio_late: ratio(late(|all| all.read_hits), late(|all| all.blocks_read)),
            reads_cut_late: 1.0 - ratio(reached, asked),
            all_cut_late: 1.0
                - ratio(reached + late(|all| all.backend_writes), asked + late(|all| all.writes)),
            ram_bytes_per_block: ratio(ram.address_map + ram.descriptors, self.capacity),
            ghost_bytes_per_block: ratio(ram.ghost, self.capacity),
        }
    }
}
