//! `cinnabar hybrid`: volumes over a fast and a slow pool.

use cinnabar_backend::hybrid::manage::{
    Checked, Looked, Lost, Probed, Progress, check, collect, create, evacuate, forget_lost, look,
    probe, resize,
};
use cinnabar_backend::hybrid::{HybridError, HybridSpec, hint};
use cinnabar_text::cli::{output, parse, talk};
use cinnabar_text::{Failure, Table, show_size};
use serde_json::json;
use std::fmt::Write as _;
use std::path::PathBuf;

/// What to do.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a volume, all zeros: its table, and a mark in each folder
    #[command(
        after_help = "The volume is thin: it takes room as it is written. Its data begin in the slow pool. \
        Pools on Ceph are measured for some seconds, so that moves are planned by what they take.\n\n\
        Examples:\n  \
        cinnabar hybrid create --fast /ssd/vm1 --slow /hdd/vm1 --size 1TiB\n  \
        cinnabar hybrid create --fast /ssd/vm1 --slow /hdd/vm1 --size 1TiB --budget 50GiB\n  \
        cinnabar hybrid create --ceph vm1 --fast ssd --slow hdd --size 1TiB"
    )]
    Create {
        #[command(flatten)]
        place: PlaceArgs,
        /// Size of the volume
        #[arg(long, value_parser = parse::size)]
        size: u64,
        /// What it may take of the fast pool [default: a tenth of its size]
        #[arg(long, value_parser = parse::size)]
        budget: Option<u64>,
        /// Size of an extent, a power of two from 64KiB to 64MiB
        #[arg(long, value_parser = parse::size, default_value = "4MiB")]
        extent: u64,
        /// Do not measure the pools [default: those on Ceph are measured]
        #[arg(long)]
        no_probe: bool,
    },
    /// Show where a volume's extents lie, whether it is served or not
    #[command(after_help = "Of a served volume `cinnabar status` shows more: moves, and why.\n\n\
        Examples:\n  cinnabar hybrid status --fast /ssd/vm1 --slow /hdd/vm1")]
    Status {
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Give a volume another size, while nothing serves it
    #[command(
        after_help = "A smaller size is a multiple of the extents' and loses what is behind it. In mode write-back stop the \
        volume first (not by a crash): what is still in the write log is of the old size.\n\n\
        Examples:\n  cinnabar hybrid resize --fast /ssd/vm1 --slow /hdd/vm1 --size 2TiB"
    )]
    Resize {
        #[command(flatten)]
        place: PlaceArgs,
        /// The new size
        #[arg(long, value_parser = parse::size)]
        size: u64,
        /// Make it smaller, and lose what is behind the new end [default: refuse]
        #[arg(long)]
        shrink: bool,
    },
    /// Move all of a volume out of the fast pool, while nothing serves it
    #[command(
        after_help = "Its budget is 0 from then on; budget_mib in its backend gives it another one. Of a volume that is \
        served budget_mib=0 does the same, round by round.\n\n\
        Examples:\n  cinnabar hybrid evacuate --fast /ssd/vm1 --slow /hdd/vm1"
    )]
    Evacuate {
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Delete objects of a volume that nothing needs, while nothing serves it
    #[command(
        after_help = "A daemon does the same when it opens the volume. After this command a cache starts cold.\n\n\
        Examples:\n  cinnabar hybrid gc --fast /ssd/vm1 --slow /hdd/vm1"
    )]
    Gc {
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Have extents whose objects are missing read as zeros, while nothing serves the volume
    #[command(
        after_help = "Without --forget-lost it says what is lost, as `check` does. Restore objects from a backup first, if \
        there is one.\n\n\
        Examples:\n  cinnabar hybrid repair --forget-lost --fast /ssd/vm1 --slow /hdd/vm1"
    )]
    Repair {
        #[command(flatten)]
        place: PlaceArgs,
        /// Give up what is missing [default: only say what it is]
        #[arg(long)]
        forget_lost: bool,
    },
    /// Measure a volume's pools on Ceph, and keep the result with it
    #[command(
        after_help = "It takes some seconds, also while the volume is served, which goes by the result when it is \
        opened next. Other load on the pools is measured with them.\n\n\
        Examples:\n  cinnabar hybrid probe --ceph vm1 --fast ssd --slow hdd"
    )]
    Probe {
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Compare a volume's table with its pools, while nothing serves it
    #[command(
        after_help = "Exit code 0: all objects are there. 1: objects are lost. Nothing is written.\n\n\
        Examples:\n  cinnabar hybrid check --fast /ssd/vm1 --slow /hdd/vm1"
    )]
    Check {
        #[command(flatten)]
        place: PlaceArgs,
    },
}

