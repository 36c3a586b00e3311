//! What timed simulation costs: block I/Os a second on one core, and RAM.
//!
//! The paper's base configuration, at 1/64 of its size and, with `--full`, at its own: 1 TB on the
//! file server, 64 GB of flash, 8 GB of RAM. Beside the figures stands this machine's dependent DRAM
//! read, measured in the same run over memory as large as the tables. Time is the CPU's own, so that
//! a busy machine counts less; best of some rounds.

use cinnabar_study::timed::{Config, Outcome, Workload, run};
use std::time::Instant;

/// Rounds at 1/64.
const ROUNDS: usize = 5;

fn main() {
    let full = std::env::args().any(|arg| arg == "--full");
    let small = Config { scale: 64, ..Config::default() };
    report(&small, ROUNDS);
    if full {
        report(&Config { scale: 1, ..small }, 1);
    }
}

fn report(config: &Config, rounds: usize) {
    let blocks = config.total_blocks / u64::from(config.scale);
    println!("scale 1/{}, {} blocks on the file server", config.scale, blocks);
    let (mut best_s, mut last) = (f64::INFINITY, None);
    for _ in 0..rounds {
        let start = cpu_s();
        let outcome =
            run(config, Workload::Generated, &mut |_| ()).expect("the base configuration");
        best_s = best_s.min(cpu_s() - start);
        last = Some(outcome);
    }
    let outcome: Outcome = last.expect("at least one round");
    println!(
        "  {:.2} M block I/Os a second ({} in {best_s:.2} s, {:.2} events each), digest {:016x}",
        outcome.block_ios as f64 / best_s / 1e6,
        outcome.block_ios,
        outcome.events as f64 / outcome.block_ios as f64,
        outcome.digest,
    );
    println!(
        "  reads {:.1} us, writes {:.2} us; RAM {:.3}, flash {:.3}, misses {:.3}",
        outcome.reads.mean_ns() / 1e3,
        outcome.writes.mean_ns() / 1e3,
        outcome.ram_share(),
        outcome.flash_share(),
        outcome.miss_share(),
    );
    println!("  at most {} MiB of RAM so far", peak_rss_kib().map_or(0, |kib| kib >> 10));
    println!("  dependent DRAM read: {:.0} ns", dram_ns(blocks as usize * 8));
}

/// Seconds of CPU that this process has had.
fn cpu_s() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to a timespec that outlives the call.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "this clock exists");
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The most this process has held, from the kernel's own account.
fn peak_rss_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// Nanoseconds of a read whose address depends on the one before, over `bytes` of memory.
fn dram_ns(bytes: usize) -> f64 {
    const STEPS: u64 = 1_000_000;
    let len = (bytes / 8).min(1 << 24);
    let mut chain: Vec<u32> = (0..len as u32).collect();
    let mut random = 1u64;
    // Sattolo's shuffle: one cycle through all of it.
    for i in (1..len).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        chain.swap(i, (random >> 20) as usize % i);
    }
    let start = Instant::now();
    let mut at = 0;
    for _ in 0..STEPS {
        at = chain[at as usize];
    }
    std::hint::black_box(at);
    start.elapsed().as_nanos() as f64 / STEPS as f64
}
