//! Listening unix sockets: bound, restricted, taken over from the dead, removed at the end.
//!
//! Called by the listeners of both servers.

use crate::nbd::{Address, AddressError};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Gid, Mode};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};

/// Connections that wait to be accepted.
pub(crate) const QUEUE_LEN: i32 = 128;
/// Owner and group may connect: give QEMU the socket's group, nobody else can open the disk.
const MODE: u32 = 0o660;
/// Bytes for the entry of one group, members included; a group that does not fit is not found.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// Who may connect to a unix socket, besides its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// Permission bits, at most 0777; `None`: 0660.
    pub mode: Option<u32>,
    /// Name or number of its group; `None`: that of the process. A name is looked up in the
    /// system's database when the socket is made, which takes as long as that takes.
    pub group: Option<String>,
}

/// Why a server can't listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address itself is impossible.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Somebody listens there.
    #[error("address in use: {0}")]
    InUse(Address),
    /// A file that is no socket is in the way.
    #[error("{0} exists and is not a socket")]
    NotASocket(PathBuf),
    /// An export that was not added.
    #[error("no export has the id {0}")]
    NoExport(u32),
    /// More than the permission bits.
    #[error("a socket's mode is at most 0777, not {0:#o}")]
    Mode(u32),
    /// No such group.
    #[error("there is no group '{0}'")]
    NoGroup(String),
    /// The process may not give the socket to that group.
    #[error("can't give {path} to the group '{group}': the daemon is not a member, nor root")]
    GroupDenied {
        /// The socket.
        path: PathBuf,
        /// Its group to be.
        group: String,
    },
    /// Anything else.
    #[error("can't listen at {address}")]
    Io {
        /// Where.
        address: Address,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A listening unix socket, whose file is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct UnixListener {
    pub(crate) fd: OwnedFd,
    path: PathBuf,
    /// Device and inode of its file, to remove only what is ours.
    inode: Option<(u64, u64)>,
}

impl UnixListener {
    /// Listens at `path`; one left behind by a server that is dead is replaced.
    pub(crate) fn new(path: &Path, access: &SocketAccess) -> Result<Self, ListenError> {
        let address = Address::Unix(path.to_owned());
        address.check()?;
        let mode = access.mode.unwrap_or(MODE);
        if mode > 0o777 {
            return Err(ListenError::Mode(mode));
        }
        let group = access.group.as_deref().map(group_id).transpose()?;
        let mut made = bind_at(path);
        if matches!(made, Err(Errno::ADDRINUSE)) {
            make_room(path, &address)?;
            made = bind_at(path);
        }
        let failed = |errno| match errno {
            Errno::ADDRINUSE => ListenError::InUse(address.clone()),
            other => ListenError::Io { address: address.clone(), source: other.into() },
        };
        let listener = made.map_err(failed)?;
        if let Some(group) = group {
            rustix::fs::chown(path, None, Some(group)).map_err(|errno| match errno {
                Errno::PERM => ListenError::GroupDenied {
                    path: path.to_owned(),
                    group: access.group.clone().unwrap_or_default(),
                },
                other => failed(other),
            })?;
        }
        // Nobody can connect before `listen`, so there is no moment in which the wrong ones could.
        rustix::fs::chmod(path, Mode::from_raw_mode(mode)).map_err(failed)?;
        listen(&listener.fd, QUEUE_LEN).map_err(failed)?;
        Ok(listener)
    }
}

impl Drop for UnixListener {
    fn drop(&mut self) {
        if self.inode.is_some() && inode(&self.path).ok() == self.inode {
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

fn bind_at(path: &Path) -> rustix::io::Result<UnixListener> {
    let fd = stream_socket(AddressFamily::UNIX)?;
    bind(&fd, &SocketAddrUnix::new(path)?)?;
    Ok(UnixListener { fd, path: path.to_owned(), inode: inode(path).ok() })
}

/// Removes the socket of a server that is gone.
fn make_room(path: &Path, address: &Address) -> Result<(), ListenError> {
    match rustix::fs::lstat(path) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Socket => {
            Err(ListenError::NotASocket(path.to_owned()))
        }
        Ok(_) if !is_dead(path) => Err(ListenError::InUse(address.clone())),
        Ok(_) => {
            tracing::info!(%address, "replacing the socket of a server that is gone");
            let _ = rustix::fs::unlink(path);
            Ok(())
        }
        Err(_) => Ok(()),
    }
}

/// Whether nobody listens at this socket.
fn is_dead(path: &Path) -> bool {
    let try_connect = || connect(stream_socket(AddressFamily::UNIX)?, &SocketAddrUnix::new(path)?);
    try_connect() == Err(Errno::CONNREFUSED)
}

/// A socket that neither blocks nor is inherited.
pub(crate) fn stream_socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

fn inode(path: &Path) -> rustix::io::Result<(u64, u64)> {
    let stat = rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// A group's number by its name, or as it stands.
fn group_id(group: &str) -> Result<Gid, ListenError> {
    // All ones means "leave it as it is" to chown.
    if let Some(number) = group.parse().ok().filter(|number| *number != u32::MAX) {
        return Ok(Gid::from_raw(number));
    }
    let unknown = || ListenError::NoGroup(group.to_owned());
    let name = CString::new(group).map_err(|_| unknown())?;
    let mut buffer: Vec<libc::c_char> = vec![0; 4096];
    loop {
        // SAFETY: all zeros is a valid `group`: numbers and null pointers.
        let mut entry: libc::group = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: the name ends with a zero; entry, buffer (with its length) and `found` are ours
        // to be written to.
        let error = unsafe {
            libc::getgrnam_r(
                name.as_ptr(),
                &raw mut entry,
                buffer.as_mut_ptr(),
                buffer.len(),
                &raw mut found,
            )
        };
        if error == libc::ERANGE && buffer.len() < GROUP_BYTES_MAX {
            buffer.resize(buffer.len() * 4, 0);
            continue;
        }
        return if found.is_null() { Err(unknown()) } else { Ok(Gid::from_raw(entry.gr_gid)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn mode_and_group_are_as_asked() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.sock");
        let own = rustix::process::getgid().as_raw();
        for (mode, seen) in [(None, 0o660), (Some(0o600), 0o600), (Some(0o666), 0o666)] {
            let access = SocketAccess { mode, group: Some(own.to_string()) };
            let listener = UnixListener::new(&path, &access).expect("a socket");
            let meta = path.metadata().expect("it is there");
            assert_eq!((meta.permissions().mode() & 0o777, meta.gid()), (seen, own));
            drop(listener);
            assert!(!path.exists());
        }
    }

    #[test]
    fn impossible_access_is_refused_and_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.sock");
        let group = Some("no such group".to_owned());
        let error = UnixListener::new(&path, &SocketAccess { mode: None, group });
        assert_eq!(
            error.expect_err("it is refused").to_string(),
            "there is no group 'no such group'"
        );
        let error = UnixListener::new(&path, &SocketAccess { mode: Some(0o1777), group: None });
        assert!(matches!(error, Err(ListenError::Mode(0o1777))));
        assert!(!path.exists());
    }

    #[test]
    fn the_group_of_root_has_a_name() {
        assert_eq!(group_id("root").expect("everybody has it").as_raw(), 0);
        assert_eq!(group_id("4711").expect("a number").as_raw(), 4711);
        assert!(group_id("4294967295").is_err(), "chown takes it for 'as it is'");
    }
}
