//! The control socket's file: taken over from the dead, closed to others, removed at the end.

use cinnabar_frontend::{ListenError, SocketAccess, UnixListener};
use std::io;
use std::os::unix::net;
use std::path::{Path, PathBuf};

/// Only the daemon's own user.
const MODE: u32 = 0o600;

/// A listening control socket, mode 0600; its file is removed when dropped, if it is still ours.
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
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "the account that it runs under must be allowed to write the folder"
            }
            Self::Io { .. } => "check that the folder exists and may be written",
        }
    }
}

impl ControlSocket {
    /// Listens at `path`. A socket that nobody listens on is a dead daemon's and is replaced.
    ///
    /// # Errors
    /// [`SocketError`].
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        let access = SocketAccess { mode: Some(MODE), group: None, tls: None };
        let failed = |source| SocketError::Io { path: path.to_owned(), source };
        let file = UnixListener::new(path, &access).map_err(|error| match error {
            ListenError::InUse(_) if access_denied(path) => SocketError::Denied(path.to_owned()),
            ListenError::InUse(_) => SocketError::InUse(path.to_owned()),
            ListenError::NotASocket(path) => SocketError::Foreign(path),
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
        let socket = ControlSocket::bind(&path).expect("nobody listens");
        let mode = std::fs::metadata(&path).expect("it exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(ControlSocket::bind(&path), Err(SocketError::InUse(_))));
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
        assert!(matches!(ControlSocket::bind(&path), Err(SocketError::InUse(_))));
        drop((waits, busy));
    }

    #[test]
    fn a_successors_socket_is_not_removed() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("c.sock");
        let first = ControlSocket::bind(&path).expect("nobody listens");
        std::fs::rename(&path, dir.path().join("moved.sock")).expect("it is ours");
        let _second = ControlSocket::bind(&path).expect("nobody listens there");
        drop(first);
        assert!(path.exists());
    }

    #[test]
    fn a_file_in_the_way_stays() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("notes.txt");
        std::fs::write(&path, "precious").expect("a file");
        assert!(matches!(ControlSocket::bind(&path), Err(SocketError::Foreign(_))));
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "precious");
        let nowhere = dir.path().join("no/c.sock");
        assert!(matches!(ControlSocket::bind(&nowhere), Err(SocketError::Io { .. })));
    }
}
