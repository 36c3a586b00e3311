//! `cinnabar migrate`: volumes that move between two hosts with their guest.

use super::client::Daemon;
use cinnabar_config::peer::read_peer;
use cinnabar_config::status::raw::MigrationRole;
use cinnabar_config::status::report::{MigrationReport, VolumeReport, WarmReport};
use cinnabar_config::units::show_size;
use cinnabar_control::migrate::{MigrateInInput, MigrateOutInput};
use cinnabar_control::path::escape;
use cinnabar_text::cli::output;
use cinnabar_text::{Failure, Table};
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
    /// Let a volume that is served here move to another host
    #[command(
        after_help = "The volume is served as before. The other daemon asks for it when its guest \
        writes, or when it is told to take it; this one is a standby then. Begin with this, on the host \
        that has the volume.\n\nExamples:\n  \
        cinnabar migrate out vm1 --to http://host-b:9321 --token-file /etc/cinnabar/host-b.token"
    )]
    Out {
        /// Its name
        name: String,
        /// The other daemon: http://HOST:PORT, as peers in its configuration has it
        #[arg(long, value_name = "URL")]
        to: String,
        /// The token for changes at that daemon
        #[arg(long, value_name = "PATH")]
        token_file: PathBuf,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Have a volume come from another host
    #[command(
        after_help = "With --from, a volume that waits because the other host has it becomes a \
        standby: guests find its socket, their reads are served from the backend, and the first write \
        takes the volume. With --take it is taken now. --force is your word that the other daemon is \
        dead: nothing but a lock of the backend, where it has one that reaches both hosts, keeps both \
        from serving it.\n\nExamples:\n  \
        cinnabar migrate in vm1 --from http://host-a:9321 --token-file /etc/cinnabar/host-a.token\n  \
        cinnabar migrate in vm1 --take"
    )]
    In {
        /// Its name
        name: String,
        /// The other daemon: http://HOST:PORT [default: as it is known]
        #[arg(long, value_name = "URL", requires = "token_file")]
        from: Option<String>,
        /// The token for changes at that daemon [default: as it is known]
        #[arg(long, value_name = "PATH", requires = "from")]
        token_file: Option<PathBuf>,
        /// Take it now [default: at the first write of its guest]
        #[arg(long, required_unless_present = "from")]
        take: bool,
        /// Take it though the other daemon does not answer, which you know to be dead [default: refuse]
        #[arg(long, requires = "take")]
        force: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Show the volumes that may move, and which host has them
    #[command(
        after_help = "Examples:\n  cinnabar migrate status\n  cinnabar migrate status --json"
    )]
    Status {
        /// Print a JSON list [default: a table]
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Keep a volume on this host, which has it
    #[command(
        after_help = "Remove it from the other daemon first: a standby there would go on serving \
        reads, and its guest's writes would wait. Where migrate_peer is in the configuration, take it \
        out, too: the next start makes a standby of the volume again.\n\n\
        Examples:\n  cinnabar migrate cancel vm1"
    )]
    Cancel {
        /// Its name
        name: String,
        #[command(flatten)]
        daemon: Daemon,
    },
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Out { name, to, token_file, daemon } => {
            let input = MigrateOutInput { to: to.clone(), token_file: absolute(token_file)? };
            read_peer(Some(&input.to), Some(&input.token_file), Path::new("/"))?;
            let path = format!("/v1/volumes/{}/migrate-out", escape(name));
            let volume: VolumeReport = daemon.send(Method::POST, &path, &input)?;
            said(&volume)
        }
        Command::In { name, from, token_file, take, force, daemon } => {
            let token_file = token_file.as_deref().map(absolute).transpose()?;
            read_peer(from.as_deref(), token_file.as_deref(), Path::new("/"))?;
            let input =
                MigrateInInput { from: from.clone(), token_file, take: *take, force: *force };
            let path = format!("/v1/volumes/{}/migrate-in", escape(name));
            let volume: VolumeReport = daemon.send(Method::POST, &path, &input)?;
            said(&volume)
        }
        Command::Status { json, daemon } => status(*json, daemon),
        Command::Cancel { name, daemon } => {
            daemon.post(&format!("/v1/volumes/{}/migrate-cancel", escape(name)), &())
        }
    }
}

