//! A program that caches its own file: a table of 4 KiB pages on slow storage, looked up again and
//! again, updated now and then.
//!
//! ```text
//! cargo run --release -p cinnabar-embed --example own_file -- FOLDER [BACKEND-PREFIX]
//! ```
//!
//! FOLDER gets the table, the cache and its state. The table is reached through `file:`, or through
//! what the prefix says: `sim:filer,seed=1:` puts the model of a file server in front of it, which
//! shows on any machine what the cache is for. Run it twice: the second run starts warm.

use cinnabar_embed::{Buffer, Cache, Completion, Error, Options, Request, Volume, VolumeOptions};
use std::path::Path;
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
const PAGES: u64 = 16_384;
const LOOKUPS: u64 = 20_000;
const DEPTH: usize = 32;
const MIB: f64 = 1_048_576.0;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or_else(|| {
        eprintln!("usage: own_file FOLDER [BACKEND-PREFIX]");
        std::process::exit(2);
    });
    let prefix = arguments.next().unwrap_or_default();
    if let Err(error) = run(Path::new(&folder), &prefix) {
        eprintln!("error: {error}");
        if let Some(error) = error.downcast_ref::<Error>() {
            eprintln!("hint: {}", error.hint());
        }
        std::process::exit(1);
    }
}

fn run(folder: &Path, prefix: &str) -> anyhow::Result<()> {
    let table = folder.join("table.db");
    make_table(&table)?;
    let since = Instant::now();
    let mut cache = Cache::open(&Options {
        size_bytes: Some(256 << 20),
        ..Options::new(folder.join("cache.img"), folder.join("state"))
    })?;
    let table = format!("{prefix}file:{}", table.display());
    let table = cache.attach(&VolumeOptions::new("table", table))?;
    cache.wait_loaded()?;
    println!("open after {:.1?}, {:?}", since.elapsed(), cache.warmth(table)?);
    if let Some(reason) = cache.degraded() {
        println!("not caching: {reason}");
    }

    one_at_a_time(&mut cache, table)?;
    many_at_a_time(&mut cache, table)?;
    update(&mut cache, table)?;
    one_at_a_time(&mut cache, table)?;

    let (counters, ram) = (cache.counters(), cache.ram_bytes());
    println!(
        "{} of {} blocks cached, {:.1} MiB written to the SSD, {:.1} MiB of RAM for data, {:.1} MiB \
         for tables",
        counters.cached_blocks,
        counters.capacity_blocks,
        counters.flash_written_bytes as f64 / MIB,
        ram.buffers as f64 / MIB,
        (ram.address_map + ram.descriptors + ram.ghost + ram.other) as f64 / MIB,
    );
    let report = cache.close()?;
    println!("closed; the next run finds {} blocks", report.kept_blocks);
    Ok(())
}

/// The simplest way: a call a page.
fn one_at_a_time(cache: &mut Cache, table: Volume) -> Result<(), Error> {
    let before = cache.volume_counters(table)?;
    let mut page = vec![0; PAGE as usize];
    let mut lookups = Lookups::new();
    let mut slowest = Duration::ZERO;
    let since = Instant::now();
    // A slow table takes its time: two seconds tell enough.
    let mut count = 0;
    while count < LOOKUPS && since.elapsed() < Duration::from_secs(2) {
        let number = lookups.next();
        let start = Instant::now();
        cache.read(table, number * PAGE, &mut page)?;
        slowest = slowest.max(start.elapsed());
        assert_eq!(page[..8], number.to_le_bytes(), "every page says its number");
        count += 1;
    }
    print_phase("one at a time", cache, table, &before, count, since.elapsed())?;
    println!("    slowest {slowest:.1?}");
    Ok(())
}

/// A queue of 32 without threads: submit, poll, submit again.
fn many_at_a_time(cache: &mut Cache, table: Volume) -> Result<(), Error> {
    let before = cache.volume_counters(table)?;
    let mut lookups = Lookups::new();
    let mut done: Vec<Completion> = Vec::with_capacity(DEPTH);
    let since = Instant::now();
    let (mut submitted, mut finished) = (0, 0);
    while finished < LOOKUPS {
        while submitted < LOOKUPS && cache.under_way() < DEPTH {
            let number = lookups.next();
            cache.submit(table, number, Request::Read { offset: number * PAGE, len: PAGE })?;
            submitted += 1;
        }
        cache.poll(None, &mut done)?;
        for Completion { tag, result } in done.drain(..) {
            let page = result?.expect("a read brings its bytes");
            assert_eq!(page[..8], tag.to_le_bytes(), "every page says its number");
            finished += 1;
        }
    }
    print_phase("32 at a time", cache, table, &before, finished, since.elapsed())
}

/// A transaction: some pages, then a flush, all in one queue.
fn update(cache: &mut Cache, table: Volume) -> Result<(), Error> {
    let mut lookups = Lookups::new();
    let since = Instant::now();
    for _ in 0..100 {
        let number = lookups.next();
        let mut data = Buffer::copy_of(number * PAGE, &page(number));
        data[8] += 1;
        cache.submit(table, 0, Request::Write { offset: number * PAGE, data, durable: false })?;
    }
    let mut done = Vec::new();
    while cache.under_way() > 0 {
        cache.poll(None, &mut done)?;
    }
    for write in done {
        write.result?;
    }
    cache.flush(table)?;
    println!("100 pages written and flushed in {:.1?}", since.elapsed());
    Ok(())
}

fn print_phase(
    name: &str,
    cache: &Cache,
    table: Volume,
    before: &cinnabar_embed::VolumeCounters,
    count: u64,
    took: Duration,
) -> Result<(), Error> {
    let now = cache.volume_counters(table)?;
    let (hits, misses) = (now.read_hits - before.read_hits, now.misses - before.misses);
    println!(
        "{name}: {count} lookups in {took:.2?}, {:.0} a second, {:.1} us each; {hits} hits ({} of \
         them from RAM), {misses} misses",
        count as f64 / took.as_secs_f64(),
        took.as_secs_f64() * 1e6 / count as f64,
        now.read_hits_ram - before.read_hits_ram,
    );
    Ok(())
}

/// Which pages are looked up: four of five times one of the first tenth.
struct Lookups(u64);

impl Lookups {
    fn new() -> Self {
        Self(1)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let rng = self.0 >> 33;
        let among = if rng.is_multiple_of(5) { PAGES } else { PAGES / 10 };
        rng / 5 % among
    }
}

fn page(number: u64) -> [u8; PAGE as usize] {
    let mut page = [0; PAGE as usize];
    page[..8].copy_from_slice(&number.to_le_bytes());
    page
}

/// Makes the table if there is none.
fn make_table(path: &Path) -> std::io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let pages: Vec<u8> = (0..PAGES).flat_map(page).collect();
    std::fs::write(path, pages)
}
