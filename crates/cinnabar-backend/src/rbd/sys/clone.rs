//! What an image says of its parent and of its objects.

use super::image::Image;
use super::{Cluster, c_text, checked, raw};
use rustix::io::Errno;
use std::ffi::{CStr, c_char};

/// A snapshot of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Ancestor {
    pub(in super::super) pool: i64,
    pub(in super::super) namespace: String,
    pub(in super::super) image_id: String,
    /// The snapshot's number.
    pub(in super::super) snap: u64,
    /// Pool, image and snapshot as people call them.
    pub(in super::super) names: [String; 3],
}

impl Ancestor {
    /// As Ceph's own tools write it.
    pub(in super::super) fn name(&self) -> String {
        let [pool, image, snap] = &self.names;
        let between = if self.namespace.is_empty() { "" } else { "/" };
        format!("{pool}/{}{between}{image}@{snap}", self.namespace)
    }
}

/// How an image's bytes lie in its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Layout {
    pub(in super::super) object_bytes: u64,
    /// Objects of the whole image.
    pub(in super::super) objects: u64,
    stripe_count: u64,
}

impl Layout {
    /// Whether one object comes after the other: then the stripe unit changes nothing.
    pub(in super::super) const fn is_plain(&self) -> bool {
        self.stripe_count == 1
    }
}

impl Image {
    /// The snapshot that it is a clone of; `None`: it is none.
    pub(in super::super) fn parent(&self) -> Result<Option<Ancestor>, Errno> {
        let null = std::ptr::null_mut();
        let mut image = raw::LinkedImage {
            pool_id: -1,
            pool_name: null,
            pool_namespace: null,
            image_id: null,
            image_name: null,
            trash: false,
        };
        let mut snap = raw::SnapSpec { id: 0, namespace_type: 0, name: null };
        // SAFETY: the image is open; both places live. What was filled in has texts that end with zero bytes
        // and live until the cleanup.
        unsafe {
            match checked(raw::rbd_get_parent(self.handle(), &raw mut image, &raw mut snap)) {
                Err(Errno::NOENT) => return Ok(None),
                Err(errno) => return Err(errno),
                Ok(_) => {}
            }
            let found = Ancestor {
                pool: image.pool_id,
                namespace: text(image.pool_namespace),
                image_id: text(image.image_id),
                snap: snap.id,
                names: [text(image.pool_name), text(image.image_name), text(snap.name)],
            };
            raw::rbd_linked_image_spec_cleanup(&raw mut image);
            raw::rbd_snap_spec_cleanup(&raw mut snap);
            Ok(Some(found))
        }
    }

    /// Bits that say what of it is not valid.
    pub(in super::super) fn flags(&self) -> Result<u64, Errno> {
        let mut flags = 0;
        // SAFETY: the image is open, the place for the answer lives. So below.
        checked(unsafe { raw::rbd_get_flags(self.handle(), &raw mut flags) })?;
        Ok(flags)
    }

    /// Bytes from its beginning that it may have from its parent.
    pub(in super::super) fn overlap(&self) -> Result<u64, Errno> {
        let mut overlap = 0;
        // SAFETY: see `flags`.
        checked(unsafe { raw::rbd_get_overlap(self.handle(), &raw mut overlap) })?;
        Ok(overlap)
    }

    /// How its bytes lie in its objects.
    pub(in super::super) fn layout(&self) -> Result<Layout, Errno> {
        let mut info = raw::ImageInfo::EMPTY;
        let mut stripe_count = 0;
        // SAFETY: see `flags`; the place is as large as is named.
        unsafe {
            let len = size_of::<raw::ImageInfo>();
            checked(raw::rbd_stat(self.handle(), &raw mut info, len))?;
            checked(raw::rbd_get_stripe_count(self.handle(), &raw mut stripe_count))?;
        }
        let (object_bytes, objects) = (info.obj_size, info.num_objs);
        Ok(Layout { object_bytes, objects, stripe_count })
    }
}

impl Cluster {
    /// An object map, as the class of its OSD gives it, of at most `max` bytes.
    pub(in super::super) fn load_object_map(
        &self,
        object: &str,
        max: usize,
    ) -> Result<Vec<u8>, Errno> {
        let object = c_text(object)?;
        let mut answer = vec![0_u8; max];
        // SAFETY: no input; as much memory as is named for the answer.
        let result = unsafe {
            let (class, method) = (c"rbd".as_ptr(), c"object_map_load".as_ptr());
            let to = answer.as_mut_ptr().cast();
            raw::rados_exec(self.io(), object.as_ptr(), class, method, std::ptr::null(), 0, to, max)
        };
        answer.truncate(usize::try_from(checked(result)?).map_err(|_| Errno::BADMSG)?);
        Ok(answer)
    }
}

/// A text of the library's; a null pointer is an empty one.
///
/// # Safety
/// It is null, or ends with a zero byte and lives.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
