//! A connection to a cluster, with one of its pools; and what is asked of an object there.

use super::{c_text, checked, raw};
use cinnabar_hybrid::librados::lock_state::FENCE_S;
use rustix::io::Errno;
use std::ffi::CStr;
use std::path::Path;

/// The name of RBD's lock on a header object (`RBD_LOCK_NAME`).
pub(super) const LOCK: &CStr = c"rbd_lock";
/// Text of one answer about a lock, in bytes.
const ANSWER_BYTES: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(in super::super) struct Cluster {
    rados: raw::Rados,
    io: raw::IoCtx,
}

// SAFETY: librados' handles may be used by any thread. What is not safe to do from several (changing
// the namespace of a pool's handle, reading its last version) is done before it is shared, or under
// the caller's exclusive borrow.
unsafe impl Send for Cluster {}
// SAFETY: as above; `version` takes `&mut self`.
unsafe impl Sync for Cluster {}

/// Who has a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Locker {
    /// `client.4123`.
    pub(in super::super) client: String,
    /// `auto 94001234` for librbd's own lock, the number being that of its watch.
    pub(in super::super) cookie: String,
    /// `127.0.0.1:0/1234`.
    pub(in super::super) address: String,
}

impl Cluster {
    /// A handle of a user's, not connected.
    pub(in super::super) fn new(id: &str) -> Result<Self, Errno> {
        let id = c_text(id)?;
        let mut rados = std::ptr::null_mut();
        // SAFETY: the handle is a live place for one, the text ends with a zero byte.
        checked(unsafe { raw::rados_create(&raw mut rados, id.as_ptr()) })?;
        Ok(Self { rados, io: std::ptr::null_mut() })
    }

    pub(in super::super) fn read_conf(&self, path: &Path) -> Result<(), Errno> {
        let path = c_text(path.to_str().ok_or(Errno::INVAL)?)?;
        // SAFETY: the handle was created and not shut down; the text ends with a zero byte.
        checked(unsafe { raw::rados_conf_read_file(self.rados, path.as_ptr()) }).map(drop)
    }

    pub(in super::super) fn set(&self, option: &str, value: &str) -> Result<(), Errno> {
        let (option, value) = (c_text(option)?, c_text(value)?);
        // SAFETY: as above.
        let result = unsafe { raw::rados_conf_set(self.rados, option.as_ptr(), value.as_ptr()) };
        checked(result).map(drop)
    }

    /// Has a connected handle note what was set: only reading arguments does that, of which there
    /// are none here.
    pub(in super::super) fn apply(&self) -> Result<(), Errno> {
        let arguments = [c"cinnabar".as_ptr()];
        // SAFETY: a list of one text, which stands for the program's name.
        let result = unsafe { raw::rados_conf_parse_argv(self.rados, 1, arguments.as_ptr()) };
        checked(result).map(drop)
    }

    pub(in super::super) fn connect(&self) -> Result<(), Errno> {
        // SAFETY: as above; it is called once.
        checked(unsafe { raw::rados_connect(self.rados) }).map(drop)
    }

    /// Enters a pool and a namespace. Called once, of a connected handle.
    pub(in super::super) fn enter(&mut self, pool: &str, namespace: &str) -> Result<(), Errno> {
        assert!(self.io.is_null(), "a connection is for one pool");
        let (pool, namespace) = (c_text(pool)?, c_text(namespace)?);
        let mut io = std::ptr::null_mut();
        // SAFETY: the handle is connected; the place for the pool's one lives.
        checked(unsafe { raw::rados_ioctx_create(self.rados, pool.as_ptr(), &raw mut io) })?;
        self.io = io;
        // SAFETY: the pool's handle was just made and is nobody else's.
        unsafe { raw::rados_ioctx_set_namespace(io, namespace.as_ptr()) };
        Ok(())
    }

    /// The pool's handle, for opening images.
    pub(super) fn io(&self) -> raw::IoCtx {
        assert!(!self.io.is_null(), "a pool was entered");
        self.io
    }

    /// The connection's handle.
    pub(super) fn rados(&self) -> raw::Rados {
        self.rados
    }

    pub(in super::super) fn pool_number(&self) -> i64 {
        // SAFETY: the pool's handle lives as long as `self`.
        unsafe { raw::rados_ioctx_get_id(self.io()) }
    }

