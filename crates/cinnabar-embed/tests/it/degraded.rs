//! What happens when something is lost or slow.

use crate::rig::{MIB, Rig, idle};
use anyhow::{Result, ensure};
use cinnabar_embed::{Cache, DropReason, Error, Options, Request, Start, VolumeOptions, Warmth};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const SIZE: u64 = 4 * MIB;

fn overwrite(path: &std::path::Path, bytes: &[u8]) -> Result<()> {
    std::fs::OpenOptions::new().write(true).open(path)?.write_all_at(bytes, 0)?;
    Ok(())
}

/// Writes made while the device was away are not hidden by what it held when it comes back.
pub(crate) fn without_its_device_it_goes_on() -> Result<()> {
    let rig = Rig::new()?;
    rig.file("data", SIZE)?;
    // `exclusive`, for otherwise the file's own change time gives the writes away.
    let volume_options = VolumeOptions { exclusive: true, ..rig.volume("data") };
    let mut cache = rig.open()?;
    let volume = cache.attach(&volume_options)?;
    let mut all = vec![0; SIZE as usize];
    cache.read(volume, 0, &mut all)?;
    ensure!(cache.close()?.clean);

    let device = rig.path("cache.img");
    let head = std::fs::read(&device)?[..8192].to_vec();
    // Both copies of the superblock, but not so that they look like foreign data.
    let mut damaged = head.clone();
    damaged[200] ^= 1;
    damaged[4096 + 200] ^= 1;
    overwrite(&device, &damaged)?;
    let mut cache = Cache::open(&Options { required: false, ..rig.options() })?;
    let reason = cache.degraded().unwrap_or_default();
    ensure!(reason.contains("damaged"), "{reason}");
    let volume = cache.attach(&volume_options)?;
    cache.write(volume, 0, &[5; 4096])?;
    cache.flush(volume)?;
    let mut block = [0; 4096];
    cache.read(volume, 0, &mut block)?;
    ensure!(block == [5; 4096]);
    ensure!(cache.volume_counters(volume)?.bypassed.no_device > 0);
    let report = cache.close()?;
    ensure!(!report.clean && report.kept_blocks == 0, "{report:?}");

    overwrite(&device, &head)?;
    let mut cache = rig.open()?;
    let volume = cache.attach(&volume_options)?;
    cache.wait_loaded()?;
    let warmth = cache.warmth(volume)?;
    let reason = DropReason::WrittenWithoutCache;
    ensure!(matches!(warmth, Warmth::Dropped { reason: r, .. } if r == reason), "{warmth:?}");
    cache.read(volume, 0, &mut block)?;
    ensure!(block == [5; 4096], "never the copy from before");
    Ok(())
}

pub(crate) fn a_required_device_is_required() -> Result<()> {
    let rig = Rig::new()?;
    rig.open()?.close()?;
    let device = rig.path("cache.img");
    let file = std::fs::OpenOptions::new().write(true).open(&device)?;
    // A superblock's magic number with nothing right behind it.
    for copy in [0, 4096] {
        file.write_all_at(&[0xff; 64], copy + 200)?;
    }
    let error = rig.open().err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(error.contains("cannot be opened as a cache"), "{error}");
    Ok(())
}

/// The caller is told in time, and the data that come late go nowhere.
pub(crate) fn a_slow_backend_fails_in_time() -> Result<()> {
    let rig = Rig::new()?;
    let path = rig.file("data", SIZE)?;
    let mut cache = rig.open()?;
    let slow = VolumeOptions {
        backend_timeout: Duration::from_millis(100),
        ..VolumeOptions::new("data", format!("sim:ssd,read=700ms:file:{}", path.display()))
    };
    let volume = cache.attach(&slow)?;
    let since = Instant::now();
    let failed = cache.read(volume, 0, &mut [0; 4096]);
    ensure!(since.elapsed() < Duration::from_millis(600), "{:?}", since.elapsed());
    let failed = failed.expect_err("it takes too long").to_string();
    ensure!(failed.contains("timed out"), "{failed}");
    ensure!(cache.volume_counters(volume)?.backend_overdue == 1);
    idle(&mut cache, 800)?;
    // A write of the same block waits for nothing any more.
    cache.write(volume, 0, &[3; 4096])?;
    let mut block = [0; 4096];
    cache.submit(volume, 1, Request::Flush)?;
    let read = cache.read(volume, 0, &mut block);
    ensure!(read.is_ok() && block == [3; 4096], "it was just written: {read:?}");
    cache.close()?;
    Ok(())
}

