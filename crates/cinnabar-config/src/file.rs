//! From the text of a configuration file to a [`Config`].

use super::checks::{check_log_mirror, warnings};
use super::control_api::{read_allowed_hosts, read_api, read_peers};
use super::looks::Looks;
use super::manager::read_manager;
use super::section_keys::{CacheKeys, ControlKeys};
use super::sections::{read_groups, read_volumes};
use super::tls::{read_http_tls, read_tls};
use super::units::show_size;
use super::values::{choice_of, normal, quantity, up_to};
use super::volume::check_socket_path;
use super::{Config, ControlConfig, Given, HttpTls, Lines, TlsConfig};
use crate::settings::{CacheConfig, EvictionMode, IoMode, WriteLogConfig, WriteMemoryConfig};
use cinnabar_backend::write_memory::{WRITE_MEMORY_BYTES_MAX, WRITE_MEMORY_BYTES_MIN};
use cinnabar_engine::Endurance;
use cinnabar_engine::metadata::superblock::Geometry;
use cinnabar_text::ConfigError;
use cinnabar_text::toml_reader::{Located, Section, Source};
use cinnabar_writeback::format::{SEGMENTS_MIN, bytes_of};
use cinnabar_writeback::memory::note::PATH_BYTES_MAX;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::de::DeTable;

/// Longest file: thousands of volumes fit.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Longest wait that can be asked for, in seconds.
const WAIT_S_MAX: u64 = 3600;
/// Default of `lock_wait_s`: the writes of a killed daemon were seen to land for seconds.
const LOCK_WAIT_S: u64 = 30;
/// Default of `device_timeout_s`: many times what an SSD in its worst moments takes.
const DEVICE_TIMEOUT_S: u64 = 30;
/// Default of `state_dir` without a service manager, beside the configuration.
const STATE_DIR: &str = "cinnabar-state";
/// Most data threads.
const THREADS_MAX: u64 = Geometry::SHARDS_MAX as u64;
/// Default of `poll_us`: about what a sleep and a wake-up take.
const POLL_US: u64 = 50;
const POLL_US_MAX: u64 = 10_000;
/// Least `client_memory` for each thread: its servers take one longest request of each of three clients.
const CLIENT_MEMORY_MIN: u64 = 256 << 20;
/// Default of `dirty_max_percent`: a part of the write log stays free for other volumes.
const DIRTY_MAX_PERCENT: u8 = 80;
/// Default of `write_memory_size`.
const WRITE_MEMORY_BYTES: u64 = 64 << 20;
/// Default of `rpo_s`.
const RPO_S: u64 = 30;
/// Default of `stop_wait_s`, below the 90 s that systemd waits.
const STOP_WAIT_S: u64 = 60;

/// Reads and checks a configuration file.
///
/// # Errors
/// The first thing that is wrong, with its line and a hint.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    let text = read(path).map_err(|(message, hint)| whole(path, message, hint))?;
    of_text(path, &text)
}

/// The same, of a file that was read before: what has become a pipe or the like is refused, for it may be
/// waited for in vain.
///
/// # Errors
/// As [`load`].
pub fn load_again(path: &Path) -> Result<Config, ConfigError> {
    let text = read_regular(path).map_err(|(message, hint)| whole(path, message, hint))?;
    of_text(path, &text)
}

/// Checks a text as that of the configuration file at `path`.
fn of_text(path: &Path, text: &str) -> Result<Config, ConfigError> {
    if text.len() as u64 > FILE_BYTES_MAX {
        let message = format!("more than {}", show_size(FILE_BYTES_MAX));
        return Err(whole(path, message, "is this the configuration?"));
    }
    // The folder must be absolute, for the daemon hands paths to other threads and clients.
    let absolute = std::path::absolute(path)
        .map_err(|error| whole(path, format!("no working directory: {error}"), "cd to a folder"))?;
    let base = absolute.parent().unwrap_or(Path::new("/")).to_owned();
    let mut config = parse(Source { file: path, text }, &base)?;
    config.path = Some(absolute);
    Ok(config)
}

/// An error of the file as a whole.
fn whole(path: &Path, message: String, hint: &str) -> ConfigError {
    ConfigError { file: path.to_owned(), line: None, message, hint: hint.to_owned() }
}

pub(super) fn read(path: &Path) -> Result<String, (String, &'static str)> {
    text_of(&std::fs::File::open(path).map_err(|error| cannot_read(&error))?)
}

