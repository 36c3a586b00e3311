//! `cinnabar volume`: list, add, remove, change and invalidate volumes of a running daemon.
//!
//! Changes last until the daemon ends; what is to stay goes into the configuration file, too.

use super::client::Daemon;
use super::extents::{self, Extent};
use cinnabar_config::VolumeInput;
use cinnabar_config::settings::{Ack, VolumeMode};
use cinnabar_config::status::report::VolumeReport;
use cinnabar_config::volume::{BACKEND_TIMEOUT_S, absolute_backend, check_name, parse_nbd};
use cinnabar_control::actions::InvalidateInput;
use cinnabar_control::api::ChangeInput;
use cinnabar_control::path::escape;
use cinnabar_text::Failure;
use cinnabar_text::Table;
use cinnabar_text::cli::output;
use cinnabar_text::cli::progress::Progress;
use cinnabar_text::{parse_size, show_size};
use hyper::Method;
use std::path::{Path, PathBuf};

/// What to do.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the volumes and their settings
    #[command(after_help = "Examples:\n  \
        cinnabar volume list\n  cinnabar volume list --json --socket /run/cinnabar/control.sock")]
    List {
        /// Print a JSON list [default: a table]
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Add a volume and serve it
    #[command(after_help = "It is served until the daemon ends; to keep it, write it into the \
        configuration file, too.\n\nExamples:\n  \
        cinnabar volume add vm2 --backend file:/srv/nfs/vm2.raw\n  \
        cinnabar volume add golden --backend file:golden.raw --read-only --nbd unix:golden.sock")]
    Add(Box<AddArgs>),
    /// Stop serving a volume
    #[command(
        after_help = "Its cached blocks are kept for the time it is added again. In write-back \
        mode its writes are brought to its backend first.\n\
        A volume of the configuration file is back after a restart; take it out of the file, too.\n\n\
        Examples:\n  cinnabar volume remove vm2\n  cinnabar volume remove vm2 --force"
    )]
    Remove {
        /// Its name
        name: String,
        /// Disconnect its clients, and give up a back end that does not answer within 10 s [default: refuse while
        /// there are clients, and wait]
        #[arg(long)]
        force: bool,
        /// Give up its writes that the backend does not have yet: they are lost [default: bring them
        /// there first]
        #[arg(long)]
        discard_dirty: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Bring all acknowledged writes of a volume to its backend
    #[command(after_help = "Ends when the backend has everything that was acknowledged before, \
        durably. Guests go on meanwhile.\n\nExamples:\n  cinnabar volume flush vm1")]
    Flush {
        /// Its name
        name: String,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Change the settings of a volume
    #[command(
        after_help = "The change lasts until the daemon ends; to keep it, write it into the \
        configuration file, too.\n\nExamples:\n  \
        cinnabar volume set vm1 --mode pass-through\n  \
        cinnabar volume set vm1 --share-min 10% --share-max 50%\n  \
        cinnabar volume set vm1 --iops-reservation 500 --iops-limit 2000"
    )]
    Set {
        /// Its name
        name: String,
        /// What its requests do with the cache [default: as it is]
        #[arg(long, value_enum)]
        mode: Option<VolumeMode>,
        /// When its writes are acknowledged in mode write-back [default: as it is]
        #[arg(long, value_enum)]
        ack: Option<Ack>,
        /// What it keeps whatever others do: bytes or percent [default: as it is]
        #[arg(long, value_name = "SHARE")]
        share_min: Option<String>,
        /// What it may hold at most: bytes or percent [default: as it is]
        #[arg(long, value_name = "SHARE")]
        share_max: Option<String>,
        /// I/Os a second at its backend that it gets whatever others ask; 0 = nothing reserved
        /// [default: as it is]
        #[arg(long, value_name = "IOPS")]
        iops_reservation: Option<u64>,
        /// I/Os a second at its backend that it gets at most; 0 = no limit [default: as it is]
        #[arg(long, value_name = "IOPS")]
        iops_limit: Option<u64>,
        /// Its part of what is left of its backend, relative to others, 1 to 10000 [default: as it is]
        #[arg(long, value_name = "WEIGHT")]
        iops_weight: Option<u64>,
        /// Bytes of its blocks that may go to the cache device a second; 0 = no limit [default: as it is]
        #[arg(long, value_name = "SIZE")]
        fill_limit: Option<String>,
        /// Requests of its guests a second, hits included; 0 = no limit [default: as it is]
        #[arg(long, value_name = "IOPS")]
        guest_iops_limit: Option<u64>,
        /// Bytes that these read and write a second; 0 = no limit [default: as it is]
        #[arg(long, value_name = "SIZE")]
        guest_bytes_limit: Option<String>,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Serve all of a backend that has grown; nothing cached is dropped
    #[command(after_help = "NBD clients and virtual machines see the new size when they connect \
        the next time. The backend has to be made larger first.\n\n\
        Examples:\n  qemu-img resize -f raw /srv/nfs/vm1.raw +20G && cinnabar volume resize vm1")]
    Resize {
        /// Its name
        name: String,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Drop what is cached of a volume, because its backend was written past the cache
    #[command(after_help = "Needed only while the volume is served: a start, or adding it again, \
        asks the backend whether it was written. Without --range and --extents the volume need not be served.\n\n\
        Examples:\n  \
        cinnabar volume invalidate vm1\n  \
        cinnabar volume invalidate vm1 --range 1GiB+64KiB\n  \
        rbd diff --from-snap before volumes/vm1 > changed && cinnabar volume invalidate vm1 --extents changed")]
    Invalidate {
        /// Its name
        name: String,
        /// Only these bytes, such as 0+4096 or 1GiB+64KiB [default: all]
        #[arg(long, value_name = "OFFSET+LENGTH", value_parser = range)]
        range: Option<InvalidateInput>,
        /// Only the extents in this file: a line OFFSET LENGTH each, in bytes, or what `rbd diff` prints [default: all]
        #[arg(long, value_name = "FILE", conflicts_with = "range")]
        extents: Option<PathBuf>,
        #[command(flatten)]
        daemon: Daemon,
    },
}

fn range(text: &str) -> Result<InvalidateInput, String> {
    let wrong = || "write it as OFFSET+LENGTH, such as 0+4096 or 1GiB+64KiB".to_owned();
    let (offset, len) = text.split_once('+').ok_or_else(wrong)?;
    let size =
        |text: &str| parse_size(text).map_err(|(message, hint)| format!("{message}; {hint}"));
    let (offset, len) = (size(offset)?, size(len)?);
    match offset.checked_add(len) {
        Some(_) if len > 0 => Ok(InvalidateInput { offset: Some(offset), len: Some(len) }),
        _ => Err("the length must be at least 1, and the end not beyond any volume".to_owned()),
    }
}

#[derive(Debug, clap::Args)]
struct AddArgs {
    /// Its name, also that of its NBD export: 1 to 64 bytes
    name: String,
    /// Where it lives
    #[arg(
        long,
        help = "Where it lives: file:PATH, nbd:unix:PATH[:EXPORT], nbd:tcp:HOST:PORT[:EXPORT], or \
                sim:PRESET[,key=value...]: before one of these"
    )]
    backend: String,
    /// What its requests do with the cache
    #[arg(long, value_enum, default_value = "write-through")]
    mode: VolumeMode,
    /// When its writes are acknowledged in mode write-back
    #[arg(long, value_enum, default_value = "durable")]
    ack: Ack,
    /// What it keeps whatever others do: bytes or percent
    #[arg(long, value_name = "SHARE", default_value = "0")]
    share_min: String,
    /// What it may hold at most: bytes or percent
    #[arg(long, value_name = "SHARE", default_value = "100%")]
    share_max: String,
    /// Let the manager's plans change its mode [default: it stays]
    #[arg(long)]
    auto_mode: bool,
    /// How much it counts for the manager, 1 to 1000 [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    weight: Option<u16>,
    /// Where clients find it: unix:PATH or tcp:IP:PORT [default: NAME.sock in the daemon's folder]
    #[arg(long, value_name = "ADDRESS")]
    nbd: Option<String>,
    /// Clients over TCP must use TLS and have a certificate of `client_ca` in `[tls]`: none or require
    #[arg(long, value_name = "MODE", default_value = "none")]
    nbd_tls: String,
    /// A name of which their certificate must have one; may be given several times [default: any]
    #[arg(long, value_name = "NAME")]
    tls_allow: Vec<String>,
    /// Serve it as a vhost-user-blk device at this socket [default: NBD only]
    #[arg(long, value_name = "PATH")]
    vhost_user: Option<String>,
    /// Mode of its unix sockets, octal
    #[arg(long, value_name = "MODE", default_value = "0660")]
    socket_mode: String,
    /// Group of its unix sockets, name or number [default: the daemon's]
    #[arg(long, value_name = "GROUP")]
    socket_group: Option<String>,
    /// Refuse writes; many clients may attach [default: writable]
    #[arg(long)]
    read_only: bool,
    /// Let several clients write it [default: one client]
    #[arg(long)]
    shared: bool,
    /// Where its claim is kept in mode write-back [default: beside a file; with --exclusive in the
    /// daemon's state folder]
    #[arg(long, value_name = "PATH")]
    claim: Option<String>,
    /// Nobody else ever writes its backend [default: believe the backend's proof only]
    #[arg(long)]
    exclusive: bool,
    /// Leave a snapshot of its RBD image at each clean end: only what others write until it is served
    /// again is dropped then [default: leave none]
    #[arg(long)]
    return_snapshot: bool,
    /// Sequential runs of at least this many bytes bypass the cache; 0 = never
    #[arg(long, value_name = "SIZE", default_value = "16MiB")]
    bypass_sequential: String,
    /// Single requests of at least this many bytes bypass the cache; 0 = never
    #[arg(long, value_name = "SIZE", default_value = "0")]
    bypass_large: String,
    /// Bytes of its blocks that may go to the cache device a second; 0 = no limit
    #[arg(long, value_name = "SIZE", default_value = "0")]
    fill_limit: String,
    /// Most memory of a guest that is connected by vhost-user [default: 2TiB]
    #[arg(long, value_name = "SIZE")]
    memory_max: Option<String>,
    /// A backend operation that takes this many seconds fails for its guest; 0 = never
    #[arg(long, value_name = "SECONDS", default_value_t = BACKEND_TIMEOUT_S)]
    backend_timeout: u64,
    /// I/Os a second at its backend that it gets whatever others ask; 0 = nothing reserved
    #[arg(long, value_name = "IOPS", default_value_t = 0)]
    iops_reservation: u64,
    /// I/Os a second at its backend that it gets at most; 0 = no limit
    #[arg(long, value_name = "IOPS", default_value_t = 0)]
    iops_limit: u64,
    /// Its part of what is left of its backend, relative to others, 1 to 10000
    #[arg(long, value_name = "WEIGHT", default_value_t = 100)]
    iops_weight: u64,
    /// Requests of its guests a second, hits included; 0 = no limit
    #[arg(long, value_name = "IOPS", default_value_t = 0)]
    guest_iops_limit: u64,
    /// Bytes that these read and write a second; 0 = no limit
    #[arg(long, value_name = "SIZE", default_value = "0")]
    guest_bytes_limit: String,
    /// Volumes of the same group share a backend's I/Os [default: those on one server, device or file
    /// system]
    #[arg(long, value_name = "GROUP")]
    qos_group: Option<String>,
    /// The read-only volume whose cached blocks it reads, of an RBD clone of that [default: none]
    #[arg(long, value_name = "VOLUME")]
    parent: Option<String>,
    /// The daemon of the other host of a volume that may move, http://HOST:PORT: it begins as a standby
    /// [default: none, it stays here]
    #[arg(long, value_name = "URL", requires = "migrate_token_file")]
    migrate_peer: Option<String>,
    /// The token for changes at that daemon [default: none]
    #[arg(long, value_name = "PATH", requires = "migrate_peer")]
    migrate_token_file: Option<PathBuf>,
    /// Bytes a second at most that are fetched from that daemon's cache after the volume was taken; 0 = none
    #[arg(long, value_name = "SIZE", default_value = "100MB", requires = "migrate_peer")]
    migrate_warm_rate: String,
    /// Seconds for which they are; 0 = not at all
    #[arg(long, value_name = "SECONDS", default_value_t = 300, requires = "migrate_peer")]
    migrate_warm_for: u64,
    #[command(flatten)]
    daemon: Daemon,
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::List { json, daemon } => list(*json, daemon),
        Command::Add(args) => add(args),
        Command::Remove { name, force, discard_dirty, daemon } => {
            check_name(name)?;
            let flags = [("force", force), ("discard_dirty", discard_dirty)];
            let asked = flags.iter().filter(|(_, flag)| **flag);
            let query: Vec<String> = asked.map(|(key, _)| format!("{key}=true")).collect();
            let query =
                if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
            daemon.delete(&format!("/v1/volumes/{}{query}", escape(name)))
        }
        Command::Flush { name, daemon } => {
            check_name(name)?;
            daemon.post(&format!("/v1/volumes/{}/flush", escape(name)), &())
        }
        Command::Set {
            name,
            mode,
            ack,
            share_min,
            share_max,
            iops_reservation,
            iops_limit,
            iops_weight,
            fill_limit,
            guest_iops_limit,
            guest_bytes_limit,
            daemon,
        } => {
            check_name(name)?;
            let change = ChangeInput {
                mode: mode.as_ref().map(output::value_name),
                ack: ack.as_ref().map(output::value_name),
                share_min: share_min.clone(),
                share_max: share_max.clone(),
                iops_reservation: *iops_reservation,
                iops_limit: *iops_limit,
                iops_weight: *iops_weight,
                fill_limit: fill_limit.clone(),
                guest_iops_limit: *guest_iops_limit,
                guest_bytes_limit: guest_bytes_limit.clone(),
            };
            let path = format!("/v1/volumes/{}", escape(name));
            daemon.send::<VolumeReport>(Method::PATCH, &path, &change).map(drop)
        }
        Command::Resize { name, daemon } => {
            check_name(name)?;
            let path = format!("/v1/volumes/{}/resize", escape(name));
            let volume: VolumeReport = daemon.send(Method::POST, &path, &())?;
            output::text(&format!("{} has {} bytes\n", volume.name, volume.size_bytes))
        }
        Command::Invalidate { name, range, extents: Some(file), daemon } => {
            assert!(range.is_none(), "one of both");
            check_name(name)?;
            invalidate_extents(name, file, daemon)
        }
        Command::Invalidate { name, range, extents: None, daemon } => {
            check_name(name)?;
            let path = format!("/v1/volumes/{}/invalidate", escape(name));
            daemon.post(&path, &range.unwrap_or_default())
        }
    }
}

