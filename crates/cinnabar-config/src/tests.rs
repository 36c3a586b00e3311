//! The configuration file, right and wrong.

use super::{ApiConfig, Config, ConfigError, ManagerConfig, Subject, file};
use crate::settings::{Ack, EvictionMode, IoMode, NbdAddress, QosGroupConfig, Share, VolumeMode};
use crate::volume_keys::VolumeInput;
use cinnabar_driver::qos::Settings;
use cinnabar_engine::Endurance;
use cinnabar_policy::sizing::Allocator;
use cinnabar_text::toml_reader::Source;
use std::path::Path;
use std::time::Duration;

pub(super) fn parse(text: &str) -> Result<Config, ConfigError> {
    file::parse(Source { file: Path::new("c.toml"), text }, Path::new("/base"))
}

/// A configuration that is fine, with `more` behind it.
fn with(more: &str) -> String {
    format!("[cache]\ndevice = \"cache.img\"\nsize = \"1GiB\"\n{more}")
}

#[test]
fn the_example_is_read_as_it_is_meant() {
    let config = parse(
        r#"
[cache]
device = "cache.img"        # file or block device
size = "8GiB"               # files only
[control]
socket = "control.sock"     # default: control.sock beside the config file
http = "127.0.0.1:9320"
[[volume]]
name = "vm1"                # also the NBD export's name
backend = "sim:filer,seed=1:file:vm1.raw"
mode = "write-through"
share_min = "0"             # bytes or "10%"; the minimums sum to at most 80 %
share_max = "100%"
nbd = "unix:vm1.sock"       # or "tcp:127.0.0.1:10809"
"#,
    )
    .expect("the issue's example");
    assert_eq!(config.cache.device, Path::new("/base/cache.img"));
    assert_eq!(config.cache.size_bytes, Some(8 << 30));
    assert_eq!(config.control.socket, Path::new("/base/control.sock"));
    assert_eq!(config.control.http, "127.0.0.1:9320".parse().ok());
    let volume = &config.volumes[0];
    assert_eq!(volume.backend, "sim:filer,seed=1:file:/base/vm1.raw");
    assert_eq!(volume.mode, VolumeMode::WriteThrough);
    assert_eq!((volume.share_min, volume.share_max), (Share::Bytes(0), Share::Percent(100.0)));
    assert_eq!(volume.nbd, Some(NbdAddress::Unix("/base/vm1.sock".into())));
    assert_eq!(config.line_of(&Subject::Volume("vm1".into())), Some(8));
    assert_eq!(config.line_of(&Subject::Cache), Some(2));
    assert!(config.warnings.is_empty());
}

/// Others are those of the guide, which a test compares.
#[test]
fn defaults_follow_from_the_rest() {
    let config =
        parse("cache.device = \"/dev/nvme0n1\"\n[[volume]]\nname = \"a b\"\nbackend = \"file:x\"")
            .expect("the shortest configuration");
    assert_eq!((config.cache.size_bytes, config.cache.size_max_bytes), (None, None));
    assert_eq!((config.cache.probation_bytes, config.cache.client_memory_bytes), (None, None));
    assert_eq!(config.cache.state_dir, Path::new("/base/cinnabar-state"));
    assert_eq!((config.control.http, config.control.socket_group), (None, None));
    assert_eq!(config.volumes[0].nbd, Some(NbdAddress::Unix("/base/a b.sock".into())));
}

/// A file with every key of a cache with a write log, and others.
const EVERY_KEY: &str = r#"
[cache]
device = "/ssd/c"
size = 1_073_741_824
io = "threads"
eviction = "clock"
endurance = "save"
probation = "4MiB"
client_memory = "1GiB"
lock_wait_s = 0
device_timeout_s = 7
required = true
crash_safe = false
state_dir = "../state"
write_log = "log.img"
write_log_mirror = "../other/log.img"
write_log_size = "64MiB"
dirty_max_percent = 50
rpo_s = 9
destage_pace = false
drain_on_stop = false
[control]
socket = "../run/c.sock"
socket_group = "operators"
http = "localhost:0"
stop_wait_s = 5
[[volume]]
name = "v"
backend = "file:/srv/v"
mode = "pass-through"
share_min = "10%"
share_max = 500000000
nbd = "tcp:0.0.0.0:10809"
claim = "v.claim"
read_only = true
shared = true
exclusive = true
bypass_sequential = "0"
bypass_large = "1MiB"
memory_max = "64GiB"
backend_timeout_s = 0
"#;

