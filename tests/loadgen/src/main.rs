//! Random reads over vhost-user-blk, as a guest's driver would do them, without a guest: measures
//! servers.
//!
//! A tool for tests: nothing of the product depends on it. The result is one line of JSON on
//! standard output.

mod load;

use anyhow::{Context, Result};
use clap::Parser;
use std::path::PathBuf;
use std::time::Duration;

/// Random reads over vhost-user-blk
#[derive(Parser, Debug)]
struct Args {
    /// Socket of the server
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Reads under way at a time
    #[arg(long, default_value_t = 1)]
    depth: usize,
    /// Seconds to measure
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Seconds before that, not measured
    #[arg(long, default_value_t = 0.2)]
    warm_up: f64,
    /// Bytes of each read, a multiple of 512
    #[arg(long, default_value_t = 4096)]
    bytes: usize,
    /// Seed of the places read
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// File with the same contents: some reads are compared with it before anything is measured
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
    /// Don't sleep while waiting: polls the queue, as a guest with a busy CPU does
    #[arg(long)]
    poll: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let socket = args.socket.display();
    let mut device = load::Device::connect(&args.socket, args.depth, args.bytes, args.poll)
        .with_context(|| format!("connecting to {socket}"))?;
    let mut rng = load::Rng(args.seed);
    if let Some(file) = &args.check {
        device.compare(file, &mut rng).with_context(|| format!("reading from {socket}"))?;
    }
    device.run(Duration::from_secs_f64(args.warm_up), &mut rng)?;
    let measured = device.run(Duration::from_secs_f64(args.seconds), &mut rng)?;
    println!("{}", measured.to_json());
    Ok(())
}
