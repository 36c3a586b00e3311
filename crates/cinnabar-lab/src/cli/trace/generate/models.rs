//! The flags of the generators that are models of a few numbers: zipf, mix, sixteen, file server, boot
//! storm.

use super::{Output, Whole, write};
use crate::cli::parse::{duration, size};
use cinnabar_text::Failure;
use cinnabar_trace::generate::boot_storm::{self, BootStorm};
use cinnabar_trace::generate::file_server::{self, Content, FileServer, Volumes};
use cinnabar_trace::generate::mix::{self, Mix};
use cinnabar_trace::generate::sixteen::{self, Sixteen};
use cinnabar_trace::generate::working_set::{self, BLOCK_BYTES, Sharing};
use cinnabar_trace::generate::zipf::{self, Zipf};
use cinnabar_trace::generate::{Error, Lengths};
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(in crate::cli::trace) struct ZipfArgs {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    stream: Stream,
    /// Bytes that can be asked for
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = size)]
    footprint: u64,
    /// Zipf's exponent: 0 is all blocks alike, 4 the most
    #[arg(long, value_name = "A", default_value_t = 0.9)]
    alpha: f64,
    /// Share of requests that write, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.33)]
    write_share: f64,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli::trace) struct MixArgs {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    stream: Stream,
    /// What is read in order, again and again
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    loop_size: u64,
    /// Share of the reads that go on with the loop, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.3)]
    loop_share: f64,
    /// What one scan reads, from anywhere on
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    scan_size: u64,
    /// Share of the reads that go on with a scan, 0 to 1; the rest goes to the background
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    scan_share: f64,
    /// The background, which is read and written by popularity
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = size)]
    zipf_size: u64,
    /// The background's exponent: 0 is all blocks alike, 4 the most
    #[arg(long, value_name = "A", default_value_t = 0.9)]
    alpha: f64,
    /// Share of all requests that write, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.2)]
    write_share: f64,
}

/// What the endless generators have in common.
#[derive(Debug, clap::Args)]
struct Stream {
    /// How many requests to write
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    requests: u64,
    /// Requests a second on average, at times by chance (Poisson)
    #[arg(long, value_name = "N", default_value_t = 500.0)]
    rate: f64,
    /// Lengths of requests and how often each is meant, such as 4KiB:0.8,64KiB:0.2
    #[arg(long, value_name = "SIZE:WEIGHT,...", default_value = "4KiB:0.8,16KiB:0.1,64KiB:0.1",
          value_delimiter = ',', value_parser = weight)]
    block_sizes: Vec<(u64, f64)>,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli::trace) struct SixteenArgs {
    #[command(flatten)]
    output: Output,
    /// Footprints and rates are multiplied by this; 1 has 83 GiB and 54 million requests a day
    #[arg(long, value_name = "X", default_value_t = 0.1)]
    scale: f64,
    /// Days
    #[arg(long, value_name = "N", default_value_t = 1)]
    days: u32,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli::trace) struct FileServerArgs {
    #[command(flatten)]
    output: Output,
    /// Hosts
    #[arg(long, value_name = "N", default_value_t = 1)]
    hosts: u32,
    /// Threads of each host
    #[arg(long, value_name = "N", default_value_t = 8)]
    threads: u32,
    /// Size of a working set
    #[arg(long, value_name = "SIZE", default_value = "60GiB", value_parser = size)]
    working_set: u64,
    /// Size of everything on the server
    #[arg(long, value_name = "SIZE", default_value = "1TiB", value_parser = size)]
    total: u64,
    /// Share of requests that go anywhere, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.2)]
    outside: f64,
    /// Share of requests that write, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.3)]
    write_share: f64,
    /// Give each host a working set of its own [default: all have one in common]
    #[arg(long)]
    private: bool,
    /// Ask for runs within files of a population after Impressions [default: for single blocks]
    #[arg(long)]
    files: bool,
    /// Longest run within a file
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = size, requires = "files")]
    run: u64,
    /// What is a volume of the trace: the server, each host, or each thread
    #[arg(long, value_name = "WHAT", default_value = "server")]
    volumes: VolumesName,
    /// How many requests to write
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    requests: u64,
    /// Requests a second of all threads together, at times by chance (Poisson)
    #[arg(long, value_name = "N", default_value_t = 5000.0)]
    rate: f64,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum VolumesName {
    Server,
    Host,
    Thread,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli::trace) struct BootStormArgs {
    #[command(flatten)]
    output: Output,
    /// Machines that boot; their overlays are volumes 1 and up, the golden image is volume 0
    #[arg(long, value_name = "N", default_value_t = 50)]
    machines: u32,
    /// Time within which all of them are switched on
    #[arg(long, value_name = "TIME", default_value = "5min", value_parser = duration)]
    window: Duration,
    /// Size of the golden image and of each overlay
    #[arg(long, value_name = "SIZE", default_value = "20GiB", value_parser = size)]
    image_size: u64,
    /// What one boot reads
    #[arg(long, value_name = "SIZE", default_value = "200MiB", value_parser = size)]
    boot_size: u64,
    /// Every machine is so many times as fast
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    speed: f64,
}

