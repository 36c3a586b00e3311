//! How a guest's disk is attached, as QEMU wants to be told: at its start, or while it runs.
//!
//! Called by [`machine`](super::machine). The same words stand in `docs/guide/qemu.md`.

use e2e::{Site, Volume};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Longest time a guest waits for a daemon that is gone, in seconds.
const RECONNECT_S: u64 = 120;

/// How the volume `name` of a site comes to a guest.
pub(super) type Attach = fn(&Site, &str) -> Disk;

/// Over NBD, through QEMU's own client.
pub(super) fn over_nbd(site: &Site, name: &str) -> Disk {
    let socket = site.path(&format!("{name}.sock"));
    Disk { id: name.into(), source: Source::Nbd { socket, export: name.into() } }
}

/// A qcow2 file of the guest's own over the volume `name`, which is shared.
pub(super) fn overlay(site: &Site, name: &str, file: &Path) -> Disk {
    let socket = site.path(&format!("{name}.sock"));
    let source = Source::Overlay { file: file.into(), socket, export: name.into() };
    Disk { id: "system".into(), source }
}

/// A disk of a guest.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    /// Its name in QEMU, and its serial number.
    pub(super) id: String,
    pub(super) source: Source,
}

/// Where it comes from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// An NBD export of the daemon.
    Nbd { socket: PathBuf, export: String },
    /// A qcow2 file over an NBD export of the daemon.
    Overlay { file: PathBuf, socket: PathBuf, export: String },
}

/// A command of QEMU's control socket; at its start, the option of that name.
pub(super) struct Step {
    pub(super) command: &'static str,
    pub(super) arguments: Value,
}

impl Disk {
    /// Adds what the daemon has to know of it.
    pub(super) fn configure(&self, volume: Volume) -> Volume {
        match &self.source {
            Source::Nbd { .. } | Source::Overlay { .. } => volume,
        }
    }

    /// What attaches it, in order.
    pub(super) fn attach(&self) -> Vec<Step> {
        let id = &self.id;
        let nbd = |node: &str, socket: &Path, export: &str| {
            json!({
                "driver": "nbd", "node-name": node, "export": export,
                "server": { "type": "unix", "path": socket },
                "reconnect-delay": RECONNECT_S,
            })
        };
        let step = |command, arguments| Step { command, arguments };
        let blk = json!({ "driver": "virtio-blk-pci", "id": id, "drive": node(id), "serial": id });
        match &self.source {
            Source::Nbd { socket, export } => {
                vec![step("blockdev-add", nbd(&node(id), socket, export)), step("device_add", blk)]
            }
            Source::Overlay { file, socket, export } => {
                let mut golden = nbd(&format!("{id}-golden"), socket, export);
                golden["read-only"] = true.into();
                vec![
                    step("blockdev-add", golden),
                    step(
                        "blockdev-add",
                        json!({
                            "driver": "qcow2", "node-name": node(id),
                            "file": { "driver": "file", "filename": file },
                            "backing": format!("{id}-golden"),
                        }),
                    ),
                    step("device_add", blk),
                ]
            }
        }
    }

    /// What is left to do when the guest has let go of it.
    pub(super) fn detach(&self) -> Step {
        Step { command: "blockdev-del", arguments: json!({ "node-name": node(&self.id) }) }
    }
}

fn node(id: &str) -> String {
    format!("{id}-node")
}
