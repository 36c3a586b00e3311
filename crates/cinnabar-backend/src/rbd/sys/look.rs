//! Looks at a header object: who has the image's lock, and does the cluster still serve this client?
//!
//! Nothing but the header's OSD can tell. librbd answers some reads without any OSD (of objects that
//! its object map knows to be absent), and an OSD serves reads of a client whose lock was broken
//! without fencing it off.
//!
//! A look is started here and asked for later, so that a silent cluster holds up nobody. A bell rings when
//! its answer is there.

use super::cluster::LOCK;
use super::{Cluster, checked, raw};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, write};
use std::ffi::{CStr, CString, c_void};
use std::sync::Arc;

/// Text of one answer, in bytes. One locker is some 200 bytes.
const ANSWER_BYTES: usize = 4096;
/// `CEPH_ENTITY_TYPE_CLIENT`.
const CLIENT: u8 = 8;

/// See the module.
#[derive(Debug)]
pub(in super::super) struct Look {
    /// Of its own: others wait for answers with theirs.
    io: raw::IoCtx,
    header: CString,
    question: Vec<u8>,
    /// Written to by librados while a look is under way.
    answer: Box<[u8; ANSWER_BYTES]>,
    under_way: Option<raw::Completion>,
    /// An eventfd. Each look under way holds it by itself: the library's thread may ring it when this
    /// value is gone.
    bell: Arc<OwnedFd>,
}

// SAFETY: librados' handles may be used by any thread, and these are nobody else's.
unsafe impl Send for Look {}

/// Who has the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Seen {
    /// `client.4123`.
    pub(in super::super) client: String,
    /// See [`Locker`](super::Locker).
    pub(in super::super) cookie: String,
}

impl Look {
    /// Prepares to look at a header object. The connection must outlive this.
    pub(in super::super) fn new(
        cluster: &Cluster,
        namespace: &str,
        header: &str,
        bell: Arc<OwnedFd>,
    ) -> Result<Self, Errno> {
        let (namespace, header) = (super::c_text(namespace)?, super::c_text(header)?);
        let mut io = std::ptr::null_mut();
        // SAFETY: the connection's handle lives; the place for the pool's one, too.
        checked(unsafe {
            raw::rados_ioctx_create2(cluster.rados(), cluster.pool_number(), &raw mut io)
        })?;
        // SAFETY: the pool's handle was just made and is nobody else's.
        unsafe { raw::rados_ioctx_set_namespace(io, namespace.as_ptr()) };
        let answer = Box::new([0; ANSWER_BYTES]);
        Ok(Self { io, header, question: question(LOCK), answer, under_way: None, bell })
    }

    /// Starts to look.
    pub(in super::super) fn start(&mut self) -> Result<(), Errno> {
        assert!(self.under_way.is_none(), "one look at a time");
        let mut completion = std::ptr::null_mut();
        let bell = Box::into_raw(Box::new(Arc::clone(&self.bell)));
        // SAFETY: what is called back takes over the box, once.
        let made = unsafe {
            raw::rados_aio_create_completion2(bell.cast(), Some(ring), &raw mut completion)
        };
        // SAFETY: nothing was started that would call back.
        let take_back = || drop(unsafe { Box::from_raw(bell) });
        if let Err(errno) = checked(made) {
            take_back();
            return Err(errno);
        }
        // SAFETY: the question is copied; the answer's memory is this value's, in a box, and left
        // alone until the completion has come (`taken`, `drop`).
        let started = checked(unsafe {
            let (object, input) = (self.header.as_ptr(), self.question.as_ptr().cast());
            let (class, method) = (c"lock".as_ptr(), c"get_info".as_ptr());
            let output = self.answer.as_mut_ptr().cast();
            let (input_len, output_len) = (self.question.len(), ANSWER_BYTES);
            raw::rados_aio_exec(
                self.io, object, completion, class, method, input, input_len, output, output_len,
            )
        });
        if started.is_ok() {
            self.under_way = Some(completion);
        } else {
            // SAFETY: a call that fails has not taken the completion, and calls nothing back.
            unsafe { raw::rados_aio_release(completion) };
            take_back();
        }
        started.map(drop)
    }

