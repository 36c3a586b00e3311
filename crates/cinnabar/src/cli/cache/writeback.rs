//! `cinnabar cache writeback`: the writes of a volume, or a write group, that are in a write log only, brought to its
//! back end without the daemon.

use super::Watcher;
use crate::offline::OfflineError;
use crate::offline::write_log::{Remembered, Rescued, Target, Wanted, open_with_memory, rescue};
use cinnabar_backend::claim::{Location, path_beside};
use cinnabar_backend::disk::OpenOptions;
use cinnabar_backend::spec::Place;
use cinnabar_backend::{BackendSpec, Disk};
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_text::cli::output;
use cinnabar_text::{Failure, show_size};
use std::collections::BTreeSet;
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What goes where.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Writes what the volume has in the log and its back end does not have, in the guest's \
    order, with a flush after each epoch: at every moment the back end is a state that the guest's file \
    system recovers from. Interrupted, it goes on where it was when it is run again.\n\
    Stop the daemon first. What has no claim of the volume is refused, for it may be another disk; with --copy the \
    log keeps the writes, and the volume is served from its own back end as before. Else its place in the log goes. The claim beside the back end stays, and says \
    from then on that the writes are there: the next daemon that serves the disk drops what its cache has of \
    it, and then the claim.\n\
    Volumes of a write group are brought to their back ends by one command.\n\n\
    Examples:\n  \
    cinnabar cache check /var/lib/cinnabar/write.log\n  \
    cinnabar cache writeback /var/lib/cinnabar/write.log --volume vm1 --to file:/srv/nfs/vm1.raw\n  \
    cinnabar cache writeback write.log --volume vm1 --to nbd:tcp:storage:10809:vm1 --json\n  \
    cinnabar cache writeback write.log --volume vm1 --to copy.raw --copy\n  \
    cinnabar cache writeback write.log --volume db --to db.raw --volume wal --to wal.raw"
)]
pub(in crate::cli) struct Args {
    /// The write log: a file or a block device
    log: PathBuf,
    /// The other half of a mirrored write log; one that is missing is needed only if this one may lack writes [default: none]
    #[arg(long, value_name = "OTHER")]
    mirror: Option<PathBuf>,
    /// The volume's name; of a write group each of them
    #[arg(long, value_name = "NAME", required = true)]
    volume: Vec<String>,
    /// Its back end, as in the configuration; or a path, or an NBD URI; once for each volume, in their order
    #[arg(long, value_name = "BACKEND", required = true)]
    to: Vec<String>,
    /// It is a copy of the volume's disk: the log keeps the writes, so that its back end gets them, too [default: it
    /// is the back end, and has its claim]
    #[arg(long, conflicts_with = "claim")]
    copy: bool,
    /// Where the claim of the back end is; none, or once for each volume [default: beside a file, PATH.cinnabar-claim; beside an RBD image, an object in its pool]
    #[arg(long, value_name = "PATH")]
    claim: Vec<PathBuf>,
    /// Where the write memory is, if the daemon was killed and acknowledged writes from memory [default:
    /// where the log says]
    #[arg(long, value_name = "PATH", conflicts_with = "without_memory")]
    memory: Option<PathBuf>,
    /// Give up what is in the write memory only: writes that no flush covered are lost [default: refuse
    /// if it is not there]
    #[arg(long)]
    without_memory: bool,
    /// Print a JSON object for each volume [default: a line]
    #[arg(long)]
    json: bool,
}

/// A daemon that was killed a moment ago holds its locks until its last write has landed.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Nothing was taken out of the log.
const COPY_NOTE: &str = "note: the write log has the writes still, and brings them to the volume's own back end when \
    that is served";

