//! Which devices an engine can have, and new ones.
//!
//! Called before anything is started, and where an engine is to begin with an empty device.

use super::super::config::{Config, Placement, WritePolicy};
use super::super::config_error::ConfigError;
use cinnabar_engine::metadata::superblock::{Geometry, Superblock};
use cinnabar_engine::units::BLOCK_BYTES;

/// Whether an engine can be simulated with these settings.
pub(in super::super) fn check(config: &Config) -> Result<(), ConfigError> {
    let wrong = |key, message: &str, hint: &str| {
        Err(ConfigError { key, message: message.to_owned(), hint: hint.to_owned() })
    };
    if config.placement == Placement::Server {
        return wrong(
            "placement",
            "the engine is in the host",
            "choose placement = \"client\", or architecture = \"naive\"",
        );
    }
    if !matches!(config.flash_policy, None | Some(WritePolicy::Sync)) {
        return wrong(
            "flash_policy",
            "the engine writes through, and the writer waits",
            "leave flash_policy out, or choose s",
        );
    }
    if config.prefetch_blocks > 0 {
        return wrong(
            "prefetch_blocks",
            "the engine does not read ahead",
            "leave it out, or choose another architecture",
        );
    }
    let bytes = device_bytes(config);
    if let Err(error) = Geometry::for_shards(bytes, Geometry::shards_for(bytes)) {
        return Err(ConfigError {
            key: "flash_blocks",
            message: format!("an engine can't have a device of {bytes} bytes: {error}"),
            hint: format!(
                "choose at least {} MiB of flash, divided by the scale",
                Geometry::BYTES_MIN.div_ceil(1 << 20)
            ),
        });
    }
    Ok(())
}

/// Size of the cache device, which holds the engine's metadata, too.
fn device_bytes(config: &Config) -> u64 {
    config.scaled(config.flash_blocks) * BLOCK_BYTES
}

/// What a newly formatted device of that size has in front of each of its regions.
///
/// # Panics
/// If there is no such device; [`check`] says so before.
pub(super) fn format(config: &Config) -> Vec<Superblock> {
    let bytes = device_bytes(config);
    let geometry = Geometry::for_shards(bytes, Geometry::shards_for(bytes));
    // A real device's name is random, and where blocks lie in the tables follows from it. Devices never
    // meet in a simulation, so those of all hosts may have the same.
    let mut name = [0xC1; 16];
    for (byte, more) in name.iter_mut().zip(config.seed.wrapping_sub(1).to_le_bytes()) {
        *byte ^= more;
    }
    Superblock::format_all(name, geometry.expect("checked before"))
}
