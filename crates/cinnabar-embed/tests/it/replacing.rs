//! Another cache device in place of one that was lost, of none, or of the one in use.

use crate::rig::{DEVICE, MIB, Rig, idle, stamp};
use anyhow::{Context, Result, bail, ensure};
use cinnabar_embed::{
    Buffer, Cache, Completion, DropReason, Error, NewDevice, Options, Request, Volume,
    VolumeOptions, Warmth,
};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

const SIZE: u64 = 4 * MIB;

/// `exclusive`: otherwise the file's own change time would give away what was written meanwhile.
fn exclusive(rig: &Rig) -> VolumeOptions {
    VolumeOptions { exclusive: true, ..rig.volume("data") }
}

fn new_device(rig: &Rig, name: &str) -> NewDevice {
    NewDevice { size_bytes: Some(DEVICE), ..NewDevice::new(rig.path(name)) }
}

fn open_on(rig: &Rig, device: impl Into<PathBuf>) -> Result<(Cache, Volume)> {
    let mut cache = Cache::open(&Options { device: device.into(), ..rig.options() })?;
    let volume = cache.attach(&exclusive(rig))?;
    cache.wait_loaded()?;
    Ok((cache, volume))
}

/// Reads all of the volume, and has the SSD get what it is to have.
fn warm_up(cache: &mut Cache, volume: Volume) -> Result<()> {
    cache.read(volume, 0, &mut vec![0; SIZE as usize])?;
    idle(cache, 1500)?;
    let counters = cache.counters();
    let on_flash = counters.cached_blocks - counters.ram_blocks - counters.staged_blocks;
    ensure!(on_flash > SIZE / 4096 / 2, "{counters:?}");
    Ok(())
}

/// Whether what the cache gives is what the file holds.
fn is_true(rig: &Rig, cache: &mut Cache, volume: Volume) -> Result<()> {
    let mut all = vec![0; SIZE as usize];
    cache.read(volume, 0, &mut all)?;
    let file = std::fs::read(rig.path("data"))?;
    let differing =
        (0..all.len() / 4096).find(|at| all[at * 4096..][..4096] != file[at * 4096..][..4096]);
    ensure!(differing.is_none(), "block {differing:?} is stale");
    Ok(())
}

fn is_free(path: &Path) -> Result<bool> {
    Ok(std::fs::File::open(path)?.try_lock().is_ok())
}

/// A cache device in memory, which can be made to refuse whatever is written to it.
struct Failing(OwnedFd);

impl Failing {
    fn new() -> Result<Self> {
        let fd = memfd_create("cache", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, DEVICE)?;
        Ok(Self(fd))
    }

    fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }

    fn fail(&self) -> Result<()> {
        Ok(fcntl_add_seals(&self.0, SealFlags::WRITE)?)
    }
}

pub(crate) fn a_lost_device_is_replaced() -> Result<()> {
    let rig = Rig::new()?;
    rig.file("data", SIZE)?;
    let failing = Failing::new()?;
    let (mut cache, volume) = open_on(&rig, failing.path())?;
    warm_up(&mut cache, volume)?;
    failing.fail()?;
    // It can't be recorded any more that the copy on the device is not valid.
    cache.write(volume, 0, &[5; 4096])?;
    let reason = cache.degraded().context("it was lost")?;
    ensure!(reason.contains("could not record"), "{reason}");
    idle(&mut cache, 100)?;
    ensure!(is_free(&failing.path())?, "a lost device is let go of");
    ensure!(cache.wait_loaded()?.is_none(), "nothing of it counts any more");
    cache.write(volume, 4096, &[6; 4096])?;
    ensure!(cache.segments() == 0);

    cache.replace(&new_device(&rig, "second.img"))?;
    ensure!(cache.degraded().is_none() && cache.segments() > 0, "{:?}", cache.degraded());
    ensure!(cache.wait_loaded()?.is_some());
    warm_up(&mut cache, volume)?;
    let misses = cache.volume_counters(volume)?.misses;
    is_true(&rig, &mut cache, volume)?;
    ensure!(cache.volume_counters(volume)?.misses == misses, "the new one caches");
    cache.write(volume, 8192, &[7; 4096])?;
    ensure!(cache.close()?.clean);

    // The new one is warm, and the old one is not believed, wherever it turns up.
    let (mut cache, volume) = open_on(&rig, rig.path("second.img"))?;
    let warmth = cache.warmth(volume)?;
    ensure!(matches!(warmth, Warmth::Warm { blocks } if blocks > 0), "{warmth:?}");
    is_true(&rig, &mut cache, volume)?;
    ensure!(cache.volume_counters(volume)?.misses == 0, "it was all there");
    cache.close()?;
    std::fs::copy(failing.path(), rig.path("old.img"))?;
    let (mut cache, volume) = open_on(&rig, rig.path("old.img"))?;
    let warmth = cache.warmth(volume)?;
    let reason = DropReason::WrittenWithoutCache;
    ensure!(matches!(warmth, Warmth::Dropped { reason: r, .. } if r == reason), "{warmth:?}");
    is_true(&rig, &mut cache, volume)?;
    Ok(())
}

