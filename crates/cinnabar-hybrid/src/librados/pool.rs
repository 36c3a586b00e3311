//! A pool of a cluster, in one of its namespaces.

use crate::librados::cluster::{Cluster, OPEN_S};
use crate::librados::error::RadosError;
use crate::librados::flight::{self, Landed, Then};
use crate::librados::lock::Locker;
use crate::librados::read_op::ReadOp;
use crate::librados::write_op::{WriteOp, name};
use crate::librados::{c_text, checked, raw};
use rustix::io::Errno;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, mpsc};

/// Text of one answer about a lock, and of a cursor, in bytes.
const ANSWER_BYTES: usize = 4096;
/// Longest name of an object that is looked at, in bytes: Ceph's own limit.
const NAME_BYTES_MAX: usize = 2048;

/// A pool of a cluster, in one of its namespaces.
#[derive(Debug)]
pub struct Pool {
    io: raw::IoCtx,
    /// Goes after the pool's handle.
    cluster: Arc<Cluster>,
}

// SAFETY: librados' handles may be used by any thread; the namespace is set before it is shared, and nobody asks
// a handle for the version of its last answer.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

/// Names of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Names that are texts.
    pub names: Vec<String>,
    /// Where the next page begins; `None`: this was the last one.
    pub next: Option<String>,
}

impl Pool {
    /// Enters a pool of a connected cluster, in a namespace; the empty one is the default.
    ///
    /// # Errors
    /// When there is no such pool, or the user may not see it.
    pub fn enter(cluster: &Arc<Cluster>, pool: &str, namespace: &str) -> Result<Self, RadosError> {
        let failed = |errno| match errno {
            Errno::NOENT => RadosError::NoPool(pool.into()),
            Errno::TIMEDOUT => RadosError::NoMonitor(OPEN_S),
            errno => RadosError::of(cluster.id(), &format!("see the pool {pool:?}"), errno),
        };
        let (text, space) = (c_text(pool).map_err(failed)?, c_text(namespace).map_err(failed)?);
        let mut io = std::ptr::null_mut();
        // SAFETY: the handle is connected; the place for the pool's one lives.
        checked(unsafe { raw::rados_ioctx_create(cluster.rados, text.as_ptr(), &raw mut io) })
            .map_err(failed)?;
        // SAFETY: the pool's handle was just made and is nobody else's.
        unsafe { raw::rados_ioctx_set_namespace(io, space.as_ptr()) };
        Ok(Self { io, cluster: Arc::clone(cluster) })
    }

    /// The pool's number, which it keeps under another name.
    pub fn id(&self) -> i64 {
        // SAFETY: the handle lives.
        unsafe { raw::rados_ioctx_get_id(self.io) }
    }

    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Begins changes of an object. A full pool refuses them ([`Errno::NOSPC`], [`Errno::DQUOT`]) unless they only
    /// remove.
    pub fn begin_write(&self, object: &str, op: WriteOp, then: Then<WriteOp>) {
        let io = self.io;
        let (object, whole) = (name(object), op.op);
        flight::begin(op, then, |argument| {
            let (object, op) = (object?, whole);
            flight::with_completion::<WriteOp>(argument, |completion| {
                let (object, now) = (object.as_ptr(), std::ptr::null_mut());
                // SAFETY: handles that live; no time is a null pointer.
                unsafe {
                    raw::rados_aio_write_op_operate(op, io, completion, object, now, raw::FULL_TRY)
                }
            })
        });
    }

    /// Begins questions about an object. `ordered`: they are answered behind all changes of it that are under
    /// way.
    pub fn begin_read(&self, object: &str, op: ReadOp, ordered: bool, then: Then<ReadOp>) {
        let io = self.io;
        let (object, whole) = (name(object), op.op);
        let flags = if ordered { raw::ORDER_READS_WRITES } else { 0 };
        flight::begin(op, then, |argument| {
            let (object, op) = (object?, whole);
            flight::with_completion::<ReadOp>(argument, |completion| {
                // SAFETY: handles that live.
                unsafe {
                    raw::rados_aio_read_op_operate(op, io, completion, object.as_ptr(), flags)
                }
            })
        });
    }

    /// Has the servers make `object` a copy of another pool's, or replace it by one, if that has this version
    /// and keeps it meanwhile; else [`Errno::RANGE`]. With version 0 it may have any, which it has to keep only
    /// if it is copied in several chunks. The object appears whole or not at all.
    ///
    /// The servers check only whether the user may write to this pool, not whether it may read the other
    /// one.
    pub fn begin_copy(
        &self,
        object: &str,
        (from, source): (&Pool, &str),
        version: u64,
        then: Then<()>,
    ) {
        let (object, source) = (name(object), name(source));
        flight::begin((), then, |argument| {
            let (object, source) = (object?, source?);
            let flags = raw::FULL_TRY;
            // SAFETY: handles that live, and texts that the call copies.
            let result = unsafe {
                let (object, source) = (object.as_ptr(), source.as_ptr());
                let (to, from, then) = (self.io, from.io, flight::landed::<()>);
                raw::cinnabar_rados_copy(to, object, from, source, version, flags, argument, then)
            };
            checked(result).map(drop)
        });
    }

    /// Changes an object, and waits for it. Gives the new version.
    ///
    /// # Errors
    /// As the operation fails.
    pub fn write(&self, object: &str, op: WriteOp) -> Result<u64, Errno> {
        let (then, ended) = mpsc::sync_channel(1);
        self.begin_write(object, op, waiting(then));
        let landed = ended.recv().map_err(|_| Errno::IO)?;
        landed.result.map(|()| landed.version)
    }

