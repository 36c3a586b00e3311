//! What the scheduler costs: ns for a request from its submission to its completion, by the number of
//! volumes that wait. Each has a reservation, a limit and a weight.
//!
//! `cargo xtask bench qos`.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "it measures, and is not part of the scheduler"
)]

use cinnabar_driver::qos::{
    Client, ClientId, Config, Dispatch, Op, Request, Scheduler, Settings, Work,
};
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Requests of a round.
const REQUESTS: u64 = 1_000_000;
/// Requests that begin together.
const BATCH: usize = 32;
/// Of each volume.
const WAITING: u64 = 4;

fn main() {
    println!("ns a request (submit, take, complete; batches of {BATCH}), best of five");
    for volumes in [1u64, 16, 256, 1000, 4000] {
        let best = (0..5).map(|_| round(volumes)).min().unwrap_or_default();
        let plain = (0..5).map(|_| plain(volumes)).min().unwrap_or_default();
        println!(
            "  {volumes:>5} volumes: {:>6.1} ns; in order of arrival: {:>5.1} ns",
            best.as_nanos() as f64 / REQUESTS as f64,
            plain.as_nanos() as f64 / REQUESTS as f64
        );
    }
}

/// The baseline: one queue for all, in order of arrival.
fn plain(volumes: u64) -> Duration {
    let mut queue: VecDeque<(u64, u64)> =
        (0..WAITING * volumes).map(|token| (token, 1_000_000_000)).collect();
    let (mut done, mut now_ns) = (0, 1_000_000_000);
    let mut begun = Vec::with_capacity(BATCH);
    let start = Instant::now();
    while done < REQUESTS {
        begun.extend(queue.drain(..BATCH.min(queue.len())));
        now_ns += 1000 * BATCH as u64;
        done += begun.len() as u64;
        queue.extend(black_box(&mut begun).drain(..).map(|(token, _)| (token, now_ns)));
    }
    start.elapsed()
}

/// The virtual clock of a server that does a million I/Os a second: what is reserved is a half of it,
/// and about half of the volumes are at their limits.
fn round(volumes: u64) -> Duration {
    let mut group = Scheduler::new(Config { depth: BATCH, ..Config::default() })
        .expect("the configuration is right");
    let part = 1_000_000 / volumes as u32;
    let clients: Vec<ClientId> = (0..volumes)
        .map(|volume| {
            let limit_iops = Some((part / 2).max(1) + part * (volume % 2) as u32 * 2);
            let reservation_iops = part / 2;
            let weight = 1 + (volume % 100) as u32;
            let settings = Settings { reservation_iops, limit_iops, weight };
            let client = Client { volume, work: Work::Guest };
            group.add(0, client, settings).expect("it is new")
        })
        .collect();
    let mut now_ns = 1_000_000_000;
    for token in 0..WAITING * volumes {
        let client = clients[(token % volumes) as usize];
        submit(&mut group, now_ns, client, token);
    }
    let mut begun: Vec<Dispatch> = Vec::with_capacity(BATCH);
    let mut tickets = Vec::with_capacity(BATCH);
    let mut done = 0;
    let start = Instant::now();
    while done < REQUESTS {
        group.take(now_ns, &mut begun);
        now_ns += 1000 * BATCH as u64;
        done += begun.len() as u64;
        for dispatch in begun.drain(..) {
            tickets.push(dispatch.ticket);
            submit(&mut group, now_ns, dispatch.client, dispatch.token);
        }
        group.complete(now_ns, &tickets);
        tickets.clear();
    }
    start.elapsed()
}

fn submit(group: &mut Scheduler, now_ns: u64, client: ClientId, token: u64) {
    let request = Request { client, op: Op::Read { length: 4096 }, token };
    group.submit(now_ns, request).expect("its queue has room");
}
