//! An open image: what it is, its lock, and operations that are started here and collected there.
//!
//! The state of an operation is its [`Job`], which librbd holds as the completion's argument from
//! the start to the collection: nothing that the library may still touch belongs to anyone else.

use super::super::job::{Call, Job};
use super::{Cluster, c_text, checked, raw};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use std::ffi::{CStr, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Longest id of an image, in bytes, with a zero byte. (`RBD_MAX_IMAGE_ID_LENGTH` is 14 in old
/// releases; newer ones have longer ones.)
const ID_BYTES: usize = 256;
/// Watchers of an image that are looked at.
const WATCHERS_MAX: usize = 64;
/// Completions taken at once.
const TAKEN_MAX: usize = 64;
/// Settings of an image; Ceph 18 has some 70.
const SETTINGS_MAX: usize = 512;

/// See the module.
#[derive(Debug)]
pub(in super::super) struct Image {
    image: raw::RbdImage,
    /// Its connection; also for what is asked of the header object.
    cluster: Mutex<Cluster>,
}

// SAFETY: librbd's handles may be used by any thread.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

impl Image {
    /// Opens an image for writing.
    pub(in super::super) fn open(cluster: Cluster, name: &str) -> Result<Self, Errno> {
        let name = c_text(name)?;
        let mut image = std::ptr::null_mut();
        // SAFETY: the pool's handle lives as long as the image; the name ends with a zero byte, and no
        // snapshot is a null pointer.
        checked(unsafe {
            raw::rbd_open(cluster.io(), name.as_ptr(), &raw mut image, std::ptr::null())
        })?;
        Ok(Self { image, cluster: Mutex::new(cluster) })
    }

    /// Opens an image for reading, or one of its snapshots. Of an image itself librbd then never takes the
    /// lock, trusts no object map and opens no journal; and it has no watch, so that it does not learn of
    /// changes of the header.
    pub(in super::super) fn open_to_read(
        cluster: Cluster,
        name: &str,
        snap: Option<&str>,
    ) -> Result<Self, Errno> {
        let (name, snap) = (c_text(name)?, snap.map(c_text).transpose()?);
        let mut image = std::ptr::null_mut();
        // SAFETY: as above; so is the snapshot's name, if there is one.
        checked(unsafe {
            let snap = snap.as_ref().map_or(std::ptr::null(), |snap| snap.as_ptr());
            raw::rbd_open_read_only(cluster.io(), name.as_ptr(), &raw mut image, snap)
        })?;
        Ok(Self { image, cluster: Mutex::new(cluster) })
    }

    /// The library's handle.
    pub(super) fn handle(&self) -> raw::RbdImage {
        self.image
    }

    /// Its connection. Held for one question at a time.
    pub(in super::super) fn cluster(&self) -> MutexGuard<'_, Cluster> {
        // A handle is whole whenever the lock is free.
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its size in bytes, as it is now.
    pub(in super::super) fn size_bytes(&self) -> Result<u64, Errno> {
        let mut size = 0;
        // SAFETY: the image is open, the place for the answer lives. So below.
        checked(unsafe { raw::rbd_get_size(self.image, &raw mut size) })?;
        Ok(size)
    }

    /// Bits of its features.
    pub(in super::super) fn features(&self) -> Result<u64, Errno> {
        let mut features = 0;
        // SAFETY: see `size_bytes`.
        checked(unsafe { raw::rbd_get_features(self.image, &raw mut features) })?;
        Ok(features)
    }

    /// librbd's settings, by name, as they hold for this image.
    pub(in super::super) fn settings(&self) -> Result<Vec<(String, String)>, Errno> {
        let none =
            raw::Setting { name: std::ptr::null_mut(), value: std::ptr::null_mut(), source: 0 };
        let (mut settings, mut count) = (vec![none; SETTINGS_MAX], count_of(SETTINGS_MAX));
        // SAFETY: room for as many as are named; so many were filled in with texts that end with
        // zero bytes and live until the cleanup.
        unsafe {
            checked(raw::rbd_config_image_list(self.image, settings.as_mut_ptr(), &raw mut count))?;
            let text = |text| CStr::from_ptr(text).to_string_lossy().into_owned();
            let found = usize::try_from(count).unwrap_or(0);
            let found = settings[..found].iter().map(|one| (text(one.name), text(one.value)));
            let found = found.collect();
            raw::rbd_config_image_list_cleanup(settings.as_mut_ptr(), count);
            Ok(found)
        }
    }

    /// Its id within the pool, which a new name does not change.
    pub(in super::super) fn id(&self) -> Result<String, Errno> {
        let mut text = [0_u8; ID_BYTES];
        // SAFETY: as much memory as is named.
        checked(unsafe { raw::rbd_get_id(self.image, text.as_mut_ptr().cast(), text.len()) })?;
        let text = CStr::from_bytes_until_nul(&text).map_err(|_| Errno::BADMSG)?;
        Ok(text.to_string_lossy().into_owned())
    }

    /// The number of a snapshot.
    pub(in super::super) fn snap_number(&self, snap: &str) -> Result<u64, Errno> {
        let snap = c_text(snap)?;
        let mut number = 0;
        // SAFETY: see `size_bytes`.
        checked(unsafe { raw::rbd_snap_get_id(self.image, snap.as_ptr(), &raw mut number) })?;
        Ok(number)
    }

    /// Takes the exclusive lock, to keep it: no other client gets it by asking.
    pub(in super::super) fn lock(&self) -> Result<(), Errno> {
        // SAFETY: the image is open.
        checked(unsafe { raw::rbd_lock_acquire(self.image, raw::LOCK_EXCLUSIVE) }).map(drop)
    }

    /// Releases it. Writes are refused from now on.
    pub(in super::super) fn unlock(&self) -> Result<(), Errno> {
        // SAFETY: the image is open.
        checked(unsafe { raw::rbd_lock_release(self.image) }).map(drop)
    }

    /// Whether the header object has our lock, asked of its OSD.
    pub(in super::super) fn has_lock(&self) -> Result<bool, Errno> {
        let mut is_owner = 0;
        // SAFETY: see `size_bytes`.
        checked(unsafe { raw::rbd_is_exclusive_lock_owner(self.image, &raw mut is_owner) })?;
        Ok(is_owner == 1)
    }

    /// The watches on the header, the own one among them: the client's number, and the watch's. A client that
    /// died keeps its one for some 30 s.
    pub(in super::super) fn watches(&self) -> Result<Vec<(u64, u64)>, Errno> {
        let none = raw::Watcher { addr: std::ptr::null_mut(), id: 0, cookie: 0 };
        let (mut watchers, mut count) = ([none; WATCHERS_MAX], WATCHERS_MAX);
        // SAFETY: room for as many as are named.
        let result =
            unsafe { raw::rbd_watchers_list(self.image, watchers.as_mut_ptr(), &raw mut count) };
        checked(result)?;
        let watchers_of = watchers.iter().take(count);
        let found: Vec<_> = watchers_of.map(|one| (one.id.cast_unsigned(), one.cookie)).collect();
        // SAFETY: so many were filled in; their texts are not used any more.
        unsafe { raw::rbd_watchers_list_cleanup(watchers.as_mut_ptr(), found.len()) };
        Ok(found)
    }

    /// Has completions announced by this eventfd, which outlives the image.
    pub(in super::super) fn announce(&self, eventfd: BorrowedFd<'_>) -> Result<(), Errno> {
        let fd = eventfd.as_raw_fd();
        // SAFETY: the image is open; the library writes to a descriptor that its owner keeps open.
        checked(unsafe { raw::rbd_set_image_notification(self.image, fd, raw::EVENT_FD) }).map(drop)
    }

    /// Starts the next call of a job, which comes back from [`collect`](Self::collect); or gives it
    /// back at once.
    #[allow(clippy::vec_box, reason = "the library holds the box")]
    pub(in super::super) fn start(&self, job: Box<Job>) -> Result<(), (Box<Job>, Errno)> {
        let job = Box::into_raw(job);
        let mut completion = std::ptr::null_mut();
        // SAFETY: a completion without a callback keeps the argument and does nothing with it.
        let made = unsafe { raw::rbd_aio_create_completion(job.cast(), None, &raw mut completion) };
        // SAFETY: the job was boxed above, and no call has begun that would give it to anyone.
        let back = |errno| (unsafe { Box::from_raw(job) }, errno);
        if let Err(errno) = checked(made) {
            return Err(back(errno));
        }
        // SAFETY: the box is alive, and looked at before the library can complete anything.
        let (call, list, count) = unsafe {
            let call = (*job).call();
            let parts = (*job).parts();
            (call, parts.as_ptr(), count_of(parts.len()))
        };
        // SAFETY: the memory that a read or write names belongs to the job, which is freed only
        // when the completion has come back. So does the list: of several pieces librbd keeps the
        // pointer, and reads it when the data is there.
        let result = unsafe {
            match &call {
                Call::Read { offset } => {
                    raw::rbd_aio_readv(self.image, list, count, *offset, completion)
                }
                Call::Write { offset } => {
                    raw::rbd_aio_writev(self.image, list, count, *offset, completion)
                }
                Call::Flush => raw::rbd_aio_flush(self.image, completion),
                Call::Discard { offset, len } => {
                    raw::rbd_aio_discard(self.image, *offset, *len, completion)
                }
                Call::WriteZeroes { offset, len, thick } => {
                    let flags = if *thick { raw::ZEROES_THICK } else { 0 };
                    let len = *len as usize;
                    raw::rbd_aio_write_zeroes(self.image, *offset, len, completion, flags, 0)
                }
            }
        };
        match checked(result) {
            Ok(_) => Ok(()),
            Err(errno) => {
                // SAFETY: a call that fails has not taken the completion.
                unsafe { raw::rbd_aio_release(completion) };
                Err(back(errno))
            }
        }
    }

    /// Takes what has completed: each job, and bytes or the error of its call.
    pub(in super::super) fn collect(&self, each: &mut Vec<(Box<Job>, Result<u64, Errno>)>) {
        loop {
            let mut taken = [std::ptr::null_mut(); TAKEN_MAX];
            // SAFETY: room for as many as are named.
            let count = unsafe {
                raw::rbd_poll_io_events(self.image, taken.as_mut_ptr(), count_of(TAKEN_MAX))
            };
            let count = usize::try_from(count).unwrap_or(0);
            for &completion in &taken[..count] {
                // SAFETY: each completion comes once, with the box that it was made with; the
                // library's own reference to it lasts as long as its threads need it.
                unsafe {
                    let result = raw::rbd_aio_get_return_value(completion);
                    let job = Box::from_raw(raw::rbd_aio_get_arg(completion).cast::<Job>());
                    raw::rbd_aio_release(completion);
                    each.push((job, bytes(result)));
                }
            }
            if count < TAKEN_MAX {
                break;
            }
        }
    }
}

fn bytes(result: isize) -> Result<u64, Errno> {
    u64::try_from(result).map_err(|_| {
        Errno::from_raw_os_error(i32::try_from(result.saturating_neg()).unwrap_or(libc::EIO))
    })
}

fn count_of(count: usize) -> c_int {
    c_int::try_from(count).expect("at most IOV_MAX")
}

impl Drop for Image {
    /// Blocks until the cluster has taken note, or the time-outs that are set are over.
    fn drop(&mut self) {
        // SAFETY: nobody has the image any more, and its worker has collected all it started.
        let closed = checked(unsafe { raw::rbd_close(self.image) });
        if let Err(errno) = closed {
            tracing::debug!(%errno, "closing an image");
        }
    }
}
