//! `cinnabar volume`: list, add, remove, change and invalidate volumes of a running daemon.
//!
//! Changes last until the daemon ends; what is to stay goes into the configuration file, too.

use super::client::Daemon;
use super::extents::{self, Extent};
use cinnabar_config::status::report::VolumeReport;
use cinnabar_config::volume::{absolute_backend, check_name, parse_nbd};
use cinnabar_config::{ChangeInput, VolumeInput};
use cinnabar_control::actions::InvalidateInput;
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
        /// Give up its writes that the backend does not have yet: they are lost; of a write group once all volumes with
        /// such writes are given up [default: bring them there first]
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
        #[command(flatten)]
        change: ChangeInput,
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
    #[command(flatten)]
    volume: VolumeInput,
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
        Command::Set { name, change, daemon } => {
            check_name(name)?;
            let path = format!("/v1/volumes/{}", escape(name));
            daemon.send::<VolumeReport>(Method::PATCH, &path, change).map(drop)
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
    let absolute =
        |path: &Option<String>| path.as_ref().map(|path| in_words(&here.join(path))).transpose();
    let given = &args.volume;
    let nbd = given.nbd.as_ref().map(|text| parse_nbd(text, &here)).transpose()?;
    let input = VolumeInput {
        backend: absolute_backend(&given.backend, &here)?,
        nbd: nbd.map(|nbd| nbd.to_string()),
        vhost_user: absolute(&given.vhost_user)?,
        migrate_token_file: absolute(&given.migrate_token_file)?,
        claim: absolute(&given.claim)?,
        ..given.clone()
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
