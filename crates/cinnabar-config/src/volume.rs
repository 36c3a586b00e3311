//! The settings of one volume: as written, and checked.

use super::error::SettingError;
use super::units::{parse_share, show_share};
use super::values::{normal, size_or};
use crate::parent::read_parent;
use crate::peer::{check_movable, read_peer, read_warm};
use crate::qos::{
    check_qos_group, check_write_group, fill_limit, guest_bytes_limit, guest_iops_limit,
    qos_settings,
};
use crate::settings::{
    Ack, NbdAddress, Share, SocketAccess, VolumeChange, VolumeConfig, VolumeMode,
};
use crate::tls::volume_tls;
use crate::volume_keys::{ChangeInput, LIVE_VOLUME_KEYS, VolumeInput};
use cinnabar_backend::BackendSpec;
use cinnabar_backend::nbd::NbdAddress as ServerAddress;
use cinnabar_backend::spec::Place;
use cinnabar_driver::qos::Settings;
use cinnabar_engine::limits::NAME_BYTES_MAX;
use cinnabar_text::suggest;
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Sequential runs at least this long bypass the cache unless the volume says otherwise. Long
/// enough that starting a guest or reading a file of a few MiB is still cached; a backup or a scan
/// reads far more, is fast on most back ends anyway, and would push out what is used again.
pub const BYPASS_SEQUENTIAL_BYTES: u64 = 16 << 20;

/// Most memory of a guest, unless the volume says otherwise: more than most hosts have.
const MEMORY_MAX_BYTES: u64 = 2 << 40;
/// Less than any guest has.
const MEMORY_MAX_MIN_BYTES: u64 = 1 << 20;

/// Longest wait for an operation of the backend, in seconds, unless the volume says otherwise: none.
/// A guest waits for storage that is away as over a hard NFS mount; an error instead would abort the
/// journal of its file system, which a failover of half a minute is not worth.
const BACKEND_TIMEOUT_S: u64 = 0;
/// Most that a volume can count, one being as much as others.
const SHARE_WEIGHT_MAX: u16 = 1000;
/// Mode of unix sockets unless the volume says otherwise.
const SOCKET_MODE: u32 = 0o660;
/// Longest that can be asked for.
const BACKEND_TIMEOUT_S_MAX: u64 = 3600;

/// Whether the format is said to be raw, the only one that can be said.
fn is_raw(format: Option<&str>) -> Result<bool, SettingError> {
    match format {
        None => Ok(false),
        Some("raw") => Ok(true),
        Some(other) => {
            let message = format!("format {other:?} can't be served");
            let hint =
                "serve it with qemu-nbd, or say \"raw\" if its guest is to see these very bytes";
            Err(SettingError::new("format", message, hint))
        }
    }
}

