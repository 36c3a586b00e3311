//! Declarations of librados.h and librbd.h (Ceph 16 and later), as far as they are used.

use libc::{iovec, ssize_t};
use std::ffi::{c_char, c_int, c_void};

pub(super) type Rados = *mut c_void;
pub(super) type IoCtx = *mut c_void;
pub(super) type RbdImage = *mut c_void;
pub(super) type Completion = *mut c_void;
pub(super) type WriteOp = *mut c_void;

/// `RBD_LOCK_MODE_EXCLUSIVE`.
pub(super) const LOCK_EXCLUSIVE: c_int = 0;
/// `LIBRADOS_CREATE_EXCLUSIVE`.
pub(super) const CREATE_EXCLUSIVE: c_int = 1;
/// `EVENT_TYPE_EVENTFD`.
pub(super) const EVENT_FD: c_int = 2;
/// `RBD_WRITE_ZEROES_FLAG_THICK_PROVISION`.
pub(super) const ZEROES_THICK: c_int = 1;

/// `rbd_image_watcher_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Watcher {
    pub(super) addr: *mut c_char,
    pub(super) id: i64,
    pub(super) cookie: u64,
}

/// `rbd_config_option_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub(super) name: *mut c_char,
    pub(super) value: *mut c_char,
    pub(super) source: c_int,
}

/// `rbd_linked_image_spec_t`.
#[repr(C)]
pub(super) struct LinkedImage {
    pub(super) pool_id: i64,
    pub(super) pool_name: *mut c_char,
    pub(super) pool_namespace: *mut c_char,
    pub(super) image_id: *mut c_char,
    pub(super) image_name: *mut c_char,
    pub(super) trash: bool,
}

/// `rbd_snap_spec_t`.
#[repr(C)]
pub(super) struct SnapSpec {
    pub(super) id: u64,
    pub(super) namespace_type: c_int,
    pub(super) name: *mut c_char,
}

/// `rbd_image_info_t`.
#[repr(C)]
pub(super) struct ImageInfo {
    pub(super) size: u64,
    pub(super) obj_size: u64,
    pub(super) num_objs: u64,
    pub(super) order: c_int,
    pub(super) block_name_prefix: [c_char; 24],
    pub(super) parent_pool: i64,
    pub(super) parent_name: [c_char; 96],
}

impl ImageInfo {
    /// To be filled in.
    pub(super) const EMPTY: Self = Self {
        size: 0,
        obj_size: 0,
        num_objs: 0,
        order: 0,
        block_name_prefix: [0; 24],
        parent_pool: 0,
        parent_name: [0; 96],
    };
}

/// `rbd_snap_info_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct SnapInfo {
    pub(super) id: u64,
    pub(super) size: u64,
    pub(super) name: *const c_char,
}

/// `RBD_SNAP_CREATE_SKIP_QUIESCE`: no other client is asked to pause.
pub(super) const SNAP_SKIP_QUIESCE: u32 = 1;