#[test]
fn every_key_is_read() {
    let config = parse(EVERY_KEY).expect("all keys");
    assert_eq!(config.cache.size_bytes, Some(1 << 30));
    assert_eq!((config.cache.io, config.cache.eviction), (IoMode::Threads, EvictionMode::Clock));
    assert_eq!(config.cache.endurance, Endurance::Save);
    assert_eq!(config.cache.probation_bytes, Some(4 << 20));
    assert_eq!(config.cache.client_memory_bytes, Some(1 << 30));
    assert_eq!(config.lock_wait_max, Duration::ZERO);
    assert!(config.cache.required && !config.cache.crash_safe);
    let log = config.cache.write_log.as_ref().expect("it is given");
    assert_eq!((&*log.path, log.size_bytes), (Path::new("/base/log.img"), Some(64 << 20)));
    assert_eq!(log.mirror.as_deref(), Some(Path::new("/base/../other/log.img")));
    assert_eq!((log.dirty_max_percent, log.rpo), (50, Duration::from_secs(9)));
    assert!(!log.drain_on_stop && !log.pace);
    assert_eq!(config.volumes[0].claim.as_deref(), Some(Path::new("/base/v.claim")));
    assert_eq!(config.cache.device_timeout, Duration::from_secs(7));
    assert_eq!(config.cache.state_dir, Path::new("/base/../state"));
    assert_eq!(config.control.socket, Path::new("/base/../run/c.sock"));
    assert_eq!(config.control.socket_group.as_deref(), Some("operators"));
    assert_eq!(config.control.http, "127.0.0.1:0".parse().ok());
    assert_eq!(config.control.stop_wait_max, Duration::from_secs(5));
    let volume = &config.volumes[0];
    assert_eq!(volume.mode, VolumeMode::PassThrough);
    assert_eq!(
        (volume.share_min, volume.share_max),
        (Share::Percent(10.0), Share::Bytes(500_000_000))
    );
    assert!(volume.read_only && volume.shared && volume.exclusive);
    assert_eq!((volume.bypass_sequential_bytes, volume.bypass_large_bytes), (0, 1 << 20));
    assert_eq!(volume.memory_max_bytes, 64 << 30);
    assert_eq!(volume.backend_timeout, Duration::ZERO);
    assert!(config.warnings[0].contains("neither encrypted"), "{:?}", config.warnings);
}

#[test]
fn a_write_memory_is_read() {
    let volume = "[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nack = \"memory\"\n";
    let text = format!("write_log = \"w\"\nwrite_memory = \"/dev/shm/m\"\n{volume}");
    let config = parse(&with(&text)).expect("it is right");
    let log = config.cache.write_log.expect("it is given");
    let memory = log.memory.expect("it is given");
    assert_eq!((&*memory.path, memory.size_bytes), (Path::new("/dev/shm/m"), 64 << 20));
    assert_eq!(config.volumes[0].ack, Ack::Memory);
}