/// Where a volume is.
#[derive(Debug, clap::Args)]
struct PlaceArgs {
    /// The fast pool's folder, or the fast pool on Ceph
    #[arg(long, value_name = "POOL")]
    fast: String,
    /// The slow pool's folder, or the slow pool on Ceph
    #[arg(long, value_name = "POOL")]
    slow: String,
    /// The table's file, or the pool on Ceph with the table [default: "table" in the fast folder; the slow pool]
    #[arg(long, value_name = "PLACE")]
    table: Option<String>,
    /// The volume lies on a Ceph cluster, under this name [default: in folders]
    #[arg(long, value_name = "NAME")]
    ceph: Option<String>,
    /// Ceph: namespace within the pools [default: the pools' own]
    #[arg(long, value_name = "NAME", requires = "ceph")]
    namespace: Option<String>,
    /// Ceph: the user, without "client." [default: admin]
    #[arg(long, value_name = "USER", requires = "ceph")]
    id: Option<String>,
    /// Ceph: the configuration [default: /etc/ceph/ceph.conf]
    #[arg(long, value_name = "FILE", requires = "ceph")]
    conf: Option<PathBuf>,
    /// Print a JSON object [default: a table]
    #[arg(long)]
    json: bool,
}

impl PlaceArgs {
    /// As a configuration would have it.
    fn spec(&self) -> Result<HybridSpec, Failure> {
        let mut text = String::from(":");
        if let Some(name) = &self.ceph {
            let _ok = write!(text, "ceph,name={name},");
        }
        let _ok = write!(text, "fast={},slow={}", self.fast, self.slow);
        let conf = self.conf.as_ref().map(|conf| conf.display().to_string());
        let given = [&self.ceph, &self.table, &self.namespace, &self.id, &conf];
        let mut given = given.into_iter().flatten().chain([&self.fast, &self.slow]);
        if let Some(wrong) = given.find(|text| text.contains(',')) {
            let hint = "names and paths of a hybrid volume hold no comma";
            return Err(Failure::of_usage(format!("{wrong:?} has a comma"), hint));
        }
        let Self { table, namespace, id, .. } = self;
        for (key, value) in
            [("table", table), ("namespace", namespace), ("id", id), ("conf", &conf)]
        {
            if let Some(value) = value {
                let _ok = write!(text, ",{key}={value}");
            }
        }
        let here = std::env::current_dir().unwrap_or_default();
        HybridSpec::parse(&text, &here)
            .map_err(|error| Failure::of_usage(error.to_string(), "see cinnabar hybrid --help"))
    }
}

fn failed(error: &HybridError) -> Failure {
    Failure::at_run_time(error.to_string(), hint(error))
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Create { place, size, budget, extent, no_probe } => {
            let spec = place.spec()?;
            if !(64 << 10..=64 << 20).contains(extent) || !extent.is_power_of_two() {
                let text = "an extent has a power of two of bytes, from 64KiB to 64MiB";
                return Err(Failure::of_usage(text, "leave --extent out for 4MiB"));
            }
            let budget = budget.unwrap_or(size / 10);
            create(&spec, *size, *extent, budget).map_err(|error| failed(&error))?;
            if place.ceph.is_some() && !no_probe {
                // The volume is there: without the result moves are planned by what is common.
                if let Err(failure) = probed(&spec, false, true) {
                    talk::line(format_args!("the pools were not measured: {}", failure.message));
                    talk::line("hint: cinnabar hybrid probe, later");
                }
            }
            show(&spec, place.json)
        }
        Command::Resize { place, size, shrink } => resized(place, *size, *shrink),
        Command::Evacuate { place } => evacuated(&place.spec()?, place.json),
        Command::Gc { place } => {
            let deleted =
                collect(&place.spec()?, &mut *tells(false)).map_err(|error| failed(&error))?;
            if place.json {
                return output::json(&json!({ "deleted": deleted }));
            }
            output::text(&format!("{deleted} objects deleted\n"))
        }
        Command::Repair { place, forget_lost: true } => repaired(&place.spec()?, place.json),
        Command::Probe { place } => probed(&place.spec()?, place.json, false),
        Command::Status { place } => show(&place.spec()?, place.json),
        Command::Check { place } | Command::Repair { place, forget_lost: false } => {
            checked(&place.spec()?, place.json)
        }
    }
}

