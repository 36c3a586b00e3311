//! Checks that need more than one setting: volumes beside each other, shares of the whole cache.

use super::error::SettingError;
use super::looks::Looks;
use super::units::{show_share, show_size};
use super::volume::backend_place;
use crate::settings::{Ack, CacheConfig, NbdAddress, Share, VolumeConfig, VolumeMode};
use cinnabar_backend::spec::Place;
use cinnabar_engine::units::BLOCK_BYTES;
use std::path::Path;

/// Percent of the cache that may be promised; the rest is for everyone, so that segments can
/// always be freed.
pub const MINIMUMS_PERCENT_MAX: u64 = 80;

fn show_place(place: &Place) -> String {
    match place {
        Place::File(path) => path.display().to_string(),
        Place::Nbd(server) => server.to_string(),
        Place::Rbd(image) => image.to_string(),
        Place::Hybrid(volume) => volume.to_string(),
    }
}

/// Checks a new volume against those before it and against the cache device.
///
/// # Errors
/// If it has the name or address of another one, or lives where something else does.
pub fn check_beside<'v>(
    new: &VolumeConfig,
    others: impl IntoIterator<Item = &'v VolumeConfig>,
    cache_device: &Path,
    looks: &mut Looks,
) -> Result<(), SettingError> {
    let Some(place) = backend_place(&new.backend) else { return Ok(()) };
    let identity = looks.at(&place);
    if identity == looks.at_path(cache_device) {
        return Err(SettingError::new(
            "backend",
            format!("{} is the cache device itself", show_place(&place)),
            "the cache overwrites its device; name another file",
        ));
    }
    for other in others {
        if other.name == new.name {
            return Err(SettingError::new(
                "name",
                format!("there is another volume named {:?}", new.name),
                "give each volume a name of its own",
            ));
        }
        for (key, address) in sockets(new) {
            if sockets(other).any(|(_, taken)| taken == address) {
                return Err(SettingError::new(
                    key,
                    format!("{address} is the address of volume {:?} already", other.name),
                    "give each volume an address of its own",
                ));
            }
        }
        if new.claim.is_some() && new.claim == other.claim {
            return Err(SettingError::new(
                "claim",
                format!("it is the claim of volume {:?} already", other.name),
                "give each volume a claim of its own",
            ));
        }
        // Two views of a golden image do no harm.
        if new.read_only && other.read_only {
            continue;
        }
        let others = backend_place(&other.backend);
        if others.is_some_and(|place| looks.at(&place) == identity) {
            return Err(SettingError::new(
                "backend",
                format!("{} is the backend of volume {:?} already", show_place(&place), other.name),
                "serve it once, with shared or read_only if several clients need it",
            ));
        }
    }
    Ok(())
}

/// Where a volume is served, by the setting that says so.
fn sockets(volume: &VolumeConfig) -> impl Iterator<Item = (&'static str, NbdAddress)> {
    let vhost = volume.vhost_user.clone().map(|path| ("vhost_user", NbdAddress::Unix(path)));
    volume.nbd.clone().map(|nbd| ("nbd", nbd)).into_iter().chain(vhost)
}

/// Checks that a volume is not served where the control socket is.
///
/// # Errors
/// If it is.
pub fn check_control(volume: &VolumeConfig, control: &Path) -> Result<(), SettingError> {
    let control = NbdAddress::Unix(control.to_owned());
    let taken = sockets(volume).find(|(_, address)| *address == control);
    taken.map_or(Ok(()), |(key, _)| {
        let message = "the volume's socket is the control socket";
        Err(SettingError::new(key, message, "give it a path of its own"))
    })
}