/// Text behind a good `[cache]` of three lines, line, part of the message, part of the hint.
const WRONG: &[(&str, usize, &str, &str)] = &[
    ("sise = 1\n", 4, "unknown key \"sise\" in [cache]", "did you mean \"size\"?"),
    ("io = \"urign\"\n", 4, "io: unknown value \"urign\"", "did you mean \"uring\"?"),
    ("io = 3\n", 4, "io in [cache] must be a string", "with quotes"),
    ("lock_wait_s = -1\n", 4, "lock_wait_s in [cache] must not be negative: -1", "0 or more"),
    ("lock_wait_s = 1.5\n", 4, "must be a whole number", "without quotes"),
    ("probation = 64\n", 4, "probation: \"64\" has no unit", "MiB"),
    ("client_memory = \"64MiB\"\n", 4, "client_memory: 64.0 MiB is too little", "256.0 MiB"),
    ("lock_wait_s = 4000\n", 4, "more than an hour", "3600"),
    ("required = 1\n", 4, "required in [cache] must be true or false", "true"),
    ("state_dir = \"\"\n", 4, "state_dir is not a folder", "state_dir = "),
    ("state_dir = 5\n", 4, "must be a string", "with quotes"),
    ("device = \"b\"\n", 4, "duplicate key", "toml.io"),
    ("[cashe]\n", 4, "unknown key \"cashe\"", "did you mean \"cache\"?"),
    ("[control]\nhttp = \"0.0.0.0:80\"\n", 5, "not a loopback address", "proxy"),
    ("[control]\nhttp = \"9320\"\n", 5, "not an address and port", "127.0.0.1:9320"),
    ("[control]\nport = 1\n", 5, "unknown key \"port\" in [control]", "known here: socket"),
    ("[control]\napi = true\n", 5, "api without http", "127.0.0.1:9320"),
    ("[control]\npeers = \"10.0.0.1:9321\"\n", 5, "peers without peers_token_file", "0600"),
    ("[control]\npeers_token_file = \"t\"\n", 5, "peers_token_file without peers", "9321"),
    ("[control]\npeers = \"b:1\"\npeers_token_file = \"t\"\n", 5, "not an address", "10.0.0.1"),
    ("[control]\npeers = \"[::1]:0\"\npeers_token_file = \"t\"\n", 5, "the port is 0", "10.0.0.1"),
    ("[control]\npeers = \"[::1]:1\"\npeers_token_file = \"\"\n", 6, "not a path", "0600"),
    ("[control]\nsocket_group = \"\"\n", 5, "socket_group is empty", "a group of this host"),
    ("[control]\napi = 1\n", 5, "must be true or false", "true"),
    ("[control]\ntoken_file = \"t\"\n", 5, "token_file without api", "api = true"),
    ("[control]\nallowed_hosts = [\"a\"]\n", 5, "allowed_hosts without http", "127.0.0.1:9320"),
    ("[control]\npage = true\n", 5, "page without api", "api = true"),
    ("[control]\nhttp = \"[::1]:1\"\napi = true\ntoken_file = \"\"\n", 7, "not a path", "0600"),
    (
        "[control]\nhttp = \"[::1]:1\"\napi = true\nallowed_hosts = [\"a:80\"]\n",
        7,
        "not the name of a host",
        "without ports",
    ),
    (
        "[control]\nhttp = \"[::1]:1\"\napi = true\nallowed_hosts = [\"a\", 5]\n",
        7,
        "not the name of a host",
        "without ports",
    ),
    ("[control\n", 4, "", "toml.io"),
    ("volume = 3\n", 4, "unknown key \"volume\" in [cache]", ""),
    ("[volume]\nname = \"a\"\n", 4, "must be a list of tables", "[[volume]]"),
    ("[[volume]]\nbackend = \"file:a\"\n", 4, "has no name", "name = "),
    ("[[volume]]\nname = \"a\"\n", 4, "has no backend", "backend = "),
    ("[[volume]]\nname = \"a/b\"\nbackend = \"file:a\"\n", 5, "contains '/'", "64 bytes"),
    ("[[volume]]\nname = \"\"\nbackend = \"file:a\"\n", 5, "empty", "64 bytes"),
    ("[[volume]]\nname = \"a\\u0007\"\nbackend = \"file:a\"\n", 5, "contains", "control"),
    ("[[volume]]\nname = \"a\"\nbackend = \"vm.raw\"\n", 6, "not a backend", "file:PATH"),
    ("[[volume]]\nname = \"a\"\nbackend = \"sim:fller:file:a\"\n", 6, "fller", "sim:PRESET"),
    ("[[volume]]\nname = \"a\"\nbackend = \"nbd:unix:\"\n", 6, "1 to 107", "nbd:tcp:HOST:PORT"),
    ("[[volume]]\nname = \"a\"\nbackend = \"nbd:tcp:h:x\"\n", 6, "\"x\" is no port", "nbd["),
    ("[[volume]]\nname = \"a\"\nbackend = \"nbd,tls=1:tcp:h:1\"\n", 6, "tls=1", "give_up_s=N"),
    ("[[volume]]\nname = \"a\"\nbackend = \"file:cache.img\"\n", 6, "cache device", "another"),
    ("[[volume]]\nname = \"a\"\nbakcend = \"file:a\"\n", 6, "unknown key", "\"backend\"?"),
    (
        "[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nmode = \"write-back\"\n",
        7,
        "needs a write log",
        "write_log",
    ),
    ("write_log = \"cache.img\"\n", 1, "is the cache device", "of its own"),
    ("write_log = \"w\"\nwrite_log_size = \"1MiB\"\n", 5, "too small", "11.0 MiB"),
    ("write_log_size = \"1GiB\"\n", 4, "without write_log", "write_log = "),
    (
        "size_max = \"512MiB\"\n",
        4,
        "size_max: 512.0 MiB is less than size",
        "choose 1.0 GiB or more",
    ),
    ("size_max = \"1MiB\"\n", 4, "size_max: a cache of 1.0 MiB is impossible", "20.0 MiB"),
    ("write_log_mirror = \"m\"\n", 4, "without write_log", "write_log = "),
    ("write_log = \"w\"\nwrite_log_mirror = \"\"\n", 5, "write_log_mirror is not a path", "SSD"),
    ("write_log = \"w\"\nwrite_log_mirror = \"./w\"\n", 1, "the write log itself", "another SSD"),
    ("write_log = \"w\"\nwrite_log_mirror = \"cache.img\"\n", 1, "the cache device", "another"),
    (
        "write_log = \"w\"\nwrite_log_mirror = \"m\"\n[[volume]]\nname = \"a\"\nbackend = \"file:m\"\n",
        8,
        "is the write log",
        "another file",
    ),
    ("[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nmode = \"write\"\n", 7, "unknown mode", ""),
    ("write_memory = \"/dev/shm/m\"\n", 4, "without write_log", "write_log = "),
    ("write_log = \"w\"\nwrite_memory_size = \"8MiB\"\n", 5, "without write_memory", "/dev/shm"),
    ("write_log = \"w\"\nwrite_memory = \"\"\n", 5, "not a path", "/dev/shm"),
    (
        "write_log = \"w\"\nwrite_memory = \"/dev/shm/m\"\nwrite_memory_size = \"1MiB\"\n",
        6,
        "not possible",
        "8.0 MiB to 4.0 GiB",
    ),
    (
        "[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nack = \"memry\"\n",
        7,
        "unknown ack",
        "memory",
    ),
    (
        "write_log = \"w\"\n[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nack = \"memory\"\n",
        8,
        "needs a write memory",
        "set write_memory",
    ),
    (
        "[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nack = \"memory\"\nnbd = \"tcp:0.0.0.0:9\"\n",
        7,
        "outlives",
        "unix socket",
    ),
    ("[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nnbd = \"a.sock\"\n", 7, "unix:", "unix:PATH"),
    ("[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nnbd = \"tcp:h:1\"\n", 7, "h:1", "tcp:"),
    ("[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nnbd = \"tcp:[::1]:0\"\n", 7, "port", "tcp:"),
    (
        "[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nnbd = \"unix:control.sock\"\n",
        7,
        "control socket",
        "its own",
    ),
    ("[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nread_only = \"yes\"\n", 7, "true or", "true"),
    (
        "[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nbackend_timeout_s = 4000\n",
        7,
        "more than an hour",
        "3600",
    ),
    (
        "[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nbackend_timeout_s = \"5s\"\n",
        7,
        "must be a whole number",
        "without quotes",
    ),
    (
        "[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nshare_min = \"x\"\n",
        7,
        "share_min",
        "512MiB",
    ),
    ("[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nshare_min = \"81%\"\n", 7, "80 %", "lower"),
    (
        "[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nshare_min = \"900MiB\"\n",
        7,
        "80 %",
        "lower",
    ),
    (
        "[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nshare_max = \"5%\"\nshare_min = \"6%\"\n",
        8,
        "more than share_max",
        "raise",
    ),
    (
        "[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nshare_max = \"5%\"\nshare_min = \"1GiB\"\n",
        8,
        "more than share_max 5%",
        "raise",
    ),
    (
        "[[volume]]\nname = \"a\"\nbackend = \"rbd:p/a\"\nparent = \"golden\"\n",
        7,
        "there is no volume \"golden\"",
        "add a [[volume]]",
    ),
    (
        "[[volume]]\nname = \"a\"\nbackend = \"rbd:p/a\"\nparent = \"b\"\n\
         [[volume]]\nname = \"b\"\nbackend = \"rbd:p/b\"\n",
        7,
        "volume \"b\" is written",
        "read_only = true",
    ),
    (
        "[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nparent = \"b\"\n",
        7,
        "RBD images that are clones",
        "overlay",
    ),
];