impl VolumeInput {
    /// Checks all that can be checked without opening anything. Relative paths are taken from
    /// `base`, which must be absolute.
    ///
    /// # Errors
    /// The first setting that can't be used.
    pub fn check(&self, base: &Path) -> Result<VolumeConfig, SettingError> {
        check_name(&self.name)?;
        let (share_min, share_max) = self.shares()?;
        let mode = self.mode.as_deref().map(|text| one_of("mode", text)).transpose()?;
        let mode = mode.unwrap_or_default();
        let nbd = self.nbd_address(base)?;
        let (peer, token) = (self.migrate_peer.as_deref(), self.migrate_token_file.as_deref());
        let peer = read_peer(peer, token, base)?;
        let warm = read_warm(self.migrate_warm_rate.as_deref(), self.migrate_warm_for_s)?;
        let parent =
            read_parent(self.parent.as_deref(), &self.name, &self.backend, self.read_only)?;
        let volume = VolumeConfig {
            parent,
            peer,
            warm,
            name: self.name.clone(),
            backend: absolute_backend(&self.backend, base)?,
            mode,
            ack: parse_ack(self.ack.as_deref(), nbd.as_ref())?,
            claim: self.claim_path(base, mode)?,
            share_min,
            share_max,
            auto_mode: self.auto_mode,
            weight: weight(self.weight)?,
            socket: self.socket(nbd.as_ref())?,
            nbd,
            vhost_user: self.vhost_socket(base)?,
            read_only: self.read_only,
            shared: self.shared,
            exclusive: self.exclusive,
            raw: is_raw(self.format.as_deref())?,
            return_snapshot: self.returns(base, mode)?,
            bypass_sequential_bytes: size_or(
                "bypass_sequential",
                self.bypass_sequential.as_deref(),
                BYPASS_SEQUENTIAL_BYTES,
            )?,
            bypass_large_bytes: size_or("bypass_large", self.bypass_large.as_deref(), 0)?,
            fill_limit_bytes: fill_limit(self.fill_limit.as_deref().unwrap_or("0"))?,
            memory_max_bytes: memory_max(self.memory_max.as_deref())?,
            backend_timeout: backend_timeout(self.backend_timeout_s)?,
            guest_iops_limit: guest_iops_limit(self.guest_iops_limit.unwrap_or(0))?,
            guest_bytes_limit: guest_bytes_limit(self.guest_bytes_limit.as_deref().unwrap_or("0"))?,
            qos_group: self.qos_group.clone().map(check_qos_group).transpose()?,
            write_group: self.write_group.clone().map(check_write_group).transpose()?,
            qos: qos_settings(
                Settings::default(),
                self.iops_reservation,
                self.iops_limit,
                self.iops_weight,
            )?,
        };
        volume.peer.as_ref().map_or(Ok(()), |_| check_movable(&volume))?;
        Ok(volume)
    }

    /// Whether a snapshot is to be left, which only some volumes can.
    fn returns(&self, base: &Path, mode: VolumeMode) -> Result<bool, SettingError> {
        if !self.return_snapshot {
            return Ok(false);
        }
        let place = BackendSpec::parse(&self.backend, base).map(|spec| spec.place);
        let why = if !matches!(place, Ok(Place::Rbd(_))) {
            "its back end is no RBD image"
        } else if self.read_only {
            "a read-only volume writes nothing, and its snapshot is the proof"
        } else if self.exclusive {
            "exclusive is the word that nobody else writes it"
        } else if mode == VolumeMode::WriteBack {
            "in mode write-back the image is not all that was written"
        } else if self.migrate_peer.is_some() {
            "a volume with migrate_peer is handed over, not left"
        } else if self.parent.is_some() {
            "the image is a clone"
        } else {
            return Ok(true);
        };
        let message = format!("return_snapshot: {why}");
        Err(SettingError::new("return_snapshot", message, "leave return_snapshot out"))
    }

    fn nbd_address(&self, base: &Path) -> Result<Option<NbdAddress>, SettingError> {
        match (&self.nbd, &self.vhost_user) {
            (Some(_), Some(_)) if !self.read_only && !self.shared => Err(SettingError::new(
                "vhost_user",
                "nbd and vhost_user together let two guests write one disk",
                "give one of them, or set read_only, or shared for guests made for that",
            )),
            (Some(text), _) => parse_nbd(text, base).map(Some),
            (None, Some(_)) => Ok(None),
            (None, None) => parse_nbd(&format!("unix:{}.sock", self.name), base).map(Some),
        }
    }

    fn vhost_socket(&self, base: &Path) -> Result<Option<PathBuf>, SettingError> {
        let Some(text) = &self.vhost_user else { return Ok(None) };
        let wrong = |(message, hint): (String, &'static str)| {
            SettingError::new("vhost_user", message, hint)
        };
        if text.is_empty() || text.contains('\0') || text.starts_with("unix:") {
            let message = format!("vhost_user: {text:?} is not a path");
            return Err(wrong((message, "write the path alone: vhost_user = \"vm1.vhost\"")));
        }
        let path = normal(&base.join(text));
        check_socket_path(&path).map_err(wrong)?;
        Ok(Some(path))
    }

