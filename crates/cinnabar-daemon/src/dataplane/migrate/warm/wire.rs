//! What blocks look like on their way from one host's cache to the other's.
//!
//! ```text
//! head    magic "CNWARM01" · epoch u64 · blocks u32 · 0 u32
//! block   number u64 · checksum u32 · 0 u32 · 4096 bytes
//! ```
//!
//! Numbers are little-endian. The checksum is seeded with epoch and number, so a block of another epoch or
//! another place is not taken for this one. Blocks that the sender does not have are left out.

use cinnabar_backend::Memory;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_engine::{Payload, mix};

/// First bytes of an answer.
const MAGIC: [u8; 8] = *b"CNWARM01";
const HEAD_BYTES: usize = 24;
const LINE_BYTES: usize = 16;
const DATA_BYTES: usize = BLOCK_BYTES as usize;

/// Blocks of one answer, at most.
pub(in super::super::super) const BLOCKS_MAX: usize = 256;
/// Length of the longest answer.
pub(super) const BYTES_MAX: usize = HEAD_BYTES + BLOCKS_MAX * (LINE_BYTES + DATA_BYTES);

/// An answer, as far as it could be used.
#[derive(Debug, Default)]
pub(in super::super::super) struct Received {
    /// The blocks, in ascending order, each once.
    pub(super) blocks: Vec<(u64, Memory)>,
    /// Blocks whose checksum is another.
    pub(super) damaged: u64,
}

fn seed(epoch: u64, block: u64) -> u64 {
    mix(epoch, block)
}

/// Blocks that were found; each is at the place of its own in `data`.
pub(super) fn encode(epoch: u64, data: &Memory, found: &[(u64, u64)]) -> Vec<u8> {
    assert!(found.len() <= BLOCKS_MAX, "no more are asked for");
    let mut bytes = Vec::with_capacity(HEAD_BYTES + found.len() * (LINE_BYTES + DATA_BYTES));
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&epoch.to_le_bytes());
    bytes.extend_from_slice(&(found.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    for (block, at) in found {
        bytes.extend_from_slice(&block.to_le_bytes());
        bytes.extend_from_slice(&data.checksum(*at, seed(epoch, *block)).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&data.to_vec(*at, BLOCK_BYTES));
    }
    bytes
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Reads an answer to a request for these blocks, which are in ascending order.
///
/// # Errors
/// What is wrong with it, if it is none, of another epoch, or has what was not asked for.
pub(super) fn decode(bytes: &[u8], epoch: u64, asked: &[u64]) -> Result<Received, &'static str> {
    if bytes.get(..8) != Some(&MAGIC) {
        return Err("it answers something else than blocks");
    }
    if u64_at(bytes, 8) != Some(epoch) {
        return Err("it answers for another epoch");
    }
    let count = u32_at(bytes, 16).ok_or("its answer is cut off")? as usize;
    if count > asked.len() {
        return Err("it sends more blocks than were asked for");
    }
    if bytes.len() != HEAD_BYTES + count * (LINE_BYTES + DATA_BYTES) {
        return Err("its answer has another length than it says");
    }
    let mut received = Received::default();
    for line in bytes[HEAD_BYTES..].chunks_exact(LINE_BYTES + DATA_BYTES) {
        let block = u64_at(line, 0).ok_or("its answer is cut off")?;
        let sum = u32_at(line, 8).ok_or("its answer is cut off")?;
        let is_next = received.blocks.last().is_none_or(|(last, _)| *last < block);
        if !is_next || asked.binary_search(&block).is_err() {
            return Err("it sends blocks that were not asked for");
        }
        let data = Memory::alloc(1);
        data.write_at(0, &line[LINE_BYTES..]);
        if data.checksum(0, seed(epoch, block)) == sum {
            received.blocks.push((block, data));
        } else {
            received.damaged += 1;
        }
    }
    Ok(received)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Memory, Vec<u8>) {
        let data = Memory::alloc(3);
        let bytes: Vec<u8> = (0..3 * DATA_BYTES).map(|at| (at * 7 / 5) as u8).collect();
        data.write_at(0, &bytes);
        let found = [(5, 8192), (7, 0)];
        let encoded = encode(9, &data, &found);
        (data, encoded)
    }

    #[test]
    fn what_is_sent_is_received() {
        let (data, bytes) = sample();
        let received = decode(&bytes, 9, &[2, 5, 7]).expect("an answer");
        assert_eq!((received.blocks.len(), received.damaged), (2, 0));
        for ((block, own), (number, at)) in received.blocks.iter().zip([(5, 8192), (7, 0)]) {
            assert_eq!(
                (*block, own.to_vec(0, BLOCK_BYTES)),
                (number, data.to_vec(at, BLOCK_BYTES))
            );
        }
        let none = encode(9, &data, &[]);
        assert!(decode(&none, 9, &[1]).expect("an answer").blocks.is_empty());
        assert!(bytes.len() <= BYTES_MAX);
    }

    #[test]
    fn what_was_not_asked_for_is_refused() {
        let (data, bytes) = sample();
        assert!(decode(&bytes, 8, &[5, 7]).is_err(), "another epoch");
        assert!(decode(&bytes, 9, &[5, 8]).is_err(), "another block");
        assert!(decode(&bytes, 9, &[7]).is_err(), "too many");
        let twice = encode(9, &data, &[(5, 0), (5, 0)]);
        assert!(decode(&twice, 9, &[5, 7]).is_err(), "one twice");
        for end in [0, 7, 8, 20, HEAD_BYTES, bytes.len() - 1] {
            assert!(decode(&bytes[..end], 9, &[5, 7]).is_err(), "{end}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(decode(&longer, 9, &[5, 7]).is_err(), "too long");
        let mut many = bytes;
        many[16..20].fill(0xff);
        assert!(decode(&many, 9, &[5, 7]).is_err(), "a count that overflows nothing");
    }

    #[test]
    fn a_block_that_is_not_what_it_was_is_left_out() {
        let (_, bytes) = sample();
        for at in [HEAD_BYTES + 8, HEAD_BYTES + LINE_BYTES, HEAD_BYTES + LINE_BYTES + 4095] {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            let received = decode(&bad, 9, &[5, 7]).expect("an answer");
            assert_eq!((received.blocks.len(), received.damaged), (1, 1), "{at}");
            assert_eq!(received.blocks[0].0, 7);
        }
        // Under another number it has another checksum.
        let mut moved = bytes;
        moved[HEAD_BYTES..HEAD_BYTES + 8].copy_from_slice(&6_u64.to_le_bytes());
        let received = decode(&moved, 9, &[6, 7]).expect("an answer");
        assert_eq!(received.damaged, 1);
    }
}