    /// Asks about an object, and waits for the answer. Gives also the version.
    ///
    /// # Errors
    /// As the operation fails.
    pub fn read(&self, object: &str, op: ReadOp) -> Result<(ReadOp, u64), Errno> {
        let (then, ended) = mpsc::sync_channel(1);
        self.begin_read(object, op, true, waiting(then));
        let landed = ended.recv().map_err(|_| Errno::IO)?;
        landed.result.map(|()| (landed.op, landed.version))
    }

    /// Lists the pool's objects in this namespace from `after` on, up to `max` of them. Blocks.
    ///
    /// # Errors
    /// When the cluster refuses, or `after` came from nowhere.
    pub fn list(&self, after: Option<&str>, max: usize) -> Result<Page, Errno> {
        let after = c_text(after.unwrap_or_default())?;
        let (mut names, mut next) = (Vec::new(), [0_u8; ANSWER_BYTES]);
        // SAFETY: the sink gets the list that is its argument, while this call lasts; as much memory as is
        // named.
        checked(unsafe {
            let (to, next, len) = ((&raw mut names).cast(), next.as_mut_ptr(), ANSWER_BYTES);
            raw::cinnabar_rados_list(self.io, after.as_ptr(), max, to, sink, next.cast(), len)
        })?;
        let next = CStr::from_bytes_until_nul(&next).map_err(|_| Errno::BADMSG)?;
        let next = next.to_str().map_err(|_| Errno::BADMSG)?;
        Ok(Page { names, next: (!next.is_empty()).then(|| next.to_owned()) })
    }

    /// Who has a lock on an object whose lease is not over.
    ///
    /// # Errors
    /// When the object can't be asked; [`Errno::NOENT`]: there is none.
    pub fn locker(&self, object: &str, lock: &str) -> Result<Option<Locker>, Errno> {
        let (object, lock) = (name(object)?, c_text(lock)?);
        let (mut exclusive, mut tag_len) = (0, ANSWER_BYTES);
        let mut texts = vec![[0_u8; ANSWER_BYTES]; 4];
        let mut lens = [ANSWER_BYTES; 3];
        // SAFETY: four buffers of the lengths that are named, and live places for these.
        let count = unsafe {
            let text = |at: &mut [u8; ANSWER_BYTES]| at.as_mut_ptr().cast::<c_char>();
            let [clients_len, cookies_len, addresses_len] = &mut lens;
            let [tag, clients, cookies, addresses] = &mut texts[..] else {
                return Err(Errno::INVAL);
            };
            raw::rados_list_lockers(
                self.io,
                object.as_ptr(),
                lock.as_ptr(),
                &raw mut exclusive,
                text(tag),
                &raw mut tag_len,
                text(clients),
                clients_len,
                text(cookies),
                cookies_len,
                text(addresses),
                addresses_len,
            )
        };
        if checked(c_int::try_from(count).unwrap_or(c_int::MAX))? == 0 {
            return Ok(None);
        }
        // One behind the other, each with a zero byte.
        let first = |bytes: &[u8]| -> Result<String, Errno> {
            let text = CStr::from_bytes_until_nul(bytes).map_err(|_| Errno::BADMSG)?;
            Ok(text.to_string_lossy().into_owned())
        };
        let (client, cookie, address) = (first(&texts[1])?, first(&texts[2])?, first(&texts[3])?);
        // As the library tells its own one, and the blocklist takes it.
        let bare = ["v1:", "v2:", "any:"].iter().find_map(|kind| address.strip_prefix(kind));
        let address = bare.map(str::to_owned).unwrap_or(address);
        Ok(Some(Locker { client, cookie, address }))
    }

    /// Takes a lock away from this client; [`Errno::NOENT`]: it does not have it.
    ///
    /// # Errors
    /// When it can't be taken away.
    pub fn break_lock(&self, object: &str, lock: &str, of: &Locker) -> Result<(), Errno> {
        let (object, lock) = (name(object)?, c_text(lock)?);
        let (client, cookie) = (c_text(&of.client)?, c_text(&of.cookie)?);
        // SAFETY: texts that end with a zero byte.
        let result = unsafe {
            let (object, client, cookie) = (object.as_ptr(), client.as_ptr(), cookie.as_ptr());
            raw::rados_break_lock(self.io, object, lock.as_ptr(), client, cookie)
        };
        checked(result).map(drop)
    }
}

/// Hands an operation's end to a thread that waits, which may have gone.
fn waiting<T: Send + 'static>(to: mpsc::SyncSender<Landed<T>>) -> Then<T> {
    Box::new(move |landed| {
        let _gone = to.send(landed);
    })
}

/// Takes one name of a list.
///
/// # Safety
/// `to` is the list, and `len` bytes at `bytes` can be read.
unsafe extern "C" fn sink(to: *mut c_void, bytes: *const c_char, len: usize) {
    if len > NAME_BYTES_MAX {
        return;
    }
    // SAFETY: see above.
    let (names, bytes) = unsafe {
        (&mut *to.cast::<Vec<String>>(), std::slice::from_raw_parts(bytes.cast::<u8>(), len))
    };
    names.extend(std::str::from_utf8(bytes).ok().map(str::to_owned));
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: nobody has it any more; the library keeps what operations under way need.
        unsafe { raw::rados_ioctx_destroy(self.io) };
    }
}
