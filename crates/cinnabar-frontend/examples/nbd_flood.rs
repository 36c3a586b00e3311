//! A client that costs less than the server, to find the server's own ceiling.
//!
//! It keeps `DEPTH` reads of 4 KiB in flight on one unix socket, sends all that fit in one call,
//! and receives in pieces of up to 256 KiB.
//!
//! ```text
//! cargo run --release -p cinnabar-frontend --example nbd_null -- unix:/tmp/null.sock &
//! cargo run --release -p cinnabar-frontend --example nbd_flood -- /tmp/null.sock 32
//! ```

use cinnabar_frontend::nbd::proto::{Request, command};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
/// A simple reply and its data.
const REPLY: usize = 16 + BLOCK;
const RUN: Duration = Duration::from_secs(4);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: nbd_flood SOCKET [DEPTH]")?;
    let depth: usize = args.next().map_or(Ok(32), |depth| depth.parse())?;
    let mut stream = UnixStream::connect(path)?;
    enter(&mut stream)?;

    let mut received = vec![0; 256 << 10];
    let mut partial = 0;
    let (mut in_flight, mut done, mut block) = (0, 0_u64, 1_u64);
    let started = Instant::now();
    while started.elapsed() < RUN {
        let mut requests = Vec::with_capacity(28 * depth);
        while in_flight < depth {
            // A cheap walk over all blocks of 1 GiB, in no order that caches like.
            block = block.wrapping_mul(5).wrapping_add(1) % (1 << 18);
            let offset = block * BLOCK as u64;
            let len = u32::try_from(BLOCK)?;
            let request = Request { flags: 0, command: command::READ, cookie: block, offset, len };
            requests.extend(request.encode());
            in_flight += 1;
        }
        stream.write_all(&requests)?;
        partial += stream.read(&mut received)?;
        let whole = partial / REPLY;
        partial %= REPLY;
        in_flight -= whole;
        done += whole as u64;
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("depth {depth}: {:.1}k reads/s", done as f64 / seconds / 1e3);
    Ok(())
}

/// The shortest handshake: `EXPORT_NAME`, no zeroes, the only export.
fn enter(stream: &mut UnixStream) -> std::io::Result<()> {
    stream.read_exact(&mut [0; 18])?;
    let mut bytes = 3_u32.to_be_bytes().to_vec();
    bytes.extend(b"IHAVEOPT");
    bytes.extend(1_u32.to_be_bytes());
    bytes.extend(0_u32.to_be_bytes());
    stream.write_all(&bytes)?;
    stream.read_exact(&mut [0; 10])
}