    /// Who has the lock, if the answer has come, and the header's version.
    pub(in super::super) fn taken(&mut self) -> Option<Result<(Option<Seen>, u64), Errno>> {
        let completion = self.under_way?;
        // SAFETY: it was made in `start` and not released.
        if unsafe { raw::rados_aio_is_complete(completion) } == 0 {
            return None;
        }
        self.under_way = None;
        // SAFETY: as above; it is complete, and this is the last use of it.
        let (result, version) = unsafe {
            let result = raw::rados_aio_get_return_value(completion);
            let version = raw::rados_aio_get_version(completion);
            raw::rados_aio_release(completion);
            (result, version)
        };
        Some(checked(result).and_then(|len| {
            let len = usize::try_from(len).map_err(|_| Errno::BADMSG)?;
            Ok((parse(self.answer.get(..len).ok_or(Errno::MSGSIZE)?)?, version))
        }))
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        // SAFETY: the completion was made in `start` and not released. A call that is cancelled
        // completes at once, and one that can't be is completing.
        unsafe {
            if let Some(completion) = self.under_way.take() {
                raw::rados_aio_cancel(self.io, completion);
                raw::rados_aio_wait_for_complete(completion);
                raw::rados_aio_release(completion);
            }
            raw::rados_ioctx_destroy(self.io);
        }
    }
}

/// An answer is there.
unsafe extern "C" fn ring(_: raw::Completion, bell: *mut c_void) {
    // SAFETY: the box that `start` made for this one call.
    let bell = unsafe { Box::from_raw(bell.cast::<Arc<OwnedFd>>()) };
    // It fails only when it has rung 2^64 - 2 times unheard.
    while write(&**bell, &1_u64.to_ne_bytes()) == Err(Errno::INTR) {}
}

/// `cls_lock_get_info_op`: version 1, readable since 1, its length, the lock's name.
fn question(lock: &CStr) -> Vec<u8> {
    let name = lock.to_bytes();
    let len = u32::try_from(name.len()).expect("a short name");
    [&[1, 1][..], &(len + 4).to_le_bytes(), &len.to_le_bytes(), name].concat()
}

/// The first locker of a `cls_lock_get_info_reply`: its length and version, the number of lockers;
/// of the first one length and version, the kind and the number of the client, the cookie. What
/// follows (its address, the lock's kind and tag) is not needed.
fn parse(answer: &[u8]) -> Result<Option<Seen>, Errno> {
    let mut rest = answer;
    let [_, _, _, _, _, _] = take(&mut rest)?;
    if u32::from_le_bytes(take(&mut rest)?) == 0 {
        return Ok(None);
    }
    let [_, _, _, _, _, _] = take(&mut rest)?;
    let [kind] = take(&mut rest)?;
    let number = i64::from_le_bytes(take(&mut rest)?);
    let len = u32::from_le_bytes(take(&mut rest)?) as usize;
    let cookie = String::from_utf8_lossy(rest.get(..len).ok_or(Errno::BADMSG)?).into_owned();
    let kind = if kind == CLIENT { "client" } else { "other" };
    Ok(Some(Seen { client: format!("{kind}.{number}"), cookie }))
}

/// The next bytes of an answer.
fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Errno> {
    let (head, tail) = rest.split_first_chunk().ok_or(Errno::BADMSG)?;
    *rest = tail;
    Ok(*head)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As an OSD of Ceph 16 sends it, up to the locker's address.
    #[test]
    fn an_answer_tells_who_has_the_lock() {
        let cookie = b"auto 94001234";
        let mut locker = vec![CLIENT];
        locker.extend(4123_i64.to_le_bytes());
        locker.extend((cookie.len() as u32).to_le_bytes());
        locker.extend(cookie);
        let mut answer = vec![1, 1, 99, 0, 0, 0, 1, 0, 0, 0, 1, 1];
        answer.extend((locker.len() as u32).to_le_bytes());
        answer.extend(&locker);
        let seen = Seen { client: "client.4123".into(), cookie: "auto 94001234".into() };
        assert_eq!(parse(&answer), Ok(Some(seen)));
        for len in 0..answer.len() {
            assert_eq!(parse(&answer[..len]), Err(Errno::BADMSG), "{len} bytes");
        }
        assert_eq!(parse(&[1, 1, 9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]), Ok(None));
        assert_eq!(parse(&[1, 1, 9, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 8]), Err(Errno::BADMSG));
    }

    #[test]
    fn the_question_names_the_lock() {
        assert_eq!(question(c"ab"), [1, 1, 6, 0, 0, 0, 2, 0, 0, 0, b'a', b'b']);
    }
}
