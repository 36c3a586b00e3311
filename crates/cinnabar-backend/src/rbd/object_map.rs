//! An image's object map, as the class `rbd` of its OSD gives it (`object_map_load`): two bits an object.
//!
//! librbd and the kernel's client keep it before they create an object and after they have removed one, and
//! believe it before they read one, so an object that it knows to be absent is absent. Of all other states
//! nothing is needed here.

use rustix::io::Errno;

/// Objects of the largest map (`MAX_OBJECT_MAP_OBJECT_COUNT`).
pub(super) const OBJECTS_MAX: u64 = 256_000_000;
const OBJECTS_PER_BYTE: u64 = 4;
/// `OBJECT_NONEXISTENT`.
const ABSENT: u8 = 0;
/// Bytes of an answer beside the bits and their checksums.
const FRAME_BYTES: u64 = 256;

/// The name of the map's object, of the image itself.
pub(super) fn object_name(image_id: &str) -> String {
    format!("rbd_object_map.{image_id}")
}

/// Room for the answer about so many objects, in bytes: the bits, and checksums of 4 bytes for each 4096.
pub(super) fn answer_bytes(objects: u64) -> u64 {
    let bits = objects.div_ceil(OBJECTS_PER_BYTE);
    FRAME_BYTES + bits + bits / 512
}

/// Which objects below `objects` exist, or may. One that the map does not know may.
///
/// The answer: length of a header; the header (its version, the version that can read it, its length, the
/// number of objects); the bits, the first object's in the highest two of the first byte; checksums.
///
/// # Errors
/// It is cut short, or of a version that nobody here can read.
pub(super) fn present(
    answer: &[u8],
    objects: u64,
) -> Result<impl Iterator<Item = u64> + '_, Errno> {
    let mut rest = answer;
    let header_len = u32::from_le_bytes(take(&mut rest)?) as usize;
    let (header, bits) = rest.split_at_checked(header_len).ok_or(Errno::BADMSG)?;
    let mut header = header;
    let [_version, readable_by] = take(&mut header)?;
    if readable_by != 1 {
        return Err(Errno::BADMSG);
    }
    let _len: [u8; 4] = take(&mut header)?;
    let known = u64::from_le_bytes(take(&mut header)?);
    let bytes = usize::try_from(known.div_ceil(OBJECTS_PER_BYTE)).map_err(|_| Errno::BADMSG)?;
    let bits = bits.get(..bytes).ok_or(Errno::BADMSG)?;
    let state = move |object: u64| {
        let shift = (OBJECTS_PER_BYTE - 1 - object % OBJECTS_PER_BYTE) * 2;
        bits[(object / OBJECTS_PER_BYTE) as usize] >> shift & 3
    };
    Ok((0..objects).filter(move |object| *object >= known || state(*object) != ABSENT))
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

    fn list(answer: &[u8], objects: u64) -> Result<Vec<u64>, Errno> {
        present(answer, objects).map(Iterator::collect)
    }

    fn answer(known: u64, bits: &[u8]) -> Vec<u8> {
        let header = [&[1, 1][..], &8_u32.to_le_bytes(), &known.to_le_bytes()].concat();
        [&(header.len() as u32).to_le_bytes()[..], &header, bits, &[4, 0, 0, 0, 9, 9, 9, 9]]
            .concat()
    }

    #[test]
    fn all_that_is_not_known_to_be_absent_may_be_there() {
        // Exists, absent, being removed, unchanged since a snapshot; absent twice.
        let seven = answer(6, &[0b01_00_10_11, 0b00_00_00_00]);
        assert_eq!(list(&seven, 6), Ok(vec![0, 2, 3]));
        assert_eq!(list(&seven, 2), Ok(vec![0]));
        // It knows nothing of the last two.
        assert_eq!(list(&seven, 8), Ok(vec![0, 2, 3, 6, 7]));
        assert_eq!(object_name("10e1"), "rbd_object_map.10e1");
        assert_eq!(list(&answer(0, &[]), 2), Ok(vec![0, 1]));
        assert!(answer_bytes(6) > seven.len() as u64);
        assert!(answer_bytes(OBJECTS_MAX) < 70 << 20, "the largest one is held in memory");
    }

    #[test]
    fn what_is_cut_short_or_unknown_is_an_error() {
        let whole = answer(9, &[0, 0, 0]);
        let bits_end = whole.len() - 8;
        for len in 0..bits_end {
            assert_eq!(list(&whole[..len], 9), Err(Errno::BADMSG), "{len} bytes");
        }
        assert!(list(&whole[..bits_end], 9).is_ok());
        let mut newer = whole;
        newer[5] = 2;
        assert_eq!(list(&newer, 9), Err(Errno::BADMSG));
        assert_eq!(list(&answer(u64::MAX, &[0]), 9), Err(Errno::BADMSG));
    }
}