    fn claim_path(&self, base: &Path, mode: VolumeMode) -> Result<Option<PathBuf>, SettingError> {
        let wrong = |message: &str, hint: &str| Err(SettingError::new("mode", message, hint));
        if mode == VolumeMode::WriteBack && self.read_only {
            return wrong(
                "a read-only volume has nothing to write back",
                "leave mode or read_only out",
            );
        }
        // Beside these there is a place for it.
        let has_place = matches!(
            BackendSpec::parse(&self.backend, base).map(|spec| spec.place),
            Ok(Place::File(_) | Place::Rbd(_))
        );
        match &self.claim {
            Some(text) if text.is_empty() || text.contains('\0') => {
                let hint = "name a file that every host of this back end sees";
                Err(SettingError::new("claim", format!("claim: {text:?} is not a path"), hint))
            }
            Some(text) => Ok(Some(normal(&base.join(text)))),
            None if mode == VolumeMode::WriteBack && !has_place && !self.exclusive => wrong(
                "mode write-back needs a place for the volume's claim, for its back end is no file",
                "set claim to a file that every host of this back end sees, or exclusive = true if \
                 no other host serves it",
            ),
            None => Ok(None),
        }
    }

    fn socket(&self, nbd: Option<&NbdAddress>) -> Result<SocketAccess, SettingError> {
        let mode = match &self.socket_mode {
            None => None,
            Some(text) => {
                let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
                let mode =
                    u32::from_str_radix(text, 8).ok().filter(|mode| digits && *mode <= 0o777);
                let message = format!("socket_mode: {text:?} is not a file mode");
                let hint = "write it in octal, such as socket_mode = \"0660\"";
                let mode = mode.ok_or_else(|| SettingError::new("socket_mode", message, hint))?;
                // The default is the same whether it is said or not.
                Some(mode).filter(|mode| *mode != SOCKET_MODE)
            }
        };
        if self.socket_group.as_ref().is_some_and(String::is_empty) {
            let message = "socket_group is empty";
            return Err(SettingError::new("socket_group", message, "name a group of this host"));
        }
        let tls = volume_tls(self.nbd_tls.as_deref(), self.tls_allow.as_deref(), nbd)?;
        Ok(SocketAccess { mode, group: self.socket_group.clone(), tls })
    }

    fn shares(&self) -> Result<(Share, Share), SettingError> {
        let share_min = share_or("share_min", self.share_min.as_deref(), Share::Bytes(0))?;
        let share_max = share_or("share_max", self.share_max.as_deref(), Share::Percent(100.0))?;
        check_order(share_min, share_max)?;
        Ok((share_min, share_max))
    }
}

impl ChangeInput {
    /// What the volume is to be told; without one, whether it can be right for any.
    ///
    /// # Errors
    /// The first setting that can't be used, and if there is none.
    pub fn check(&self, of: Option<&VolumeConfig>) -> Result<VolumeChange, SettingError> {
        if *self == Self::default() {
            let hint = format!("give one or more of {}", LIVE_VOLUME_KEYS.join(", "));
            return Err(SettingError::new("mode", "nothing to change", hint));
        }
        let share = |key, text: &Option<String>| {
            text.as_deref().map(|text| share_or(key, Some(text), Share::Bytes(0))).transpose()
        };
        let Self { iops_reservation, iops_limit, iops_weight, .. } = *self;
        let old = of.map_or_else(Settings::default, |volume| volume.qos);
        Ok(VolumeChange {
            mode: self.mode.as_deref().map(|text| one_of("mode", text)).transpose()?,
            mode_from: None,
            ack: self.ack.as_deref().map(|text| one_of("ack", text)).transpose()?,
            share_min: share("share_min", &self.share_min)?,
            share_max: share("share_max", &self.share_max)?,
            fill_limit_bytes: self.fill_limit.as_deref().map(fill_limit).transpose()?,
            qos: Some(qos_settings(old, iops_reservation, iops_limit, iops_weight)?),
            guest_iops_limit: self.guest_iops_limit.map(guest_iops_limit).transpose()?,
            guest_bytes_limit: self
                .guest_bytes_limit
                .as_deref()
                .map(guest_bytes_limit)
                .transpose()?,
        })
    }
}

