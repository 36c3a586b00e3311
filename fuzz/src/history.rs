//! The file of the history: no panic, and what is accepted is written as the same again.

use crate::input::Input;
use cinnabar_config::history::{decode, encode};

const HEAD: usize = 24;

/// Whether the head is to be made right (a flag), and the file; whether that is one.
///
/// # Panics
/// When a history does not come back as the same.
pub fn run(input: &[u8]) -> bool {
    let mut input = Input::new(input);
    let (is_whole, bytes) = (input.flag(), input.rest());
    let mut file = bytes.to_vec();
    if is_whole && bytes.len() >= HEAD {
        // What lies behind a checksum is met by those who can make one.
        let rest = bytes.len() - HEAD;
        file[..8].copy_from_slice(b"CINNHIST");
        file[8..12].copy_from_slice(&1_u32.to_le_bytes());
        file[12..20].copy_from_slice(&(rest as u64).to_le_bytes());
        let sum = crc32c::crc32c(&bytes[HEAD..]);
        file[20..HEAD].copy_from_slice(&sum.to_le_bytes());
    }
    let Ok(history) = decode(&file) else { return false };
    let again = encode(&history);
    let back = decode(&again).expect("it was just written");
    assert_eq!(encode(&back), again);
    true
}
