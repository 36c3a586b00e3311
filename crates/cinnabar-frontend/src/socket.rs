//! Listening unix sockets: bound, restricted, taken over from the dead, removed at the end.

mod sweep;

use crate::nbd::{Address, AddressError, TlsAccess};
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, mkdirat, open, openat, renameat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Connections that wait to be accepted.
pub(crate) const QUEUE_LEN: i32 = 128;
/// Owner and group may connect: with the socket's group, QEMU can open the disk and no other user
/// can.
const MODE: u32 = 0o660;
/// How often a place is tried that others take at the same time.
const PLACINGS: u32 = 16;
/// How often a folder is made that others sweep at once, or that is there already. A tenant may have taken the
/// next names in a folder of its own, and a data thread waits for the last try.
const MAKINGS: u32 = 64;
/// Numbers of the folders that this process has made.
static MADE: AtomicU64 = AtomicU64::new(0);
/// Bytes for the entry of one group, members included; a group that does not fit is not found.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// Who may connect: to a unix socket besides its owner, to an address of TCP by certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// Permission bits, at most 0777; `None`: 0660.
    pub mode: Option<u32>,
    /// Name or number of its group; `None`: that of the process. A name is looked up in the
    /// system's database when the socket is made, which takes as long as that takes.
    pub group: Option<String>,
    /// Clients of an address of TCP must use TLS and have one of these certificates; `None`: they need not.
    pub tls: Option<TlsAccess>,
}

/// Why a server can't listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address itself is impossible.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Another process listens there.
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
        /// Path of the socket.
        path: PathBuf,
        group: String,
    },
    /// Clients must use TLS, and nothing here ends it; or the address is served without it already.
    #[error("{0} can't be served by TLS")]
    NoTls(Address),
    /// Another error of the system.
    #[error("can't listen at {address}")]
    Io {
        /// The address to listen at.
        address: Address,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// A listening unix socket, whose file is removed when it is dropped.
///
/// The folder may belong to an untrusted user, such as a tenant. So the socket is made in a folder
/// within it that no other user can write to, gets its group and mode there, listens, and only then
/// gets its name. No link is followed, and no process sees a socket that does not listen yet, which
/// would look like one that a dead server left behind.
#[derive(Debug)]
pub struct UnixListener {
    pub(crate) fd: OwnedFd,
    path: PathBuf,
    /// Device and inode of its file, so that only this server's own file is removed.
    inode: Option<(u64, u64)>,
}

impl UnixListener {
    /// Listens at `path`; one left behind by a server that is dead is replaced.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn new(path: &Path, access: &SocketAccess) -> Result<Self, ListenError> {
        Self::new_with(path, access, || {})
    }

    /// The same; `between` runs when the socket is bound and not yet at its place, for tests.
    fn new_with(
        path: &Path,
        access: &SocketAccess,
        between: impl FnOnce(),
    ) -> Result<Self, ListenError> {
        let address = Address::Unix(path.to_owned());
        address.check()?;
        let mode = access.mode.unwrap_or(MODE);
        if mode > 0o777 {
            return Err(ListenError::Mode(mode));
        }
        let group = access.group.as_deref().map(group_id).transpose()?;
        let failed =
            |errno: Errno| ListenError::Io { address: address.clone(), source: errno.into() };
        let den = Den::beside(path).map_err(failed)?;
        let fd = den.bind().map_err(failed)?;
        between();
        if let Some(group) = group {
            den.give(group).map_err(|errno| match errno {
                Errno::PERM => ListenError::GroupDenied {
                    path: path.to_owned(),
                    group: access.group.clone().unwrap_or_default(),
                },
                other => failed(other),
            })?;
        }
        // No other user can enter this folder, so at no moment can the wrong ones connect.
        den.restrict(mode).map_err(failed)?;
        listen(&fd, QUEUE_LEN).map_err(failed)?;
        let inode = den.inode().map_err(failed)?;
        den.place(&address, path)?;
        Ok(Self { fd, path: path.to_owned(), inode: Some(inode) })
    }

    /// The socket, as the standard library has it; the file stays this one's.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn to_std(&self) -> io::Result<std::os::unix::net::UnixListener> {
        Ok(self.fd.try_clone()?.into())
    }
}