#[test]
fn a_parent_may_stand_behind_its_clones() {
    let config = parse(
        "[cache]\ndevice = \"c\"\n[[volume]]\nname = \"a\"\nbackend = \"rbd:p/a\"\nparent = \"g\"\n\
         [[volume]]\nname = \"g\"\nbackend = \"rbd:p/g@base\"\nread_only = true\n",
    )
    .expect("all keys");
    let parents: Vec<_> = config.volumes.iter().map(|one| one.parent.as_deref()).collect();
    assert_eq!(parents, [Some("g"), None]);
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_a_hint() {
    for (text, line, message, hint) in WRONG {
        let error = parse(&with(text)).expect_err(text);
        assert_eq!(error.line, Some(*line), "{text}: {error}");
        assert!(error.message.contains(message), "{text}: {error}");
        assert!(error.hint.contains(hint) && !error.hint.is_empty(), "{text}: {}", error.hint);
        assert!(!error.to_string().contains('\n'), "{text}: {error}");
        assert!(error.to_string().starts_with(&format!("c.toml:{line}: ")), "{error}");
    }
}

#[test]
fn turns_at_back_ends_are_read_and_checked() {
    let config = parse(
        "[cache]\ndevice = \"c\"\n[[qos_group]]\nname = \"nas\"\ndepth = 8\n[[volume]]\nname = \"a\"\n\
         backend = \"file:a\"\niops_reservation = 100\niops_limit = 200\niops_weight = 7\n\
         qos_group = \"nas\"\n[[volume]]\nname = \"b\"\nbackend = \"file:b\"\niops_limit = 0\n\
         guest_iops_limit = 7\n",
    )
    .expect("all keys");
    assert_eq!(config.qos_groups, [QosGroupConfig { name: "nas".into(), depth: 8 }]);
    let [a, b] = &config.volumes[..] else { panic!("two volumes") };
    let settings = Settings { reservation_iops: 100, limit_iops: Some(200), weight: 7 };
    assert_eq!((a.qos, a.qos_group.as_deref()), (settings, Some("nas")));
    assert!(b.qos == Settings::default() && b.qos_group.is_none() && b.guest_iops_limit == 7);
    for (line, wrong) in [
        ("guest_bytes_limit = \"1MB\"", "less than 1 MiB"),
        ("iops_weight = 0", "iops_weight"),
        ("iops_reservation = 99999999999", "iops_reservation"),
        ("iops_reservation = 5\niops_limit = 4", "below the reservation"),
        ("qos_group = \"\"", "qos_group"),
    ] {
        let text = format!("[[volume]]\nname = \"a\"\nbackend = \"file:a\"\n{line}\n");
        let error = parse(&with(&text)).expect_err(line);
        assert!(error.message.contains(wrong) && !error.hint.is_empty(), "{error}");
    }
    for group in ["depth = 3", "name = \"g\"", "name = \"g\"\ndepth = 0"] {
        parse(&with(&format!("[[qos_group]]\n{group}\n"))).expect_err(group);
    }
    let twice = "[[qos_group]]\nname = \"g\"\ndepth = 1\n".repeat(2);
    assert!(parse(&with(&twice)).expect_err("twice").message.contains("already"));
}

#[test]
fn impossible_cache_sizes_are_refused() {
    for size in ["0", "1KiB", "19MiB", "100TiB", "9999999999GiB", "big", "", "-3"] {
        let text = format!("[cache]\ndevice = \"c\"\nsize = \"{size}\"\n");
        let error = parse(&text).expect_err(size);
        assert_eq!(error.line, Some(3), "{size}: {error}");
    }
    parse("[cache]\ndevice = \"c\"\nsize = -1\n").expect_err("negative");
    parse("[cache]\ndevice = \"c\"\nsize = \"20MiB\"\n").expect("the smallest");
    parse("[cache]\nsize = \"1GiB\"\n").expect_err("no device");
    parse("").expect_err("no cache");
}

#[test]
fn volumes_must_differ() {
    let two = |first: &str, second: &str| {
        parse(&with(&format!("[[volume]]\n{first}\n[[volume]]\n{second}\n")))
    };
    let a = "name = \"a\"\nbackend = \"file:x\"";
    let error = two(a, "name = \"a\"\nbackend = \"file:y\"").expect_err("same name");
    assert!(error.message.contains("another volume named \"a\""), "{error}");
    assert_eq!(error.line, Some(8));
    let error = two(a, "name = \"b\"\nbackend = \"sim:hdd:file:./x\"").expect_err("same file");
    assert!(error.message.contains("backend of volume \"a\""), "{error}");
    assert_eq!(error.line, Some(9));
    let error = two(a, "name = \"b\"\nbackend = \"file:y\"\nnbd = \"unix:a.sock\"")
        .expect_err("same address");
    assert!(error.message.contains("address of volume \"a\""), "{error}");
    assert_eq!(error.line, Some(10));
    let read_only =
        |name: &str| format!("name = \"{name}\"\nbackend = \"file:x\"\nread_only = true");
    two(&read_only("a"), &read_only("b")).expect("nobody writes it");
    two(a, &read_only("b")).expect_err("one of them writes it");
    let error = two(
        "name = \"a\"\nbackend = \"file:x\"\nshare_min = \"50%\"",
        "name = \"b\"\nbackend = \"file:y\"\nshare_min = \"400MiB\"",
    )
    .expect_err("89 %");
    assert!(error.message.contains("(50%, 400MiB) sum to 89.1 %"), "{error}");
    assert_eq!(error.line, Some(11));
}

#[test]
fn two_names_of_one_file_are_one_backend() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("x"), b"").expect("a file");
    std::fs::hard_link(path("x"), path("y")).expect("a link");
    std::os::unix::fs::symlink("x", path("z")).expect("a link");
    for other in ["y", "z"] {
        let text = with(&format!(
            "[[volume]]\nname = \"a\"\nbackend = \"file:x\"\n\
             [[volume]]\nname = \"b\"\nbackend = \"file:{other}\"\n"
        ));
        let source = Source { file: Path::new("c.toml"), text: &text };
        let error = file::parse(source, dir.path()).expect_err(other);
        assert!(error.message.contains("already"), "{error}");
    }
}