/// Checks that a volume in write-back mode has a write log, and that the log is not its backend.
///
/// # Errors
/// If not.
pub fn check_write_log(
    volume: &VolumeConfig,
    cache: &CacheConfig,
    looks: &mut Looks,
) -> Result<(), SettingError> {
    let Some(log) = &cache.write_log else {
        if volume.mode != VolumeMode::WriteBack {
            return Ok(());
        }
        let message = "mode write-back needs a write log";
        return Err(SettingError::new("mode", message, "set write_log in [cache]"));
    };
    if volume.ack == Ack::Memory && log.memory.is_none() {
        let message = "ack = \"memory\" needs a write memory";
        let hint = "set write_memory in [cache], such as \"/dev/shm/cinnabar/log.memory\"";
        return Err(SettingError::new("ack", message, hint));
    }
    let Some(place) = backend_place(&volume.backend) else { return Ok(()) };
    let found = looks.at(&place);
    if !log.paths().any(|path| looks.at_path(path) == found) {
        return Ok(());
    }
    let message = format!("{} is the write log", show_place(&place));
    Err(SettingError::new("backend", message, "the log overwrites its device; name another file"))
}

/// Checks that the mirror of the write log is another file or device than the log and the cache.
///
/// # Errors
/// If not.
pub fn check_log_mirror(cache: &CacheConfig, looks: &mut Looks) -> Result<(), SettingError> {
    let log = cache.write_log.as_ref();
    let Some((log, mirror)) = log.and_then(|log| Some((log, log.mirror.as_ref()?))) else {
        return Ok(());
    };
    let found = looks.at_path(mirror);
    for (path, what) in [(&log.path, "the write log itself"), (&cache.device, "the cache device")] {
        if looks.at_path(path) == found {
            let message = format!("write_log_mirror is {what}");
            let hint = "name a file or device on another SSD";
            return Err(SettingError::new("write_log_mirror", message, hint));
        }
    }
    Ok(())
}

/// Checks that the minimums sum to at most 80 % of the cache. Without `capacity_bytes` only
/// percentages can be summed.
///
/// # Errors
/// If they are more.
pub fn check_minimums(
    minimums: impl IntoIterator<Item = Share>,
    capacity_bytes: Option<u64>,
) -> Result<(), SettingError> {
    let minimums: Vec<Share> = minimums.into_iter().collect();
    let percent: f64 = minimums
        .iter()
        .map(|share| match (share, capacity_bytes) {
            (Share::Percent(percent), _) => *percent,
            (Share::Bytes(bytes), Some(all)) if all > 0 => *bytes as f64 * 100.0 / all as f64,
            (Share::Bytes(_), _) => 0.0,
        })
        .sum();
    // A hair above is rounding: 3 x 26.666666666666668 %.
    if percent <= MINIMUMS_PERCENT_MAX as f64 + 1e-6 {
        return Ok(());
    }
    let list: Vec<String> = minimums.iter().map(|share| show_share(*share)).collect();
    Err(SettingError::new(
        "share_min",
        format!(
            "the minimums ({}) sum to {percent:.1} % of the cache, at most {MINIMUMS_PERCENT_MAX} % \
             can be promised",
            list.join(", ")
        ),
        "lower some share_min",
    ))
}

/// Checks minimum and maximum of one volume where the capacity is needed to compare them.
///
/// # Errors
/// If the minimum is more.
pub fn check_order_in(
    share_min: Share,
    share_max: Share,
    capacity_bytes: u64,
) -> Result<(), SettingError> {
    let blocks = |share: Share| share.blocks(capacity_bytes / BLOCK_BYTES);
    if blocks(share_min) <= blocks(share_max) {
        return Ok(());
    }
    Err(SettingError::new(
        "share_min",
        format!(
            "share_min {} is more than share_max {} of a cache of {}",
            show_share(share_min),
            show_share(share_max),
            show_size(capacity_bytes)
        ),
        "raise share_max or lower share_min",
    ))
}

/// What to warn about, for a volume that is fine otherwise.
pub fn warnings(volume: &VolumeConfig) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(NbdAddress::Tcp(address)) = &volume.nbd
        && !address.ip().is_loopback()
        && volume.socket.tls.is_none()
    {
        warnings.push(format!(
            "volume {:?}: NBD at tcp:{address} is neither encrypted nor authenticated; anyone who \
             reaches it reads and writes the disk: nbd_tls = \"require\" bars them",
            volume.name
        ));
    }
    if volume.shared && !volume.read_only {
        warnings.push(format!(
            "volume {:?}: shared = true lets several guests write it, which destroys file systems \
             that are not made for that",
            volume.name
        ));
    }
    warnings
}