/// Checks that a minimum is not above a maximum, as far as that is known without the capacity.
///
/// # Errors
/// If it is.
pub fn check_order(share_min: Share, share_max: Share) -> Result<(), SettingError> {
    let above = match (share_min, share_max) {
        (Share::Bytes(min), Share::Bytes(max)) => min > max,
        (Share::Percent(min), Share::Percent(max)) => min > max,
        (Share::Bytes(min), Share::Percent(max)) => min > 0 && max == 0.0,
        (Share::Percent(min), Share::Bytes(max)) => min > 0.0 && max == 0,
    };
    if !above {
        return Ok(());
    }
    let (min, max) = (show_share(share_min), show_share(share_max));
    Err(SettingError::new(
        "share_min",
        format!("share_min {min} is more than share_max {max}"),
        "raise share_max or lower share_min",
    ))
}

/// Checks a volume's name: 1 to 64 bytes, no slash, no control characters, not `.` or `..`.
///
/// # Errors
/// If it can't be used.
pub fn check_name(name: &str) -> Result<(), SettingError> {
    const HINT: &str = "use 1 to 64 bytes, without slashes and control characters";
    let wrong = |message: String| Err(SettingError::new("name", message, HINT));
    match name.chars().find(|c| *c == '/' || c.is_control()) {
        _ if name.is_empty() => wrong("the name is empty".into()),
        _ if name.len() > NAME_BYTES_MAX => {
            wrong(format!("the name has {} bytes, at most {NAME_BYTES_MAX} fit", name.len()))
        }
        Some(c) => wrong(format!("the name {name:?} contains {c:?}")),
        None if name == "." || name == ".." => wrong(format!("the name can't be {name:?}")),
        None => Ok(()),
    }
}

/// Reads one of the words of a fixed set, such as a mode.
///
/// # Errors
/// If it is none; the hint has the nearest one.
pub fn one_of<T: ValueEnum>(key: &'static str, text: &str) -> Result<T, SettingError> {
    T::from_str(text, false).map_err(|_| {
        let known: Vec<_> = T::value_variants().iter().filter_map(T::to_possible_value).collect();
        let known: Vec<&str> = known.iter().map(clap::builder::PossibleValue::get_name).collect();
        SettingError::new(key, format!("unknown {key} {text:?}"), suggest(text, &known))
    })
}

fn weight(weight: Option<u64>) -> Result<u16, SettingError> {
    let weight = weight.unwrap_or(1);
    let found = u16::try_from(weight).ok().filter(|found| (1..=SHARE_WEIGHT_MAX).contains(found));
    found.ok_or_else(|| {
        let message = format!("weight: {weight} is not possible");
        SettingError::new("weight", message, format!("choose 1 to {SHARE_WEIGHT_MAX}"))
    })
}

/// Reads when writes are acknowledged.
fn parse_ack(text: Option<&str>, nbd: Option<&NbdAddress>) -> Result<Ack, SettingError> {
    let Some(text) = text else { return Ok(Ack::default()) };
    let ack = one_of("ack", text)?;
    check_ack(ack, nbd)?;
    Ok(ack)
}

/// Checks that a volume's clients lose their memory with this host, if its writes may be there.
///
/// # Errors
/// If one may be elsewhere.
pub fn check_ack(ack: Ack, nbd: Option<&NbdAddress>) -> Result<(), SettingError> {
    match nbd {
        Some(NbdAddress::Tcp(address)) if ack == Ack::Memory && !address.ip().is_loopback() => {
            let message = format!(
                "ack = \"memory\" with NBD at tcp:{address}: a client on another host outlives \
                 this host's memory, and would find writes gone that it was told of"
            );
            let hint = "leave ack out, or serve it by a unix socket or vhost-user to guests here";
            Err(SettingError::new("ack", message, hint))
        }
        _ => Ok(()),
    }
}

