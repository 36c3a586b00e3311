//! Where a volume can be reached: its NBD export and its vhost-user-blk device.
//!
//! Called at start-up and for volumes that come later. An address that something else has, such as a file that
//! a tenant has put there, costs that volume its service and no other ([`absent`](super::absent)).

use super::front::Front;
use super::plane::DataPlane;
use super::volume::export_of;
use cinnabar_config::messages::{StartError, StartErrorKind, Subject, VolumeConfig};
use cinnabar_engine::units::{Instant, SECTOR_BYTES};
use cinnabar_frontend::nbd::{Address, Export, StartTls};
use cinnabar_frontend::{ListenError, vhost};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;

/// Most queues of a device: as many as a guest has processors that do I/O at a time.
const QUEUES_MAX: u16 = 16;
/// Hint for an address that can't be used as it is configured.
const ANOTHER: &str = "choose a socket path in a folder that exists, or an address of this host";

impl DataPlane {
    /// Of all threads' clients, before any of them listens.
    pub(super) fn end_tls_by(&mut self, tls: Option<&Arc<dyn StartTls>>) {
        let Some(tls) = tls else { return };
        self.front.nbd.set_tls(Arc::clone(tls));
        for worker in &self.shard_set.workers {
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
        self.limits.set(Instant::default(), export_of(key), config);
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
        self.nbd.listen_with(address, &config.socket, &[id]).map(drop).map_err(|error| {
            let error = unreachable_at(config, &format!("nbd {address}"), &error);
            StartError { nbd_refused: true, ..error }
        })
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
            memory_bytes_max: config.memory_max_bytes,
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
        ListenError::Io { address, source } => refused_by_system(address, source),
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
        _ => (StartErrorKind::AddressInvalid, ANOTHER),
    };
    let mut message = format!("{at}: {error}");
    if let Some(source) = std::error::Error::source(error) {
        message = format!("{message}: {source}");
    }
    StartError::new(kind, Subject::Volume(config.name.clone()), message, hint)
}

/// What the system says of an address: whether that may pass, and what helps.
///
/// A port is the operator's alone, so one that the daemon may not use is a mistake of the configuration. The folder
/// of a socket may be a tenant's, who can have every call in it fail: that costs the volume its service, and never
/// ends the start.
fn refused_by_system(address: &Address, source: &io::Error) -> (StartErrorKind, &'static str) {
    use StartErrorKind::{AddressAway, AddressInvalid};
    match (address, Errno::from_io_error(source).unwrap_or(Errno::IO)) {
        (_, Errno::MFILE | Errno::NFILE) => {
            (AddressAway, "raise the limit on open files (LimitNOFILE= in the daemon's unit)")
        }
        (_, Errno::NOBUFS | Errno::NOMEM) => (AddressAway, "the host is short of memory"),
        (Address::Tcp(_), Errno::ADDRNOTAVAIL | Errno::NETDOWN) => {
            (AddressAway, "bring the address up on this host, or choose one that it has")
        }
        (Address::Tcp(_), Errno::ACCESS | Errno::PERM) => (
            AddressInvalid,
            "choose a port above 1023, or let the daemon have those below (CAP_NET_BIND_SERVICE)",
        ),
        (Address::Tcp(_), _) => (AddressInvalid, ANOTHER),
        (Address::Unix(_), Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
            (AddressAway, "make the folder of the socket, or choose a path in one that exists")
        }
        (Address::Unix(_), Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
            (AddressAway, "let the daemon's account make files in the folder of the socket")
        }
        (Address::Unix(_), Errno::NOSPC | Errno::DQUOT) => {
            (AddressAway, "make room on the file system of the socket's folder")
        }
        (Address::Unix(_), Errno::EXIST) => {
            (AddressAway, "move what is called .cinnabar-* out of the socket's folder")
        }
        (Address::Unix(_), _) => (AddressAway, "choose a path in another folder"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_waited_for_and_a_port_that_may_not_be_used_is_a_mistake() {
        use StartErrorKind::{AddressAway, AddressInvalid};
        let port = Address::Tcp(([127, 0, 0, 1], 809).into());
        let socket = Address::Unix("vm1.sock".into());
        for (address, errno, kind, part) in [
            (&port, Errno::ACCESS, AddressInvalid, "CAP_NET_BIND_SERVICE"),
            (&port, Errno::PERM, AddressInvalid, "CAP_NET_BIND_SERVICE"),
            (&port, Errno::AFNOSUPPORT, AddressInvalid, "an address of this host"),
            (&port, Errno::ADDRNOTAVAIL, AddressAway, "bring the address up"),
            (&port, Errno::MFILE, AddressAway, "open files"),
            (&socket, Errno::NFILE, AddressAway, "open files"),
            (&socket, Errno::NOENT, AddressAway, "make the folder"),
            (&socket, Errno::NOSPC, AddressAway, "make room"),
            // A tenant's folder: what its owner can bring about does not end the start.
            (&socket, Errno::ACCESS, AddressAway, "the daemon's account"),
            (&socket, Errno::PERM, AddressAway, "the daemon's account"),
            (&socket, Errno::EXIST, AddressAway, ".cinnabar-*"),
            (&socket, Errno::INVAL, AddressAway, "another folder"),
        ] {
            let (found, hint) = refused_by_system(address, &errno.into());
            assert_eq!(found, kind, "{address}: {errno}");
            assert!(hint.contains(part), "{address}: {errno}: {hint}");
            assert_eq!(found.may_pass(), kind == AddressAway);
        }
    }
}
