//! The keys of all sections but `[[volume]]`, each written once: how the file has it, its default, and what
//! the guide says of it. What a value may be is checked where a section is read.

use cinnabar_text::ConfigError;
use cinnabar_text::toml_reader::{Located, Scalar, Section};

/// A key for the guide: its name, how the file has it, its default as written there or in parentheses, and
/// what it means.
#[cfg(test)]
pub(super) type Row = (&'static str, &'static str, &'static str, &'static str);

/// Rows are `DOC kind key = "DEFAULT";`, the kind being how the configuration file has it. DOC is Markdown.
macro_rules! section_keys {
    (@type number) => { Option<Located<u64>> };
    (@type flag) => { Option<Located<bool>> };
    (@type scalars) => { Option<Vec<Located<Vec<Scalar>>>> };
    (@type $text:ident) => { Option<Located<String>> };
    (
        $(#[$attr:meta])*
        $name:ident { $($(#[doc = $doc:literal])+ $kind:ident $key:ident = $default:literal;)+ }
    ) => {
        $(#[$attr])*
        #[derive(Default)]
        pub(super) struct $name {
            /// Where the section begins.
            #[allow(dead_code, reason = "not every section has a key that must be there")]
            pub(super) line: usize,
            $(pub(super) $key: section_keys!(@type $kind),)+
        }

        impl $name {
            #[cfg(test)]
            pub(super) const ROWS: &'static [Row] =
                &[$((stringify!($key), stringify!($kind), $default, concat!($($doc),+))),+];

            /// Reads all of the section.
            pub(super) fn read(mut section: Section<'_>) -> Result<Self, ConfigError> {
                let keys = Self { line: section.line, $($key: section.$kind(stringify!($key))?),+ };
                section.finish()?;
                Ok(keys)
            }
        }
    };
}

section_keys! {
    /// `[cache]`.
    CacheKeys {
        /// The cache: a file, or a block device, on a local SSD. A device that is neither empty nor a Cinnabar
        /// cache is never formatted without `serve --force`.
        string device = "(required)";
        /// Size of the cache, 20 MiB to just under 1 TiB for each shard. It counts at each start: an existing cache
        /// gets it warm, up to its `size_max`; less than before drops what does not fit. On a block device it
        /// counts beside `size_max` only; without that, all of a device is used that is formatted.
        quantity size = "(required to make a file)";
        /// The largest size that the cache may be given later, by `size` or [`cinnabar cache
        /// resize`](sizing.md#another-size). It counts when the file is made or the device formatted, also on a
        /// block device that has more, and costs RAM from then on: 17 bytes for each 4 KiB.
        quantity size_max = "(that of `size`)";
        /// `"auto"`: io_uring and O_DIRECT where they work, else a slower way with a warning. `"uring"`: io_uring
        /// or an error. `"threads"`: blocking calls on threads. Applies to files and devices behind volumes, too. A
        /// cache file is faster on ext2 to ext4, XFS, btrfs, F2FS or tmpfs: elsewhere (FUSE, NFS) a durable write
        /// is a write and an `fdatasync`.
        string io = "auto";
        /// `"probation"`: a block earns its place on flash by being used again. `"clock"`: plain CLOCK, every miss
        /// is written.
        string eviction = "probation";
        /// How much of the SSD's endurance hits may cost ([what each
        /// costs](../design/eviction.md#the-price-of-a-flash-write)). `"balanced"`: hits first, flash writes where
        /// they bring something. `"save"`: written blocks are kept only where they are read soon, and up to a
        /// quarter of the cache is left free. `"hits"`: most of the room is used, at up to twice the flash writes;
        /// it helps where the cache is nearly as large as what is used. May change from start to start.
        string endurance = "balanced";
        /// RAM for blocks that have not earned flash yet.
        quantity probation = "(1 % of the cache, at most 256 MiB)";
        /// Longest wait, in seconds, for the lock of the cache or of a volume's file: a killed daemon releases its
        /// locks when its last write has completed. `0`: don't wait.
        number lock_wait_s = "30";
        /// `true`: don't start without the cache device. `false`: if it is lost (not there, failing, damaged),
        /// volumes pass through until `cinnabar cache replace` brings another one in. A device named wrongly is an
        /// error all the same.
        flag required = "false";
        /// `false`: a crash leaves the cache cold, and a write of a block that is on the SSD needs no durable SSD
        /// write before it (`cargo xtask bench marks`). A clean stop keeps the cache either way.
        flag crash_safe = "true";
        /// Longest operation on the cache device and on those of the write log, in seconds; discards and making
        /// room in its file have four times as long. A device that takes longer is given up: volumes pass through,
        /// and no request waits for it any more, but for a read straight into a virtual machine's memory, until the
        /// device lets go of that. A new device of `cache replace` that makes no progress for that long is given
        /// up, and the old one stays in use. `0`: no bound (for the devices of a mirrored write log 30 s);
        /// `cinnabar cache abandon` and `replace` wait at most 30 s all the same.
        number device_timeout_s = "30";
        /// Logical shards: parts of the cache with an engine, a log and a journal each, which threads share. Chosen
        /// when the device is formatted, kept from then on; 1 to 64, at least 20 MiB and just under 1 TiB each.
        number shards = "(1 below 8 GiB, else 4)";
        /// Data threads, with an io_uring each ([sizing.md](sizing.md#cpu)). With several, the first serves no
        /// guests; but with a `write_log` it serves all volumes, and else those with a `migrate_peer`. Volumes at
        /// one NBD address belong to the same thread. May change from start to start without cost; more than
        /// `shards` are of no use.
        number threads = "1";
        /// What requests of all clients may take while they are under way: half of it for NBD, half for vhost-user;
        /// 256 MiB for each thread at least. What one volume may have of it: [SECURITY.md](../../SECURITY.md).
        quantity client_memory = "(an eighth of the RAM, at most 2 GiB)";
        /// How long, in microseconds, a busy data thread looks for work before it sleeps. An idle daemon sleeps.
        /// `0`: it always sleeps.
        number poll_us = "50";
        /// A file or block device, apart from `device`, for the writes of volumes in mode `write-back`
        /// ([write-back.md](write-back.md)). One that is not there keeps only those volumes from being served.
        string write_log = "(none)";
        /// A file or block device on another SSD that holds the same as `write_log`, of at least its size: either
        /// may fail without a loss ([write-back.md](write-back.md#on-two-ssds)). A half that is missing at the
        /// start is not waited for, if the other one is known to hold everything.
        string write_log_mirror = "(none)";
        /// Size of the file, 11 MiB or more.
        quantity write_log_size = "(required to make a file)";
        /// How much of the write log one volume may fill, in percent of what other volumes leave free. Beyond that
        /// its writes wait for the back end.
        number dirty_max_percent = "80";
        /// A file in a tmpfs or hugetlbfs, such as `"/dev/shm/cinnabar/log.memory"`, for volumes with `ack =
        /// "memory"` ([write-back.md](write-back.md#acknowledged-from-memory)). It is made with mode 0600, and
        /// removed by a clean stop.
        string write_memory = "(none)";
        /// Its size, 8 MiB to 4 GiB. An existing file keeps its own.
        quantity write_memory_size = "64MiB";
        /// How long a write is to wait in the log at most, in seconds. It goes to the back end after a sixth of
        /// that, or after a flush. As the oldest one comes near it, writes are slowed down. It can't be kept while
        /// the back end is away or slower than what is written.
        number rpo_s = "30";
        /// Writes go to a back end no faster than its guests' reads of it bear
        /// ([write-back.md](write-back.md#pace)). `false`: as fast as it takes them.
        flag destage_pace = "true";
        /// A stop brings the writes to the back ends first, for at most three quarters of `stop_wait_s`. The rest
        /// stays in the log until the next start.
        flag drain_on_stop = "true";
        /// A folder on this host that is *not* on the cache device, nor on another partition of the same SSD (a
        /// warning says so), made with mode 0700. Each daemon needs its own. Its file `generations.json` has a
        /// number for each volume, changed before the volume is written in a run that can't record it on the cache
        /// device: a device is believed only under the number kept here. If such a change fails, or takes 30 s, so
        /// do the writes, and log and status say why. If the folder is lost, the cache starts cold; no data are
        /// lost. `history.bin` is the [history](api.md#history), on which nothing depends.
        string state_dir = "(`cinnabar-state`, or what systemd's `StateDirectory=` gives)";
    }
}

section_keys! {
    /// `[control]`.
    ControlKeys {
        /// The control socket, for `cinnabar` commands. Only its owner may connect (mode 0600), unless
        /// `socket_group` is set.
        string socket = "control.sock";
        /// A group, name or number, whose members may use the control socket, too (mode 0660), **without a token,
        /// for everything** that the daemon's account can do, root's with the shipped unit: name operators, never
        /// the group that QEMU runs in. The daemon must be root with `CAP_CHOWN`, or a member of the group. Members
        /// need the right to enter the folder as well.
        string socket_group = "(none)";
        /// Where [metrics](metrics.md) are served over HTTP; a loopback address, unless `http_tls` requires
        /// clients' certificates.
        string http = "(none)";
        /// `"server"`: HTTP over TLS, with the certificate in `[tls]`. `"require"`: clients need a certificate of
        /// `client_ca`, too ([tls.md](tls.md#the-http-address)).
        string http_tls = "none";
        /// With `"require"`: names, of which a client's certificate must have one, as a DNS name.
        scalars http_tls_allow = "(any)";
        /// Serves the [control API](api.md), too, at the address of `http`.
        flag api = "false";
        /// With `api`: a file with the token that changes need, mode 0600, at least 16 bytes; `(umask 077; openssl
        /// rand -hex 32 > token)` makes one. Without it nothing can be changed over HTTP.
        string token_file = "(none)";
        /// An address and port, such as `10.0.0.1:9321`, where daemons on other hosts ask for volumes that move
        /// ([moving.md](moving.md)), and for nothing else.
        string peers = "(none)";
        /// Path of the token that each request there needs; needed with `peers`.
        string peers_token_file = "(none)";
        /// With `http`: names of hosts, without ports, that requests may be sent to, beside IP addresses and
        /// `localhost`; for a proxy in front.
        scalars allowed_hosts = "[]";
        /// With `api`: serves [the page](page.md) for people, too, at the same address.
        flag page = "true";
        /// Longest clean stop, in seconds. Requests that have not finished by then are cut off, and the next start
        /// recovers as after a crash.
        number stop_wait_s = "60";
    }
}

section_keys! {
    /// `[tls]`.
    TlsKeys {
        /// The daemon's certificate, followed by those up to its authority's.
        string certificate = "(required)";
        /// Its private key, in a file of the daemon's account or root that no other account may use (mode 0600).
        string key = "(required)";
        /// Certificates of the authorities that must have signed clients' certificates. Needed by `nbd_tls`, and by
        /// `http_tls = "require"`.
        string client_ca = "(none)";
        /// Threads that encrypt and decrypt for NBD clients; 1 to 64.
        number threads = "2";
    }
}

section_keys! {
    /// `[manager]`.
    ManagerKeys {
        /// Length of an interval in seconds, 1 to 86400. A plan is made after each one with requests.
        number interval_s = "60";
        /// Who divides the cache: `urd`, `eci`, `centaur`, `s-cave`, `vcacheshare`, `cloudcache`, `equal`,
        /// `proportional`, `shared` ([analyze.md](analyze.md#how-it-is-divided)).
        string allocator = "urd";
        /// Plans are carried out. `false`: they are only made.
        flag apply = "true";
        /// The most that a share changes in an interval, in percent of the cache.
        number step_percent = "25";
        /// What an interval counts in the plan of the next one, in percent.
        number decay_percent = "50";
        /// Sampled blocks of each volume, at most; 64 to 65536.
        number sample_blocks = "8192";
        /// Chooses these blocks.
        number seed = "1";
        /// What hits and misses cost: as measured, or with `"told"` as below.
        string prices = "measured";
        /// Latency of a read of the cache device, in microseconds, until it is measured.
        number ssd_read_us = "88";
        /// The same, of a write.
        number ssd_write_us = "21";
        /// The same, of a read of a back end.
        number backend_read_us = "927";
        /// The same, of a write.
        number backend_write_us = "141";
        /// What the latency of a write counts, that of a read being 100.
        number omega_percent = "0";
        /// What may be written to the cache device in a day, such as `"2TB/day"`; at least `"1GiB/day"`
        /// ([shares.md](shares.md#a-budget-of-ssd-writes)).
        string ssd_budget = "(none)";
    }
}

section_keys! {
    /// `[[qos_group]]`.
    GroupKeys {
        /// A `qos_group` of volumes, or the name that the status shows of a group that was found.
        string name = "(required)";
        /// Requests that the back end gets at a time while volumes of the group have a reservation, limit or
        /// weight, 1 to 4096.
        number depth = "(required)";
    }
}
