//! Not in the paper: a file server with a queue, and where write-back begins to pay.
//!
//! The published model's file server takes any number of requests at once, so sparing it a write
//! speeds up no other request. Here it serves a limited number at a time and the others wait: hosts
//! with a working set of their own each load it until it is saturated. There are two file servers:
//! one whose writes are quick (92 us, as published: they go to its memory), one whose writes take as
//! long as its mean read (878 us: they go to its disks). Four policies: writes through and back as
//! the published base does, where RAM answers and a syncer writes back; and the same for writes that
//! must be safe when they are answered, at the file server or in persistent flash.

use super::FLASH_GIB;
use crate::holland::{Across, Check, Experiment, Figure, Formula, Line, Quantity, Setup};
use crate::timed::Config;
use crate::timed::config::{Service, Timings, WritePolicy};

/// Requests that the file server serves at a time.
const SERVERS: u32 = 16;
const HOSTS: [u32; 4] = [1, 2, 4, 8];
/// With slow writes it is full sooner.
const SLOW_HOSTS: [u32; 3] = [1, 2, 4];
/// What a write to disks takes: the mean of its reads.
const SLOW_WRITE_NS: u64 = 878_000;

/// Lengths of runs as multiples of the working set; the first half is not measured.
const LENGTHS: [u32; 4] = [2, 4, 8, 16];

/// Policies of RAM and of flash, by name.
const POLICIES: [(&str, WritePolicy, WritePolicy); 4] = [
    ("through, in the background (p1, a)", WritePolicy::Periodic(1), WritePolicy::Async),
    ("back (p1, n)", WritePolicy::Periodic(1), WritePolicy::Never),
    ("through, safe (s, s)", WritePolicy::Sync, WritePolicy::Sync),
    ("back, safe in flash (s, n)", WritePolicy::Sync, WritePolicy::Never),
];

#[derive(Clone, Copy)]
struct Filer {
    name: &'static str,
    write_ns: u64,
    hosts: &'static [u32],
}

pub(super) fn experiment(setup: Setup) -> Experiment {
    let quick = Filer { name: "writes of 92 us", write_ns: 92_000, hosts: &HOSTS };
    let slow = Filer { name: "writes of 878 us", write_ns: SLOW_WRITE_NS, hosts: &SLOW_HOSTS };
    let (read, write) = (Quantity::ReadLatency, Quantity::WriteLatency);
    let figures = vec![
        figure(setup, quick, "read-by-load", "Read latency by hosts", read),
        figure(setup, quick, "write-by-load", "Write latency by hosts", write),
        figure(setup, quick, "rate-by-load", "I/Os a second by hosts", Quantity::Rate),
        figure(setup, slow, "read-by-load-slow", "Read latency by hosts", read),
        figure(setup, slow, "write-by-load-slow", "Write latency by hosts", write),
        figure(setup, slow, "rate-by-load-slow", "I/Os a second by hosts", Quantity::Rate),
        figure(
            setup,
            slow,
            "filer-writes-by-load-slow",
            "Blocks written by the file server for each by a host",
            Quantity::FilerWrites,
        ),
        spared(setup),
    ];
    let checks = [quick, slow].into_iter().flat_map(|filer| comparisons(setup, filer)).collect();
    Experiment {
        name: "loaded-filer",
        title: "A loaded file server",
        published: "Not in the paper: its file server is never busy, which hides what a write that \
            it is spared is worth to all others. Later work found that write-back pays there.",
        claim: None,
        figures,
        checks,
        targets: Vec::new(),
    }
}

fn loaded(setup: Setup, filer: Filer, hosts: u32, policy: usize) -> Config {
    let (_, ram_policy, flash_policy) = POLICIES[policy];
    let config = setup.sized(60, FLASH_GIB);
    Config {
        hosts,
        ram_policy,
        flash_policy: Some(flash_policy),
        filer_service: Service::Servers(SERVERS),
        timings: Timings { filer_write_ns: filer.write_ns, ..config.timings },
        ..config
    }
}

fn figure(
    setup: Setup,
    filer: Filer,
    slug: &'static str,
    title: &str,
    quantity: Quantity,
) -> Figure {
    let line = |policy: usize| {
        let point = |hosts: &u32| {
            (f64::from(*hosts), hosts.to_string(), loaded(setup, filer, *hosts, policy))
        };
        Line::new(POLICIES[policy].0, filer.hosts.iter().map(point))
    };
    Figure {
        slug,
        title: format!("{title}, {SERVERS} requests at a time, {}", filer.name),
        across: Across::Count("hosts"),
        quantity,
        lines: (0..POLICIES.len()).map(line).collect(),
    }
}

/// What write-back changes, at each load. When the file server is full, threads that wait less for
/// their writes ask for more reads, which then take longer: the rate says who gets more done.
fn comparisons(setup: Setup, filer: Filer) -> Vec<Check> {
    let mut checks = Vec::new();
    for hosts in filer.hosts {
        for (through, back, kind) in [(0, 1, "in the background"), (2, 3, "safe")] {
            let (with, without) =
                (loaded(setup, filer, *hosts, back), loaded(setup, filer, *hosts, through));
            let slower = if back == 1 { Quantity::ReadLatency } else { Quantity::WriteLatency };
            let plural = if *hosts == 1 { "" } else { "s" };
            let at = format!("{} by the file server, {hosts} host{plural}", filer.name);
            checks.push(Check {
                what: format!("{at}: write-back {kind} raises reads and writes a second"),
                quantity: Quantity::Rate,
                formula: Formula::Rise { of: with, over: without },
                bound: None,
            });
            checks.push(Check {
                what: format!("{at}: write-back {kind} cuts {}", slower.label()),
                quantity: slower,
                formula: Formula::Cut { with, without },
                bound: None,
            });
        }
    }
    checks
}

/// What write-back spares the file server in the long run: what it only puts off comes back.
fn spared(setup: Setup) -> Figure {
    let line = |flash: WritePolicy| {
        let point = |multiple: u32| {
            let volume_multiple = f64::from(multiple);
            let config =
                Config { flash_policy: Some(flash), volume_multiple, ..setup.sized(60, FLASH_GIB) };
            (volume_multiple, format!("{multiple} x the working set"), config)
        };
        Line::new(format!("RAM p1, flash {flash}"), LENGTHS.map(point))
    };
    Figure {
        slug: "filer-writes-by-length",
        title: "Blocks written by the file server for each by a host, by length of the run"
            .to_owned(),
        across: Across::Count("reads and writes, as a multiple of the working set"),
        quantity: Quantity::FilerWrites,
        lines: [WritePolicy::Async, WritePolicy::Periodic(30), WritePolicy::Never]
            .map(line)
            .to_vec(),
    }
}