fn read_regular(path: &Path) -> Result<String, (String, &'static str)> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = file.map_err(|error| cannot_read(&error))?;
    if !file.metadata().map_err(|error| cannot_read(&error))?.is_file() {
        let hint = "to read it again it has to be a file, or a link to one";
        return Err(("is not a regular file".into(), hint));
    }
    text_of(&file)
}

fn cannot_read(error: &std::io::Error) -> (String, &'static str) {
    let hint = match error.kind() {
        std::io::ErrorKind::NotFound => "check the path, or write one: see cinnabar serve --help",
        std::io::ErrorKind::PermissionDenied => "check the file's owner and mode",
        _ => "the configuration is a TOML file in UTF-8",
    };
    (format!("can't be read: {error}"), hint)
}

/// The text of a file; one that is too long is cut off behind the longest that is taken.
fn text_of(file: &std::fs::File) -> Result<String, (String, &'static str)> {
    use std::io::Read;
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| cannot_read(&error))?;
    Ok(text)
}

/// Checks the text of a configuration file whose folder is `base`.
pub(super) fn parse(source: Source<'_>, base: &Path) -> Result<Config, ConfigError> {
    let table = DeTable::parse(source.text).map_err(|error| {
        let line = error.span().map(|span| source.line(span.start));
        let message = error.message().lines().collect::<Vec<_>>().join(", ");
        source.error(line, message, "the file is TOML; see https://toml.io")
    })?;
    let mut top = Section::new(source, "", 0, table.get_ref());
    let cache = top.table("cache", "[cache]")?;
    let control = top.table("control", "[control]")?;
    let tls = top.table("tls", "[tls]")?;
    let manager = top.table("manager", "[manager]")?;
    let volumes = top.tables("volume", "[[volume]]")?;
    let groups = top.tables("qos_group", "[[qos_group]]")?;
    top.finish()?;

    let cache = cache.ok_or_else(|| {
        source.error(None, "there is no [cache]", "add [cache] with device = \"cache.img\"")
    })?;
    let mut lines = Lines { cache: Some(cache.line), ..Lines::default() };
    lines.control = control.as_ref().map(|section| section.line);
    lines.tls = tls.as_ref().map(|section| section.line);
    let tls = read_tls(source, tls, base)?;
    let manager = read_manager(source, manager)?;
    let (cache, lock_wait_max) = read_cache(source, cache, base)?;
    if cache.write_log.as_ref().is_some_and(|log| log.path == cache.device) {
        let hint = "give the write log a file or device of its own";
        return Err(source.error(lines.cache, "write_log is the cache device", hint));
    }
    let mut looks = Looks::default();
    check_log_mirror(&cache, &mut looks)
        .map_err(|error| source.error(lines.cache, error.message, error.hint))?;
    let control = read_control(source, control, tls.as_ref(), base)?;
    let volumes = read_volumes(
        source,
        volumes,
        base,
        (&cache, &control, tls.as_ref()),
        (&mut lines, &mut looks),
    )?;
    Ok(Config {
        file: source.file.to_owned(),
        path: None,
        given: Given::default(),
        base: base.to_owned(),
        warnings: volumes.iter().flat_map(warnings).chain(looks.warnings()).collect(),
        cache,
        lock_wait_max,
        control,
        tls,
        manager,
        volumes,
        qos_groups: read_groups(source, groups)?,
        lines,
    })
}

