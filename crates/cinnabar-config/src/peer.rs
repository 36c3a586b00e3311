//! The other host of a volume that may move.

use crate::error::SettingError;
use crate::settings::{Peer, VolumeConfig, VolumeMode, WarmSettings};
use crate::values::{normal, size_or};
use crate::volume::backend_place;
use cinnabar_backend::spec::Place;
use std::path::Path;
use std::time::Duration;

/// Longest address of another daemon, in bytes.
const ADDRESS_BYTES_MAX: usize = 255;
/// Longest time for which blocks are fetched from the other host's cache, in seconds.
const WARM_S_MAX: u64 = 24 * 60 * 60;

/// Reads where the control API of the other daemon is, and the file of its token: both, or neither.
///
/// # Errors
/// What can't be used.
pub fn read_peer(
    address: Option<&str>,
    token_file: Option<&str>,
    base: &Path,
) -> Result<Option<Peer>, SettingError> {
    match (address, token_file) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(SettingError::new(
            "migrate_peer",
            "migrate_peer without migrate_token_file",
            "name the file of the token that changes need at the other daemon",
        )),
        (None, Some(_)) => Err(SettingError::new(
            "migrate_token_file",
            "migrate_token_file without migrate_peer",
            "name the other daemon: migrate_peer = \"http://host-b:9321\"",
        )),
        (Some(_), Some(text)) if text.is_empty() || text.contains('\0') => {
            let message = format!("migrate_token_file: {text:?} is not a path");
            let hint = "name the file of the token that changes need at the other daemon";
            Err(SettingError::new("migrate_token_file", message, hint))
        }
        (Some(address), Some(token_file)) => {
            let address = read_address(address)?;
            Ok(Some(Peer { address, token_file: normal(&base.join(token_file)) }))
        }
    }
}

/// Reads `http://HOST:PORT`.
fn read_address(text: &str) -> Result<String, SettingError> {
    let wrong = || {
        let message = format!("migrate_peer: {text:?} is no address of a daemon");
        let hint =
            "write http://HOST:PORT, as peers in the configuration of the other daemon has it";
        SettingError::new("migrate_peer", message, hint)
    };
    let rest = text.strip_prefix("http://").ok_or_else(wrong)?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
    let port = port.parse::<u16>().map_err(|_| wrong())?;
    if host.is_empty() || port == 0 || rest.len() > ADDRESS_BYTES_MAX || !host.chars().all(is_host)
    {
        return Err(wrong());
    }
    Ok(format!("{host}:{port}"))
}

/// Reads how the other host's cached blocks are fetched: bytes a second, and seconds.
///
/// # Errors
/// What can't be used.
pub fn read_warm(rate: Option<&str>, seconds: Option<u64>) -> Result<WarmSettings, SettingError> {
    let default = WarmSettings::default();
    let rate_bytes = size_or("migrate_warm_rate", rate, default.rate_bytes)?;
    let time_max = match seconds {
        None => default.time_max,
        Some(seconds) if seconds <= WARM_S_MAX => Duration::from_secs(seconds),
        Some(seconds) => {
            let message = format!("migrate_warm_for_s: {seconds} seconds is more than a day");
            let hint = format!("choose 1 to {WARM_S_MAX}, or 0 to fetch nothing");
            return Err(SettingError::new("migrate_warm_for_s", message, hint));
        }
    };
    Ok(WarmSettings { rate_bytes, time_max })
}

/// Checks that a volume with these settings may move.
///
/// # Errors
/// If its acknowledged writes may be on this host alone, nobody writes it, or no standby can read it: what a
/// clone has itself is asked when it is attached, not when it comes back.
pub fn check_movable(volume: &VolumeConfig) -> Result<(), SettingError> {
    let (key, message, hint) = if volume.mode == VolumeMode::WriteBack {
        let message =
            "a volume in mode write-back can't move: its writes may be on this host alone";
        ("mode", message, "use mode write-through: cinnabar volume set NAME --mode write-through")
    } else if volume.read_only {
        let message = "a read-only volume needs no hand-over: both hosts may serve it";
        ("migrate_peer", message, "leave migrate_peer out")
    } else if volume.parent.is_some() {
        let hint = "leave parent out: it is read through its own image then";
        ("migrate_peer", "a volume with a parent can't move", hint)
    } else if is_hybrid(volume) {
        let message = "a hybrid volume can't move: no other host can read it beside its owner";
        let hint = "leave migrate_peer out: shut its guest down, remove it here and add it there";
        ("migrate_peer", message, hint)
    } else {
        return Ok(());
    };
    Err(SettingError::new(key, message, hint))
}