/// Drops what is cached of each extent in a file.
fn invalidate_extents(name: &str, file: &Path, daemon: &Daemon) -> Result<(), Failure> {
    let extents = extents::read(file)?;
    let path = format!("/v1/volumes/{}/invalidate", escape(name));
    let (count, mut line) = (extents.len(), Progress::new());
    for (done, Extent { offset, len }) in extents.into_iter().enumerate() {
        line.show(|| format!("{done} of {count} extents"));
        let range = InvalidateInput { offset: Some(offset), len: Some(len) };
        daemon.post(&path, &range).map_err(|error| {
            // What was not dropped may be stale.
            let message =
                format!("{done} of {count} extents were dropped; then: {}", error.message);
            Failure { message, ..error }
        })?;
    }
    drop(line);
    output::text(&format!("{name}: {count} extents are dropped\n"))
}

fn list(json: bool, daemon: &Daemon) -> Result<(), Failure> {
    if json {
        return output::json(&daemon.get::<serde_json::Value>("/v1/volumes")?);
    }
    let volumes: Vec<VolumeReport> = daemon.get("/v1/volumes")?;
    let header = ["NAME", "MODE", "SIZE", "SHARE", "HITS", "CLIENTS", "AT", "BACKEND"];
    let mut table = Table::new(header.len(), &header)
        .least(&["SHARE", "CLIENTS", "HITS", "MODE", "SIZE", "AT"]);
    for volume in volumes {
        table.push(vec![
            volume.name.clone(),
            output::value_name(&volume.mode),
            show_size(volume.size_bytes),
            format!("{}..{}", volume.share_min, volume.share_max),
            output::ratio(volume.read_hits, volume.blocks_read),
            volume.connections.to_string(),
            at(&volume),
            volume.backend,
        ]);
    }
    output::text(&output::table(&table))
}