#[link(name = "rados")]
unsafe extern "C" {
    pub(super) fn rados_create(cluster: *mut Rados, id: *const c_char) -> c_int;
    pub(super) fn rados_conf_read_file(cluster: Rados, path: *const c_char) -> c_int;
    pub(super) fn rados_conf_set(
        cluster: Rados,
        option: *const c_char,
        value: *const c_char,
    ) -> c_int;
    pub(super) fn rados_conf_parse_argv(
        cluster: Rados,
        count: c_int,
        arguments: *const *const c_char,
    ) -> c_int;
    pub(super) fn rados_connect(cluster: Rados) -> c_int;
    pub(super) fn rados_shutdown(cluster: Rados);
    pub(super) fn rados_cluster_fsid(cluster: Rados, buf: *mut c_char, len: usize) -> c_int;
    pub(super) fn rados_get_instance_id(cluster: Rados) -> u64;
    pub(super) fn rados_wait_for_latest_osdmap(cluster: Rados) -> c_int;
    pub(super) fn rados_blocklist_add(cluster: Rados, address: *mut c_char, seconds: u32) -> c_int;
    pub(super) fn rados_ioctx_create(cluster: Rados, pool: *const c_char, io: *mut IoCtx) -> c_int;
    pub(super) fn rados_ioctx_create2(cluster: Rados, pool: i64, io: *mut IoCtx) -> c_int;
    pub(super) fn rados_ioctx_destroy(io: IoCtx);
    pub(super) fn rados_ioctx_set_namespace(io: IoCtx, namespace: *const c_char);
    pub(super) fn rados_ioctx_get_id(io: IoCtx) -> i64;
    pub(super) fn rados_stat(
        io: IoCtx,
        object: *const c_char,
        size: *mut u64,
        modified: *mut libc::time_t,
    ) -> c_int;
    pub(super) fn rados_get_last_version(io: IoCtx) -> u64;
    pub(super) fn rados_getxattr(
        io: IoCtx,
        object: *const c_char,
        name: *const c_char,
        value: *mut c_char,
        len: usize,
    ) -> c_int;
    pub(super) fn rados_read(
        io: IoCtx,
        object: *const c_char,
        bytes: *mut c_char,
        len: usize,
        offset: u64,
    ) -> c_int;
    pub(super) fn rados_exec(
        io: IoCtx,
        object: *const c_char,
        class: *const c_char,
        method: *const c_char,
        input: *const c_char,
        input_len: usize,
        output: *mut c_char,
        output_len: usize,
    ) -> c_int;
    pub(super) fn rados_create_write_op() -> WriteOp;
    pub(super) fn rados_write_op_create(op: WriteOp, exclusive: c_int, category: *const c_char);
    pub(super) fn rados_write_op_write_full(op: WriteOp, bytes: *const c_char, len: usize);
    pub(super) fn rados_write_op_remove(op: WriteOp);
    pub(super) fn rados_release_write_op(op: WriteOp);
    pub(super) fn rados_write_op_assert_version(op: WriteOp, version: u64);
    pub(super) fn rados_write_op_setxattr(
        op: WriteOp,
        name: *const c_char,
        value: *const c_char,
        len: usize,
    );
    pub(super) fn rados_write_op_operate(
        op: WriteOp,
        io: IoCtx,
        object: *const c_char,
        modified: *mut libc::time_t,
        flags: c_int,
    ) -> c_int;
    pub(super) fn rados_aio_create_completion2(
        argument: *mut c_void,
        callback: Option<unsafe extern "C" fn(Completion, *mut c_void)>,
        completion: *mut Completion,
    ) -> c_int;
    pub(super) fn rados_aio_exec(
        io: IoCtx,
        object: *const c_char,
        completion: Completion,
        class: *const c_char,
        method: *const c_char,
        input: *const c_char,
        input_len: usize,
        output: *mut c_char,
        output_len: usize,
    ) -> c_int;
    pub(super) fn rados_aio_is_complete(completion: Completion) -> c_int;
    pub(super) fn rados_aio_wait_for_complete(completion: Completion) -> c_int;
    pub(super) fn rados_aio_get_return_value(completion: Completion) -> c_int;
    pub(super) fn rados_aio_get_version(completion: Completion) -> u64;
    pub(super) fn rados_aio_cancel(io: IoCtx, completion: Completion) -> c_int;
    pub(super) fn rados_aio_release(completion: Completion);
    pub(super) fn rados_list_lockers(
        io: IoCtx,
        object: *const c_char,
        name: *const c_char,
        exclusive: *mut c_int,
        tag: *mut c_char,
        tag_len: *mut usize,
        clients: *mut c_char,
        clients_len: *mut usize,
        cookies: *mut c_char,
        cookies_len: *mut usize,
        addresses: *mut c_char,
        addresses_len: *mut usize,
    ) -> ssize_t;
    pub(super) fn rados_break_lock(
        io: IoCtx,
        object: *const c_char,
        name: *const c_char,
        client: *const c_char,
        cookie: *const c_char,
    ) -> c_int;
}

