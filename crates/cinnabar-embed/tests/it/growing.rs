//! A file that grows while it is cached.

use crate::rig::{MIB, Rig, stamp};
use anyhow::{Result, ensure};
use cinnabar_embed::{Cache, Error, Options, Volume, VolumeOptions, Warmth};
use std::os::unix::fs::FileExt;
use std::path::Path;

const SIZE: u64 = 4 * MIB;
/// Over the boundary between two shards at 8 MiB.
const GROWN: u64 = 10 * MIB;

/// Another program makes the file larger, with a stamp in each new block.
fn grow(path: &Path, from: u64, to: u64) -> Result<()> {
    let file = std::fs::OpenOptions::new().write(true).open(path)?;
    file.set_len(to)?;
    for block in from / 4096..to / 4096 {
        file.write_all_at(&stamp(block), block * 4096)?;
    }
    Ok(())
}

fn read(cache: &mut Cache, volume: Volume, offset: u64) -> Result<[u8; 4096]> {
    let mut block = [0; 4096];
    cache.read(volume, offset, &mut block)?;
    Ok(block)
}

/// What was cached stays, what is new is cached, and the next start finds both.
pub(crate) fn a_volume_grows() -> Result<()> {
    let rig = Rig::new()?;
    let path = rig.file("data", SIZE)?;
    let (mut cache, volume) = rig.open_with("data")?;
    cache.read(volume, 0, &mut vec![0; SIZE as usize])?;
    ensure!(cache.resize(volume)? == SIZE, "nothing has changed");
    grow(&path, SIZE, GROWN)?;
    let early = cache.write(volume, GROWN - 4096, &[7; 4096]);
    ensure!(matches!(early, Err(Error::PastEnd { size: SIZE, .. })), "{early:?}");
    ensure!(cache.resize(volume)? == GROWN);
    ensure!(cache.size_bytes(volume)? == GROWN);
    ensure!(read(&mut cache, volume, SIZE)? == stamp(SIZE / 4096), "what the other program wrote");
    cache.write(volume, GROWN - 4096, &[7; 4096])?;
    cache.flush(volume)?;
    // A range from the old part into the new one, and across the end of a shard's stripe.
    cache.write(volume, SIZE - 4096, &[6; 8192])?;
    let misses = cache.volume_counters(volume)?.misses;
    ensure!(read(&mut cache, volume, 0)? == stamp(0));
    ensure!(cache.volume_counters(volume)?.misses == misses, "nothing was dropped");
    let all = std::fs::read(&path)?;
    ensure!(all.len() as u64 == GROWN && all[(GROWN - 4096) as usize..] == [7; 4096]);
    ensure!(cache.close()?.clean);

    let (mut cache, volume) = rig.open_with("data")?;
    let warmth = cache.warmth(volume)?;
    ensure!(matches!(warmth, Warmth::Warm { blocks } if blocks >= SIZE / 4096), "{warmth:?}");
    ensure!(cache.size_bytes(volume)? == GROWN);
    for (offset, expected) in
        [(GROWN - 4096, [7; 4096]), (SIZE - 4096, [6; 4096]), (SIZE, [6; 4096])]
    {
        ensure!(read(&mut cache, volume, offset)? == expected, "at {offset}");
    }
    ensure!(read(&mut cache, volume, 0)? == stamp(0));
    ensure!(cache.volume_counters(volume)?.misses == 0, "all of that was cached");
    Ok(())
}