fn read_cache(
    source: Source<'_>,
    section: Section<'_>,
    base: &Path,
) -> Result<(CacheConfig, Duration), ConfigError> {
    let keys = CacheKeys::read(section)?;
    let write_log = read_write_log(source, &keys, base)?;
    let hint = "add device = \"cache.img\", a file or a block device on an SSD";
    let device = keys
        .device
        .filter(|device| !device.value.is_empty())
        .ok_or_else(|| source.error(Some(keys.line), "[cache] has no device", hint))?;
    let size_bytes = keys.size.map(|size| cache_size(source, "size", &size)).transpose()?;
    let size_max_bytes = read_size_max(source, keys.size_max, size_bytes)?;
    let threads =
        keys.threads.map_or(Ok(1), |threads| up_to(source, "threads", &threads, 1, THREADS_MAX))?;
    let cache = CacheConfig {
        device: normal(&base.join(device.value)),
        size_bytes,
        size_max_bytes,
        io: keys.io.map_or(Ok(IoMode::Auto), |io| choice(source, "io", &io))?,
        force: false,
        required: keys.required.is_some_and(|required| required.value),
        crash_safe: keys.crash_safe.is_none_or(|crash_safe| crash_safe.value),
        device_timeout: wait(
            source,
            "device_timeout_s",
            keys.device_timeout_s.as_ref(),
            DEVICE_TIMEOUT_S,
        )?,
        state_dir: keys
            .state_dir
            .map_or_else(|| Ok(default_state_dir(base)), |dir| state_folder(source, base, &dir))?,
        eviction: keys
            .eviction
            .map_or(Ok(EvictionMode::Probation), |text| choice(source, "eviction", &text))?,
        endurance: keys
            .endurance
            .map_or(Ok(Endurance::default()), |text| choice(source, "endurance", &text))?,
        probation_bytes: keys
            .probation
            .map(|size| quantity(source, "probation", &size))
            .transpose()?,
        shards: keys
            .shards
            .map(|shards| up_to(source, "shards", &shards, 1, u64::from(Geometry::SHARDS_MAX)))
            .transpose()?
            .map(|shards| shards as u32),
        threads: threads as usize,
        client_memory_bytes: keys
            .client_memory
            .map(|size| read_client_memory(source, &size, threads))
            .transpose()?,
        poll_max: Duration::from_micros(
            keys.poll_us
                .map_or(Ok(POLL_US), |poll| up_to(source, "poll_us", &poll, 0, POLL_US_MAX))?,
        ),
        write_log,
    };
    Ok((cache, wait(source, "lock_wait_s", keys.lock_wait_s.as_ref(), LOCK_WAIT_S)?))
}

/// `client_memory`, of so many threads.
fn read_client_memory(
    source: Source<'_>,
    size: &Located<String>,
    threads: u64,
) -> Result<u64, ConfigError> {
    let bytes = quantity(source, "client_memory", size)?;
    let min = CLIENT_MEMORY_MIN * threads;
    if bytes >= min {
        return Ok(bytes);
    }
    let message = format!("client_memory: {} is too little", show_size(bytes));
    let hint = format!("choose {} or more: 256 MiB for each thread", show_size(min));
    Err(source.error(Some(size.line), message, hint))
}

/// The keys of the write log, which count only with `write_log`.
fn read_write_log(
    source: Source<'_>,
    keys: &CacheKeys,
    base: &Path,
) -> Result<Option<WriteLogConfig>, ConfigError> {
    let Some(path) = &keys.write_log else {
        let text = |key| move |found: &Located<String>| (key, found.line);
        let number = |key| move |found: &Located<u64>| (key, found.line);
        let flag = |key| move |found: &Located<bool>| (key, found.line);
        let lines = [
            keys.write_log_mirror.as_ref().map(text("write_log_mirror")),
            keys.write_log_size.as_ref().map(text("write_log_size")),
            keys.dirty_max_percent.as_ref().map(number("dirty_max_percent")),
            keys.rpo_s.as_ref().map(number("rpo_s")),
            keys.destage_pace.as_ref().map(flag("destage_pace")),
            keys.drain_on_stop.as_ref().map(flag("drain_on_stop")),
            keys.write_memory.as_ref().map(text("write_memory")),
            keys.write_memory_size.as_ref().map(text("write_memory_size")),
        ];
        return match lines.into_iter().flatten().next() {
            None => Ok(None),
            Some((key, line)) => {
                let hint = "add write_log = \"writes.img\", a file or a block device on an SSD";
                Err(source.error(Some(line), format!("{key} without write_log"), hint))
            }
        };
    };
    let mirror = keys.write_log_mirror.as_ref();
    for (key, path) in [("write_log", Some(path)), ("write_log_mirror", mirror)] {
        let Some(path) = path else { continue };
        if path.value.is_empty() || path.value.contains('\0') {
            let hint = "name a file or a block device on an SSD";
            return Err(source.error(Some(path.line), format!("{key} is not a path"), hint));
        }
    }
    let size_bytes = keys.write_log_size.as_ref().map(|size| {
        let bytes = quantity(source, "write_log_size", size)?;
        let least = bytes_of(SEGMENTS_MIN);
        if bytes >= least {
            return Ok(bytes);
        }
        let message = format!("write_log_size: {} is too small", show_size(bytes));
        Err(source.error(Some(size.line), message, format!("choose {} or more", show_size(least))))
    });
    let percent = keys.dirty_max_percent.as_ref();
    let percent = percent.map_or(Ok(u64::from(DIRTY_MAX_PERCENT)), |percent| {
        up_to(source, "dirty_max_percent", percent, 1, 100)
    });
    Ok(Some(WriteLogConfig {
        path: normal(&base.join(&path.value)),
        mirror: mirror.map(|mirror| normal(&base.join(&mirror.value))),
        size_bytes: size_bytes.transpose()?,
        dirty_max_percent: u8::try_from(percent?).unwrap_or(DIRTY_MAX_PERCENT),
        rpo: Duration::from_secs(
            keys.rpo_s
                .as_ref()
                .map_or(Ok(RPO_S), |rpo| up_to(source, "rpo_s", rpo, 1, WAIT_S_MAX))?,
        ),
        pace: keys.destage_pace.as_ref().is_none_or(|pace| pace.value),
        drain_on_stop: keys.drain_on_stop.as_ref().is_none_or(|drain| drain.value),
        memory: read_write_memory(source, keys, base)?,
    }))
}