fn resized(place: &PlaceArgs, size: u64, may_shrink: bool) -> Result<(), Failure> {
    let spec = place.spec()?;
    let before = look(&spec).map_err(|error| failed(&error))?.size_bytes;
    if size < before && !may_shrink {
        let text = format!("the volume has {}, which is more", show_size(before));
        return Err(Failure::of_usage(text, "--shrink loses what is behind the new end"));
    }
    resize(&spec, size, may_shrink, &mut *tells(false)).map_err(|error| failed(&error))?;
    show(&spec, place.json)
}

fn evacuated(spec: &HybridSpec, json: bool) -> Result<(), Failure> {
    evacuate(spec, &mut *tells(true)).map_err(|error| failed(&error))?;
    show(spec, json)
}

/// Says what a command waits for; with `counts` also how many objects are left.
fn tells(counts: bool) -> Box<Progress<'static>> {
    let (mut told, mut troubled) = (None, false);
    Box::new(move |left, trouble| {
        // Now and then, not at each look.
        if counts && told.is_none_or(|before: u32| before.saturating_sub(left) > before / 20) {
            talk::line(format_args!("{left} objects are left in the fast pool"));
            told = Some(left);
        }
        if let (Some(trouble), false) = (trouble, troubled) {
            troubled = true;
            talk::line(trouble);
            talk::line(
                "hint: Ctrl-C ends the command and loses nothing; on this host the volume is free at \
                 once, on another one after 42 s",
            );
        }
    })
}

fn repaired(spec: &HybridSpec, json: bool) -> Result<(), Failure> {
    let found = check(spec).map_err(|error| failed(&error))?;
    let looked = look(spec).map_err(|error| failed(&error))?;
    let bytes = |extent: u32| {
        let begin = u64::from(extent) * looked.extent_bytes;
        [begin, (begin + looked.extent_bytes).min(looked.size_bytes)]
    };
    // Before anything is changed: what fails half-way would not be told again.
    for object in &found.lost_objects {
        let [begin, end] = bytes(object.extent);
        talk::line(format_args!(
            "{}/{object} is missing or too short: bytes {begin} to {end}",
            object.pool
        ));
    }
    let fates = forget_lost(spec, &found, &mut *tells(false)).map_err(|error| failed(&error))?;
    let of = |fate: Lost| {
        let all = found.lost_objects.iter().zip(&fates);
        let these: Vec<_> = all.filter(|(_, found)| **found == fate).map(|(o, _)| *o).collect();
        these
    };
    let (zeroed, there) = (of(Lost::Forgotten), of(Lost::There));
    if json {
        let ranges = zeroed.iter().map(|object| {
            let [begin, end] = bytes(object.extent);
            json!({ "begin": begin, "end": end })
        });
        output::json(&json!({ "zeroed": ranges.collect::<Vec<_>>(), "too_short": there.len() }))?;
    } else {
        output::text(&format!("{} extents read as zeros from now on\n", zeroed.len()))?;
    }
    match there.first() {
        None => Ok(()),
        Some(first) => Err(Failure::at_run_time(
            format!("{} objects are too short, the first is {}/{first}", there.len(), first.pool),
            "restore them, or remove them and say it again to give them up",
        )),
    }
}

/// Measures the pools, and says so; on the error output if the result is not what was asked for.
fn probed(spec: &HybridSpec, json: bool, aside: bool) -> Result<(), Failure> {
    talk::line("measuring both pools: some seconds");
    let [slow, fast] = probe(spec).map_err(|error| failed(&error))?;
    if json {
        let of = |pool: Probed| json!({ "read_us": pool.read.as_micros() as u64, "write_us": pool.write.as_micros() as u64 });
        return output::json(&json!({ "slow": of(slow), "fast": of(fast) }));
    }
    let times = |pool: Probed| format!("read {:.1?}, write {:.1?}", pool.read, pool.write);
    if aside {
        talk::line(format_args!(
            "4 KiB at random: fast pool {}; slow pool {}",
            times(fast),
            times(slow)
        ));
        return Ok(());
    }
    let mut table = Table::new(2, &["pool", "4 KiB at random"]);
    table.push(vec!["fast".into(), times(fast)]);
    table.push(vec!["slow".into(), times(slow)]);
    output::text(&output::table(&table))
}