    /// The cluster's own id.
    pub(in super::super) fn fsid(&self) -> Result<[u8; 16], Errno> {
        // 36 characters and a zero byte.
        let mut text = [0_u8; 37];
        // SAFETY: as much memory as is named, exclusively borrowed.
        let result =
            unsafe { raw::rados_cluster_fsid(self.rados, text.as_mut_ptr().cast(), text.len()) };
        checked(result)?;
        let digits: String =
            text.iter().filter(|byte| byte.is_ascii_hexdigit()).map(|byte| *byte as char).collect();
        u128::from_str_radix(&digits, 16).map(u128::to_be_bytes).map_err(|_| Errno::BADMSG)
    }

    /// The number of this client in the cluster: that of `client.4123`.
    pub(in super::super) fn instance(&self) -> u64 {
        // SAFETY: the handle is connected.
        unsafe { raw::rados_get_instance_id(self.rados) }
    }

    /// Fences a client off for [`FENCE_S`]: once this and a wait for the newest map have returned, none of
    /// its operations follows one of ours on any object.
    pub(in super::super) fn fence(&self, address: &str) -> Result<(), Errno> {
        let mut address = c_text(address)?.into_bytes_with_nul();
        let text = address.as_mut_ptr().cast();
        // SAFETY: the text ends with a zero byte, and the library may write to it.
        checked(unsafe { raw::rados_blocklist_add(self.rados, text, FENCE_S) })?;
        self.wait_for_map()
    }

    /// Waits for the newest map: operations that follow bring it to the OSDs that lack it.
    pub(in super::super) fn wait_for_map(&self) -> Result<(), Errno> {
        // SAFETY: the handle is connected.
        checked(unsafe { raw::rados_wait_for_latest_osdmap(self.rados) }).map(drop)
    }

    /// The version that RADOS gives an object, which each change of it raises.
    pub(in super::super) fn version(&mut self, object: &str) -> Result<u64, Errno> {
        let object = c_text(object)?;
        let (mut size, mut modified) = (0, 0);
        // SAFETY: the places for size and time live. Nobody else uses the handle meanwhile, so the
        // version is that of this answer.
        unsafe {
            checked(raw::rados_stat(self.io(), object.as_ptr(), &raw mut size, &raw mut modified))?;
            Ok(raw::rados_get_last_version(self.io()))
        }
    }

    /// An attribute of an object, of at most `max` bytes; longer ones are as good as none.
    pub(in super::super) fn attribute(
        &self,
        object: &str,
        name: &CStr,
        max: usize,
    ) -> Option<String> {
        let object = c_text(object).ok()?;
        let mut value = vec![0_u8; max];
        // SAFETY: as much memory as is named.
        let result = unsafe {
            let (object, value) = (object.as_ptr(), value.as_mut_ptr().cast());
            raw::rados_getxattr(self.io(), object, name.as_ptr(), value, max)
        };
        value.truncate(usize::try_from(checked(result).ok()?).ok()?);
        String::from_utf8(value).ok()
    }

    /// Sets an attribute of an object if the object still has this version, in one step. Gives the
    /// new version.
    pub(in super::super) fn set_attribute(
        &mut self,
        object: &str,
        (name, value): (&CStr, &str),
        version: u64,
    ) -> Result<u64, Errno> {
        self.operate(object, |op| {
            let (bytes, len) = (value.as_ptr().cast(), value.len());
            // SAFETY: the operation lives, and what it is given until it has been carried out.
            unsafe {
                raw::rados_write_op_assert_version(op, version);
                raw::rados_write_op_setxattr(op, name.as_ptr(), bytes, len);
            }
        })
    }

    /// What an object holds, at most `max` bytes of it, and its version. `None`: there is none.
    pub(in super::super) fn content(
        &mut self,
        object: &str,
        max: usize,
    ) -> Result<Option<(Vec<u8>, u64)>, Errno> {
        let object = c_text(object)?;
        let mut bytes = vec![0_u8; max];
        // SAFETY: as much memory as is named; the version as in `version`.
        let (result, version) = unsafe {
            let (io, to) = (self.io(), bytes.as_mut_ptr().cast());
            let result = raw::rados_read(io, object.as_ptr(), to, max, 0);
            (result, raw::rados_get_last_version(io))
        };
        match checked(result) {
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
            Ok(len) => {
                bytes.truncate(usize::try_from(len).map_err(|_| Errno::BADMSG)?);
                Ok(Some((bytes, version)))
            }
        }
    }

