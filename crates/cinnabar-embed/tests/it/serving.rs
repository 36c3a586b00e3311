//! Reads, writes, warmth and queues when all is well.

use crate::rig::{MIB, Rig, Rng, idle, stamp};
use anyhow::{Result, ensure};
use cinnabar_embed::{Buffer, Completion, Error, QUEUE_MAX, Request, Start, Warmth};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const SIZE: u64 = 4 * MIB;

/// Random requests of all kinds against a plain vector.
pub(crate) fn what_is_read_is_what_was_written() -> Result<()> {
    let rig = Rig::new()?;
    // Not whole blocks: the last one is partial.
    let size = SIZE + 512 * 3;
    let path = rig.file("data", size)?;
    let mut model = std::fs::read(&path)?;
    let (mut cache, volume) = rig.open_with("data")?;
    ensure!(cache.size_bytes(volume)? == size);
    let mut rng = Rng(1);
    for step in 0..4000 {
        let len = (1 + rng.below(40)) * 512;
        let offset = rng.below((size - len) / 512 + 1) * 512;
        let range = offset as usize..(offset + len) as usize;
        match rng.below(20) {
            0 => cache.flush(volume)?,
            1 => {
                cache.write_zeroes(volume, offset, len)?;
                model[range].fill(0);
            }
            2 => {
                // What it reads as is then only known once it is written again.
                cache.trim(volume, offset, len)?;
                cache.write(volume, offset, &model[range])?;
            }
            3..=8 => {
                let byte = rng.below(256) as u8;
                model[range.clone()]
                    .iter_mut()
                    .enumerate()
                    .for_each(|(at, b)| *b = byte ^ at as u8);
                cache.write(volume, offset, &model[range])?;
            }
            _ => {
                let mut got = vec![0; len as usize];
                cache.read(volume, offset, &mut got)?;
                ensure!(got == model[range], "step {step}: {len} bytes at {offset}");
            }
        }
    }
    let counters = cache.volume_counters(volume)?;
    ensure!(counters.read_hits > 0 && counters.misses > 0, "both ways were taken: {counters:?}");
    cache.close()?;
    ensure!(std::fs::read(&path)? == model, "the file is what was written");
    Ok(())
}

pub(crate) fn a_clean_end_starts_warm() -> Result<()> {
    let rig = Rig::new()?;
    rig.file("data", SIZE)?;
    let (mut cache, volume) = rig.open_with("data")?;
    ensure!(cache.warmth(volume)? == Warmth::New);
    let mut all = vec![0; SIZE as usize];
    cache.read(volume, 0, &mut all)?;
    let misses = cache.volume_counters(volume)?.misses;
    ensure!(misses == SIZE / 4096, "each block once: {misses}");
    let report = cache.close()?;
    ensure!(report.clean && report.kept_blocks == misses, "{report:?}");

    let (mut cache, volume) = rig.open_with("data")?;
    let load = cache.wait_loaded()?.map(|load| (load.start, load.blocks));
    ensure!(load == Some((Start::Clean, misses)), "{load:?}");
    ensure!(cache.warmth(volume)? == Warmth::Warm { blocks: misses });
    let mut again = vec![0; SIZE as usize];
    cache.read(volume, 0, &mut again)?;
    ensure!(again == all);
    let counters = cache.volume_counters(volume)?;
    ensure!(counters.misses == 0 && counters.read_hits == misses, "{counters:?}");
    cache.close()?;

    // A file that was written past the cache is not believed.
    let file = std::fs::OpenOptions::new().write(true).open(rig.path("data"))?;
    file.write_all_at(&[7; 4096], 4096)?;
    drop(file);
    let (mut cache, volume) = rig.open_with("data")?;
    ensure!(matches!(cache.warmth(volume)?, Warmth::Dropped { .. }));
    let mut block = [0; 4096];
    cache.read(volume, 4096, &mut block)?;
    ensure!(block == [7; 4096]);
    Ok(())
}

