//! Declarations of librados.h (Ceph 16 and later) and of `shim.cc`, as far as they are used.

use libc::{ssize_t, time_t};
use std::ffi::{c_char, c_int, c_uchar, c_void};

pub(crate) type Rados = *mut c_void;
pub(crate) type IoCtx = *mut c_void;
pub(crate) type Completion = *mut c_void;
pub(crate) type WriteOp = *mut c_void;
pub(crate) type ReadOp = *mut c_void;
pub(crate) type OmapIter = *mut c_void;
pub(crate) type Callback = unsafe extern "C" fn(Completion, *mut c_void);
pub(crate) type Sink = unsafe extern "C" fn(*mut c_void, *const c_char, usize);

/// `LIBRADOS_CREATE_EXCLUSIVE`.
pub(crate) const CREATE_EXCLUSIVE: c_int = 1;
/// `LIBRADOS_CREATE_IDEMPOTENT`.
pub(crate) const CREATE_IDEMPOTENT: c_int = 0;
/// `LIBRADOS_CMPXATTR_OP_EQ`.
pub(crate) const EQUAL: u8 = 1;
/// `LIBRADOS_OPERATION_ORDER_READS_WRITES`.
pub(crate) const ORDER_READS_WRITES: c_int = 4;
/// `LIBRADOS_OPERATION_FULL_TRY`.
pub(crate) const FULL_TRY: c_int = 64;
/// `LIBRADOS_OP_FLAG_FADVISE_RANDOM | LIBRADOS_OP_FLAG_FADVISE_DONTNEED`: nothing keeps it in memory.
pub(crate) const UNCACHED: c_int = 0x4 | 0x20;

