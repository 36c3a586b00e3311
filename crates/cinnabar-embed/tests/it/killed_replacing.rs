//! A process that replaces its cache device again and again is killed with `kill -9`.
//!
//! Afterwards both devices are put back in turn. Whichever comes first, no block is older than what
//! was acknowledged, and what the cache gives is what the file holds.

use crate::CHILD_REPLACING;
use crate::crash::{BLOCKS, Expected, SIZE, content, run_and_kill, say, submit, version_of};
use crate::rig::{DEVICE, Rig, Rng};
use anyhow::{Context, Result, ensure};
use cinnabar_embed::{Cache, Completion, NewDevice, Options, Volume, VolumeOptions};
use std::path::Path;
use std::time::Duration;

const DEVICES: [&str; 2] = ["first.img", "second.img"];
const ROUNDS: u64 = 6;

/// Replaces the one device by the other until it is killed.
pub(crate) fn child(folder: &Path) {
    if let Err(error) = replace_until_killed(&Rig::at(folder)) {
        say(&format!("error {error:?}").replace('\n', " "));
        std::process::exit(1);
    }
}

/// What a killed process left of a format is formatted again. `exclusive`: the file's own change time
/// must not be what saves it.
fn open(rig: &Rig, device: &str) -> Result<(Cache, Volume)> {
    let options = Options { device: rig.path(device), format: true, ..rig.options() };
    let mut cache = Cache::open(&options)?;
    let volume = VolumeOptions { exclusive: true, ..rig.volume("data") };
    let volume = cache.attach(&volume)?;
    cache.wait_loaded()?;
    Ok((cache, volume))
}

fn replace_until_killed(rig: &Rig) -> Result<()> {
    let (mut cache, volume) = open(rig, DEVICES[0])?;
    let mut all = vec![0; SIZE as usize];
    cache.read(volume, 0, &mut all)?;
    let mut versions: Vec<u64> = (0..BLOCKS / 2)
        .map(|block| version_of(block, &all[block as usize * 4096..][..4096]))
        .collect::<Result<_>>()?;
    let mut rng = Rng(u64::from(std::process::id()));
    let mut done: Vec<Completion> = Vec::new();
    say("warm 0");
    for device in DEVICES.iter().rev().cycle() {
        for _ in 0..16 {
            submit(&mut cache, volume, &mut versions, &mut rng)?;
        }
        let new = NewDevice { size_bytes: Some(DEVICE), format: true, device: rig.path(device) };
        cache.replace(&new)?;
        say("replaced");
        while cache.under_way() > 0 {
            cache.poll(None, &mut done)?;
            for Completion { tag, result } in done.drain(..) {
                if let Some(_buffer) = result? {
                    say(&format!("done {} {} {}", tag >> 40, tag >> 32 & 0xff, tag & 0xffff_ffff));
                }
            }
        }
        // More than RAM holds: the device gets most of it, and it must never be believed later.
        cache.read(volume, 0, &mut all)?;
    }
    Ok(())
}

pub(crate) fn killed_while_its_device_is_replaced() -> Result<()> {
    let rig = Rig::new()?;
    rig.file("data", SIZE)?;
    let (mut cache, volume) = open(&rig, DEVICES[0])?;
    for block in 0..BLOCKS {
        cache.write(volume, block * 4096, &content(block, 0))?;
    }
    cache.close()?;
    let mut found = vec![0; BLOCKS as usize / 2];
    let mut rng = Rng(2027);
    let mut replaced = 0;
    for round in 0..ROUNDS {
        let after = Duration::from_millis(50 + rng.below(700));
        let expected = run_and_kill(CHILD_REPLACING, &rig, &found, after)?;
        replaced += expected.replaced;
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for device in order {
            let context = || format!("round {round}, {}", DEVICES[device]);
            found = look(&rig, DEVICES[device], &expected).with_context(context)?;
        }
    }
    ensure!(replaced >= ROUNDS, "only {replaced} replacements came to an end");
    Ok(())
}

/// Reads everything through the cache.
fn look(rig: &Rig, device: &str, expected: &Expected) -> Result<Vec<u64>> {
    let (mut cache, volume) = open(rig, device)?;
    let mut all = vec![0; SIZE as usize];
    cache.read(volume, 0, &mut all)?;
    ensure!(all == std::fs::read(rig.path("data"))?, "the file holds something else");
    cache.close()?;
    let mut found = Vec::new();
    for block in 0..BLOCKS / 2 {
        let (at, bytes) = (block as usize, &all[block as usize * 4096..][..4096]);
        let version = version_of(block, bytes)?;
        let allowed = expected.acknowledged[at]..=expected.begun[at];
        ensure!(allowed.contains(&version), "block {block} has version {version}, not {allowed:?}");
        found.push(version);
    }
    Ok(found)
}