/// While requests are under way; and each of the two devices is put back in turn.
pub(crate) fn a_device_in_use_is_replaced() -> Result<()> {
    let rig = Rig::new()?;
    rig.file("data", SIZE)?;
    let (mut cache, volume) = open_on(&rig, rig.path("cache.img"))?;
    warm_up(&mut cache, volume)?;
    for tag in 0..64 {
        let data = Buffer::copy_of(tag * 8192, &[8; 4096]);
        cache.submit(volume, tag, Request::Write { offset: tag * 8192, data, durable: false })?;
    }
    cache.replace(&new_device(&rig, "second.img"))?;
    ensure!(is_free(&rig.path("cache.img"))?, "the old one is let go of");
    let mut done: Vec<Completion> = Vec::new();
    while cache.under_way() > 0 {
        cache.poll(None, &mut done)?;
    }
    ensure!(done.len() == 64, "{} completions", done.len());
    done.into_iter().try_for_each(|done| done.result.map(drop))?;
    warm_up(&mut cache, volume)?;
    ensure!(cache.close()?.clean);

    let (mut cache, volume) = open_on(&rig, rig.path("second.img"))?;
    let warmth = cache.warmth(volume)?;
    ensure!(matches!(warmth, Warmth::Warm { .. }), "{warmth:?}");
    is_true(&rig, &mut cache, volume)?;
    cache.close()?;
    for (round, device) in [(1, "cache.img"), (2, "second.img"), (3, "cache.img")] {
        let (mut cache, volume) = open_on(&rig, rig.path(device))?;
        let warmth = cache.warmth(volume)?;
        ensure!(matches!(warmth, Warmth::Dropped { .. }), "round {round}: {warmth:?}");
        is_true(&rig, &mut cache, volume).with_context(|| format!("round {round}"))?;
        cache.write(volume, round * 4096, &[round as u8; 4096])?;
        warm_up(&mut cache, volume)?;
        ensure!(cache.close()?.clean);
    }
    Ok(())
}

/// A cache that began without its device, and one that abandoned it.
pub(crate) fn a_device_is_brought_where_there_is_none() -> Result<()> {
    let rig = Rig::new()?;
    rig.file("data", SIZE)?;
    let away = Options { required: false, device: "/dev/no-such-device".into(), ..rig.options() };
    let mut cache = Cache::open(&away)?;
    let volume = cache.attach(&exclusive(&rig))?;
    cache.write(volume, 0, &[5; 4096])?;
    ensure!(cache.degraded().is_some());
    cache.replace(&new_device(&rig, "cache.img"))?;
    ensure!(cache.degraded().is_none(), "{:?}", cache.degraded());
    warm_up(&mut cache, volume)?;
    // As after a crash.
    drop(cache);
    let (mut cache, volume) = open_on(&rig, rig.path("cache.img"))?;
    let warmth = cache.warmth(volume)?;
    ensure!(matches!(warmth, Warmth::Warm { blocks } if blocks > 0), "{warmth:?}");

    ensure!(cache.wait_loaded()?.is_some());
    cache.abandon()?;
    cache.abandon()?;
    ensure!(cache.wait_loaded()?.is_none(), "there is no device");
    let reason = cache.degraded().context("it was let go of")?;
    ensure!(reason.contains("given up"), "{reason}");
    ensure!(is_free(&rig.path("cache.img"))?);
    cache.write(volume, 0, &[6; 4096])?;
    is_true(&rig, &mut cache, volume)?;
    // The same file may be taken again, empty.
    let again = NewDevice { format: true, ..new_device(&rig, "cache.img") };
    cache.replace(&again)?;
    is_true(&rig, &mut cache, volume)?;
    ensure!(cache.volume_counters(volume)?.misses >= SIZE / 4096, "nothing of it was believed");
    // A volume that comes later is cached on it, too.
    rig.file("other", SIZE)?;
    let other = cache.attach(&rig.volume("other"))?;
    cache.read(other, 0, &mut [0; 4096])?;
    ensure!(cache.close()?.clean);
    let (mut cache, other) = rig.open_with("other")?;
    ensure!(matches!(cache.warmth(other)?, Warmth::Warm { blocks: 1 }));
    let volume = cache.attach(&exclusive(&rig))?;
    is_true(&rig, &mut cache, volume)?;
    Ok(())
}

