//! The control socket's file: taken over from the dead, closed to all but the daemon's account and a
//! group if one is configured, removed at the end.

use cinnabar_frontend::{ListenError, SocketAccess, UnixListener};
use std::io;
use std::os::unix::net;
use std::path::{Path, PathBuf};

/// Only the daemon's own user.
const MODE: u32 = 0o600;
/// And members of a group.
const GROUP_MODE: u32 = 0o660;

/// A listening control socket; its file is removed when dropped, if it is still ours.
#[derive(Debug)]
pub struct ControlSocket {
    listener: Option<net::UnixListener>,
    /// Removes the file.
    _file: UnixListener,
}

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A daemon answers there.
    #[error("another daemon listens on {}", .0.display())]
    InUse(PathBuf),
    /// Something else is in the way.
    #[error("{} exists and is not a socket", .0.display())]
    Foreign(PathBuf),
    /// Another account's socket.
    #[error("{} is a socket of another account, which may be in use", .0.display())]
    Denied(PathBuf),
    /// No such group.
    #[error("socket_group: there is no group {0:?}")]
    NoGroup(String),
    /// The process may not give the socket to that group.
    #[error(
        "socket_group: can't give {} to the group {group:?}: the daemon is not a member, nor root",
        path.display()
    )]
    GroupDenied {
        /// The socket.
        path: PathBuf,
        group: String,
    },
    /// The kernel refused.
    #[error("can't listen on {}: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl SocketError {
    /// A line that helps.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::InUse(_) => "stop it, or give this one another socket in [control]",
            Self::Foreign(_) => "move the file away, or set another socket in [control]",
            Self::Denied(_) => {
                "start it as the account that made the socket, or set another socket in [control]"
            }
            Self::NoGroup(_) => {
                "socket_group names a group of this host, or its number: getent group lists them"
            }
            Self::GroupDenied { .. } => {
                "make the daemon's account a member of socket_group (SupplementaryGroups= in its unit)"
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "the account that it runs under must be allowed to write the folder"
            }
            Self::Io { .. } => "check that the folder exists and may be written",
        }
    }
}

impl ControlSocket {
    /// Listens at `path`, with mode 0600, or 0660 for members of `group`. A socket that nobody listens
    /// on is a dead daemon's and is replaced.
    ///
    /// # Errors
    /// [`SocketError`].
    pub fn bind(path: &Path, group: Option<&str>) -> Result<Self, SocketError> {
        let mode = Some(if group.is_some() { GROUP_MODE } else { MODE });
        let access = SocketAccess { mode, group: group.map(ToOwned::to_owned), tls: None };
        let failed = |source| SocketError::Io { path: path.to_owned(), source };
        let file = UnixListener::new(path, &access).map_err(|error| match error {
            ListenError::InUse(_) if access_denied(path) => SocketError::Denied(path.to_owned()),
            ListenError::InUse(_) => SocketError::InUse(path.to_owned()),
            ListenError::NotASocket(path) => SocketError::Foreign(path),
            ListenError::NoGroup(group) => SocketError::NoGroup(group),
            ListenError::GroupDenied { path, group } => SocketError::GroupDenied { path, group },
            ListenError::Io { source, .. } => failed(source),
            other => failed(io::Error::new(io::ErrorKind::InvalidInput, other)),
        })?;
        let listener = Some(file.to_std().map_err(failed)?);
        Ok(Self { listener, _file: file })
    }

    /// The listener, once.
    pub fn take_listener(&mut self) -> Option<net::UnixListener> {
        self.listener.take()
    }
}

/// Whether this account may not connect to a socket.
fn access_denied(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK) == Err(rustix::io::Errno::ACCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_dead_daemons_socket_is_replaced_and_a_living_ones_is_not() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("c.sock");
        // std leaves the file behind, as a killed daemon does.
        drop(net::UnixListener::bind(&path).expect("a socket"));
        let socket = ControlSocket::bind(&path, None).expect("nobody listens");
        let mode = std::fs::metadata(&path).expect("it exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(ControlSocket::bind(&path, None), Err(SocketError::InUse(_))));
        assert!(path.exists(), "the living one keeps its file");
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn a_daemon_too_busy_to_accept_is_not_waited_for() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("c.sock");
        let busy = net::UnixListener::bind(&path).expect("a socket");
        rustix::net::listen(&busy, 0).expect("a shorter queue");
        // Its queue is full with one that waits.
        let waits = net::UnixStream::connect(&path).expect("it listens");
        assert!(matches!(ControlSocket::bind(&path, None), Err(SocketError::InUse(_))));
        drop((waits, busy));
    }

    #[test]
    fn a_successors_socket_is_not_removed() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("c.sock");
        let first = ControlSocket::bind(&path, None).expect("nobody listens");
        std::fs::rename(&path, dir.path().join("moved.sock")).expect("it is ours");
        let _second = ControlSocket::bind(&path, None).expect("nobody listens there");
        drop(first);
        assert!(path.exists());
    }

    #[test]
    fn a_group_is_let_in_and_nobody_else() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("c.sock");
        // The process is in it, so that this needs no rights.
        let own = rustix::process::getgid().as_raw();
        let socket = ControlSocket::bind(&path, Some(&own.to_string())).expect("it is a member");
        let meta = std::fs::metadata(&path).expect("it exists");
        assert_eq!(meta.permissions().mode() & 0o777, 0o660);
        assert_eq!(std::os::unix::fs::MetadataExt::gid(&meta), own);
        drop(socket);
        let unknown = ControlSocket::bind(&path, Some("no-such-group-of-cinnabar"));
        assert!(matches!(unknown, Err(SocketError::NoGroup(_))), "{unknown:?}");
        assert!(!path.exists(), "nobody may connect to what is left behind");
    }

    #[test]
    fn a_file_in_the_way_stays() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("notes.txt");
        std::fs::write(&path, "precious").expect("a file");
        assert!(matches!(ControlSocket::bind(&path, None), Err(SocketError::Foreign(_))));
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "precious");
        let nowhere = dir.path().join("no/c.sock");
        assert!(matches!(ControlSocket::bind(&nowhere, None), Err(SocketError::Io { .. })));
    }
}