#[test]
fn exports_of_servers_are_backends() {
    let one = |backend: &str| format!("[[volume]]\nname = \"a\"\nbackend = \"{backend}\"\n");
    for (backend, absolute) in [
        ("nbd:unix:./run/x.sock:a:b", "nbd:unix:/base/run/x.sock:a:b"),
        (
            "sim:hdd,seed=2:nbd,connections=1:unix:x",
            "sim:hdd,seed=2:nbd,connections=1:unix:/base/x",
        ),
        ("nbd,give_up_s=60:tcp:[::1]:10809", "nbd,give_up_s=60:tcp:[::1]:10809"),
    ] {
        let config = parse(&with(&one(backend))).expect(backend);
        assert_eq!(config.volumes[0].backend, absolute);
    }
    let two = |other: &str, key: &str| {
        let (a, b) = (one("nbd:tcp:host:1:x"), one(other).replace("\"a\"", "\"b\""));
        parse(&with(&format!("{a}{key}\n{b}{key}\n")))
    };
    let error = two("nbd,connections=2:tcp:HOST:1:x", "").expect_err("the same export");
    assert!(error.message.contains("nbd,connections=2:tcp:HOST:1:x is the backend of"), "{error}");
    two("nbd:tcp:host:1:y", "").expect("another export");
    two("nbd:tcp:host:1:x", "read_only = true").expect("nobody writes it");
}