/// A queue without threads: every request is done once, and brings its own data.
pub(crate) fn many_at_a_time() -> Result<()> {
    let rig = Rig::new()?;
    rig.file("data", SIZE)?;
    let (mut cache, volume) = rig.open_with("data")?;
    let mut done: Vec<Completion> = Vec::new();
    ensure!(cache.poll(None, &mut done)? == 0, "nothing is under way, so it does not wait");
    let blocks = SIZE / 4096;
    for round in 0..3 {
        let mut seen = vec![false; blocks as usize];
        let mut next = 0;
        while seen.contains(&false) {
            while next < blocks && cache.under_way() < 128 {
                cache.submit(volume, next, Request::Read { offset: next * 4096, len: 4096 })?;
                next += 1;
            }
            ensure!(cache.poll(None, &mut done)? > 0, "it waits for the first");
            for Completion { tag, result } in done.drain(..) {
                let buffer = result?.expect("a read brings its bytes");
                ensure!(*buffer == stamp(tag), "round {round}, block {tag}");
                ensure!(!std::mem::replace(&mut seen[tag as usize], true), "{tag} twice");
            }
        }
    }
    let counters = cache.volume_counters(volume)?;
    ensure!(counters.misses <= blocks && counters.read_hits >= 2 * blocks, "{counters:?}");
    overlapping_ones_keep_their_order(&mut cache, volume)?;

    for tag in 0..QUEUE_MAX as u64 {
        cache.submit(volume, tag, Request::Flush)?;
    }
    let refused = cache.submit(volume, 0, Request::Flush);
    ensure!(matches!(refused, Err(Error::QueueFull)), "{refused:?}");
    while cache.under_way() > 0 {
        cache.poll(Some(Duration::from_secs(10)), &mut done)?;
    }
    ensure!(done.len() == QUEUE_MAX && done.iter().all(|one| one.result.is_ok()));
    Ok(())
}

fn overlapping_ones_keep_their_order(
    cache: &mut cinnabar_embed::Cache,
    volume: cinnabar_embed::Volume,
) -> Result<()> {
    for tag in 0..64 {
        let data = Buffer::copy_of(0, &[tag as u8; 8192]);
        cache.submit(volume, tag, Request::Write { offset: 0, data, durable: tag % 8 == 0 })?;
        cache.submit(volume, 100 + tag, Request::Read { offset: 4096, len: 4096 })?;
    }
    let mut done = Vec::new();
    while cache.under_way() > 0 {
        cache.poll(None, &mut done)?;
    }
    for Completion { tag, result } in done {
        let buffer = result?.expect("both bring their buffer");
        let expected = (tag % 100) as u8;
        ensure!(buffer.iter().all(|byte| *byte == expected), "{tag}: {}", buffer[0]);
    }
    Ok(())
}

pub(crate) fn long_ranges_go_in_pieces() -> Result<()> {
    let rig = Rig::new()?;
    let size = 40 * MIB;
    rig.file("data", size)?;
    let (mut cache, volume) = rig.open_with("data")?;
    let mut all = vec![0; (size - 1024) as usize];
    cache.read(volume, 512, &mut all)?;
    ensure!(all[3584..3584 + 4096] == stamp(1));
    let last = size / 4096 - 2;
    let at = (last * 4096 - 512) as usize;
    ensure!(all[at..at + 4096] == stamp(last));
    all.reverse();
    cache.write(volume, 1024, &all)?;
    cache.close()?;
    ensure!(std::fs::read(rig.path("data"))?[1024..] == all);
    Ok(())
}

