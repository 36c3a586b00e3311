//! What tests write: sectors that say whose they are.
//!
//! A sector of 512 bytes carries {volume, sector, version} and a body made of them, every byte of
//! which is compared: so a sector of another place, an older one, a torn or a rotten one can't be
//! taken for the right one.

use anyhow::{Result, ensure};

/// Bytes of a sector, the smallest thing that is written.
pub const SECTOR: usize = 512;
/// The version of a sector that reads as zeros.
pub const ZEROS: u64 = 0;
/// First bytes of each sector.
const MAGIC: [u8; 8] = *b"stamped\n";
/// Bytes in front of the body.
const HEAD: usize = 32;

/// Fills `data` as `version` of the sectors of `volume` from `first` on.
///
/// # Panics
/// When these are not whole sectors.
pub fn fill(data: &mut [u8], volume: u64, first: u64, version: u64) {
    assert!(data.len().is_multiple_of(SECTOR), "whole sectors");
    for (sector, bytes) in (first..).zip(data.chunks_exact_mut(SECTOR)) {
        if version == ZEROS {
            bytes.fill(0);
            continue;
        }
        let fields = [u64::from_le_bytes(MAGIC), volume, sector, version];
        let mut state = MAGIC[0].into();
        for (place, field) in bytes.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
            state = mix(state ^ field);
        }
        for word in bytes[HEAD..].chunks_exact_mut(8) {
            state = mix(state);
            word.copy_from_slice(&state.to_le_bytes());
        }
    }
}

/// Sectors of `volume` from `first` on, as `version` of them.
pub fn made(volume: u64, first: u64, sectors: u64, version: u64) -> Vec<u8> {
    let mut data = vec![0; sectors as usize * SECTOR];
    fill(&mut data, volume, first, version);
    data
}

/// Which version of `sector` of `volume` these bytes are; [`ZEROS`] if they are zeros.
///
/// # Errors
/// When they are none: another place's, torn, or rotten.
pub fn version(bytes: &[u8], volume: u64, sector: u64) -> Result<u64> {
    if bytes.iter().all(|&byte| byte == 0) {
        return Ok(ZEROS);
    }
    let field = |index: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[index * 8..][..8]);
        u64::from_le_bytes(word)
    };
    ensure!(bytes[..8] == MAGIC, "no stamp: {:02x?}", &bytes[..HEAD]);
    let (its_volume, its_sector, version) = (field(1), field(2), field(3));
    let mut whole = [0; SECTOR];
    fill(&mut whole, its_volume, its_sector, version);
    ensure!(bytes == whole, "torn or rotten: {:02x?}", &bytes[..HEAD]);
    ensure!(
        (its_volume, its_sector) == (volume, sector),
        "sector {its_sector} of volume {its_volume} instead"
    );
    Ok(version)
}

/// The finalizer of splitmix64.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_tell_themselves_apart() {
        let data = made(3, 100, 2, 7);
        let second = &data[SECTOR..];
        assert_eq!(version(second, 3, 101).expect("a stamp"), 7);
        assert!(version(second, 3, 100).is_err(), "another sector");
        assert!(version(second, 2, 101).is_err(), "another volume");
        assert_eq!(version(&[0; SECTOR], 3, 101).expect("zeros"), ZEROS);
    }

    #[test]
    fn a_single_bit_is_noticed() {
        for byte in [0, 8, 16, 24, 40, SECTOR - 1] {
            let mut data = made(3, 100, 1, 7);
            data[byte] ^= 1;
            assert!(version(&data, 3, 100).is_err(), "byte {byte}");
        }
    }
}