fn add(args: &AddArgs) -> Result<(), Failure> {
    // Paths on this command line are relative to here, not to the daemon's folder.
    let here = std::env::current_dir()
        .map_err(|error| Failure::at_run_time(format!("no working directory: {error}"), "cd"))?;
    let nbd = match &args.nbd {
        Some(text) => Some(parse_nbd(text, &here)?.to_string()),
        None => None,
    };
    let input = VolumeInput {
        name: args.name.clone(),
        backend: absolute_backend(&args.backend, &here)?,
        mode: Some(output::value_name(&args.mode)),
        ack: (args.ack == Ack::Memory).then(|| "memory".to_owned()),
        share_min: Some(args.share_min.clone()),
        share_max: Some(args.share_max.clone()),
        auto_mode: args.auto_mode,
        weight: args.weight.map(u64::from),
        nbd,
        nbd_tls: (args.nbd_tls != "none").then(|| args.nbd_tls.clone()),
        tls_allow: (!args.tls_allow.is_empty()).then(|| args.tls_allow.clone()),
        vhost_user: match &args.vhost_user {
            Some(path) => Some(in_words(&here.join(path))?),
            None => None,
        },
        socket_mode: Some(args.socket_mode.clone()),
        socket_group: args.socket_group.clone(),
        backend_timeout_s: Some(args.backend_timeout),
        iops_reservation: Some(args.iops_reservation),
        iops_limit: Some(args.iops_limit),
        iops_weight: Some(args.iops_weight),
        guest_iops_limit: Some(args.guest_iops_limit),
        guest_bytes_limit: Some(args.guest_bytes_limit.clone()),
        qos_group: args.qos_group.clone(),
        parent: args.parent.clone(),
        migrate_peer: args.migrate_peer.clone(),
        migrate_token_file: match &args.migrate_token_file {
            Some(path) => Some(in_words(&here.join(path))?),
            None => None,
        },
        migrate_warm_rate: Some(args.migrate_warm_rate.clone()),
        migrate_warm_for_s: Some(args.migrate_warm_for),
        read_only: args.read_only,
        shared: args.shared,
        exclusive: args.exclusive,
        return_snapshot: args.return_snapshot,
        bypass_sequential: Some(args.bypass_sequential.clone()),
        bypass_large: Some(args.bypass_large.clone()),
        fill_limit: Some(args.fill_limit.clone()),
        memory_max: args.memory_max.clone(),
        claim: match &args.claim {
            Some(path) => Some(in_words(&here.join(path))?),
            None => None,
        },
    };
    input.check(&here)?;
    let volume: VolumeReport = args.daemon.send(Method::POST, "/v1/volumes", &input)?;
    output::text(&format!("{} at {}\n", volume.name, at(&volume)))
}

/// Where clients find a volume.
fn at(volume: &VolumeReport) -> String {
    let sockets = [&volume.nbd, &volume.vhost_user];
    sockets.into_iter().filter(|at| !at.is_empty()).cloned().collect::<Vec<_>>().join(" ")
}

fn in_words(path: &std::path::Path) -> Result<String, Failure> {
    let message = || format!("the path {} is not UTF-8", path.display());
    path.to_str()
        .map(ToOwned::to_owned)
        .ok_or_else(|| Failure::at_run_time(message(), "choose another"))
}