#[test]
fn long_socket_paths_are_refused() {
    let long = "x".repeat(120);
    parse(&with(&format!("[control]\nsocket = \"{long}\"\n"))).expect_err("control socket");
    let volume = format!("[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nnbd = \"unix:{long}\"");
    assert_eq!(parse(&with(&volume)).expect_err("NBD socket").line, Some(7));
    // The default socket is named after the volume.
    let name = "n".repeat(64);
    let volume = format!("[[volume]]\nname = \"{name}\"\nbackend = \"file:a\"\n");
    parse(&with(&volume)).expect("a long name fits below /base");
    let source = with(&volume);
    let source = Source { file: Path::new("c.toml"), text: &source };
    let base = format!("/{}", "d".repeat(60));
    assert_eq!(file::parse(source, Path::new(&base)).expect_err("too deep").line, Some(4));
}

#[test]
fn the_api_over_http_is_off_unless_it_is_asked_for() {
    let control = |more: &str| {
        let text = with(&format!("[control]\nhttp = \"127.0.0.1:9320\"\n{more}"));
        parse(&text).expect(more).control
    };
    assert_eq!(control("").api, None);
    assert_eq!(control("api = false\n").api, None);
    assert_eq!(control("api = true\n").api, Some(ApiConfig::default()));
    assert!(!control("api = true\npage = false\n").api.expect("it is on").page);
    assert_eq!(control("page = false\n").api, None);
    let peers = control("peers = \"10.0.0.1:9321\"\npeers_token_file = \"t\"\n").peers;
    let peers = peers.expect("there are some");
    assert_eq!(peers.address, "10.0.0.1:9321".parse().expect("an address"));
    assert!(peers.token_file.is_absolute(), "{peers:?}");
    let api = control("api = true\ntoken_file = \"t\"\n").api.expect("it is on");
    assert_eq!(api.token_file.as_deref(), Some(Path::new("/base/t")));
    for more in ["", "api = true\n"] {
        let named = control(&format!("{more}allowed_hosts = [\"Cache.Example\"]\n"));
        assert_eq!(named.allowed_hosts, ["cache.example"]);
    }
}