/// Reads a backend and makes its path absolute.
///
/// # Errors
/// If it is no backend, or its path can't be written down.
pub fn absolute_backend(text: &str, base: &Path) -> Result<String, SettingError> {
    let wrong = |message: String, hint: &str| SettingError::new("backend", message, hint);
    let spec = BackendSpec::parse(text, base).map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        wrong(format!("{error}{}", cause.unwrap_or_default()), error.hint())
    })?;
    let absolute = |path: &Path| {
        let path = normal(path);
        let shown = path.to_str().map(ToOwned::to_owned);
        shown.ok_or_else(|| {
            wrong(format!("the path {} is not UTF-8", path.display()), "rename the folder")
        })
    };
    let place = match spec.place {
        Place::File(path) => format!("file:{}", absolute(&path)?),
        Place::Nbd(mut server) => {
            if let ServerAddress::Unix(path) = &mut server.address {
                *path = absolute(path)?.into();
            }
            server.to_string()
        }
        Place::Rbd(mut image) => {
            image.conf = absolute(&image.conf)?.into();
            image.to_string()
        }
        Place::Hybrid(mut volume) => {
            for path in volume.paths_mut() {
                *path = absolute(path)?.into();
            }
            volume.to_string()
        }
    };
    // What stands in front of it: a "sim:SETTINGS:" for each layer.
    let mut rest = text;
    for _ in &spec.layers {
        rest = rest["sim:".len()..].split_once(':').map_or(rest, |(_, behind)| behind);
    }
    let prefix = &text[..text.len() - rest.len()];
    Ok(format!("{prefix}{place}"))
}

/// Where the bytes of a backend live that [`absolute_backend`] has made.
pub fn backend_place(backend: &str) -> Option<Place> {
    BackendSpec::parse(backend, Path::new("/")).ok().map(|spec| spec.place)
}

/// Reads the address of an NBD server; a relative path of a unix socket is taken from `base`.
///
/// # Errors
/// If it is no address, or too long.
pub fn parse_nbd(text: &str, base: &Path) -> Result<NbdAddress, SettingError> {
    const HINT: &str = "write unix:PATH, or tcp:IP:PORT such as tcp:127.0.0.1:10809";
    let wrong = |message: String| SettingError::new("nbd", message, HINT);
    match text.parse().map_err(|error| wrong(format!("{error}")))? {
        NbdAddress::Unix(path) => {
            let path = normal(&base.join(path));
            check_socket_path(&path)
                .map_err(|(message, hint)| SettingError::new("nbd", message, hint))?;
            Ok(NbdAddress::Unix(path))
        }
        NbdAddress::Tcp(address) if address.port() == 0 => {
            Err(wrong("the port is 0, clients could not find it".into()))
        }
        tcp @ NbdAddress::Tcp(_) => Ok(tcp),
    }
}

/// Checks that a path fits in a unix socket's address.
///
/// # Errors
/// A line that says what is wrong, and one that helps.
pub(super) fn check_socket_path(path: &Path) -> Result<(), (String, &'static str)> {
    use cinnabar_frontend::nbd::UNIX_PATH_BYTES_MAX;
    let bytes = path.as_os_str().len();
    if bytes <= UNIX_PATH_BYTES_MAX {
        return Ok(());
    }
    let message = format!(
        "the socket's path {} has {bytes} bytes, at most {UNIX_PATH_BYTES_MAX} fit",
        path.display()
    );
    Err((message, "choose a shorter path, for example below /run"))
}

fn backend_timeout(seconds: Option<u64>) -> Result<Duration, SettingError> {
    let seconds = seconds.unwrap_or(BACKEND_TIMEOUT_S);
    if seconds <= BACKEND_TIMEOUT_S_MAX {
        return Ok(Duration::from_secs(seconds));
    }
    let message = format!("backend_timeout_s: {seconds} seconds is more than an hour");
    let hint = format!("choose 1 to {BACKEND_TIMEOUT_S_MAX}, or 0 for no bound");
    Err(SettingError::new("backend_timeout_s", message, hint))
}

fn share_or(key: &'static str, text: Option<&str>, default: Share) -> Result<Share, SettingError> {
    text.map_or(Ok(default), parse_share)
        .map_err(|(message, hint)| SettingError::new(key, format!("{key}: {message}"), hint))
}

fn memory_max(text: Option<&str>) -> Result<u64, SettingError> {
    let bytes = size_or("memory_max", text, MEMORY_MAX_BYTES)?;
    if bytes < MEMORY_MAX_MIN_BYTES {
        let message = "memory_max: no guest has less than 1 MiB";
        return Err(SettingError::new("memory_max", message, "leave it out for 2TiB"));
    }
    Ok(bytes)
}
