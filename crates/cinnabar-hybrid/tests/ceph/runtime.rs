//! The thread of a volume over the pools of a cluster: what is hot comes to the fast pool by itself.

use crate::{EXTENT, EXTENTS, made, on_cluster};
use anyhow::{Context, Result, ensure};
use cinnabar_hybrid::pools::Wait;
use cinnabar_hybrid::rados::RadosPlace;
use cinnabar_hybrid::runtime::{Kind, Request, Running};
use cinnabar_hybrid::settings::Settings;
use e2e::daemon::noise;
use libc::iovec;
use rustix::io::Errno;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// A request that a test waits for.
struct Asked {
    kind: Kind,
    offset: u64,
    length: u64,
    bytes: Vec<u8>,
    part: [iovec; 1],
    ended: SyncSender<(Result<(), Errno>, Vec<u8>)>,
}

// SAFETY: the part is of the bytes that go along with it.
unsafe impl Send for Asked {}

impl Request for Asked {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn offset(&self) -> u64 {
        self.offset
    }

    fn length(&self) -> u64 {
        self.length
    }

    fn memory(&self) -> &[iovec] {
        if self.bytes.is_empty() { &[] } else { &self.part }
    }

    fn finish(self: Box<Self>, result: Result<(), Errno>) {
        let _gone = self.ended.send((result, self.bytes));
    }
}

fn ask(running: &Running, kind: Kind, offset: u64, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
    let (ended, end) = sync_channel(1);
    let part = [iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }];
    let length = bytes.len() as u64;
    running.submit(Box::new(Asked { kind, offset, length, bytes, part, ended }));
    let (result, bytes) = end.recv_timeout(Duration::from_mins(1)).context("it ends")?;
    result?;
    Ok(bytes)
}

#[test]
fn what_is_hot_moves_by_itself() {
    on_cluster(|cluster| {
        let mut place = made(cluster, "hot", 41)?;
        let settings = Settings { round_s: Some(0.5), ..Settings::default() };
        let open = |place: &mut RadosPlace| {
            Running::open(place, settings, &mut |wait| wait == Wait::Lease, Box::new(|| ()))
        };
        let running = open(&mut place)?;
        let write = Kind::Write { durable: true };
        let mut all = noise(u64::from(EXTENTS) * EXTENT, 3);
        // Across extents.
        for offset in (0..all.len()).step_by(3 << 20) {
            let bytes = all[offset..all.len().min(offset + (3 << 20))].to_vec();
            ask(&running, write, offset as u64, bytes)?;
        }
        let begun = Instant::now();
        let mut number: usize = 0;
        while running.status().counts.moved[1] == 0 {
            ensure!(begun.elapsed() < Duration::from_mins(1), "{:?}", running.status());
            // Two hot extents, anywhere in them.
            let at = ([2, 7][number % 2] << 22) + (number * 397 % 1024) * 4096;
            let bytes = noise(4096, number as u64);
            all[at..at + 4096].copy_from_slice(&bytes);
            ask(&running, write, at as u64, bytes)?;
            number += 1;
        }
        let status = running.status();
        println!("{number} writes in {:?}: {status:?}", begun.elapsed());
        ensure!(status.trouble.is_none() && status.foreign == 0 && !status.lost, "{status:?}");
        drop(running);
        // The next owner finds all of it.
        let running = open(&mut place)?;
        for offset in (0..all.len()).step_by(3 << 20) {
            let expected = &all[offset..all.len().min(offset + (3 << 20))];
            let found = ask(&running, Kind::Read, offset as u64, vec![9; expected.len()])?;
            ensure!(found == expected, "differs behind {offset}");
        }
        ask(&running, Kind::Flush, 0, Vec::new()).map(drop)
    });
}
