//! 4 KiB random reads (or writes) through a port, to compare with fio on the same file:
//! `cargo run --release --example port_speed -- PATH uring|threads DEPTH SECONDS [write]`.

use cinnabar_backend::Memory;
use cinnabar_backend::disk::{Disk, OpenOptions};
use cinnabar_backend::port::{self, IoMode, Job, JobOp, PortEvent};
use cinnabar_engine::{Payload, Slice};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, mode, depth, seconds, rest @ ..] = &arguments[..] else {
        eprintln!("usage: port_speed PATH uring|threads DEPTH SECONDS [write]");
        std::process::exit(2);
    };
    let mode = if mode == "uring" { IoMode::Uring } else { IoMode::Threads };
    let depth: u64 = depth.parse().expect("a number of operations");
    let time = Duration::from_secs(seconds.parse().expect("a number of seconds"));
    let write = rest.first().is_some_and(|word| word == "write");
    let disk = Disk::open(path.as_ref(), &OpenOptions::default()).expect("it opens");
    let blocks = disk.size_bytes() / 4096;
    let mut port = port::open(mode).expect("a port");
    let file = port.register(Arc::new(disk)).expect("it registers");
    let mut state = 88_172_645_463_325_252_u64;
    let mut job = |token| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let (offset, pages) = (state % blocks * 4096, Vec::new());
        let data = std::iter::once(Slice { data: Memory::alloc(1), at: 0, len: 4096 }).collect();
        let op = if write {
            JobOp::Write { offset, pages, data, fua: false }
        } else {
            JobOp::Read { offset, pages, data }
        };
        Job { token, file, op }
    };
    (0..depth).for_each(|token| port.submit(job(token)));
    let start = Instant::now();
    let (mut events, mut done, mut turns) = (Vec::new(), 0_u64, 0_u64);
    while start.elapsed() < time {
        port.wait(None, &mut events).expect("the port works");
        turns += 1;
        for event in events.drain(..) {
            if let PortEvent::Done(one) = event {
                one.result.expect("it works");
                done += 1;
                port.submit(job(one.token));
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{:.0} IOPS, {:.1} a turn", done as f64 / seconds, done as f64 / turns as f64);
}