impl Drop for UnixListener {
    fn drop(&mut self) {
        // It still listens, so no other server takes it for dead and replaces it at this moment.
        if self.inode.is_some() && inode(&self.path).ok() == self.inode {
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

/// A folder that no other user can write to, beside the path of a future socket. It is removed when
/// this is dropped.
struct Den {
    /// The folder that it is in, and the socket is to be in.
    parent: OwnedFd,
    name: String,
    fd: OwnedFd,
    /// The name of the socket, here and there.
    socket: OsString,
}

impl Den {
    fn beside(path: &Path) -> rustix::io::Result<Self> {
        let socket = path.file_name().ok_or(Errno::INVAL)?.to_owned();
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = open(parent, folder, Mode::empty())?;
        sweep::sweep(&parent);
        let (name, fd) = Self::make(&parent, || MADE.fetch_add(1, Ordering::Relaxed))?;
        let den = Self { parent, name, fd, socket };
        // A user who may write to the parent may have put another folder in its place.
        let stat = rustix::fs::fstat(&den.fd)?;
        let others = Mode::from_raw_mode(stat.st_mode) & (Mode::RWXG | Mode::RWXO);
        let ours = stat.st_uid == rustix::process::geteuid().as_raw();
        if ours && others.is_empty() { Ok(den) } else { Err(Errno::PERM) }
    }

    /// Makes the folder under a name with the next number that is free, and holds on to it.
    fn make(
        parent: &OwnedFd,
        mut number: impl FnMut() -> u64,
    ) -> rustix::io::Result<(String, OwnedFd)> {
        for _ in 0..MAKINGS {
            let name = sweep::name(number());
            match mkdirat(parent, &name, Mode::RWXU) {
                // Of an earlier process of this number, which was killed.
                Err(Errno::EXIST) => continue,
                made => made?,
            }
            // Otherwise another maker took it for one of the dead, as long as it was not locked.
            if let Some(fd) = sweep::claim(parent, &name)? {
                return Ok((name, fd));
            }
        }
        Err(Errno::EXIST)
    }

    /// Makes the socket. Its address is short, however long the folder's path is.
    fn bind(&self) -> rustix::io::Result<OwnedFd> {
        let fd = stream_socket(AddressFamily::UNIX)?;
        let path = Path::new("/proc/self/fd").join(self.fd.as_raw_fd().to_string());
        bind(&fd, &SocketAddrUnix::new(path.join(&self.socket))?)?;
        Ok(fd)
    }

    fn give(&self, group: Gid) -> rustix::io::Result<()> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(&self.fd, &self.socket, None, Some(group), flags)
    }

    fn restrict(&self, mode: u32) -> rustix::io::Result<()> {
        let mode = Mode::from_raw_mode(mode);
        rustix::fs::chmodat(&self.fd, &self.socket, mode, AtFlags::empty())
    }

    fn inode(&self) -> rustix::io::Result<(u64, u64)> {
        let stat = statat(&self.fd, &self.socket, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Puts the socket where it belongs, in the place of a dead one if there is one.
    fn place(&self, address: &Address, path: &Path) -> Result<(), ListenError> {
        let failed =
            |errno: Errno| ListenError::Io { address: address.clone(), source: errno.into() };
        for _ in 0..PLACINGS {
            match self.take_place() {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed(errno)),
            }
            let Some(dead) = self.dead(address, path)? else { continue };
            match self.replace(dead) {
                Ok(true) => {
                    tracing::info!(%address, "replaced the socket of a server that is gone");
                    return Ok(());
                }
                // Another server was quicker.
                Ok(false) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Err(ListenError::InUse(address.clone()))
    }

    /// Puts the socket where nothing is.
    fn take_place(&self) -> rustix::io::Result<()> {
        match self.rename(RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) if self.in_the_way().is_ok() => Err(Errno::EXIST),
            Err(Errno::INVAL | Errno::NOSYS) => self.rename_plainly(),
            result => result,
        }
    }

    /// Puts the socket in the place of a dead one; false if that is another's by now.
    fn replace(&self, dead: (u64, u64)) -> rustix::io::Result<bool> {
        match self.rename(RenameFlags::EXCHANGE) {
            Err(Errno::INVAL | Errno::NOSYS) if self.in_the_way()? != dead => Ok(false),
            Err(Errno::INVAL | Errno::NOSYS) => self.rename_plainly().map(|()| true),
            Err(errno) => Err(errno),
            Ok(()) if self.inode() == Ok(dead) => Ok(true),
            Ok(()) => self.put_back().map(|()| false),
        }
    }

    /// What was taken from the socket's place is alive, and goes back.
    fn put_back(&self) -> rustix::io::Result<()> {
        for _ in 0..PLACINGS {
            match self.rename(RenameFlags::EXCHANGE) {
                // This server's folder was removed meanwhile.
                Err(Errno::NOENT) => {}
                result => return result,
            }
            match self.rename(RenameFlags::NOREPLACE) {
                // Another one took its place.
                Err(Errno::EXIST) => {}
                result => return result,
            }
        }
        Err(Errno::EXIST)
    }

    fn rename(&self, flags: RenameFlags) -> rustix::io::Result<()> {
        #[cfg(test)]
        tests::before_rename()?;
        renameat_with(&self.fd, &self.socket, &self.parent, &self.socket, flags)
    }

    /// For a file system that knows no flags (NFS, `CephFS`, older ZFS): a moment is left in which a
    /// sibling may lose.
    fn rename_plainly(&self) -> rustix::io::Result<()> {
        renameat(&self.fd, &self.socket, &self.parent, &self.socket)
    }

    /// Device and inode of what is at the socket's place.
    fn in_the_way(&self) -> rustix::io::Result<(u64, u64)> {
        let stat = statat(&self.parent, &self.socket, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Device and inode of the existing socket, if no process listens on it. `None`: nothing is
    /// there any more.
    fn dead(&self, address: &Address, path: &Path) -> Result<Option<(u64, u64)>, ListenError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(known) = openat(&self.parent, &self.socket, flags, Mode::empty()) else {
            return Ok(None);
        };
        let Ok(stat) = rustix::fs::fstat(&known) else { return Ok(None) };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return Err(ListenError::NotASocket(path.to_owned()));
        }
        // This very one is asked, whatever its name leads to by now.
        let link = format!("/proc/self/fd/{}", known.as_raw_fd());
        let try_connect =
            || connect(stream_socket(AddressFamily::UNIX)?, &SocketAddrUnix::new(link.as_str())?);
        // Not allowed, or its queue is full: a process listens there.
        match try_connect() {
            Err(Errno::CONNREFUSED) => Ok(Some((stat.st_dev, stat.st_ino))),
            _ => Err(ListenError::InUse(address.clone())),
        }
    }
}

impl Drop for Den {
    fn drop(&mut self) {
        // What was replaced, or could not be placed.
        let _ = unlinkat(&self.fd, &self.socket, AtFlags::empty());
        let _ = unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR);
    }
}

/// A socket that neither blocks nor is inherited.
pub(crate) fn stream_socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

fn inode(path: &Path) -> rustix::io::Result<(u64, u64)> {
    let stat = statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
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
        // SAFETY: the name ends with a zero; entry, buffer (with its length) and `found` are this
        // function's, and may be written to.
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
    use std::cell::{Cell, RefCell};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    thread_local! {
        /// As on a file system that knows no flags for renames.
        static NO_FLAGS: Cell<bool> = const { Cell::new(false) };
        /// What is removed before which rename.
        static REMOVE: RefCell<Option<(u32, PathBuf)>> = const { RefCell::new(None) };
    }

    pub(super) fn before_rename() -> rustix::io::Result<()> {
        REMOVE.with_borrow_mut(|remove| match remove {
            Some((0, path)) => {
                std::fs::remove_file(path).expect("it is there");
                *remove = None;
            }
            Some((before, _)) => *before -= 1,
            None => {}
        });
        if NO_FLAGS.get() { Err(Errno::INVAL) } else { Ok(()) }
    }

    #[test]
    fn a_sibling_gets_its_place_back_though_ours_was_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.sock");
        let sibling = listen_here(&path).expect("no process listens there yet");
        let den = Den::beside(&path).expect("a den");
        let _ours = den.bind().expect("a socket");
        // Between the exchange and the one that takes it back.
        REMOVE.set(Some((1, path.clone())));
        assert_eq!(den.replace((0, 0)), Ok(false), "it is not the dead one");
        drop(den);
        std::os::unix::net::UnixStream::connect(&path).expect("the sibling listens");
        drop(sibling);
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0);
    }

    #[test]
    fn a_dead_ones_socket_is_replaced_where_renames_know_no_flags() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.sock");
        NO_FLAGS.set(true);
        drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
        let listener = listen_here(&path).expect("no process listens there");
        std::os::unix::net::UnixStream::connect(&path).expect("it listens");
        assert!(matches!(listen_here(&path), Err(ListenError::InUse(_))));
        drop(listener);
        drop(listen_here(&path).expect("nothing is there"));
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0);
    }

    #[test]
    fn mode_and_group_are_as_asked() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.sock");
        let own = rustix::process::getgid().as_raw();
        for (mode, seen) in [(None, 0o660), (Some(0o600), 0o600), (Some(0o666), 0o666)] {
            let access = SocketAccess { mode, group: Some(own.to_string()), tls: None };
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
        let error = UnixListener::new(&path, &SocketAccess { mode: None, group, tls: None });
        assert_eq!(
            error.expect_err("it is refused").to_string(),
            "there is no group 'no such group'"
        );
        let error =
            UnixListener::new(&path, &SocketAccess { mode: Some(0o1777), group: None, tls: None });
        assert!(matches!(error, Err(ListenError::Mode(0o1777))));
        assert!(!path.exists());
    }

    #[test]
    fn names_that_are_taken_are_tried_a_bounded_number_of_times() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(sweep::name(7)), []).expect("a file");
        let parent = OwnedFd::from(std::fs::File::open(folder.path()).expect("it is there"));
        let mut tried = 0;
        let made = Den::make(&parent, || {
            tried += 1;
            7
        });
        assert_eq!((made.map(drop), tried), (Err(Errno::EXIST), MAKINGS));
        let mut numbers = [7, 7, 8].into_iter();
        let made = Den::make(&parent, || numbers.next().expect("the third one is free"));
        assert_eq!(made.expect("a folder").0, sweep::name(8));
    }

    fn listen_here(path: &Path) -> Result<UnixListener, ListenError> {
        UnixListener::new(path, &SocketAccess::default())
    }

    #[test]
    fn no_link_is_followed_whenever_it_comes() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, victim) = (folder.path().join("a.sock"), folder.path().join("victim"));
        std::fs::write(&victim, "precious").expect("a file");
        std::fs::set_permissions(&victim, std::fs::Permissions::from_mode(0o600))
            .expect("the test's own file");
        let link = || {
            let _ = std::fs::remove_file(&path);
            std::os::unix::fs::symlink(&victim, &path).expect("a link");
        };
        let access = SocketAccess { mode: Some(0o666), group: Some("4711".into()), tls: None };
        let before = victim.metadata().map(|meta| (meta.mode(), meta.gid())).expect("it is there");
        // In the middle, and from the beginning.
        for _ in 0..2 {
            let made = UnixListener::new_with(&path, &access, link);
            assert!(!matches!(made, Ok(_) | Err(ListenError::InUse(_))), "{made:?}");
            let after =
                victim.metadata().map(|meta| (meta.mode(), meta.gid())).expect("it is there");
            assert_eq!(before, after);
        }
        let left = std::fs::read_dir(folder.path()).expect("readable").count();
        assert_eq!(left, 2, "the link and the file, and nothing of the server's");
    }

    #[test]
    fn a_sibling_that_comes_in_the_middle_keeps_its_socket() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.sock");
        let mut sibling = None;
        let access = SocketAccess::default();
        let between = || sibling = Some(listen_here(&path).expect("no process listens there yet"));
        let made = UnixListener::new_with(&path, &access, between);
        assert!(matches!(made, Err(ListenError::InUse(_))), "{made:?}");
        std::os::unix::net::UnixStream::connect(&path).expect("it is the sibling's");
        drop(sibling);
        assert!(!path.exists());
    }

    #[test]
    fn of_many_that_replace_a_dead_one_at_once_one_does() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("a.sock");
            // The standard library leaves the file behind, as a killed server does.
            drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let path = path.clone();
                    std::thread::spawn(move || listen_here(&path).ok())
                })
                .collect();
            let made: Vec<_> =
                threads.into_iter().filter_map(|one| one.join().expect("no panic")).collect();
            assert_eq!(made.len(), 1);
            assert_eq!(inode(&path).ok(), made[0].inode);
            assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 1);
        }
    }

    #[test]
    fn a_server_too_busy_to_accept_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.sock");
        let busy = stream_socket(AddressFamily::UNIX).expect("a socket");
        bind(&busy, &SocketAddrUnix::new(&path).expect("short")).expect("free");
        listen(&busy, 0).expect("it is bound");
        let clients: Vec<_> = std::iter::from_fn(|| {
            let client = stream_socket(AddressFamily::UNIX).expect("a socket");
            let address = SocketAddrUnix::new(&path).expect("short");
            connect(&client, &address).ok().map(|()| client)
        })
        .take(1000)
        .collect();
        assert!(clients.len() < 1000, "its queue is full");
        assert!(matches!(listen_here(&path), Err(ListenError::InUse(_))));
        assert!(path.exists());
    }

    #[test]
    fn a_path_as_long_as_an_address_may_be_is_fine() {
        let folder = tempfile::tempdir().expect("a folder");
        let left = crate::nbd::UNIX_PATH_BYTES_MAX - folder.path().as_os_str().len() - 1;
        let path = folder.path().join("x".repeat(left.min(80)));
        let _listener = listen_here(&path).expect("it fits");
        std::os::unix::net::UnixStream::connect(&path).expect("it listens");
    }

    #[test]
    fn the_group_of_root_has_a_name() {
        assert_eq!(group_id("root").expect("every system has it").as_raw(), 0);
        assert_eq!(group_id("4711").expect("a number").as_raw(), 4711);
        assert!(group_id("4294967295").is_err(), "chown takes it for 'as it is'");
    }
}