/// Runs it.
pub(in crate::cli) fn run(args: &Args) -> Result<(), Failure> {
    let count = args.volume.len();
    let names: BTreeSet<&String> = args.volume.iter().collect();
    let fits = names.len() == count && args.to.len() == count;
    if !fits || ![0, count].contains(&args.claim.len()) {
        let (to, claim) = (args.to.len(), args.claim.len());
        let names = names.len();
        let message = format!("{names} volumes, {to} back ends and {claim} claims are named");
        let hint = "name each volume once, and give --to, and --claim if at all, once for each in that order";
        return Err(Failure::of_usage(message, hint));
    }
    let specs = args.to.iter().map(|to| parse(to)).collect::<Result<Vec<_>, _>>()?;
    let claims = specs.iter().enumerate().map(|(which, spec)| {
        let named = args.claim.get(which).cloned().map(Location::File);
        named.or_else(|| match &spec.place {
            Place::File(path) => Some(Location::File(path_beside(path))),
            Place::Rbd(image) => Some(Location::Rbd(Box::new(image.clone()))),
            Place::Nbd(_) | Place::Hybrid(_) => None,
        })
    });
    let claims: Vec<Option<Location>> = claims.collect();
    let mut line = Watcher::new();
    let memory = match &args.memory {
        Some(path) => Remembered::At(path.clone()),
        None if args.without_memory => Remembered::GivenUp,
        None => Remembered::Noted,
    };
    let paths = (args.log.as_path(), args.mirror.as_deref());
    let log = open_with_memory(paths, &memory, &mut line)?;
    let missing = log.missing.clone();
    // Which volumes there are is told before a back end is asked for anything.
    for (which, volume) in args.volume.iter().enumerate() {
        let Err(error) = log.volume(volume) else { continue };
        let own = claims[which].as_ref().filter(|_| !args.copy && count == 1);
        let old = own.map(|location| log.release_old_claim(volume, location));
        if old.transpose()? != Some(true) {
            return Err(error.into());
        }
        drop(line);
        return tell(args, which, Rescued { claim_released: true, ..Rescued::default() }, &claims);
    }
    let options = OpenOptions { lock_wait: LOCK_WAIT, ..OpenOptions::default() };
    let mut all = Vec::new();
    for ((volume, spec), claim) in args.volume.iter().zip(&specs).zip(&claims) {
        let to = Arc::new(Disk::open_backend(spec, &options).map_err(OfflineError::Target)?);
        let kind = if args.copy { Target::Copy } else { Target::BackEnd(claim.as_ref()) };
        all.push(Wanted { volume, to, kind });
    }
    let done = rescue(log, &all, &mut line);
    drop(line);
    let done = done.map_err(|error| match error {
        // It is worth trying again.
        OfflineError::TargetIo { .. } | OfflineError::WriteLogIo { .. } => {
            Failure::at_run_time(error.to_string(), error.hint())
        }
        error => error.into(),
    })?;
    if let Some(missing) = missing {
        // The writes are at the back end in any case.
        let _gone =
            writeln!(std::io::stderr(), "note: a half of the write log was not used: {missing}");
    }
    let mut done = done.into_iter().enumerate();
    done.try_for_each(|(which, done)| tell(args, which, done, &claims))
}

fn parse(to: &str) -> Result<BackendSpec, Failure> {
    let failed = |message: String, hint: &str| Failure::of_usage(message, hint);
    let here = std::env::current_dir()
        .map_err(|error| failed(format!("no current folder: {error}"), "name a whole path"))?;
    let spec = BackendSpec::of_user(to, &here).map_err(|error| {
        let because = error.source().map(|source| format!(": {source}")).unwrap_or_default();
        failed(format!("--to {to}: {error}{because}"), error.hint())
    })?;
    if spec.layers.is_empty() {
        return Ok(spec);
    }
    let message = format!("--to {to}: a model in front of a back end has no use here");
    Err(failed(message, "name what stands behind \"sim:...:\""))
}

fn tell(
    args: &Args,
    which: usize,
    done: Rescued,
    claims: &[Option<Location>],
) -> Result<(), Failure> {
    let (volume, to) = (&args.volume[which], &args.to[which]);
    let claim = claims[which].as_ref().filter(|_| done.claim_released);
    if args.json {
        output::json(&serde_json::json!({
            "log": args.log.display().to_string(),
            "volume": volume,
            "to": to,
            "chunks": done.chunks,
            "blocks": done.blocks,
            "bytes": done.blocks * BLOCK_BYTES,
            "writes": done.writes,
            "claim_released": claim.map(ToString::to_string),
        }))?;
    } else {
        output::text(&words((volume, to), done, claim))?;
    }
    let mut stderr = std::io::stderr().lock();
    // If stderr is gone, the guide says it, too.
    if args.copy && which == 0 {
        let _gone = writeln!(stderr, "{COPY_NOTE}");
    }
    Ok(())
}

fn words((volume, to): (&str, &str), done: Rescued, claim: Option<&Location>) -> String {
    let name = volume.escape_debug();
    let text = match done.chunks {
        0 => format!("{name}: {to} has everything, nothing was written\n"),
        _ => format!(
            "{name}: {} written to {to} in {} requests, it has everything now\n",
            show_size(done.blocks * BLOCK_BYTES),
            done.writes
        ),
    };
    let gone = claim.map(|location| format!("{name}: claim {location} released\n"));
    text + &gone.unwrap_or_default()
}