/// Whether a volume is on two pools, which have one owner and no other reader.
pub fn is_hybrid(volume: &VolumeConfig) -> bool {
    matches!(backend_place(&volume.backend), Some(Place::Hybrid(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume_keys::VolumeInput;

    #[test]
    fn addresses_are_checked() {
        let read = |text: &str| read_peer(Some(text), Some("token"), Path::new("/etc"));
        let peer = read("http://host-b:9321/").expect("an address").expect("both are there");
        assert_eq!(peer.address, "host-b:9321");
        assert_eq!(peer.token_file, Path::new("/etc/token"));
        assert!(read("http://[::1]:9321").is_ok());
        for bad in [
            "",
            "host-b:9321",
            "https://b:1",
            "http://b",
            "http://:1",
            "http://b:0",
            "http://b:x",
            "http://b:1/v1",
            "http://b\r\nX:1",
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
        assert!(read_peer(Some("http://b:1"), None, Path::new("/")).is_err());
        assert!(read_peer(None, Some("t"), Path::new("/")).is_err());
        assert!(read_peer(Some("http://b:1"), Some(""), Path::new("/")).is_err());
        assert_eq!(read_peer(None, None, Path::new("/")), Ok(None));
    }

    #[test]
    fn what_comes_along_is_bounded() {
        let read = |rate, seconds| read_warm(rate, seconds);
        assert_eq!(read(None, None), Ok(WarmSettings::default()));
        let some = WarmSettings { rate_bytes: 8 << 20, time_max: Duration::from_secs(7) };
        assert_eq!(read(Some("8MiB"), Some(7)), Ok(some));
        assert_eq!(read(Some("0"), Some(0)).map(|warm| warm.rate_bytes), Ok(0));
        assert!(read(None, Some(WARM_S_MAX)).is_ok());
        for (rate, seconds) in
            [(Some("-1"), None), (Some("fast"), None), (None, Some(WARM_S_MAX + 1))]
        {
            assert!(read(rate, seconds).is_err(), "{rate:?}, {seconds:?}");
        }
    }

    #[test]
    fn only_volumes_that_a_standby_can_read_move() {
        let volume = |backend: &str| VolumeInput {
            name: "vm1".into(),
            backend: backend.into(),
            nbd: Some("unix:/run/vm1.sock".into()),
            ..VolumeInput::default()
        };
        let moves = |volume: VolumeInput| {
            let (migrate_peer, migrate_token_file) = (Some("http://b:1".into()), Some("t".into()));
            VolumeInput { migrate_peer, migrate_token_file, ..volume }.check(Path::new("/etc"))
        };
        let file = || volume("file:/srv/vm1.raw");
        let mode = |mode: &str| VolumeInput { mode: Some(mode.into()), ..file() };
        assert!(moves(file()).is_ok() && moves(mode("write-around")).is_ok());
        assert!(moves(mode("write-back")).is_err());
        assert!(moves(VolumeInput { read_only: true, ..file() }).is_err());
        let clone = VolumeInput { parent: Some("golden".into()), ..volume("rbd:pool/vm1") };
        assert!(clone.check(Path::new("/etc")).is_ok() && moves(clone).is_err());
        let hybrid = || volume("hybrid:fast=/srv/fast,slow=/srv/slow");
        assert!(hybrid().check(Path::new("/etc")).is_ok());
        let refused = moves(hybrid()).expect_err("it has one owner and no other reader");
        assert_eq!(refused.key, "migrate_peer");
        assert!(refused.message.contains("hybrid") && refused.hint.contains("remove it here"));
    }
}