    /// Makes an object that must not be there. Gives its version.
    pub(in super::super) fn create(&mut self, object: &str, bytes: &[u8]) -> Result<u64, Errno> {
        self.operate(object, |op| {
            // SAFETY: the operation lives, and what it is given until it has been carried out. There is
            // no category.
            unsafe {
                raw::rados_write_op_create(op, raw::CREATE_EXCLUSIVE, std::ptr::null());
                raw::rados_write_op_write_full(op, bytes.as_ptr().cast(), bytes.len());
            }
        })
    }

    /// Writes an object that must still have this version. Gives the new one.
    pub(in super::super) fn overwrite(
        &mut self,
        object: &str,
        bytes: &[u8],
        version: u64,
    ) -> Result<u64, Errno> {
        self.operate(object, |op| {
            // SAFETY: as above.
            unsafe {
                raw::rados_write_op_assert_version(op, version);
                raw::rados_write_op_write_full(op, bytes.as_ptr().cast(), bytes.len());
            }
        })
    }

    /// Removes an object that must still have this version.
    pub(in super::super) fn remove(&mut self, object: &str, version: u64) -> Result<(), Errno> {
        let removed = self.operate(object, |op| {
            // SAFETY: the operation lives.
            unsafe {
                raw::rados_write_op_assert_version(op, version);
                raw::rados_write_op_remove(op);
            }
        });
        removed.map(drop)
    }

    /// Carries out what `with` puts into an operation, in one step. Gives the object's new version.
    fn operate(&mut self, object: &str, with: impl FnOnce(raw::WriteOp)) -> Result<u64, Errno> {
        let object = c_text(object)?;
        // SAFETY: the operation is made, used and released here, and no time is a null pointer. The last
        // version is that of its answer, as in `version`.
        unsafe {
            let op = raw::rados_create_write_op();
            with(op);
            let (io, now) = (self.io(), std::ptr::null_mut());
            let result = raw::rados_write_op_operate(op, io, object.as_ptr(), now, 0);
            raw::rados_release_write_op(op);
            checked(result)?;
            Ok(raw::rados_get_last_version(io))
        }
    }

    /// Who has RBD's lock on an object.
    pub(in super::super) fn locker(&self, object: &str) -> Result<Option<Locker>, Errno> {
        let object = c_text(object)?;
        let (mut exclusive, mut tag_len) = (0, ANSWER_BYTES);
        let mut texts = [[0_u8; ANSWER_BYTES]; 4];
        let [tag, clients, cookies, addresses] = &mut texts;
        let (mut clients_len, mut cookies_len, mut addresses_len) =
            (ANSWER_BYTES, ANSWER_BYTES, ANSWER_BYTES);
        // SAFETY: four buffers of the lengths that are named, and live places for these.
        let count = unsafe {
            raw::rados_list_lockers(
                self.io(),
                object.as_ptr(),
                LOCK.as_ptr(),
                &raw mut exclusive,
                tag.as_mut_ptr().cast(),
                &raw mut tag_len,
                clients.as_mut_ptr().cast(),
                &raw mut clients_len,
                cookies.as_mut_ptr().cast(),
                &raw mut cookies_len,
                addresses.as_mut_ptr().cast(),
                &raw mut addresses_len,
            )
        };
        if checked(c_int_of(count))? == 0 {
            return Ok(None);
        }
        // One behind the other, each with a zero byte.
        let first = |bytes: &[u8]| -> Result<String, Errno> {
            let text = CStr::from_bytes_until_nul(bytes).map_err(|_| Errno::BADMSG)?;
            Ok(text.to_string_lossy().into_owned())
        };
        let [_, clients, cookies, addresses] = &texts;
        let (client, cookie) = (first(clients)?, first(cookies)?);
        Ok(Some(Locker { client, cookie, address: first(addresses)? }))
    }

    /// Takes RBD's lock on an object away from this client.
    pub(in super::super) fn break_lock(&self, object: &str, of: &Locker) -> Result<(), Errno> {
        let object = c_text(object)?;
        let (client, cookie) = (c_text(&of.client)?, c_text(&of.cookie)?);
        // SAFETY: texts that end with a zero byte.
        let result = unsafe {
            let (object, client, cookie) = (object.as_ptr(), client.as_ptr(), cookie.as_ptr());
            raw::rados_break_lock(self.io(), object, LOCK.as_ptr(), client, cookie)
        };
        checked(result).map(drop)
    }
}

fn c_int_of(count: isize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: images hold the connection and are closed before it goes; nobody has it any more.
        unsafe {
            if !self.io.is_null() {
                raw::rados_ioctx_destroy(self.io);
            }
            raw::rados_shutdown(self.rados);
        }
    }
}