/// Paths on this command line are relative to here, not to the daemon's folder.
fn absolute(path: &Path) -> Result<String, Failure> {
    let path = std::path::absolute(path)
        .map_err(|error| Failure::at_run_time(format!("no working directory: {error}"), "cd"))?;
    let text = path.to_str().map(ToOwned::to_owned);
    text.ok_or_else(|| {
        Failure::of_usage(format!("the path {} is not UTF-8", path.display()), "rename it")
    })
}

fn said(volume: &VolumeReport) -> Result<(), Failure> {
    let Some(migration) = &volume.migration else { return Ok(()) };
    output::text(&format!("{}: {}\n", volume.name, in_words(migration)))
}

fn in_words(migration: &MigrationReport) -> String {
    let MigrationReport { role, peer, reason, .. } = migration;
    let words = match role {
        MigrationRole::Owner => format!("this host has it, and {peer} may ask for it"),
        MigrationRole::Giving => format!("it is being handed over to {peer}"),
        MigrationRole::Standby => format!("a standby: {peer} may have it"),
        MigrationRole::Taking => format!("it is being taken from {peer}"),
    };
    if reason.is_empty() { words } else { format!("{words}: {reason}") }
}

/// What was fetched from the other host's cache the last time the volume was taken.
fn came_along(warm: &WarmReport) -> String {
    let WarmReport { listed, fetched, bytes, skipped, ended } = warm;
    let so_far = match ended {
        Some(why) => format!("; ended: {why}"),
        None => " so far".to_owned(),
    };
    let size = show_size(*bytes);
    format!("{size} came along ({fetched} of {listed} blocks, {skipped} skipped){so_far}")
}

fn status(json: bool, daemon: &Daemon) -> Result<(), Failure> {
    let all: Vec<VolumeReport> = daemon.get("/v1/volumes")?;
    let moving: Vec<_> = all
        .iter()
        .filter_map(|volume| Some((volume.name.as_str(), volume.migration.as_ref()?)))
        .collect();
    if json {
        let one = |(name, migration): &(&str, &MigrationReport)| serde_json::json!({ "name": name, "migration": migration });
        return output::json(&moving.iter().map(one).collect::<Vec<_>>());
    }
    let header =
        ["volume", "role", "other host", "epoch", "given", "taken", "waiting", "last wait"];
    let mut table = Table::new(3, &header);
    for (name, migration) in &moving {
        let role = match migration.role {
            MigrationRole::Owner => "owner",
            MigrationRole::Giving => "giving",
            MigrationRole::Standby => "standby",
            MigrationRole::Taking => "taking",
        };
        table.push(vec![
            (*name).to_owned(),
            role.to_owned(),
            migration.peer.clone(),
            migration.epoch.to_string(),
            migration.given.to_string(),
            migration.taken.to_string(),
            migration.held.to_string(),
            format!("{:.3} s", migration.last_take_s),
        ]);
    }
    output::text(&output::table(&table))?;
    for (name, migration) in &moving {
        if let Some(warm) = &migration.warm {
            output::text(&format!("{name}: {}\n", came_along(warm)))?;
        }
    }
    let reasons = moving.iter().filter(|(_, migration)| !migration.reason.is_empty());
    for (name, migration) in reasons {
        output::text(&format!("{name}: {}\n", migration.reason))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_along_is_told_in_a_line() {
        let ended = Some("its time is over".to_owned());
        let mut warm = WarmReport { listed: 300, fetched: 256, bytes: 1 << 20, skipped: 44, ended };
        let line = "1.0 MiB came along (256 of 300 blocks, 44 skipped)";
        assert_eq!(came_along(&warm), format!("{line}; ended: its time is over"));
        warm.ended = None;
        assert_eq!(came_along(&warm), format!("{line} so far"));
    }
}
