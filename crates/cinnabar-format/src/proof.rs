//! Change proofs, by which a back end shows whether a volume was written since.

/// Proof, in the backend's own words, of who a volume is and when it was last written: identity,
/// size, change time and the clock's time for a file. Opaque here; the backend that wrote it judges
/// it. The last 8 bytes are the driver's: the attachment in which it was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProofToken(pub [u8; 64]);

impl ProofToken {
    /// Where the driver's part begins.
    const ATTACHMENT: usize = 56;

    /// The same, taken in this attachment: a number chosen at random for each.
    #[must_use]
    pub fn of_attachment(mut self, attachment: u64) -> Self {
        self.0[Self::ATTACHMENT..].copy_from_slice(&attachment.to_le_bytes());
        self
    }

    /// In which attachment it was taken.
    ///
    /// # Panics
    /// Never: there are bytes enough.
    pub fn attachment(&self) -> u64 {
        u64::from_le_bytes(self.0[Self::ATTACHMENT..].try_into().expect("8 bytes"))
    }
}
