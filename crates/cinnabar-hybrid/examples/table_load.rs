//! How long a large table takes to write and to read, and how large it is in memory.
//!
//! `cargo run --release -p cinnabar-hybrid --example table_load -- EXTENTS`, in a folder of its own below `TMPDIR`; with
//! `--features ceph` and `-- EXTENTS ceph,fast=..,slow=..,name=..[,conf=..]` on a cluster. No objects are made: after that
//! the volume is good for nothing.

use anyhow::{Context, Result, ensure};
use cinnabar_hybrid::local::LocalPlace;
use cinnabar_hybrid::pools::{Op, Place, Pools, Wait};
use cinnabar_hybrid::rados::{self, RadosSpec};
use cinnabar_placement::volume::{Settings, Volume};
use cinnabar_placement::{Geometry, Header, Pool, Record};
use rustix::event::{PollFd, PollFlags, poll};
use std::path::Path;
use std::time::Instant;

/// Records under way at a time.
const DEPTH: usize = 512;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let extents: u32 = args.next().context("how many extents?")?.parse()?;
    let folder = tempfile::tempdir()?;
    let path = |pool: &str| folder.path().join(pool);
    let mut place: Box<dyn Place> = match args.next() {
        Some(text) => rados::place(RadosSpec::parse(&text, Path::new("/"))?)?,
        None => Box::new(LocalPlace::new(path("fast"), path("slow"))),
    };
    let geometry = Geometry::new(u64::from(extents) << 22, 22)?;
    place.create(&Header::new([7; 16], geometry, geometry.bytes() / 10))?;
    let wait = &mut |wait: Wait<'_>| wait == Wait::Lease;

    let begun = Instant::now();
    let (contents, mut pools) = place.take_over(wait)?;
    println!("an empty one taken over in {:.3} s", begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    fill(&mut *pools, extents, contents.header.epoch)?;
    println!("{extents} records written in {:.1} s", begun.elapsed().as_secs_f64());
    drop(pools);

    let begun = Instant::now();
    let looked = place.look()?;
    println!("read in {:.3} s", begun.elapsed().as_secs_f64());
    ensure!(looked.records.len() == extents as usize, "{} records", looked.records.len());
    drop(looked);
    let begun = Instant::now();
    let (contents, pools) = place.take_over(wait)?;
    println!("taken over in {:.3} s", begun.elapsed().as_secs_f64());
    let (before, begun) = (resident()?, Instant::now());
    let volume = Volume::open(contents.header, contents.records, Settings::default())?;
    println!("state machine made in {:.3} s", begun.elapsed().as_secs_f64());
    println!(
        "resident: {} MiB with the records, {} MiB behind it",
        before >> 20,
        resident()? >> 20
    );
    ensure!(volume.table().present() == extents, "all are there");
    drop(pools);
    Ok(())
}

/// Records of stable extents, one in eight in the fast pool.
fn fill(pools: &mut dyn Pools, extents: u32, epoch: u64) -> Result<()> {
    let (mut next, mut under_way, mut ended) = (0, 0, Vec::new());
    while next < extents || under_way > 0 {
        while next < extents && under_way < DEPTH {
            let pool = if next % 8 == 0 { Pool::Fast } else { Pool::Slow };
            let new = Record::ABSENT.allocated(pool, 1).settled();
            let expected = Record::ABSENT;
            let store = Op::StoreRecord { extent: next, expected, new, epoch };
            pools.submit(next.into(), store);
            (next, under_way) = (next + 1, under_way + 1);
        }
        poll(&mut [PollFd::from_borrowed_fd(pools.events(), PollFlags::IN)], None)?;
        pools.completions(&mut ended);
        under_way -= ended.len();
        for completion in ended.drain(..) {
            completion.result.map_err(|error| anyhow::anyhow!("{error}"))?;
        }
    }
    Ok(())
}

/// Bytes of this process that are in memory.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = status.split(' ').nth(1).context("a second word")?.parse()?;
    Ok(pages * 4096)
}