#[link(name = "rbd")]
unsafe extern "C" {
    pub(super) fn rbd_open(
        io: IoCtx,
        name: *const c_char,
        image: *mut RbdImage,
        snap: *const c_char,
    ) -> c_int;
    pub(super) fn rbd_open_read_only(
        io: IoCtx,
        name: *const c_char,
        image: *mut RbdImage,
        snap: *const c_char,
    ) -> c_int;
    pub(super) fn rbd_close(image: RbdImage) -> c_int;
    pub(super) fn rbd_get_size(image: RbdImage, size: *mut u64) -> c_int;
    pub(super) fn rbd_get_features(image: RbdImage, features: *mut u64) -> c_int;
    pub(super) fn rbd_get_flags(image: RbdImage, flags: *mut u64) -> c_int;
    pub(super) fn rbd_get_overlap(image: RbdImage, overlap: *mut u64) -> c_int;
    pub(super) fn rbd_get_stripe_count(image: RbdImage, count: *mut u64) -> c_int;
    pub(super) fn rbd_stat(image: RbdImage, info: *mut ImageInfo, len: usize) -> c_int;
    pub(super) fn rbd_get_parent(
        image: RbdImage,
        parent: *mut LinkedImage,
        snap: *mut SnapSpec,
    ) -> c_int;
    pub(super) fn rbd_linked_image_spec_cleanup(image: *mut LinkedImage);
    pub(super) fn rbd_snap_spec_cleanup(snap: *mut SnapSpec);
    pub(super) fn rbd_config_image_list(
        image: RbdImage,
        settings: *mut Setting,
        count: *mut c_int,
    ) -> c_int;
    pub(super) fn rbd_config_image_list_cleanup(settings: *mut Setting, count: c_int);
    pub(super) fn rbd_get_id(image: RbdImage, id: *mut c_char, len: usize) -> c_int;
    pub(super) fn rbd_snap_list(
        image: RbdImage,
        snaps: *mut SnapInfo,
        snaps_max: *mut c_int,
    ) -> c_int;
    pub(super) fn rbd_snap_list_end(snaps: *mut SnapInfo);
    pub(super) fn rbd_snap_create2(
        image: RbdImage,
        snap: *const c_char,
        flags: u32,
        progress: unsafe extern "C" fn(u64, u64, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    pub(super) fn rbd_snap_remove_by_id(image: RbdImage, snap: u64) -> c_int;
    pub(super) fn rbd_diff_iterate2(
        image: RbdImage,
        from_snap: *const c_char,
        offset: u64,
        len: u64,
        include_parent: u8,
        whole_object: u8,
        each: unsafe extern "C" fn(u64, usize, c_int, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    pub(super) fn rbd_snap_get_id(image: RbdImage, snap: *const c_char, id: *mut u64) -> c_int;
    pub(super) fn rbd_lock_acquire(image: RbdImage, mode: c_int) -> c_int;
    pub(super) fn rbd_lock_release(image: RbdImage) -> c_int;
    pub(super) fn rbd_is_exclusive_lock_owner(image: RbdImage, is_owner: *mut c_int) -> c_int;
    pub(super) fn rbd_watchers_list(
        image: RbdImage,
        watchers: *mut Watcher,
        count: *mut usize,
    ) -> c_int;
    pub(super) fn rbd_watchers_list_cleanup(watchers: *mut Watcher, count: usize);
    pub(super) fn rbd_set_image_notification(image: RbdImage, fd: c_int, kind: c_int) -> c_int;
    pub(super) fn rbd_poll_io_events(
        image: RbdImage,
        completions: *mut Completion,
        count: c_int,
    ) -> c_int;
    pub(super) fn rbd_aio_create_completion(
        argument: *mut c_void,
        callback: Option<unsafe extern "C" fn(Completion, *mut c_void)>,
        completion: *mut Completion,
    ) -> c_int;
    pub(super) fn rbd_aio_get_arg(completion: Completion) -> *mut c_void;
    pub(super) fn rbd_aio_get_return_value(completion: Completion) -> ssize_t;
    pub(super) fn rbd_aio_release(completion: Completion);
    pub(super) fn rbd_aio_readv(
        image: RbdImage,
        parts: *const iovec,
        count: c_int,
        offset: u64,
        completion: Completion,
    ) -> c_int;
    pub(super) fn rbd_aio_writev(
        image: RbdImage,
        parts: *const iovec,
        count: c_int,
        offset: u64,
        completion: Completion,
    ) -> c_int;
    pub(super) fn rbd_aio_flush(image: RbdImage, completion: Completion) -> c_int;
    pub(super) fn rbd_aio_discard(
        image: RbdImage,
        offset: u64,
        len: u64,
        completion: Completion,
    ) -> c_int;
    pub(super) fn rbd_aio_write_zeroes(
        image: RbdImage,
        offset: u64,
        len: usize,
        completion: Completion,
        zero_flags: c_int,
        op_flags: c_int,
    ) -> c_int;
}
