//! Memory of a request, as pools get it: a guest's, or the driver's own.

use libc::iovec;
use smallvec::SmallVec;

/// Memory that an operation reads into or writes from; not owned.
#[derive(Debug, Default)]
pub struct Buffers {
    parts: SmallVec<[iovec; 1]>,
}

// SAFETY: the one who made it vouches that the memory stays, whatever thread looks at it.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Of these parts, in order.
    ///
    /// # Safety
    /// The memory stays, and is no one else's to write, until the operation that gets this has ended: its
    /// completion was taken from [`Pools::completions`](crate::pools::Pools::completions), or the pools
    /// were dropped.
    pub unsafe fn new(parts: SmallVec<[iovec; 1]>) -> Self {
        Self { parts }
    }

    /// The parts, in order. None is empty.
    pub fn parts(&self) -> &[iovec] {
        &self.parts
    }

    pub fn len_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.iov_len as u64).sum()
    }

    /// Zeroes everything from byte `from` on: what a read found no object for, or behind its end.
    pub fn zero_from(&self, from: u64) {
        let mut skip = from;
        for part in &self.parts {
            let len = part.iov_len as u64;
            if skip < len {
                let start = part.iov_base.wrapping_byte_add(skip as usize);
                // SAFETY: within a part, which is the operation's alone (`new`).
                unsafe { start.cast::<u8>().write_bytes(0, (len - skip) as usize) };
            }
            skip = skip.saturating_sub(len);
        }
    }
}

/// The part of a list of buffers from byte `skip` on, `len` bytes long.
///
/// # Panics
/// If the list is shorter.
pub fn part_of(memory: &[iovec], skip: u64, len: u64) -> SmallVec<[iovec; 1]> {
    let (mut skip, mut left) = (skip as usize, len as usize);
    let mut parts = SmallVec::new();
    for whole in memory {
        if left == 0 {
            break;
        }
        if skip >= whole.iov_len {
            skip -= whole.iov_len;
            continue;
        }
        let iov_len = left.min(whole.iov_len - skip);
        parts.push(iovec { iov_base: whole.iov_base.wrapping_byte_add(skip), iov_len });
        (skip, left) = (0, left - iov_len);
    }
    assert!(left == 0, "the memory is as long as the request");
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    fn part(bytes: &mut [u8]) -> iovec {
        iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
    }

    #[test]
    fn a_range_is_cut_out_of_a_list() {
        let mut bytes = [0_u8; 48];
        let base = bytes.as_mut_ptr() as usize;
        let (first, second) = bytes.split_at_mut(16);
        let memory = [part(first), part(second)];
        let cut = part_of(&memory, 10, 20);
        let shown: Vec<_> = cut.iter().map(|p| (p.iov_base as usize - base, p.iov_len)).collect();
        assert_eq!(shown, [(10, 6), (16, 14)]);
        assert_eq!(part_of(&memory, 16, 32).len(), 1);
    }

    #[test]
    fn the_rest_is_zeroed() {
        let mut bytes = [7_u8; 48];
        let (first, second) = bytes.split_at_mut(16);
        let parts = smallvec![part(first), part(second)];
        // SAFETY: the array outlives it.
        let buffers = unsafe { Buffers::new(parts) };
        assert_eq!(buffers.len_bytes(), 48);
        buffers.zero_from(20);
        assert!(bytes[..20].iter().all(|b| *b == 7) && bytes[20..].iter().all(|b| *b == 0));
    }
}
