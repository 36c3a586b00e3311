//! How a guest's disk is attached, as arguments and commands for QEMU: at its start, or while it
//! runs.
//!
//! The same words stand in `docs/guide/qemu.md`.

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

/// Over vhost-user.
pub(super) fn over_vhost_user(site: &Site, name: &str) -> Disk {
    let socket = site.path(&format!("{name}.vhost"));
    Disk { id: name.into(), source: Source::VhostUser { socket } }
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
    /// A vhost-user-blk socket of the daemon.
    VhostUser { socket: PathBuf },
    /// A qcow2 file over an NBD export of the daemon.
    Overlay { file: PathBuf, socket: PathBuf, export: String },
}

/// One command for QEMU.
pub(super) struct Step {
    /// The command of its control socket.
    pub(super) command: &'static str,
    pub(super) arguments: Value,
    /// The same on its command line.
    pub(super) option: [String; 2],
}

impl Step {
    fn new(command: &'static str, arguments: Value, option: &str, value: String) -> Self {
        Self { command, arguments, option: [option.into(), value] }
    }

    fn blockdev(arguments: Value) -> Self {
        let value = arguments.to_string();
        Self::new("blockdev-add", arguments, "-blockdev", value)
    }

    fn device(arguments: Value) -> Self {
        let value = arguments.to_string();
        Self::new("device_add", arguments, "-device", value)
    }

    /// A client of a unix socket that tries again every second once it is cut off. Of these options
    /// QEMU 7.2 does not take JSON.
    fn chardev(id: &str, path: &Path) -> Self {
        let addr = json!({ "type": "unix", "data": { "path": path } });
        let data = json!({ "addr": addr, "server": false, "reconnect": 1 });
        let arguments = json!({ "id": id, "backend": { "type": "socket", "data": data } });
        let value = format!("socket,id={id},path={},reconnect=1", path.display());
        Self::new("chardev-add", arguments, "-chardev", value)
    }
}

impl Disk {
    /// Adds what the daemon has to know of it.
    pub(super) fn configure(&self, volume: Volume) -> Volume {
        match &self.source {
            Source::VhostUser { socket } => volume.vhost_user(socket),
            Source::Nbd { .. } | Source::Overlay { .. } => volume,
        }
    }

    /// What attaches it, in order.
    pub(super) fn attach(&self) -> Vec<Step> {
        let id = &self.id;
        let mut device = json!({ "driver": "virtio-blk-pci", "id": id, "serial": id });
        device["drive"] = host(id).into();
        match &self.source {
            Source::Nbd { socket, export } => {
                vec![Step::blockdev(nbd(&host(id), socket, export)), Step::device(device)]
            }
            Source::VhostUser { socket } => vec![
                Step::chardev(&host(id), socket),
                // Its serial number is the server's.
                Step::device(json!({
                    "driver": "vhost-user-blk-pci", "id": id, "chardev": host(id), "num-queues": 2,
                })),
            ],
            Source::Overlay { file, socket, export } => {
                let below = format!("{id}-golden");
                let mut golden = nbd(&below, socket, export);
                golden["read-only"] = true.into();
                let file = json!({ "driver": "file", "filename": file });
                let overlay = json!({
                    "driver": "qcow2", "node-name": host(id), "file": file, "backing": below,
                });
                vec![Step::blockdev(golden), Step::blockdev(overlay), Step::device(device)]
            }
        }
    }

    /// What is left to do when the guest has let go of it.
    pub(super) fn detach(&self) -> (&'static str, Value) {
        match &self.source {
            Source::VhostUser { .. } => ("chardev-remove", json!({ "id": host(&self.id) })),
            Source::Nbd { .. } | Source::Overlay { .. } => {
                ("blockdev-del", json!({ "node-name": host(&self.id) }))
            }
        }
    }
}

fn nbd(node: &str, socket: &Path, export: &str) -> Value {
    json!({
        "driver": "nbd", "node-name": node, "export": export,
        "server": { "type": "unix", "path": socket },
        "reconnect-delay": RECONNECT_S, "discard": "unmap",
    })
}

/// What the host's end of a disk is called.
fn host(id: &str) -> String {
    format!("{id}-host")
}
