//! `cinnabar-lab bench probe`: what a device takes, as a table and as a preset for `sim:`.

use cinnabar_bench::probe::plan::{
    Cell, DEPTH_MAX, IN_FLIGHT_BYTES_MAX, LIST_MAX, Op, Pattern, Plan, SIZE_BYTES_MAX,
};
use cinnabar_bench::probe::{ProbeError, Progress, Target, probe};
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_model::{SimSpec, file};
use cinnabar_report::probe as report;
use cinnabar_text::Failure;
use cinnabar_text::cli::output;
use cinnabar_text::cli::progress;
use cinnabar_text::{parse_size, show_size};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to probe.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Reads only, unless --write is given. The device is locked while it is measured.\n\
    Flushes are measured with --write, each behind a write of 4 KiB that is not counted.\n\
    A preset stands in for the device: sim:@FILE:file:disk.raw behaves as it did.\n\n\
    Examples:\n  \
    cinnabar-lab bench probe /dev/nvme0n1\n  \
    cinnabar-lab bench probe 'nbd+unix:///vm1?socket=vm1.sock' --sizes 4KiB --depths 1,32\n  \
    cinnabar-lab bench probe /mnt/ssd/probe.img --size 4GiB --write --preset ssd.toml\n  \
    cinnabar-lab bench probe sim:hdd:file:disk.raw --json | jq '.cells[].latency_us.mean'"
)]
pub(super) struct Args {
    /// A file, a block device, a backend as in the configuration, or an NBD URI
    device: String,
    /// Sizes of operations: multiples of 4 KiB up to 4 MiB
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_operation,
          default_value = "4KiB,16KiB,64KiB,256KiB,1MiB")]
    sizes: Vec<u64>,
    /// How many operations are under way, 1 to 256
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,4,16,32",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(DEPTH_MAX)))]
    depths: Vec<u32>,
    /// Where operations go
    #[arg(long, value_enum, default_value_t)]
    pattern: Pattern,
    /// Seconds that each size and depth is measured, after a warm-up of a quarter, .5 s at most
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "2")]
    time: Duration,
    /// Seed of offsets and data
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Measure writes and flushes, too: what the device holds is overwritten [default: reads only]
    #[arg(long)]
    write: bool,
    /// Yes, --write may overwrite what the device holds [default: no]
    #[arg(long, requires = "write")]
    destroy_contents: bool,
    /// Make a file of this size there, measure it, and remove it [default: what is there]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    size: Option<u64>,
    /// Leave the file that --size makes [default: it is removed]
    #[arg(long, requires = "size")]
    keep: bool,
    /// Write a model of the device, for sim:@FILE; one that is there is replaced [default: none]
    #[arg(long, value_name = "FILE")]
    preset: Option<PathBuf>,
    /// Print a JSON object [default: a table]
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let plan = plan(args)?;
    if let Some(path) = &args.preset {
        check_preset(path, &args.device, &plan)?;
    }
    let target = Target {
        text: args.device.clone(),
        size_bytes: args.size,
        keep: args.keep,
        destroy_contents: args.destroy_contents,
    };
    let mut line = progress::Progress::new();
    let began = std::time::Instant::now();
    let of = plan.duration().as_secs();
    let found = probe(&target, &plan, &mut |progress| {
        line.show(|| match progress {
            Progress::Making(done, of) => {
                format!("making a file: {} of {}", show_size(done), show_size(of))
            }
            Progress::Measuring(number, cells, cell) => format!(
                "{number} of {cells}: {}, {} s of about {of} s",
                show_cell(cell),
                began.elapsed().as_secs()
            ),
        });
    });
    drop(line);
    let mut found = found.map_err(|error| explain(&args.device, &error))?;
    if let Some(path) = &args.preset {
        let text = found.fit(&plan, &path.display().to_string());
        let text = text.map_err(|unfit| Failure::at_run_time(unfit.to_string(), ""))?;
        save(path, &text)?;
    }
    for note in &found.report.notes {
        // If stderr is gone there is nobody to tell.
        let _gone = writeln!(std::io::stderr().lock(), "note: {note}");
    }
    if args.json {
        output::json(&found.report)
    } else {
        output::text(&report::render(&found.report, output::width()))
    }
}