fn read_write_memory(
    source: Source<'_>,
    keys: &CacheKeys,
    base: &Path,
) -> Result<Option<WriteMemoryConfig>, ConfigError> {
    const HINT: &str = "name a file in memory, such as \"/dev/shm/cinnabar/log.memory\"";
    let size = keys.write_memory_size.as_ref();
    let Some(path) = &keys.write_memory else {
        return size.map_or(Ok(None), |size| {
            let message = "write_memory_size without write_memory";
            Err(source.error(Some(size.line), message, format!("add write_memory: {HINT}")))
        });
    };
    let whole = normal(&base.join(&path.value));
    if path.value.is_empty()
        || path.value.contains('\0')
        || whole.as_os_str().len() > PATH_BYTES_MAX
    {
        return Err(source.error(Some(path.line), "write_memory is not a path", HINT));
    }
    let size_bytes = size.map_or(Ok(WRITE_MEMORY_BYTES), |size| {
        let bytes = quantity(source, "write_memory_size", size)?;
        let (min, max) = (WRITE_MEMORY_BYTES_MIN, WRITE_MEMORY_BYTES_MAX);
        if (min..=max).contains(&bytes) {
            return Ok(bytes);
        }
        let message = format!("write_memory_size: {} is not possible", show_size(bytes));
        let hint = format!("choose {} to {}", show_size(min), show_size(max));
        Err(source.error(Some(size.line), message, hint))
    });
    Ok(Some(WriteMemoryConfig { path: whole, size_bytes: size_bytes? }))
}

/// The folder that the service manager has made for us, or else one beside the configuration.
fn default_state_dir(base: &Path) -> PathBuf {
    // A list with colons if the unit names several.
    let given = std::env::var("STATE_DIRECTORY").unwrap_or_default();
    match given.split(':').next() {
        Some(dir) if dir.starts_with('/') => PathBuf::from(dir),
        _ => base.join(STATE_DIR),
    }
}

fn state_folder(
    source: Source<'_>,
    base: &Path,
    dir: &Located<String>,
) -> Result<PathBuf, ConfigError> {
    if dir.value.is_empty() || dir.value.contains('\0') {
        let hint = "name a folder on this host, such as state_dir = \"/var/lib/cinnabar\"";
        return Err(source.error(Some(dir.line), "state_dir is not a folder", hint));
    }
    Ok(normal(&base.join(&dir.value)))
}

fn read_control(
    source: Source<'_>,
    section: Option<Section<'_>>,
    tls: Option<&TlsConfig>,
    base: &Path,
) -> Result<ControlConfig, ConfigError> {
    let keys = section.map_or_else(|| Ok(ControlKeys::default()), ControlKeys::read)?;
    let http_tls = read_http_tls(source, &keys, tls)?;
    let allowed_hosts = read_allowed_hosts(source, &keys)?;
    let api = read_api(source, &keys, base)?;
    let peers = read_peers(source, &keys, base)?;
    let ControlKeys { socket, socket_group, http, stop_wait_s, .. } = keys;
    let line = socket.as_ref().map(|socket| socket.line);
    let name = socket.map_or_else(|| "control.sock".to_owned(), |socket| socket.value);
    let socket = normal(&base.join(name));
    check_socket_path(&socket).map_err(|(message, hint)| source.error(line, message, hint))?;
    if let Some(Located { line, .. }) = socket_group.as_ref().filter(|group| group.value.is_empty())
    {
        let hint = "name a group of this host, or leave it out";
        return Err(source.error(Some(*line), "socket_group is empty", hint));
    }
    Ok(ControlConfig {
        socket,
        socket_group: socket_group.map(|group| group.value),
        http: http.map(|http| http_address(source, &http, http_tls.as_ref())).transpose()?,
        http_tls,
        allowed_hosts,
        api,
        peers,
        stop_wait_max: wait(source, "stop_wait_s", stop_wait_s.as_ref(), STOP_WAIT_S)?,
    })
}

