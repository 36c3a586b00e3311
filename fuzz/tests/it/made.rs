//! Inputs made of others as a fuzzer makes them, the same ones in every run.

/// Longest input.
const LEN_MAX: usize = 16 << 10;
/// Changes of one input.
const CHANGES_MAX: usize = 4;
/// Longest piece that is cut out, repeated or taken from another input.
const PIECE_MAX: usize = 64;
/// Bytes at the front, where lengths and types tend to be, that half of the changes are within.
const HEAD: usize = 64;
/// Bytes that mean something to binary formats, and to text ones.
const SPECIAL: &[u8] = b"\0\x01\x7F\x80\xFF019-+,. \n\r";

/// Makes inputs.
pub(crate) struct Maker {
    bases: Vec<Vec<u8>>,
    state: u64,
}

impl Maker {
    pub(crate) fn new(bases: Vec<Vec<u8>>) -> Self {
        assert!(!bases.is_empty(), "there is nothing to make inputs of");
        Self { bases, state: 1 }
    }

    /// The next one.
    pub(crate) fn make(&mut self) -> Vec<u8> {
        let base = self.below(self.bases.len());
        let mut input = self.bases[base].clone();
        for _ in 0..=self.below(CHANGES_MAX) {
            self.change(&mut input);
        }
        input.truncate(LEN_MAX);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.place(input.len());
        let end = (at + 1 + self.below(PIECE_MAX)).min(input.len());
        match self.below(9) {
            0 => input.truncate(at),
            1 => drop(input.drain(at..end)),
            2 => {
                let piece = input[at..end].to_vec();
                drop(input.splice(at..at, piece));
            }
            3 => {
                let other = self.below(self.bases.len());
                let from = self.place(self.bases[other].len());
                let piece = self.bases[other].iter().skip(from).take(end - at).copied();
                drop(input.splice(at..end, piece));
            }
            4 => {
                let byte = self.special();
                input.insert(at, byte);
            }
            5 => {
                let byte = self.special();
                set(input, at, |_| byte);
            }
            6 => {
                let more = 1 + self.below(8) as u8;
                set(input, at, |byte| byte.wrapping_add(more));
            }
            _ => {
                let bit = self.below(8);
                set(input, at, |byte| byte ^ 1 << bit);
            }
        }
    }

    fn special(&mut self) -> u8 {
        SPECIAL[self.below(SPECIAL.len())]
    }

    /// A place in so many bytes.
    fn place(&mut self, len: usize) -> usize {
        let within = if self.below(2) == 0 { len } else { len.min(HEAD) };
        self.below(within.max(1))
    }

    /// A number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 16) as usize % bound
    }
}

fn set(input: &mut [u8], at: usize, to: impl Fn(u8) -> u8) {
    if let Some(byte) = input.get_mut(at) {
        *byte = to(*byte);
    }
}