/// A program that does something else for longer than the time-outs has no slow disk: what its disks
/// have answered meanwhile counts before the time does.
pub(crate) fn a_program_that_pauses_has_no_slow_disk() -> Result<()> {
    let bound = Duration::from_millis(200);
    let rig = Rig::new()?;
    rig.file("data", SIZE)?;
    let (mut cache, volume) = rig.open_with("data")?;
    cache.read(volume, 0, &mut vec![0; 64 << 10])?;
    ensure!(cache.close()?.clean);

    let mut cache = Cache::open(&Options { device_timeout: bound, ..rig.options() })?;
    let volume = VolumeOptions { backend_timeout: bound, ..rig.volume("data") };
    let volume = cache.attach(&volume)?;
    cache.wait_loaded()?;
    // One block is on the SSD, the other is not cached.
    for (tag, offset) in [(1, 0), (2, 2 * MIB)] {
        cache.submit(volume, tag, Request::Read { offset, len: 4096 })?;
    }
    let mut done = Vec::new();
    while done.len() < 2 {
        cache.poll(Some(Duration::ZERO), &mut done)?;
        std::thread::sleep(2 * bound);
    }
    for completion in &done {
        let failed = completion.result.as_ref().err();
        ensure!(failed.is_none(), "request {}: {failed:?}", completion.tag);
    }
    ensure!(cache.degraded().is_none(), "{:?}", cache.degraded());
    ensure!(cache.volume_counters(volume)?.backend_overdue == 0);
    ensure!(cache.close()?.clean);
    Ok(())
}

/// A volume that is attached while the index is being loaded says in the end how much of it was dropped.
pub(crate) fn what_is_dropped_is_counted() -> Result<()> {
    let rig = Rig::new()?;
    let path = rig.file("data", SIZE)?;
    let (mut cache, volume) = rig.open_with("data")?;
    cache.read(volume, 0, &mut vec![0; 64 << 10])?;
    ensure!(cache.close()?.kept_blocks == 16);
    overwrite(&path, &[5; 4096])?;

    let mut cache = rig.open()?;
    let volume = cache.attach(&rig.volume("data"))?;
    cache.wait_loaded()?;
    let warmth = cache.warmth(volume)?;
    ensure!(
        warmth == Warmth::Dropped { blocks: 16, reason: DropReason::BackendChanged },
        "{warmth:?}"
    );
    Ok(())
}

/// What is given is for the whole cache, however many shards that has.
pub(crate) fn shards_share_their_probation() -> Result<()> {
    let buffers = |probation: u64| -> Result<u64> {
        let rig = Rig::new()?;
        let probation_bytes = Some(probation);
        let cache = Cache::open(&Options { probation_bytes, shards: Some(2), ..rig.options() })?;
        Ok(cache.ram_bytes().buffers)
    };
    let (small, large) = (buffers(8 * MIB)?, buffers(16 * MIB)?);
    ensure!(large - small == 8 * MIB, "{small} and {large}");
    Ok(())
}

/// As after a crash, in one process: the lock comes free, and what reached the SSD is found.
pub(crate) fn a_cache_that_is_dropped_is_warm() -> Result<()> {
    let rig = Rig::new()?;
    rig.file("data", SIZE)?;
    let (mut cache, volume) = rig.open_with("data")?;
    let mut all = vec![0; SIZE as usize];
    cache.read(volume, 0, &mut all)?;
    // Chunks are written out after a second.
    idle(&mut cache, 1500)?;
    let counters = cache.counters();
    let on_flash = counters.cached_blocks - counters.ram_blocks - counters.staged_blocks;
    ensure!(on_flash > 0, "{counters:?}");
    drop(cache);
    let (mut cache, volume) = rig.open_with("data")?;
    let load = cache.wait_loaded()?.expect("there is a device");
    ensure!(load.start == Start::Crashed, "{load:?}");
    ensure!(load.blocks * 1000 >= on_flash * 995, "{} of {on_flash}", load.blocks);
    let warmth = cache.warmth(volume)?;
    ensure!(matches!(warmth, Warmth::Warm { .. }), "{warmth:?}");
    let unknown = cache.read(volume, SIZE, &mut [0; 512]);
    ensure!(matches!(unknown, Err(Error::PastEnd { .. })));
    Ok(())
}
