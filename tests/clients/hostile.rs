//! Clients that break the protocol, beside one that does not.

use crate::Case;
use anyhow::{Context, Result, ensure};
use e2e::{Config, MIB, Site, Volume, daemon::noise, nbd::Client};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub(crate) const CASES: [Case; 1] =
    [Case::new("hostile_clients_harm_nobody", &[], harm_nobody).ci()];

const DISK: u64 = 16 * MIB;

/// What a client may say after the greeting, each of it wrong in its own way.
fn insults() -> Vec<Vec<u8>> {
    let option = |kind: u32, len: u32, data: &[u8]| {
        let mut bytes = 3_u32.to_be_bytes().to_vec();
        bytes.extend(b"IHAVEOPT");
        bytes.extend(kind.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes.extend(data);
        bytes
    };
    // EXPORT_NAME of the export leads to the transmission phase.
    let attached = option(1, 3, b"vm1");
    let request = |magic: u32, kind: u16, offset: u64, len: u32| {
        let mut bytes = attached.clone();
        bytes.extend(magic.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(kind.to_be_bytes());
        bytes.extend([7; 8]);
        bytes.extend(offset.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes
    };
    vec![
        Vec::new(),
        vec![0xff; 4],
        noise(4096, 1),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        option(1, u32::MAX, b"vm1"),
        option(1, 7, b"nothing"),
        option(7, 2, b"\xff\xff"),
        option(7, 64, &[0xff; 64]),
        option(0xdead, 1 << 20, &noise(1 << 20, 2)),
        request(0x2560_9514, 0, 0, 4096),
        request(0x2560_9513, 0, u64::MAX - 100, 4096),
        request(0x2560_9513, 0, 0, u32::MAX),
        request(0x2560_9513, 1, 0, u32::MAX),
        request(0x2560_9513, 1, DISK, 1 << 20),
        request(0x2560_9513, 99, 0, 4096),
        [attached.clone(), noise(1 << 16, 3)].concat(),
    ]
}

/// Says it and leaves, or is thrown out.
fn insult(socket: &Path, bytes: &[u8]) -> Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_millis(20)))?;
    stream.set_write_timeout(Some(Duration::from_millis(200)))?;
    // That the server hangs up or says nothing is as good as an answer.
    let _ = stream.write_all(bytes);
    let _ = stream.read(&mut [0; 4096]);
    Ok(())
}

fn harm_nobody() -> Result<()> {
    let site = Site::new()?;
    let disk = std::fs::read(site.filled("disk.raw", DISK, 1)?)?;
    let volume = Volume::new("vm1", "file:disk.raw").key("shared = true");
    let daemon = site.serve(&Config::new(24 * MIB).volume(volume))?;
    let socket = site.path("vm1.sock");
    let mut honest = Client::connect(&socket, "vm1")?;
    for (round, bytes) in insults().into_iter().enumerate() {
        insult(&socket, &bytes).with_context(|| format!("insult {round}"))?;
        let offset = round as u64 * MIB;
        ensure!(
            honest.read(offset, MIB as usize)? == disk[offset as usize..][..MIB as usize],
            "insult {round} spoilt what another client reads"
        );
    }
    daemon.status()?;
    daemon.stop()?;
    ensure!(std::fs::read(site.path("disk.raw"))? == disk, "an insult was written to the disk");
    Ok(())
}
