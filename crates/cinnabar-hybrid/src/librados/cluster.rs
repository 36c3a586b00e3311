//! A connection to a cluster.

use crate::librados::error::RadosError;
use crate::librados::lock_state::FENCE_S;
use crate::librados::target::Target;
use crate::librados::{c_text, checked, raw};
use rustix::io::Errno;
use std::ffi::CStr;
use std::path::Path;

/// Longest wait for the cluster while something is opened or closed, in s.
pub const OPEN_S: u64 = 10;

/// How long operations that begin from now on may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// [`OPEN_S`]; one that took longer fails with [`Errno::TIMEDOUT`] **and may still be carried out**.
    Opening,
    /// As long as they take. One that has ended has no further effect.
    Endless,
}

/// A connection to a cluster. Dropping it waits until the library touches nothing any more.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) rados: raw::Rados,
    id: String,
}

// SAFETY: librados' handles may be used by any thread.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

impl Cluster {
    /// Connects, with [`Patience::Opening`].
    ///
    /// # Errors
    /// When the configuration can't be read, no monitor answers, or the user is refused.
    pub fn connect(target: &Target) -> Result<Self, RadosError> {
        let io = |errno| RadosError::Io { during: "librados".into(), errno };
        let id = c_text(&target.id).map_err(io)?;
        let mut rados = std::ptr::null_mut();
        // SAFETY: the handle is a live place for one, the text ends with a zero byte.
        checked(unsafe { raw::rados_create(&raw mut rados, id.as_ptr()) }).map_err(io)?;
        let cluster = Self { rados, id: target.id.clone() };
        cluster.read_conf(&target.conf).map_err(|errno| {
            // What its absence is called there.
            let errno = if errno == Errno::INVAL { Errno::NOENT } else { errno };
            RadosError::Conf { path: target.conf.display().to_string(), errno }
        })?;
        let open_s = OPEN_S.to_string();
        for (option, value) in [
            ("client_mount_timeout", open_s.as_str()),
            ("rados_mon_op_timeout", &open_s),
            ("rados_osd_op_timeout", &open_s),
            // Above what is ever under way: at the limit the library blocks who calls it, and a silent OSD would keep
            // others' from hearing of an owner.
            ("objecter_inflight_ops", "65536"),
            ("objecter_inflight_op_bytes", "17179869184"),
            // It is told by errors.
            ("log_to_stderr", "false"),
            ("err_to_stderr", "false"),
        ] {
            cluster.set(option, value).map_err(io)?;
        }
        // SAFETY: the handle was created and not shut down; it is called once.
        checked(unsafe { raw::rados_connect(cluster.rados) }).map_err(|errno| match errno {
            Errno::TIMEDOUT => RadosError::NoMonitor(OPEN_S),
            errno => RadosError::User { id: target.id.clone(), errno },
        })?;
        Ok(cluster)
    }

    fn read_conf(&self, path: &Path) -> Result<(), Errno> {
        let path = c_text(path.to_str().ok_or(Errno::INVAL)?)?;
        // SAFETY: the handle was created and not shut down; the text ends with a zero byte.
        checked(unsafe { raw::rados_conf_read_file(self.rados, path.as_ptr()) }).map(drop)
    }

    fn set(&self, option: &str, value: &str) -> Result<(), Errno> {
        let (option, value) = (c_text(option)?, c_text(value)?);
        // SAFETY: as above.
        let result = unsafe { raw::rados_conf_set(self.rados, option.as_ptr(), value.as_ptr()) };
        checked(result).map(drop)
    }

    /// How long operations that begin from now on may take. (Those of monitors: always [`OPEN_S`].)
    ///
    /// # Errors
    /// When librados does not take the option.
    pub fn set_patience(&self, patience: Patience) -> Result<(), Errno> {
        let seconds = match patience {
            Patience::Opening => OPEN_S,
            Patience::Endless => 0,
        };
        // A connected handle notes it at once.
        self.set("rados_osd_op_timeout", &seconds.to_string())
    }

    /// The user, without `client.`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The cluster's own id.
    ///
    /// # Errors
    /// When the cluster does not tell.
    pub fn fsid(&self) -> Result<[u8; 16], Errno> {
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
    pub fn instance(&self) -> u64 {
        // SAFETY: the handle is connected.
        unsafe { raw::rados_get_instance_id(self.rados) }
    }

    /// The address by which this client can be fenced off: `127.0.0.1:0/1234`.
    ///
    /// # Errors
    /// When the library does not tell.
    pub fn address(&self) -> Result<String, Errno> {
        let mut text = std::ptr::null_mut();
        // SAFETY: a live place for the answer.
        checked(unsafe { raw::rados_getaddrs(self.rados, &raw mut text) })?;
        if text.is_null() {
            return Err(Errno::BADMSG);
        }
        // SAFETY: the library gave a text that ends with a zero byte, to be freed by this call.
        let address = unsafe {
            let address = CStr::from_ptr(text).to_string_lossy().into_owned();
            raw::rados_buffer_free(text);
            address
        };
        if address.is_empty() { Err(Errno::BADMSG) } else { Ok(address) }
    }

    /// Fences a client off for [`FENCE_S`] and waits for the map that says so: none of its operations follows
    /// a later one of ours on any object.
    ///
    /// # Errors
    /// When the monitors refuse or do not answer.
    pub fn fence(&self, address: &str) -> Result<(), Errno> {
        let mut address = c_text(address)?.into_bytes_with_nul();
        let text = address.as_mut_ptr().cast();
        // SAFETY: the text ends with a zero byte, and the library may write to it.
        checked(unsafe { raw::rados_blocklist_add(self.rados, text, FENCE_S) })?;
        self.wait_for_map()
    }

    /// Waits for the newest map: operations that follow bring it to the OSDs that lack it.
    ///
    /// # Errors
    /// When no monitor answers.
    pub fn wait_for_map(&self) -> Result<(), Errno> {
        // SAFETY: the handle is connected.
        checked(unsafe { raw::rados_wait_for_latest_osdmap(self.rados) }).map(drop)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: pools hold the connection, and this was the last one that did.
        unsafe { raw::rados_shutdown(self.rados) };
    }
}