fn show(spec: &HybridSpec, json: bool) -> Result<(), Failure> {
    let looked = look(spec).map_err(|error| failed(&error))?;
    let Looked { size_bytes, extent_bytes, budget_bytes, epoch, .. } = looked;
    let Looked { extents, extents_present, extents_in: [slow, fast], moving, .. } = looked;
    if json {
        return output::json(&json!({
            "backend": spec.to_string(),
            "size_bytes": size_bytes,
            "extent_bytes": extent_bytes,
            "budget_bytes": budget_bytes,
            "owners": epoch - 1,
            "extents": extents,
            "extents_written": extents_present,
            "extents_fast": fast,
            "extents_slow": slow,
            "extents_moving": moving,
        }));
    }
    let size = |extents: u32| show_size(u64::from(extents) * extent_bytes);
    let mut table = Table::new(2, &["backend", &spec.to_string()]);
    for (name, text) in [
        (
            "size",
            format!(
                "{} in {extents} extents of {}",
                show_size(size_bytes),
                show_size(extent_bytes)
            ),
        ),
        ("written", format!("{extents_present} extents, {}", size(extents_present))),
        ("fast pool", format!("{fast} extents, {} of {}", size(fast), show_size(budget_bytes))),
        ("slow pool", format!("{slow} extents, {}", size(slow))),
        ("moving", format!("{moving} extents")),
    ] {
        table.push(vec![name.to_owned(), text]);
    }
    output::text(&output::table(&table))
}

fn checked(spec: &HybridSpec, json: bool) -> Result<(), Failure> {
    let found = check(spec).map_err(|error| failed(&error))?;
    let Checked { objects, lost, lost_count, left, foreign, foreign_count, taken_bytes, .. } =
        &found;
    if json {
        output::json(&json!({
            "objects": objects,
            "lost": lost,
            "lost_count": lost_count,
            "left": left,
            "foreign": foreign,
            "foreign_count": foreign_count,
            "slow_bytes": taken_bytes.map(|bytes| bytes[0]),
            "fast_bytes": taken_bytes.map(|bytes| bytes[1]),
        }))?;
    } else {
        let of = |count: &u64, names: &[String]| match names.first() {
            Some(first) => format!("{count}, the first is {first}"),
            None => "none".to_owned(),
        };
        let room = taken_bytes.map(|bytes| bytes.map(show_size));
        let room = room.map_or_else(
            || "the cluster does not tell".to_owned(),
            |[slow, fast]| format!("{fast} in the fast pool, {slow} in the slow one"),
        );
        let mut table = Table::new(2, &["objects", &objects.to_string()]);
        for (name, text) in [
            ("room", room),
            ("lost", of(lost_count, lost)),
            ("left behind", format!("{left}; the next owner deletes them")),
            ("foreign", of(foreign_count, foreign)),
        ] {
            table.push(vec![name.to_owned(), text]);
        }
        output::text(&output::table(&table))?;
    }
    if *lost_count == 0 {
        return Ok(());
    }
    let text = format!("{lost_count} objects of the volume are lost");
    Err(Failure::at_run_time(
        text,
        "restore them from a backup; their extents fail to read until then",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_written_as_a_backend() {
        let place = |fast: &str, table: Option<&str>| PlaceArgs {
            fast: fast.into(),
            slow: "/hdd/vm1".into(),
            table: table.map(Into::into),
            ceph: None,
            namespace: None,
            id: None,
            conf: None,
            json: false,
        };
        let spec = place("/ssd/vm1", None).spec().expect("well-formed");
        assert_eq!(spec.to_string(), "hybrid:fast=/ssd/vm1,slow=/hdd/vm1");
        let spec = place("/ssd/vm1", Some("/t")).spec().expect("well-formed");
        assert_eq!(spec.to_string(), "hybrid:fast=/ssd/vm1,slow=/hdd/vm1,table=/t");
        assert!(place("/ssd/a,b", None).spec().is_err());
        let ceph = PlaceArgs {
            slow: "hdd".into(),
            ceph: Some("vm1".into()),
            conf: Some("/etc/ceph/b.conf".into()),
            ..place("ssd", None)
        };
        let spec = ceph.spec().expect("well-formed");
        assert_eq!(
            spec.to_string(),
            "hybrid:ceph,fast=ssd,slow=hdd,name=vm1,conf=/etc/ceph/b.conf"
        );
    }
}
