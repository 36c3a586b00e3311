//! A disk whose blocks are 4 KiB, under a client that writes sectors of 512 bytes.

use super::nbd::Client;
use super::rig::{MIB, Site, pattern};
use std::process::Command;

/// A loop device, detached at the end.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

fn loop_of_4k_blocks(site: &Site, file: &str) -> Option<Loop> {
    let mut command = Command::new("losetup");
    command.args(["--find", "--show", "--sector-size", "4096"]).arg(site.path(file));
    match command.output() {
        Ok(output) if output.status.success() => {
            Some(Loop(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
        }
        other => {
            eprintln!("skipped: no loop device here: {other:?}");
            None
        }
    }
}

#[test]
fn sectors_are_written_to_a_disk_of_4k_blocks() {
    let site = Site::new();
    site.disk("vm1.raw", 8 * MIB);
    let Some(device) = loop_of_4k_blocks(&site, "vm1.raw") else { return };
    site.config(&format!("[[volume]]\nname = \"vm1\"\nbackend = \"file:{}\"\n", device.0));
    let daemon = site.serve();
    let mut client = Client::attach(&site.path("vm1.sock"), "vm1").expect("it is let in");
    // Across the edge of two blocks, first absent from the cache, then cached.
    for (round, fill) in [(0u64, 1u8), (1, 2)] {
        let at = 4096 - 512 + round * 512;
        client.write(at, &[fill; 1024]).expect("it writes");
        let mut expected = pattern(0, 8192);
        for (written, fill) in [(3584, 1), (3584 + 512 * round as usize, fill)] {
            expected[written..written + 1024].fill(fill);
        }
        assert!(client.read(0, 8192).expect("it reads") == expected, "round {round}");
    }
    drop(client);
    daemon.stop();
}