/// A cache that ends without warning is found with the size that it had grown to.
pub(crate) fn a_volume_that_grew_survives_a_crash() -> Result<()> {
    let rig = Rig::new()?;
    let path = rig.file("data", SIZE)?;
    // The file's own change time must not be what saves it.
    let options = VolumeOptions { exclusive: true, ..rig.volume("data") };
    let mut cache = rig.open()?;
    let volume = cache.attach(&options)?;
    cache.read(volume, 0, &mut vec![0; SIZE as usize])?;
    grow(&path, SIZE, GROWN)?;
    cache.resize(volume)?;
    cache.read(volume, SIZE, &mut vec![0; (GROWN - SIZE) as usize])?;
    crate::rig::idle(&mut cache, 1500)?;
    cache.write(volume, GROWN - 4096, &[7; 4096])?;
    drop(cache);
    let mut cache = rig.open()?;
    let volume = cache.attach(&options)?;
    cache.wait_loaded()?;
    let warmth = cache.warmth(volume)?;
    ensure!(matches!(warmth, Warmth::Warm { blocks } if blocks > 0), "{warmth:?}");
    ensure!(cache.size_bytes(volume)? == GROWN);
    let mut all = vec![0; GROWN as usize];
    cache.read(volume, 0, &mut all)?;
    ensure!(all == std::fs::read(&path)?, "never what was there before");
    ensure!(all[(GROWN - 4096) as usize..] == [7; 4096]);
    ensure!(cache.close()?.clean);
    Ok(())
}

/// Neither a smaller file nor a last block in part changes what is served.
pub(crate) fn what_can_not_grow_says_so() -> Result<()> {
    let rig = Rig::new()?;
    let path = rig.file("data", SIZE)?;
    let (mut cache, volume) = rig.open_with("data")?;
    let file = std::fs::OpenOptions::new().write(true).open(&path)?;
    file.set_len(SIZE - MIB)?;
    let Err(error) = cache.resize(volume) else { anyhow::bail!("it has shrunk") };
    ensure!(matches!(error, Error::Shrunk { .. }) && error.hint().contains("as large again"));
    let text = format!("its backend has {} bytes, fewer than the {SIZE} served", SIZE - MIB);
    ensure!(error.to_string().contains(&text), "{error}");
    ensure!(cache.size_bytes(volume)? == SIZE, "it is served as before");
    file.set_len(SIZE)?;
    ensure!(cache.resize(volume)? == SIZE);

    let odd = SIZE + 512;
    std::fs::File::create(rig.path("odd"))?.set_len(odd)?;
    let volume = cache.attach(&rig.volume("odd"))?;
    ensure!(cache.resize(volume)? == odd, "it has not grown");
    std::fs::OpenOptions::new().write(true).open(rig.path("odd"))?.set_len(GROWN)?;
    let Err(error) = cache.resize(volume) else { anyhow::bail!("its last block was cut off") };
    ensure!(matches!(error, Error::OddEnd { .. }) && error.hint().contains("attach"), "{error}");
    cache.detach(volume)?;
    let gone = cache.resize(volume);
    ensure!(matches!(gone, Err(Error::NoVolume)), "{gone:?}");
    let volume = cache.attach(&rig.volume("odd"))?;
    ensure!(cache.size_bytes(volume)? == GROWN);
    ensure!(cache.close()?.clean);
    Ok(())
}

/// Uncached it grows just as well, and what the device held before is not believed beyond that.
pub(crate) fn a_volume_grows_without_its_device() -> Result<()> {
    let rig = Rig::new()?;
    let path = rig.file("data", SIZE)?;
    let away = Options { required: false, device: "/dev/no-such-device".into(), ..rig.options() };
    let mut cache = Cache::open(&away)?;
    ensure!(cache.degraded().is_some());
    let volume = cache.attach(&rig.volume("data"))?;
    grow(&path, SIZE, GROWN)?;
    ensure!(cache.resize(volume)? == GROWN);
    cache.write(volume, GROWN - 4096, &[7; 4096])?;
    ensure!(read(&mut cache, volume, GROWN - 4096)? == [7; 4096]);
    cache.close()?;
    let (mut cache, volume) = rig.open_with("data")?;
    ensure!(read(&mut cache, volume, GROWN - 4096)? == [7; 4096]);
    Ok(())
}
