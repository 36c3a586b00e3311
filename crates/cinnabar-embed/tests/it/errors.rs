//! What can't be done says so, with a hint, and costs nothing.

use crate::rig::{DEVICE, MIB, Rig};
use anyhow::{Result, ensure};
use cinnabar_embed::{Buffer, Cache, Error, Options, Request, VolumeOptions};
use std::time::Duration;

const SIZE: u64 = 2 * MIB;

/// An error whose text and hint hold these words.
fn expect<T>(result: Result<T, Error>, text: &str, hint: &str) -> Result<()> {
    let Err(error) = result else { anyhow::bail!("no error, but {text:?} was expected") };
    let (said, hinted) = (error.to_string(), error.hint());
    ensure!(said.contains(text), "{said:?} lacks {text:?}");
    ensure!(hinted.contains(hint), "{hinted:?} lacks {hint:?}");
    ensure!(!said.contains('\n'), "one line: {said:?}");
    Ok(())
}

pub(crate) fn devices_that_can_not_be_used() -> Result<()> {
    let rig = Rig::new()?;
    let small = Options { size_bytes: Some(MIB), ..rig.options() };
    expect(Cache::open(&small), "cache device", "20 MiB")?;
    anyhow::ensure!(!rig.path("cache.img").exists(), "a start that failed leaves no file behind");
    expect(
        Cache::open(&Options { size_bytes: None, ..rig.options() }),
        "no size is given",
        "size_bytes",
    )?;
    std::fs::write(rig.path("cache.img"), [b'x'; 8192])?;
    expect(Cache::open(&rig.options()), "not a Cinnabar cache", "`format`")?;
    Cache::open(&Options { format: true, ..rig.options() })?.close()?;
    let lost = Options { device: rig.path("no/such/folder/cache.img"), ..rig.options() };
    expect(Cache::open(&lost), "folder does not exist", "create")?;
    std::fs::write(rig.path("a file"), "")?;
    let stateless = Options { state_dir: rig.path("a file"), ..rig.options() };
    expect(Cache::open(&stateless), "state folder", "state_dir")?;
    Ok(())
}

pub(crate) fn two_at_once() -> Result<()> {
    let (rig, other) = (Rig::new()?, Rig::new()?);
    rig.file("data", SIZE)?;
    let (mut cache, volume) = rig.open_with("data")?;
    let hasty = Options { lock_wait: Duration::from_millis(50), ..rig.options() };
    expect(Cache::open(&hasty), "in use", "stop the process that uses it")?;
    let same_state = Options { device: rig.path("second.img"), ..hasty.clone() };
    expect(Cache::open(&same_state), "in use", "state_dir of its own")?;

    let hasty = Options { lock_wait: Duration::from_millis(50), ..other.options() };
    let mut second = Cache::open(&hasty)?;
    expect(second.attach(&rig.volume("data")), "in use", "stop the process that uses it")?;
    // It is free as soon as it is detached, not only when the cache ends.
    cache.detach(volume)?;
    let volume = second.attach(&rig.volume("data"))?;
    second.read(volume, 0, &mut [0; 512])?;
    Ok(())
}

pub(crate) fn volumes_that_can_not_be_used() -> Result<()> {
    let rig = Rig::new()?;
    rig.file("data", SIZE)?;
    let (mut cache, volume) = rig.open_with("data")?;
    let at = |name: &str, backend: &str| VolumeOptions::new(name, backend);
    let file = |name: &str| format!("file:{}", rig.path(name).display());
    expect(cache.attach(&rig.volume("data")), "attached already", "another name")?;
    expect(
        cache.attach(&at("twin", &file("data"))),
        "it is the backend of volume \"data\"",
        "each file or export once",
    )?;
    expect(cache.attach(&at("own", &file("cache.img"))), "it is the cache device", "once")?;
    expect(cache.attach(&rig.volume("missing")), "no such file", "path")?;
    expect(cache.attach(&at("x", "iscsi:disk")), "is not a backend", "file:PATH")?;
    std::fs::write(rig.path("empty"), "")?;
    expect(cache.attach(&rig.volume("empty")), "empty", "truncate")?;
    std::fs::write(rig.path("odd"), [1; 1000])?;
    expect(cache.attach(&rig.volume("odd")), "not a multiple of 512", "truncate")?;
    expect(
        cache.attach(&at("x", &format!("file:{}", rig.path("").display()))),
        "directory",
        "file",
    )?;
    rig.file("good", SIZE)?;
    let long = "n".repeat(65);
    expect(cache.attach(&at(&long, &file("good"))), "attaching it failed", "64 bytes")?;
    // None of this is in the way of what is right.
    let good = cache.attach(&at("good", &file("good")))?;
    cache.read(good, 0, &mut [0; 512])?;
    cache.read(volume, 0, &mut [0; 512])?;
    ensure!(cache.close()?.clean);
    ensure!(std::fs::metadata(rig.path("cache.img"))?.len() == DEVICE);
    Ok(())
}

pub(crate) fn requests_that_can_not_be_done() -> Result<()> {
    let rig = Rig::new()?;
    rig.file("data", SIZE)?;
    let mut cache = rig.open()?;
    let read_only = VolumeOptions { read_only: true, ..rig.volume("data") };
    let volume = cache.attach(&read_only)?;
    let sectors = "multiples of 512";
    expect(cache.read(volume, 1, &mut [0; 512]), "not whole sectors", sectors)?;
    expect(cache.read(volume, 0, &mut [0; 100]), "not whole sectors", sectors)?;
    expect(cache.read(volume, SIZE - 512, &mut [0; 1024]), "not inside", "size")?;
    expect(cache.trim(volume, u64::MAX - 511, 512), "not inside", "size")?;
    expect(cache.write(volume, 0, &[0; 512]), "read-only", "")?;
    expect(cache.write_zeroes(volume, 0, 512), "read-only", "")?;
    cache.read(volume, 0, &mut [])?;
    let long = Request::Read { offset: 0, len: 64 * MIB };
    expect(cache.submit(volume, 1, long), "not inside", "size")?;
    cache.detach(volume)?;

    let size = 64 * MIB;
    std::fs::File::create(rig.path("large"))?.set_len(size)?;
    let volume = cache.attach(&rig.volume("large"))?;
    let long = Request::Read { offset: 0, len: 33 * MIB };
    expect(cache.submit(volume, 1, long), "longer than", "split")?;
    let misplaced = Request::Write { offset: 7, data: Buffer::new(0, 512), durable: false };
    expect(cache.submit(volume, 1, misplaced), "not whole sectors", sectors)?;
    ensure!(cache.under_way() == 0, "what is refused has no completion");
    ensure!(cache.poll(None, &mut Vec::new())? == 0);
    Ok(())
}