pub(crate) fn invalidation_brings_what_others_wrote() -> Result<()> {
    let rig = Rig::new()?;
    let path = rig.file("data", SIZE)?;
    let (mut cache, volume) = rig.open_with("data")?;
    let mut block = [0; 4096];
    cache.read(volume, 8192, &mut block)?;
    let behind = std::fs::OpenOptions::new().write(true).open(path)?;
    behind.write_all_at(&[9; 4096], 8192)?;
    cache.read(volume, 8192, &mut block)?;
    ensure!(block == stamp(2), "it can't know");
    cache.invalidate(volume, 8192, 512)?;
    cache.read(volume, 8192, &mut block)?;
    ensure!(block == [9; 4096], "now it does");
    Ok(())
}

/// A volume whose file another program holds: the others are served while it is waited for.
pub(crate) fn a_file_that_is_waited_for_holds_up_no_others() -> Result<()> {
    let rig = Rig::new()?;
    let (one, two) = (rig.file("one", SIZE)?, rig.file("two", SIZE)?);
    let mut cache = rig.open()?;
    let first = cache.attach(&rig.volume("one"))?;
    let holder = std::fs::File::open(&two)?;
    holder.try_lock()?;
    let data = Buffer::copy_of(0, &[7; 4096]);
    cache.submit(first, 1, Request::Write { offset: 0, data, durable: false })?;
    // The lock is let go of once the write is seen in the other file, at last before the wait ends.
    let (attached, seen) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let until = Instant::now() + Duration::from_secs(8);
            let is_written = || std::fs::read(&one).is_ok_and(|read| read[..4096] == [7; 4096]);
            while !is_written() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(holder);
            is_written() && Instant::now() < until
        });
        let attached = cache.attach(&rig.volume("two"));
        (attached, watcher.join().expect("it does not panic"))
    });
    ensure!(seen, "the write waited for the lock");
    let second = attached?;
    let mut block = [0; 4096];
    cache.read(second, 0, &mut block)?;
    ensure!(block == stamp(0));
    let mut done = Vec::new();
    cache.poll(None, &mut done)?;
    ensure!(done.len() == 1 && done[0].result.is_ok(), "{done:?}");
    ensure!(cache.close()?.clean);
    Ok(())
}

pub(crate) fn two_volumes_share() -> Result<()> {
    let rig = Rig::new()?;
    rig.file("one", SIZE)?;
    rig.file("two", SIZE)?;
    let (mut cache, one) = rig.open_with("one")?;
    let two = cache.attach(&rig.volume("two"))?;
    cache.write(one, 0, &[1; 4096])?;
    cache.write(two, 0, &[2; 4096])?;
    let mut block = [0; 4096];
    cache.read(one, 0, &mut block)?;
    ensure!(block == [1; 4096]);
    cache.detach(one)?;
    cache.read(two, 0, &mut block)?;
    ensure!(block == [2; 4096]);
    let one = cache.attach(&rig.volume("one"))?;
    ensure!(!matches!(cache.warmth(one)?, Warmth::Dropped { .. }), "it came back at once");
    cache.read(one, 0, &mut block)?;
    ensure!(block == [1; 4096]);
    idle(&mut cache, 50)?;
    cache.close()?;
    Ok(())
}

pub(crate) fn a_handle_is_of_one_attaching() -> Result<()> {
    let (rig, other) = (Rig::new()?, Rig::new()?);
    rig.file("data", SIZE)?;
    other.file("data", SIZE)?;
    let (mut cache, first) = rig.open_with("data")?;
    let (mut stranger, _) = other.open_with("data")?;
    let strange = stranger.read(first, 0, &mut [0; 512]);
    ensure!(matches!(strange, Err(Error::NoVolume)), "{strange:?}");
    cache.detach(first)?;
    let second = cache.attach(&rig.volume("data"))?;
    let late = cache.read(first, 0, &mut [0; 512]);
    ensure!(matches!(late, Err(Error::NoVolume)), "{late:?}");
    ensure!(matches!(cache.detach(first), Err(Error::NoVolume)));
    cache.read(second, 0, &mut [0; 512])?;
    Ok(())
}
