//! The control socket's file: taken over from the dead, closed to others, removed at the end.
//!
//! Called by `serve` before anything else is opened.

use rustix::fs::{Mode, chmod, fchmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Connections that wait to be accepted.
const QUEUE_LEN: i32 = 128;

/// A listening control socket, mode 0600; its file is removed when dropped, if it is still ours.
#[derive(Debug)]
pub struct ControlSocket {
    listener: Option<UnixListener>,
    path: PathBuf,
    /// Device and inode of the file.
    inode: Option<(u64, u64)>,
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
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::InUse(_) => "stop it, or give this one another socket in [control]",
            Self::Foreign(_) => "move the file away, or set another socket in [control]",
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
        let failed = |source| SocketError::Io { path: path.to_owned(), source };
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
            Ok(meta) if !meta.file_type().is_socket() => {
                return Err(SocketError::Foreign(path.to_owned()));
            }
            Ok(_) => match UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(failed)?;
                }
                // Not allowed, or its queue is full: somebody is there.
                Ok(_) | Err(_) => return Err(SocketError::InUse(path.to_owned())),
            },
        }
        let listener = listen_at(path).map_err(|errno| match errno {
            Errno::ADDRINUSE => SocketError::InUse(path.to_owned()),
            errno => failed(errno.into()),
        })?;
        Ok(Self { listener: Some(listener), path: path.to_owned(), inode: inode_of(path) })
    }

    /// The listener, once.
    pub fn take_listener(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if self.inode.is_some() && inode_of(&self.path) == self.inode {
            // Nothing to be done if it is gone in this moment.
            let _gone = std::fs::remove_file(&self.path);
        }
    }
}

/// The file gets the mode of the socket's own inode, so that there is no moment in which others may
/// connect, and the process's umask, which belongs to all threads, stays as it is.
fn listen_at(path: &Path) -> rustix::io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    // An odd umask can only have taken rights away.
    chmod(path, Mode::RUSR | Mode::WUSR)?;
    listen(&socket, QUEUE_LEN)?;
    Ok(socket.into())
}

fn inode_of(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
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
        drop(UnixListener::bind(&path).expect("a socket"));
        let socket = ControlSocket::bind(&path).expect("nobody listens");
        let mode = std::fs::metadata(&path).expect("it exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(ControlSocket::bind(&path), Err(SocketError::InUse(_))));
        assert!(path.exists(), "the living one keeps its file");
        drop(socket);
        assert!(!path.exists());
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
