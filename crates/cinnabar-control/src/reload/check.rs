//! What a plan asks for, checked beside what is served, before any of it is done.
//!
//! The file by itself was checked when it was read. What is served may be something else: volumes that
//! were added by command, settings that need a restart.

use super::plan::{Plan, Step, served};
use crate::configured::Configured;
use cinnabar_config::SettingError;
use cinnabar_config::checks::{
    check_beside, check_control, check_minimums, check_order_in, check_write_log,
};
use cinnabar_config::looks::Looks;
use cinnabar_config::messages::{CommandError, CommandErrorKind, DataStatus, VolumeConfig};
use cinnabar_config::settings::{CacheConfig, Share};
use cinnabar_config::volume::check_ack;
use cinnabar_engine::seam::units::BLOCK_BYTES;

/// Checks it, and gives what deserves a word. Waits for files.
///
/// # Errors
/// The first thing that can't be done.
pub(super) fn check(
    plan: &Plan,
    was: &Configured,
    now: &DataStatus,
) -> Result<Vec<String>, CommandError> {
    let mut looks = Looks::default();
    let removed = |name: &str| {
        plan.steps.iter().any(|step| matches!(step, Step::Remove(other) if other == name))
    };
    let stays = now.volumes.iter().map(|volume| &volume.config).filter(|one| !removed(&one.name));
    let mut stays: Vec<&VolumeConfig> = stays.collect();
    let cache = CacheConfig { device: now.cache.device.clone(), ..was.running.cache.clone() };
    for step in &plan.steps {
        let checked = match step {
            Step::Add(new) => {
                let result = check_beside(new, stays.iter().copied(), &cache.device, &mut looks)
                    .and_then(|()| check_control(new, &was.running.control.socket))
                    .and_then(|()| check_write_log(new, &cache, &mut looks));
                stays.push(new);
                result.map_err(|error| of_volume(&new.name, error))
            }
            Step::Set(name, .., then) => check_ack(then.ack, then.nbd.as_ref())
                .and_then(|()| check_write_log(then, &cache, &mut looks))
                .map_err(|error| of_volume(name, error)),
            _ => Ok(()),
        };
        checked?;
    }
    check_shares(plan, now, &stays)?;
    Ok(looks.warnings())
}

/// What all volumes together ask of the cache when all is done.
fn check_shares(
    plan: &Plan,
    now: &DataStatus,
    stays: &[&VolumeConfig],
) -> Result<(), CommandError> {
    let mut capacity_bytes = now.cache.counters.capacity_blocks * BLOCK_BYTES;
    let mut set: Vec<&VolumeConfig> = Vec::new();
    for step in &plan.steps {
        match step {
            Step::Resize(bytes) => capacity_bytes = *bytes,
            Step::Set(.., then) => set.push(then),
            _ => {}
        }
    }
    let then = |volume: &&VolumeConfig| -> Share {
        let changed = set.iter().find(|other| other.name == volume.name);
        changed.map_or(volume.share_min, |changed| changed.share_min)
    };
    let is_new = |volume: &&&VolumeConfig| served(now, &volume.name).is_none();
    for volume in set.iter().chain(stays.iter().filter(is_new)) {
        check_order_in(volume.share_min, volume.share_max, capacity_bytes)
            .map_err(|error| of_volume(&volume.name, error))?;
    }
    let all = check_minimums(stays.iter().map(then), Some(capacity_bytes));
    all.map_err(|error| CommandError::new(CommandErrorKind::Invalid, error.message, error.hint))
}

fn of_volume(name: &str, error: SettingError) -> CommandError {
    let message = format!("volume {name:?}: {}", error.message);
    CommandError::new(CommandErrorKind::Invalid, message, error.hint)
}
