//! What can be chosen of a loss.

/// A host that loses its cache while the others keep theirs. The default is that none does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossSettings {
    /// When, in nanoseconds from the beginning of the measured part; divided by the scale, as the time
    /// is in which a cache fills. 0 is never.
    pub at_ns: u64,
    /// Which host, the first is 0.
    pub host: u32,
    /// Does it lose what is in RAM, too?
    pub ram_too: bool,
    /// I/Os that it may send to the file server in a second, until it is warm again; 0 is no limit.
    pub iops: u32,
    /// Do its threads leave out their pauses until it is warm again?
    pub hurry: bool,
}

impl LossSettings {
    /// Is there to be a loss?
    pub fn is_set(&self) -> bool {
        self.at_ns > 0
    }
}
