//! I/Os that the back end is spared in write-back, beside write-through, with and without flushes.
//!
//! A daemon for each mode, all at a time, have the same load on volumes of their own; what the engines
//! sent to the back ends is counted in the last part of the run, when the caches are warm.

use super::{lab, number, percent};
use crate::table::Table;
use anyhow::{Context, Result, ensure};
use e2e::nbd::Client;
use e2e::{Config, Daemon, MIB, Site, Volume};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Business scaling units: 50 I/Os a second each.
const BSU: u64 = 32;
const ASUS: [&str; 3] = ["asu1", "asu2", "asu3"];

/// How the volumes are served, and how often a guest flushes each.
struct Mode {
    name: &'static str,
    write_back: bool,
    /// Age that the oldest write may reach, in seconds.
    rpo_s: u64,
    flush: Option<Duration>,
}

const MODES: [Mode; 5] = [
    Mode { name: "write-through", write_back: false, rpo_s: 30, flush: None },
    Mode { name: "write-back", write_back: true, rpo_s: 30, flush: None },
    Mode { name: "write-back, rpo_s = 600", write_back: true, rpo_s: 600, flush: None },
    Mode {
        name: "write-back, a flush each second",
        write_back: true,
        rpo_s: 30,
        flush: Some(Duration::from_secs(1)),
    },
    Mode {
        name: "write-back, a flush each 100 ms",
        write_back: true,
        rpo_s: 30,
        flush: Some(Duration::from_millis(100)),
    },
];

/// Back-end operations in the part of the run that counts.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    reads: u64,
    writes: u64,
    flushes: u64,
}

struct Sizes {
    asu: u64,
    cache: u64,
    warm: Duration,
    counted: Duration,
}

pub(super) fn run(quick: bool) -> Result<String> {
    let (asu, warm, counted) = if quick { (36 * MIB, 3, 2) } else { (288 * MIB, 300, 60) };
    let (warm, counted) = (Duration::from_secs(warm), Duration::from_secs(counted));
    let mut table = Table::new(&[
        "cache",
        "mode",
        "back-end reads a guest I/O",
        "writes",
        "flushes",
        "reads and writes cut",
    ]);
    for share in [10, 25, 50] {
        let cache = (2 * asu * share / 100).max(24 * MIB);
        let sizes = Sizes { asu, cache, warm, counted };
        eprintln!("a cache of {share} %");
        let counts = std::thread::scope(|scope| {
            let threads: Vec<_> =
                MODES.iter().map(|mode| scope.spawn(|| measure(mode, &sizes))).collect();
            let join = |(thread, mode): (ScopedJoinHandle<'_, Result<(f64, Counts)>>, &Mode)| {
                thread.join().expect("it does not panic").context(mode.name)
            };
            threads.into_iter().zip(&MODES).map(join).collect::<Result<Vec<_>>>()
        })?;
        for (mode, (ios, counts)) in MODES.iter().zip(counts) {
            let each = |count: u64| count as f64 / ios;
            table.row(vec![
                format!("{share} %"),
                mode.name.to_owned(),
                format!("{:.3}", each(counts.reads)),
                format!("{:.3}", each(counts.writes)),
                format!("{:.4}", each(counts.flushes)),
                percent(1.0 - each(counts.reads + counts.writes)),
            ]);
        }
    }
    Ok(format!(
        "ASU1 and ASU2 of {} MiB, {BSU} BSU; {} s to warm, {} s counted; the back ends are files in RAM; \
         ASU3, the log, bypasses the cache and is in write-back with the others\n\n{}",
        asu / MIB,
        warm.as_secs(),
        counted.as_secs(),
        table.render()
    ))
}

/// Guest I/Os in the part of the run that counts, and what the back ends saw of them.
fn measure(mode: &Mode, sizes: &Sizes) -> Result<(f64, Counts)> {
    let (site, ram) = (Site::new()?, Site::within(Path::new("/dev/shm"))?);
    let daemon = serve(mode, sizes, &site, &ram)?;
    let ended = AtomicBool::new(false);
    let length = sizes.warm + sizes.counted + Duration::from_secs(2);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let done = load(&site, length);
            ended.store(true, Ordering::Relaxed);
            done
        });
        let flushers: Vec<_> = mode
            .flush
            .into_iter()
            .flat_map(|every| ASUS.map(|asu| (every, site.path(&format!("{asu}.sock")), asu)))
            .map(|(every, socket, asu)| {
                let ended = &ended;
                scope.spawn(move || flush_often(&socket, asu, every, ended))
            })
            .collect();
        std::thread::sleep(sizes.warm);
        let (before, since) = (counts(&daemon)?, Instant::now());
        std::thread::sleep(sizes.counted);
        let (after, took) = (counts(&daemon)?, since.elapsed());
        let mean_ms = load.join().expect("it does not panic")?;
        ensure!(mean_ms < 200.0, "the machine did not keep up: an I/O took {mean_ms:.0} ms");
        for flusher in flushers {
            flusher.join().expect("it does not panic")?;
        }
        let counts = Counts {
            reads: after.reads - before.reads,
            writes: after.writes - before.writes,
            flushes: after.flushes - before.flushes,
        };
        Ok((took.as_secs_f64() * (BSU * 50) as f64, counts))
    })
    .and_then(|found| daemon.stop().map(|()| found))
}

fn serve(mode: &Mode, sizes: &Sizes, site: &Site, ram: &Site) -> Result<Daemon> {
    let mut config = Config::new(sizes.cache);
    if mode.write_back {
        config = config
            .cache_key("write_log = \"writes.img\"")
            .cache_key("write_log_size = \"1GiB\"")
            .cache_key(&format!("rpo_s = {}", mode.rpo_s));
    }
    for asu in ASUS {
        let is_log = asu == "asu3";
        let bytes = if is_log { (sizes.asu * 2 / 9).next_multiple_of(MIB) } else { sizes.asu };
        let disk = ram.sparse(asu, bytes)?;
        let served = match (mode.write_back, is_log) {
            (true, _) => "write-back",
            (false, true) => "pass-through",
            (false, false) => "write-through",
        };
        config = config.volume(
            Volume::new(asu, &format!("file:{}", disk.display()))
                .key(&format!("mode = \"{served}\""))
                // The load and what flushes are two clients.
                .key("shared = true"),
        );
    }
    site.serve(&config)
}

/// Plays the load; gives the mean latency in ms.
fn load(site: &Site, length: Duration) -> Result<f64> {
    let [asu1, asu2, asu3] = ASUS.map(|asu| site.uri(asu));
    let (bsu, seconds) = (BSU.to_string(), length.as_secs().to_string());
    let found = lab(&[
        "bench", "spc1", "--bsu", &bsu, "--runlen", &seconds, "--seed", "1", "--json", "--asu1",
        &asu1, "--asu2", &asu2, "--asu3", &asu3,
    ])?;
    number(&found, "/latency/mean_ms")
}

fn flush_often(socket: &Path, asu: &str, every: Duration, ended: &AtomicBool) -> Result<()> {
    let mut client = Client::connect(socket, asu)?;
    while !ended.load(Ordering::Relaxed) {
        std::thread::sleep(every);
        client.flush()?;
    }
    Ok(())
}

fn counts(daemon: &Daemon) -> Result<Counts> {
    let status = daemon.glance()?;
    let sum = |key: &str| ASUS.iter().map(|asu| status.count(asu, key)).sum::<Result<u64>>();
    Ok(Counts {
        reads: sum("backend_reads")?,
        writes: sum("backend_writes")?,
        flushes: sum("backend_flushes")?,
    })
}
