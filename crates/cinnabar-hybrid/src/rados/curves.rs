//! What a probe measured of both pools, as bytes.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | CRC-32C of all that follows |
//! | 4 | 4 | `CURV` |
//! | 8 | 1 | version, 1 |
//! | 9 | | eight curves: of the slow pool read, write, read on, write on; then of the fast one |
//!
//! A curve is its number of points (1 byte, up to 8), and of each one the length in bytes (4) and the service time in
//! ns (8), little-endian.

use cinnabar_placement::limits::POINTS_MAX;
use cinnabar_placement::{Curve, Device, Point};

/// The version that this code writes, and the highest that it reads.
pub const CURVES_VERSION: u8 = 1;
const MAGIC: [u8; 4] = *b"CURV";
const HEAD_BYTES: usize = 9;
const POINT_BYTES: usize = 12;

/// Why stored curves are not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CurvesError {
    /// No curves.
    #[error("not the curves of a hybrid volume's pools")]
    Foreign,
    /// Written by a newer version.
    #[error("the curves have version {0}; this program reads up to {CURVES_VERSION}")]
    Version(u8),
    /// Rotten, torn, or no service times.
    #[error("the curves are damaged")]
    Damaged,
}

/// The bytes of the devices of the slow and of the fast pool.
#[allow(clippy::cast_sign_loss, reason = "times are positive")]
pub fn encode_curves([slow, fast]: [&Device; 2]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend(MAGIC);
    bytes.push(CURVES_VERSION);
    for curve in [slow, fast].into_iter().flat_map(|d| [&d.read, &d.write, &d.read_on, &d.write_on])
    {
        bytes.push(curve.points().len() as u8);
        for point in curve.points() {
            bytes.extend(point.length.to_le_bytes());
            // Between 1 and 1e12, by the rules of curves.
            bytes.extend((point.ns.max(1.0) as u64).to_le_bytes());
        }
    }
    let crc = crc32c::crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Reads what [`encode_curves`] wrote: the slow and the fast pool.
///
/// # Errors
/// When it is none, newer or damaged.
pub fn decode_curves(bytes: &[u8]) -> Result<[Device; 2], CurvesError> {
    if bytes.len() < HEAD_BYTES || bytes[4..8] != MAGIC {
        return Err(CurvesError::Foreign);
    }
    if bytes[8] > CURVES_VERSION {
        return Err(CurvesError::Version(bytes[8]));
    }
    if bytes[..4] != crc32c::crc32c(&bytes[4..]).to_le_bytes() || bytes[8] != CURVES_VERSION {
        return Err(CurvesError::Damaged);
    }
    let mut rest = &bytes[HEAD_BYTES..];
    let mut device = || -> Result<Device, CurvesError> {
        let mut curve = || curve(&mut rest).ok_or(CurvesError::Damaged);
        let (read, write, read_on) = (curve()?, curve()?, curve()?);
        Ok(Device { read, write, read_on, write_on: curve()? })
    };
    let devices = [device()?, device()?];
    if rest.is_empty() { Ok(devices) } else { Err(CurvesError::Damaged) }
}

fn curve(rest: &mut &[u8]) -> Option<Curve> {
    let (&count, behind) = rest.split_first()?;
    let count = usize::from(count);
    let (points, behind) =
        (count <= POINTS_MAX).then(|| behind.split_at_checked(count * POINT_BYTES))??;
    *rest = behind;
    let points: Vec<Point> = points
        .chunks_exact(POINT_BYTES)
        .map(|bytes| {
            let (length, ns) = bytes.split_first_chunk::<4>()?;
            let ns = u64::from_le_bytes(ns.try_into().ok()?) as f64;
            Some(Point { length: u32::from_le_bytes(*length), ns })
        })
        .collect::<Option<_>>()?;
    Curve::new(&points).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn device(ns: f64) -> Device {
        let curve = |ns| {
            let point = |length, ns| Point { length, ns };
            Curve::new(&[point(4096, ns), point(1 << 22, ns * 3.0)]).expect("it rises")
        };
        Device {
            read: curve(ns),
            write: curve(ns + 1.0),
            read_on: curve(ns + 2.0),
            write_on: curve(ns + 3.0),
        }
    }

    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let crc = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn curves_are_read_as_they_were_written() {
        let (slow, fast) = (device(8e6), device(1e5));
        let bytes = encode_curves([&slow, &fast]);
        assert_eq!(decode_curves(&bytes), Ok([slow, fast]));
    }

    #[test]
    fn foreign_newer_and_damaged_ones_are_told_apart() {
        let bytes = encode_curves([&device(8e6), &device(1e5)]);
        assert_eq!(decode_curves(b""), Err(CurvesError::Foreign));
        assert_eq!(decode_curves(&[0; 40]), Err(CurvesError::Foreign));
        let changed = |at: usize, to: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = to;
            bytes
        };
        assert_eq!(decode_curves(&changed(8, 2)), Err(CurvesError::Version(2)));
        assert_eq!(decode_curves(&changed(20, 9)), Err(CurvesError::Damaged));
        // A checksum that fits does not make a curve.
        for (at, to) in [(8, 0), (9, 0), (9, 9), (9, 200), (12, 255)] {
            let found = decode_curves(&sealed(changed(at, to)));
            assert_eq!(found, Err(CurvesError::Damaged), "{at} {to}");
        }
        assert_eq!(decode_curves(&sealed(changed(9, 3))), Err(CurvesError::Damaged));
        assert_eq!(decode_curves(&bytes[..60]), Err(CurvesError::Damaged));
        assert_eq!(decode_curves(&sealed([&bytes[..], &[0]].concat())), Err(CurvesError::Damaged));
    }

    proptest! {
        #[test]
        fn bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 9..200)) {
            bytes[4..8].copy_from_slice(&MAGIC);
            bytes[8] = CURVES_VERSION;
            let _ = decode_curves(&sealed(bytes));
        }
    }
}
