//! What a volume gets of what it shares with others: of its back end, of the SSD, of the daemon.

use super::error::SettingError;
use super::values::size_or;
use cinnabar_driver::qos::limits::{IOPS_MAX, WEIGHT_MAX};
use cinnabar_driver::qos::{Settings, SettingsError};
use cinnabar_engine::limits::NAME_BYTES_MAX;

/// Longest name of a group of volumes: the path of a socket fits.
const QOS_GROUP_BYTES_MAX: usize = 255;
/// With less the longest request would hold up the next one for more than half a minute.
const GUEST_BYTES_LIMIT_MIN: u64 = 1 << 20;

/// Settings of a volume at its backend, changed where something is given. A limit of 0 is none.
///
/// # Errors
/// What can't hold.
pub fn qos_settings(
    old: Settings,
    reservation: Option<u64>,
    limit: Option<u64>,
    weight: Option<u64>,
) -> Result<Settings, SettingError> {
    let number = |iops: u64| u32::try_from(iops).unwrap_or(u32::MAX);
    let settings = Settings {
        reservation_iops: reservation.map_or(old.reservation_iops, number),
        limit_iops: limit.map_or(old.limit_iops, |limit| (limit > 0).then(|| number(limit))),
        weight: weight.map_or(old.weight, number),
    };
    settings.check().map_err(|error| {
        let (key, hint) = match error {
            SettingsError::Weight(_) => {
                ("iops_weight", format!("choose 1 to {WEIGHT_MAX}; volumes have 100 by default"))
            }
            SettingsError::LimitBelowReservation { .. } => {
                ("iops_limit", "raise iops_limit, or lower iops_reservation".to_owned())
            }
            _ if settings.reservation_iops > IOPS_MAX => {
                ("iops_reservation", format!("choose 0 to {IOPS_MAX}; 0 reserves nothing"))
            }
            _ => ("iops_limit", format!("choose 0 to {IOPS_MAX}; 0 is no limit")),
        };
        SettingError::new(key, format!("{key}: {error}"), hint)
    })?;
    Ok(settings)
}

/// The name of a group of volumes.
pub(super) fn check_qos_group(name: String) -> Result<String, SettingError> {
    check_group("qos_group", name, QOS_GROUP_BYTES_MAX)
}

/// The name of a write group, as long as a volume's.
pub(super) fn check_write_group(name: String) -> Result<String, SettingError> {
    check_group("write_group", name, NAME_BYTES_MAX)
}

fn check_group(key: &'static str, name: String, most: usize) -> Result<String, SettingError> {
    if (1..=most).contains(&name.len()) && name.chars().all(|c| !c.is_control()) {
        return Ok(name);
    }
    let message = format!("{key}: {name:?} can't be the name of a group");
    Err(SettingError::new(
        key,
        message,
        format!("choose 1 to {most} bytes without control characters"),
    ))
}

/// Bytes of a volume's blocks that may go to the cache device a second; 0 is no limit.
///
/// # Errors
/// If it is no size.
pub fn fill_limit(text: &str) -> Result<u64, SettingError> {
    size_or("fill_limit", Some(text), 0)
}

/// Requests of a volume's guests a second; 0 is no limit.
///
/// # Errors
/// If it is more than [`IOPS_MAX`].
pub fn guest_iops_limit(iops: u64) -> Result<u32, SettingError> {
    let iops = u32::try_from(iops).ok().filter(|iops| *iops <= IOPS_MAX);
    iops.ok_or_else(|| {
        let message = format!("guest_iops_limit: more than {IOPS_MAX} requests a second");
        let hint = format!("choose 0 to {IOPS_MAX}; 0 is no limit");
        SettingError::new("guest_iops_limit", message, hint)
    })
}

/// Bytes that a volume's guests read and write a second; 0 is no limit.
///
/// # Errors
/// If it is no size, or so little that one request would stop its guest for minutes.
pub fn guest_bytes_limit(text: &str) -> Result<u64, SettingError> {
    let bytes = size_or("guest_bytes_limit", Some(text), 0)?;
    if bytes == 0 || bytes >= GUEST_BYTES_LIMIT_MIN {
        return Ok(bytes);
    }
    let message = "guest_bytes_limit: less than 1 MiB a second, and a request may have 32 MiB";
    Err(SettingError::new("guest_bytes_limit", message, "choose 1MiB or more; 0 is no limit"))
}
