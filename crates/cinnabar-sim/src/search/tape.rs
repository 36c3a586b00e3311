//! Bytes that choose: read from front to back, and over when they end.

/// The bytes of one run.
#[derive(Clone, Debug)]
pub(super) struct Tape<'a> {
    rest: &'a [u8],
}

impl<'a> Tape<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next byte, unless the tape has ended.
    pub(super) fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// The next byte; 0 where the tape has ended.
    pub(super) fn byte(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }
}