fn plan(args: &Args) -> Result<Plan, Failure> {
    let (mut sizes, mut depths) = (args.sizes.clone(), args.depths.clone());
    sizes.sort_unstable();
    sizes.dedup();
    depths.sort_unstable();
    depths.dedup();
    let plan = Plan {
        sizes,
        depths,
        pattern: args.pattern,
        time: args.time,
        seed: args.seed,
        write: args.write,
    };
    if plan.sizes.len() > LIST_MAX || plan.depths.len() > LIST_MAX {
        let message = format!("at most {LIST_MAX} sizes and {LIST_MAX} depths can be measured");
        return Err(Failure::of_usage(message, "name fewer of them"));
    }
    let bytes = plan.size_max() * u64::from(plan.depth_max());
    if bytes > IN_FLIGHT_BYTES_MAX {
        let message = format!(
            "{} operations of {} are more than {} at a time",
            plan.depth_max(),
            show_size(plan.size_max()),
            show_size(IN_FLIGHT_BYTES_MAX)
        );
        return Err(Failure::of_usage(message, "name smaller --sizes or --depths"));
    }
    Ok(plan)
}

/// What would stand in the way of the preset is found out before anything is measured.
fn check_preset(path: &Path, device: &str, plan: &Plan) -> Result<(), Failure> {
    let fail = |message: String, hint: &str| Err(Failure::of_usage(message, hint));
    let shown = path.display();
    if !plan.makes_a_preset() {
        let hint = "add them to --sizes and --depths";
        return fail("a preset needs operations of 4 KiB and depth 1".into(), hint);
    }
    if device.ends_with(&*path.to_string_lossy()) {
        return fail(format!("preset {shown}: that is the device"), "choose another name");
    }
    match path.to_str() {
        Some(text) if !text.contains([',', ':']) => {}
        _ => {
            let message = format!("preset {shown}: sim:@FILE ends at the first comma or colon");
            return fail(message, "choose another name");
        }
    }
    match std::fs::symlink_metadata(path) {
        Err(_) if folder(path).is_dir() => Ok(()),
        Err(_) => fail(format!("preset {shown}: its folder does not exist"), "create it first"),
        // Whatever else is there is not ours.
        Ok(_) => match SimSpec::parse(&format!("@{shown}"), Some(Path::new(""))) {
            Ok(_) => Ok(()),
            Err(_) => {
                fail(format!("preset {shown}: it is there and is no preset"), "choose another name")
            }
        },
    }
}

/// Whole or not at all.
fn save(path: &Path, text: &str) -> Result<(), Failure> {
    let written = tempfile::NamedTempFile::new_in(folder(path)).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        file.as_file().set_permissions(mode)?;
        file.as_file().sync_all()?;
        Ok(file.persist(path)?)
    });
    written.map(drop).map_err(|error| {
        let message = format!("can't write the preset {}: {error}", path.display());
        Failure::at_run_time(message, "check the folder and how much room it has")
    })
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn explain(device: &str, error: &ProbeError) -> Failure {
    // Some errors name the device themselves.
    let message = error.to_string();
    let message = match error {
        ProbeError::Small { .. }
        | ProbeError::Narrow { .. }
        | ProbeError::Io { .. }
        | ProbeError::Stalled(_) => {
            format!("{device}: {message}")
        }
        _ => message,
    };
    if error.is_usage() {
        Failure::of_usage(message, error.hint())
    } else {
        Failure::at_run_time(message, error.hint())
    }
}

fn show_cell(cell: Cell) -> String {
    match cell.op {
        Op::Flush => "flush".to_owned(),
        op => format!("{} of {} at depth {}", op.name(), show_size(cell.size_bytes), cell.depth),
    }
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|(message, hint)| format!("{message}; {hint}"))?;
    match bytes {
        0 => Err("nothing can be measured on 0 bytes".to_owned()),
        _ if !bytes.is_multiple_of(BLOCK_BYTES) => Err("it is not a multiple of 4 KiB".to_owned()),
        _ => Ok(bytes),
    }
}

fn parse_operation(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if bytes > SIZE_BYTES_MAX {
        return Err(format!("it is more than {}", show_size(SIZE_BYTES_MAX)));
    }
    Ok(bytes)
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "it is no number of seconds".to_owned())?;
    if (0.01..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("it is not from 0.01 to 3600".to_owned())
    }
}

// The help says so.
const _: () = assert!(SIZE_BYTES_MAX == 4 << 20 && DEPTH_MAX == 256 && file::VERSION == 1);