/// The largest size that the cache may be given later.
fn read_size_max(
    source: Source<'_>,
    text: Option<Located<String>>,
    size: Option<u64>,
) -> Result<Option<u64>, ConfigError> {
    let Some(text) = text else { return Ok(None) };
    let bytes = cache_size(source, "size_max", &text)?;
    match size {
        Some(size) if bytes >= size => Ok(Some(bytes)),
        Some(size) => {
            let message = format!("size_max: {} is less than size", show_size(bytes));
            let hint = format!("choose {} or more, or leave it out", show_size(size));
            Err(source.error(Some(text.line), message, hint))
        }
        None => {
            let hint = "add size, which is what is used at first";
            Err(source.error(Some(text.line), "size_max without size", hint))
        }
    }
}

fn cache_size(
    source: Source<'_>,
    key: &'static str,
    text: &Located<String>,
) -> Result<u64, ConfigError> {
    let bytes = quantity(source, key, text)?;
    let shards = u64::from(Geometry::SHARDS_MAX);
    let (min, max) = (Geometry::BYTES_MIN, Geometry::BYTES_MAX * shards);
    if (min..=max).contains(&bytes) {
        return Ok(bytes);
    }
    let message = format!("{key}: a cache of {} is impossible", show_size(bytes));
    let hint = format!("choose {} to {}", show_size(min), show_size(max));
    Err(source.error(Some(text.line), message, hint))
}

fn wait(
    source: Source<'_>,
    key: &str,
    seconds: Option<&Located<u64>>,
    default: u64,
) -> Result<Duration, ConfigError> {
    match seconds {
        None => Ok(Duration::from_secs(default)),
        Some(Located { value, .. }) if *value <= WAIT_S_MAX => Ok(Duration::from_secs(*value)),
        Some(Located { value, line }) => {
            let message = format!("{key}: {value} seconds is more than an hour");
            Err(source.error(Some(*line), message, format!("choose 0 to {WAIT_S_MAX}")))
        }
    }
}

/// Beyond this host only for clients that have shown who they are.
fn http_address(
    source: Source<'_>,
    text: &Located<String>,
    tls: Option<&HttpTls>,
) -> Result<SocketAddr, ConfigError> {
    let wrong = |message: String, hint: &str| Err(source.error(Some(text.line), message, hint));
    let literal = text.value.strip_prefix("localhost:").map_or_else(
        || text.value.parse().ok(),
        |port| Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port.parse().ok()?)),
    );
    match literal {
        None => wrong(
            format!("http: {:?} is not an address and port", text.value),
            "write for example \"127.0.0.1:9320\"",
        ),
        Some(address)
            if !address.ip().is_loopback() && tls.is_none_or(|tls| !tls.clients_known) =>
        {
            wrong(
                format!("http: {address} is not a loopback address"),
                "other hosts are served with http_tls = \"require\" only, or by a proxy with access \
                 control in front",
            )
        }
        Some(address) => Ok(address),
    }
}

/// One of the values that an enum's lower-case names allow.
fn choice<T: Choice>(
    source: Source<'_>,
    key: &str,
    text: &Located<String>,
) -> Result<T, ConfigError> {
    choice_of(source, key, text, T::ALL)
}

/// A setting with a few named values.
trait Choice: Copy + 'static {
    const ALL: &'static [(&'static str, Self)];
}

impl Choice for IoMode {
    const ALL: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("uring", Self::Uring), ("threads", Self::Threads)];
}

impl Choice for Endurance {
    const ALL: &'static [(&'static str, Self)] = &[
        (Self::Hits.name(), Self::Hits),
        (Self::Balanced.name(), Self::Balanced),
        (Self::Save.name(), Self::Save),
    ];
}

impl Choice for EvictionMode {
    const ALL: &'static [(&'static str, Self)] =
        &[("probation", Self::Probation), ("clock", Self::Clock)];
}

#[cfg(test)]
mod tests;