#[link(name = "rados")]
unsafe extern "C" {
    pub(crate) fn rados_create(cluster: *mut Rados, id: *const c_char) -> c_int;
    pub(crate) fn rados_conf_read_file(cluster: Rados, path: *const c_char) -> c_int;
    pub(crate) fn rados_conf_set(
        cluster: Rados,
        option: *const c_char,
        value: *const c_char,
    ) -> c_int;
    pub(crate) fn rados_connect(cluster: Rados) -> c_int;
    pub(crate) fn rados_shutdown(cluster: Rados);
    pub(crate) fn rados_cluster_fsid(cluster: Rados, buf: *mut c_char, len: usize) -> c_int;
    pub(crate) fn rados_get_instance_id(cluster: Rados) -> u64;
    pub(crate) fn rados_getaddrs(cluster: Rados, addresses: *mut *mut c_char) -> c_int;
    pub(crate) fn rados_wait_for_latest_osdmap(cluster: Rados) -> c_int;
    pub(crate) fn rados_blocklist_add(cluster: Rados, address: *mut c_char, seconds: u32) -> c_int;
    pub(crate) fn rados_ioctx_create(cluster: Rados, pool: *const c_char, io: *mut IoCtx) -> c_int;
    pub(crate) fn rados_ioctx_destroy(io: IoCtx);
    pub(crate) fn rados_ioctx_set_namespace(io: IoCtx, namespace: *const c_char);
    pub(crate) fn rados_ioctx_get_id(io: IoCtx) -> i64;
    pub(crate) fn rados_create_write_op() -> WriteOp;
    pub(crate) fn rados_release_write_op(op: WriteOp);
    pub(crate) fn rados_write_op_set_flags(op: WriteOp, flags: c_int);
    pub(crate) fn rados_write_op_assert_exists(op: WriteOp);
    pub(crate) fn rados_write_op_assert_version(op: WriteOp, version: u64);
    pub(crate) fn rados_write_op_cmpext(
        op: WriteOp,
        bytes: *const c_char,
        len: usize,
        offset: u64,
        result: *mut c_int,
    );
    pub(crate) fn rados_write_op_cmpxattr(
        op: WriteOp,
        name: *const c_char,
        comparison: u8,
        value: *const c_char,
        len: usize,
    );
    pub(crate) fn rados_write_op_omap_cmp2(
        op: WriteOp,
        key: *const c_char,
        comparison: u8,
        value: *const c_char,
        key_len: usize,
        value_len: usize,
        result: *mut c_int,
    );
    pub(crate) fn rados_write_op_omap_set2(
        op: WriteOp,
        keys: *const *const c_char,
        values: *const *const c_char,
        key_lens: *const usize,
        value_lens: *const usize,
        count: usize,
    );
    pub(crate) fn rados_write_op_omap_rm_keys2(
        op: WriteOp,
        keys: *const *const c_char,
        key_lens: *const usize,
        count: usize,
    );
    pub(crate) fn rados_write_op_setxattr(
        op: WriteOp,
        name: *const c_char,
        value: *const c_char,
        len: usize,
    );
    pub(crate) fn rados_write_op_create(op: WriteOp, exclusive: c_int, category: *const c_char);
    pub(crate) fn rados_write_op_write(op: WriteOp, bytes: *const c_char, len: usize, offset: u64);
    pub(crate) fn rados_write_op_zero(op: WriteOp, offset: u64, len: u64);
    pub(crate) fn rados_write_op_remove(op: WriteOp);
    pub(crate) fn rados_write_op_exec(
        op: WriteOp,
        class: *const c_char,
        method: *const c_char,
        input: *const c_char,
        len: usize,
        result: *mut c_int,
    );
    pub(crate) fn rados_aio_write_op_operate(
        op: WriteOp,
        io: IoCtx,
        completion: Completion,
        object: *const c_char,
        modified: *mut time_t,
        flags: c_int,
    ) -> c_int;
    pub(crate) fn rados_create_read_op() -> ReadOp;
    pub(crate) fn rados_release_read_op(op: ReadOp);
    pub(crate) fn rados_read_op_set_flags(op: ReadOp, flags: c_int);
    pub(crate) fn rados_read_op_stat(
        op: ReadOp,
        size: *mut u64,
        modified: *mut time_t,
        result: *mut c_int,
    );
    pub(crate) fn rados_read_op_read(
        op: ReadOp,
        offset: u64,
        len: usize,
        bytes: *mut c_char,
        found: *mut usize,
        result: *mut c_int,
    );
    pub(crate) fn rados_read_op_omap_get_vals2(
        op: ReadOp,
        start_after: *const c_char,
        prefix: *const c_char,
        max: u64,
        iter: *mut OmapIter,
        more: *mut c_uchar,
        result: *mut c_int,
    );
    pub(crate) fn rados_omap_get_next2(
        iter: OmapIter,
        key: *mut *mut c_char,
        value: *mut *mut c_char,
        key_len: *mut usize,
        value_len: *mut usize,
    ) -> c_int;
    pub(crate) fn rados_omap_get_end(iter: OmapIter);
    pub(crate) fn rados_aio_read_op_operate(
        op: ReadOp,
        io: IoCtx,
        completion: Completion,
        object: *const c_char,
        flags: c_int,
    ) -> c_int;
    pub(crate) fn rados_aio_create_completion2(
        argument: *mut c_void,
        callback: Option<Callback>,
        completion: *mut Completion,
    ) -> c_int;
    pub(crate) fn rados_aio_get_return_value(completion: Completion) -> c_int;
    pub(crate) fn rados_aio_get_version(completion: Completion) -> u64;
    pub(crate) fn rados_aio_release(completion: Completion);
    pub(crate) fn rados_list_lockers(
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
    pub(crate) fn rados_break_lock(
        io: IoCtx,
        object: *const c_char,
        name: *const c_char,
        client: *const c_char,
        cookie: *const c_char,
    ) -> c_int;
    pub(crate) fn rados_buffer_free(buffer: *mut c_char);
}

unsafe extern "C" {
    pub(crate) fn cinnabar_rados_copy(
        to: IoCtx,
        to_name: *const c_char,
        from: IoCtx,
        from_name: *const c_char,
        version: u64,
        flags: c_int,
        argument: *mut c_void,
        callback: Callback,
    ) -> c_int;
    pub(crate) fn cinnabar_rados_list(
        pool: IoCtx,
        after: *const c_char,
        count: usize,
        argument: *mut c_void,
        sink: Sink,
        next: *mut c_char,
        next_len: usize,
    ) -> c_int;
}