#[test]
fn shares_are_managed_only_if_that_is_asked_for() {
    let read = |more: &str| parse(&with(more));
    assert_eq!(read("").expect("it is fine").manager, None);
    let plain = read("[manager]\n").expect("it is fine").manager;
    assert_eq!(plain, Some(ManagerConfig::default()));
    let text = "[manager]\ninterval_s = 5\nallocator = \"eci\"\nprices = \"told\"\nssd_write_us = 30\n\
        ssd_budget = \"2 TB/day\"\napply = false\n";
    let manager = read(text).expect("it is fine").manager.expect("it is there");
    assert_eq!((manager.every_us(), manager.measured, manager.apply), (5_000_000, false, false));
    assert_eq!(manager.rules.allocator, Allocator::Eci);
    let prices = manager.rules.prices;
    assert_eq!(Some(prices.lambda_us), Some(30.0), "a block costs what its write takes");
    assert_eq!(manager.ssd_bytes_a_day, Some(2_000_000_000_000));
    for (wrong, line) in [
        ("[manager]\nallocator = \"ecy\"\n", 5),
        ("[manager]\ninterval_s = 0\n", 5),
        ("[manager]\nprices = \"asked\"\n", 5),
        ("[manager]\nintervall_s = 5\n", 5),
        ("[manager]\nssd_budget = \"2TB\"\n", 5),
        ("[manager]\nssd_budget = \"2/day\"\n", 5),
        ("[manager]\nssd_budget = \"0/day\"\n", 5),
        ("[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nweight = 0\n", 7),
    ] {
        let error = read(wrong).expect_err(wrong);
        assert!(error.line == Some(line) && !error.hint.is_empty(), "{wrong}: {error:?}");
    }
    let volume = "[[volume]]\nname = \"a\"\nbackend = \"file:a\"\nweight = 3\nauto_mode = true\n";
    let volume = &read(volume).expect("it is fine").volumes[0];
    assert_eq!((volume.weight, volume.auto_mode), (3, true));
}

#[test]
fn a_missing_file_is_said_so() {
    let error = file::load(Path::new("/nonexistent/c.toml")).expect_err("missing");
    assert_eq!(error.line, None);
    assert!(error.to_string().starts_with("/nonexistent/c.toml: can't be read"), "{error}");
    let error = file::load(Path::new("/")).expect_err("a folder");
    assert!(!error.hint.is_empty());
}

/// A snapshot is left where it can tell something, and refused with one line elsewhere.
#[test]
fn only_some_volumes_can_leave_a_snapshot() {
    let image = || VolumeInput {
        name: "v".into(),
        backend: "rbd:pool/v".into(),
        return_snapshot: true,
        ..VolumeInput::default()
    };
    let check = |input: VolumeInput| input.check(Path::new("/"));
    assert!(check(image()).expect("an image can").return_snapshot);
    let off = VolumeInput { return_snapshot: false, ..image() };
    assert!(!check(off).expect("it is off by default").return_snapshot);
    for (wrong, part) in [
        (VolumeInput { backend: "file:v".into(), ..image() }, "no RBD image"),
        (VolumeInput { read_only: true, backend: "rbd:pool/v@s".into(), ..image() }, "read-only"),
        (VolumeInput { exclusive: true, ..image() }, "nobody else"),
        (VolumeInput { mode: Some("write-back".into()), ..image() }, "write-back"),
        (VolumeInput { parent: Some("golden".into()), ..image() }, "a clone"),
        (
            VolumeInput {
                migrate_peer: Some("http://10.0.0.1:9321".into()),
                migrate_token_file: Some("token".into()),
                ..image()
            },
            "handed over",
        ),
    ] {
        let error = check(wrong).expect_err(part);
        assert!(error.message.contains(part) && !error.message.contains('\n'), "{error}");
    }
}
