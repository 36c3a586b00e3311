//! Locks of the OSDs' class `lock`: who has one, and how it is taken within an operation.
//!
//! A lock is advice: it keeps nobody from writing. What is written under it is kept apart by fences and by
//! comparing epochs. Its lease is counted by the OSD's clock.

use rustix::io::Errno;
use std::ffi::CStr;
use std::time::Duration;

pub(crate) const CLASS: &CStr = c"lock";
/// `ClsLockType::EXCLUSIVE`.
const EXCLUSIVE: u8 = 1;
/// `LOCK_FLAG_MAY_RENEW`.
const MAY_RENEW: u8 = 1;

/// A lock with a lease, as its holder takes and renews it.
#[derive(Clone, Copy, Debug)]
pub struct Lease<'a> {
    /// The lock's name.
    pub name: &'a str,
    /// What tells holders of one client apart.
    pub cookie: &'a str,
    /// For people.
    pub description: &'a str,
    /// For how long it holds from now on.
    pub duration: Duration,
}

/// Who has a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locker {
    /// `client.4123`.
    pub client: String,
    /// What the holder gave with it.
    pub cookie: String,
    /// `127.0.0.1:0/1234`.
    pub address: String,
}

/// `cls_lock_lock_op`: an exclusive lock, or the same one renewed.
pub(crate) fn lock_input(lease: &Lease<'_>) -> Result<Vec<u8>, Errno> {
    let mut body = Vec::new();
    text(&mut body, lease.name)?;
    body.push(EXCLUSIVE);
    text(&mut body, lease.cookie)?;
    // No tag.
    text(&mut body, "")?;
    text(&mut body, lease.description)?;
    let seconds = u32::try_from(lease.duration.as_secs()).map_err(|_| Errno::INVAL)?;
    body.extend(seconds.to_le_bytes());
    body.extend(lease.duration.subsec_nanos().to_le_bytes());
    body.push(MAY_RENEW);
    framed(&body)
}

/// `cls_lock_unlock_op`.
pub(crate) fn unlock_input(lease: &Lease<'_>) -> Result<Vec<u8>, Errno> {
    let mut body = Vec::new();
    text(&mut body, lease.name)?;
    text(&mut body, lease.cookie)?;
    framed(&body)
}

/// As Ceph encodes a structure: its version, the lowest one that can read it, and its length.
fn framed(body: &[u8]) -> Result<Vec<u8>, Errno> {
    let len = u32::try_from(body.len()).map_err(|_| Errno::INVAL)?;
    Ok([&[1, 1][..], &len.to_le_bytes(), body].concat())
}

fn text(to: &mut Vec<u8>, text: &str) -> Result<(), Errno> {
    let len = u32::try_from(text.len()).map_err(|_| Errno::INVAL)?;
    to.extend(len.to_le_bytes());
    to.extend(text.bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_encoded_as_the_class_reads_it() {
        let duration = Duration::new(30, 5);
        let lease = Lease { name: "ab", cookie: "c", description: "", duration };
        let whole = lock_input(&lease).expect("short");
        // 2 bytes and a length before: ab, type, c, no tag, no description, time, flags.
        let body = [
            &[2, 0, 0, 0, b'a', b'b', 1, 1, 0, 0, 0, b'c', 0, 0, 0, 0, 0, 0, 0, 0][..],
            &[30, 0, 0, 0, 5, 0, 0, 0, 1],
        ]
        .concat();
        assert_eq!(whole[..6], [1, 1, 29, 0, 0, 0]);
        assert_eq!(whole[6..], body);
        let unlock = unlock_input(&lease).expect("short");
        assert_eq!(unlock, [1, 1, 11, 0, 0, 0, 2, 0, 0, 0, b'a', b'b', 1, 0, 0, 0, b'c']);
    }
}