/// `4KiB:0.8`: a length in bytes and a weight.
fn weight(text: &str) -> Result<(u64, f64), String> {
    let wrong = || format!("{text:?} is not a length and a weight; write them such as 4KiB:0.8");
    let (length, weight) = text.split_once(':').ok_or_else(wrong)?;
    let bytes = size(length)?;
    if !bytes.is_multiple_of(BLOCK_BYTES) {
        return Err(format!("{length} is not a multiple of 4 KiB"));
    }
    Ok((bytes / BLOCK_BYTES, weight.trim().parse().map_err(|_| wrong())?))
}

fn explain(error: &Error) -> Failure {
    Failure::of_usage(error.to_string(), error.hint())
}

fn lengths(stream: &Stream) -> Result<Lengths, Failure> {
    Lengths::new(&stream.block_sizes).map_err(|error| explain(&error))
}

fn take<T>(generator: impl Iterator<Item = T>, requests: u64) -> impl Iterator<Item = T> {
    (0..requests).zip(generator).map(|(_, record)| record)
}

pub(super) fn zipf(args: &ZipfArgs) -> Result<(), Failure> {
    let settings = zipf::Settings {
        footprint_blocks: args.footprint / BLOCK_BYTES,
        alpha: args.alpha,
        write_share: args.write_share,
        lengths: lengths(&args.stream)?,
        per_second: args.stream.rate,
        seed: args.output.seed,
    };
    let generator = Zipf::new(settings).map_err(|error| explain(&error))?;
    let requests = args.stream.requests;
    write(&args.output, "zipf", Whole::Records(requests), take(generator, requests))
}

pub(super) fn mix(args: &MixArgs) -> Result<(), Failure> {
    let settings = mix::Settings {
        loop_blocks: args.loop_size / BLOCK_BYTES,
        loop_share: args.loop_share,
        scan_blocks: args.scan_size / BLOCK_BYTES,
        scan_share: args.scan_share,
        zipf_blocks: args.zipf_size / BLOCK_BYTES,
        alpha: args.alpha,
        write_share: args.write_share,
        lengths: lengths(&args.stream)?,
        per_second: args.stream.rate,
        seed: args.output.seed,
    };
    let generator = Mix::new(settings).map_err(|error| explain(&error))?;
    let requests = args.stream.requests;
    write(&args.output, "mix", Whole::Records(requests), take(generator, requests))
}

pub(super) fn sixteen(args: &SixteenArgs) -> Result<(), Failure> {
    let settings = sixteen::Settings { scale: args.scale, days: args.days, seed: args.output.seed };
    let generator = Sixteen::new(settings).map_err(|error| explain(&error))?;
    let whole = Whole::Time(generator.end_us());
    write(&args.output, "sixteen", whole, generator)
}

pub(super) fn file_server(args: &FileServerArgs) -> Result<(), Failure> {
    let access = working_set::Settings {
        hosts: args.hosts,
        threads: args.threads,
        working_set_blocks: args.working_set / BLOCK_BYTES,
        total_blocks: args.total / BLOCK_BYTES,
        outside_share: args.outside,
        write_share: args.write_share,
        sharing: if args.private { Sharing::Private } else { Sharing::Shared },
        seed: args.output.seed,
    };
    let run_blocks = args.run / BLOCK_BYTES;
    let settings = file_server::Settings {
        access,
        content: if args.files { Content::Files { run_blocks } } else { Content::Blocks },
        volumes: match args.volumes {
            VolumesName::Server => Volumes::Server,
            VolumesName::Host => Volumes::Host,
            VolumesName::Thread => Volumes::Thread,
        },
        per_second: args.rate,
    };
    let generator = FileServer::new(settings).map_err(|error| explain(&error))?;
    let whole = Whole::Records(args.requests);
    write(&args.output, "file-server", whole, take(generator, args.requests))
}

pub(super) fn boot_storm(args: &BootStormArgs) -> Result<(), Failure> {
    let settings = boot_storm::Settings {
        machines: args.machines,
        window_us: u64::try_from(args.window.as_micros()).unwrap_or(u64::MAX),
        image_blocks: args.image_size / BLOCK_BYTES,
        read_blocks: args.boot_size / BLOCK_BYTES,
        speed: args.speed,
        seed: args.output.seed,
    };
    let generator = BootStorm::new(settings).map_err(|error| explain(&error))?;
    let whole = Whole::Records(generator.requests_expected());
    write(&args.output, "boot-storm", whole, generator)
}
