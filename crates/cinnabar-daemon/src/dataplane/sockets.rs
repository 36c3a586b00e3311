//! Where a volume can be reached: its NBD export and its vhost-user-blk device.
//!
//! Called at start-up and for volumes that come later. An address that something else has, such as a file that
//! a tenant has put there, costs that volume its service and no other ([`absent`](super::absent)).

use super::front::Front;
use super::plane::Plane;
use super::volume::export_of;
use cinnabar_engine::units::SECTOR_BYTES;
use cinnabar_frontend::nbd::{Export, StartTls};
use cinnabar_frontend::{ListenError, vhost};
use cinnabar_messages::{StartError, StartErrorKind, Subject, VolumeConfig};
use std::sync::Arc;

/// Most queues of a device: as many as a guest has processors that do I/O at a time.
const QUEUES_MAX: u16 = 16;

impl Plane {
    /// Of all threads' clients, before any of them listens.
    pub(super) fn end_tls_by(&mut self, tls: Option<&Arc<dyn StartTls>>) {
        let Some(tls) = tls else { return };
        self.front.nbd.set_tls(Arc::clone(tls));
        for worker in &self.crew.workers {
            let tls = Arc::clone(tls);
            worker.order(move |hands| hands.front.nbd.set_tls(tls));
        }
    }
}

impl Front {
    /// Listens for a volume's clients. What was begun when it fails is for the caller to remove.
    pub(super) fn listen(
        &mut self,
        config: &VolumeConfig,
        key: usize,
        size_bytes: u64,
    ) -> Result<(), StartError> {
        self.listen_nbd(config, key, size_bytes)?;
        self.listen_vhost(config, key, size_bytes)
    }

    fn listen_nbd(
        &mut self,
        config: &VolumeConfig,
        key: usize,
        size_bytes: u64,
    ) -> Result<(), StartError> {
        if config.nbd.is_none() {
            return Ok(());
        }
        let export = Export {
            id: export_of(key),
            name: config.name.clone(),
            size_bytes,
            read_only: config.read_only,
            // Whatever the disk needs: the engine reads and rewrites the blocks around.
            min_block_bytes: SECTOR_BYTES as u32,
            shared: config.shared,
            description: String::new(),
        };
        self.listen_as(config, export)
    }

    /// Makes this the export of a volume at its NBD address.
    pub(super) fn listen_as(
        &mut self,
        config: &VolumeConfig,
        export: Export,
    ) -> Result<(), StartError> {
        let Some(address) = &config.nbd else { return Ok(()) };
        let id = export.id;
        self.nbd.add_export(export).map_err(|error| impossible(config, &error))?;
        self.nbd
            .listen_with(address, &config.socket, &[id])
            .map(drop)
            .map_err(|error| unreachable_at(config, &format!("nbd {address}"), &error))
    }

    fn listen_vhost(
        &mut self,
        config: &VolumeConfig,
        key: usize,
        size_bytes: u64,
    ) -> Result<(), StartError> {
        let Some(path) = &config.vhost_user else { return Ok(()) };
        let export = vhost::Export {
            id: export_of(key),
            name: config.name.clone(),
            size_bytes,
            read_only: config.read_only,
            min_block_bytes: SECTOR_BYTES as u32,
            queues_max: QUEUES_MAX,
        };
        let socket = vhost::SocketSpec {
            path: path.clone(),
            mode: config.socket.mode,
            group: config.socket.group.clone(),
        };
        self.vhost.add(export, socket).map_err(|error| match error {
            vhost::AddError::Listen(error) => {
                unreachable_at(config, &format!("vhost_user {}", path.display()), &error)
            }
            error => impossible(config, &error),
        })
    }
}

fn impossible(config: &VolumeConfig, error: &impl std::error::Error) -> StartError {
    let subject = Subject::Volume(config.name.clone());
    StartError::new(StartErrorKind::Settings, subject, error.to_string(), "choose another name")
}

fn unreachable_at(config: &VolumeConfig, at: &str, error: &ListenError) -> StartError {
    let (kind, hint) = match error {
        ListenError::InUse(_) => (
            StartErrorKind::AddressInUse,
            "stop the process that listens there, or choose another address",
        ),
        ListenError::NotASocket(_) => {
            (StartErrorKind::AddressInUse, "move the file away, or choose another path")
        }
        ListenError::Io { .. } => (
            StartErrorKind::AddressAway,
            "choose a socket path in a folder that exists, or an address of this host",
        ),
        ListenError::NoGroup(_) => (
            StartErrorKind::AddressInvalid,
            "socket_group names a group of this host, or its number: getent group lists them",
        ),
        ListenError::GroupDenied { .. } => (
            StartErrorKind::AddressInvalid,
            "make the daemon's account a member of socket_group (SupplementaryGroups= in its unit)",
        ),
        ListenError::NoTls(_) => (
            StartErrorKind::Settings,
            "nbd_tls needs [tls] with client_ca in the configuration, and a start with it",
        ),
        ListenError::Mode(_) => {
            (StartErrorKind::AddressInvalid, "write it in octal, such as socket_mode = \"0660\"")
        }
        _ => (
            StartErrorKind::AddressInvalid,
            "choose a socket path in a folder that exists, or an address of this host",
        ),
    };
    let mut message = format!("{at}: {error}");
    if let Some(source) = std::error::Error::source(error) {
        message = format!("{message}: {source}");
    }
    StartError::new(kind, Subject::Volume(config.name.clone()), message, hint)
}