/// A program that still names the old device is served without one, and hears where the cache is.
pub(crate) fn the_old_name_after_a_replacement() -> Result<()> {
    let rig = Rig::new()?;
    rig.file("data", SIZE)?;
    std::fs::create_dir(rig.path("old"))?;
    let old = rig.path("old/cache.img");
    let (mut cache, volume) = open_on(&rig, &old)?;
    cache.replace(&new_device(&rig, "second.img"))?;
    warm_up(&mut cache, volume)?;
    ensure!(cache.close()?.clean);
    // Its SSD was taken out.
    std::fs::remove_dir_all(rig.path("old"))?;
    let named_old = Options { required: false, device: old.clone(), ..rig.options() };
    let mut cache = Cache::open(&named_old)?;
    let reason = cache.degraded().context("there is no such folder")?;
    ensure!(reason.contains("folder") && reason.contains("second.img"), "{reason}");
    let volume = cache.attach(&exclusive(&rig))?;
    is_true(&rig, &mut cache, volume)?;
    cache.close()?;
    let required = Cache::open(&Options { required: true, ..named_old.clone() }).err();
    ensure!(required.is_some_and(|error| error.to_string().contains("folder")));
    // One that was never in use is a mistake.
    let other = Options { device: rig.path("odl/cache.img"), ..named_old };
    ensure!(Cache::open(&other).is_err());
    let (cache, volume) = open_on(&rig, rig.path("second.img"))?;
    let warmth = cache.warmth(volume)?;
    ensure!(matches!(warmth, Warmth::Warm { blocks } if blocks > 0), "{warmth:?}");
    Ok(())
}

/// Each of these changes nothing, and says what helps.
pub(crate) fn new_devices_that_can_not_be_used() -> Result<()> {
    let rig = Rig::new()?;
    rig.file("data", SIZE)?;
    let (mut cache, volume) = open_on(&rig, rig.path("cache.img"))?;
    cache.read(volume, 0, &mut vec![0; SIZE as usize])?;
    std::fs::write(rig.path("foreign"), [b'x'; 8192])?;
    let other = Rig::new()?;
    other.open()?.close()?;
    let new = |name: &str| new_device(&rig, name);
    let hasty = Options { lock_wait: Duration::from_millis(50), ..other.options() };
    let held = NewDevice::new(other.path("cache.img"));
    for (device, text, hint) in [
        (new("cache.img"), "it is the cache device", "`abandon`"),
        (new("data"), "it is the backend of volume \"data\"", "name another one"),
        (held.clone(), "it holds a Cinnabar cache", "`format`"),
        (new("foreign"), "not a Cinnabar cache", "`format`"),
        (NewDevice::new(rig.path("absent")), "no size is given", "size_bytes"),
        (NewDevice { size_bytes: Some(MIB), ..new("small") }, "cache device", "20 MiB"),
        (new("no/such/folder"), "folder does not exist", "create"),
    ] {
        let Err(error) = cache.replace(&device) else { bail!("{device:?} was taken") };
        let (said, hinted) = (error.to_string(), error.hint());
        ensure!(said.contains(text), "{said:?} lacks {text:?}");
        ensure!(hinted.contains(hint), "{said}: {hinted:?} lacks {hint:?}");
        ensure!(cache.degraded().is_none(), "{:?}", cache.degraded());
    }
    ensure!(!rig.path("small").exists(), "no file is left behind");
    let misses = cache.volume_counters(volume)?.misses;
    is_true(&rig, &mut cache, volume)?;
    ensure!(cache.volume_counters(volume)?.misses == misses, "the old one is in use as before");
    ensure!(cache.close()?.clean);

    // One that another cache uses.
    let holder = other.open()?;
    let mut cache = Cache::open(&Options { lock_wait: hasty.lock_wait, ..rig.options() })?;
    let taken = cache.replace(&NewDevice { format: true, ..held });
    ensure!(matches!(taken, Err(Error::Device(_))), "{taken:?}");
    let text = taken.expect_err("just seen").to_string();
    ensure!(text.contains("in use"), "{text}");
    drop(holder);
    ensure!(cache.close()?.clean);
    ensure!(std::fs::read(rig.path("data"))?[..4096] == stamp(0));
    Ok(())
}
