//! One measurement of the simulations without I/O a process, on one thread.
//!
//! `cargo xtask bench simulate` makes tables of what this prints: one line of numbers between
//! blanks. A process each, so that its peak of memory is its own. Seconds and ms are those of the
//! CPU: what else runs takes turns with it, and should not count.
//!
//! - `convert TRACE FILE`: writes oracleGeneral, which libCacheSim reads, too; prints references
//! - `policy NAME FILE BLOCKS`: misses, references, seconds, peak KiB; reading the file is part of it
//! - `curves write-back|all TRACE`: references, seconds, peak KiB; references in memory, keys looked up
//! - `sampled rate|size MILLIONS`: references, seconds, peak KiB
//! - `divide`: mean and worst ms of dividing 1024 units among 16 volumes

mod curves;
mod dividing;
mod policies;
mod sampled;

use rustix::time::{ClockId, clock_gettime};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let numbers = match arguments[..] {
        ["convert", trace, file] => policies::convert(trace, file),
        ["policy", name, file, blocks] => policies::measure(name, file, blocks),
        ["curves", kind, trace] => curves::measure(kind, trace),
        ["sampled", kind, millions] => sampled::measure(kind, millions),
        ["divide"] => dividing::measure(),
        _ => panic!("convert, policy, curves, sampled or divide: {arguments:?}"),
    };
    let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    println!("{}", words.join(" "));
}

/// Time that this thread has had the CPU, in seconds.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The most memory that this process ever had, in KiB.
fn peak_kib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let words = line.expect("Linux has it").split_whitespace().next();
    words.and_then(|number| number.parse().ok()).expect("a number of kB")
}
