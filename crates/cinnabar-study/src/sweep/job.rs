//! One simulation of a sweep: its settings, and where its requests come from.

use super::load::Load;
use super::memory;
use crate::timed::Config;

/// One simulation.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// Name of the job in messages.
    pub name: String,
    /// The settings; their seed, too.
    pub config: Config,
    /// Where requests come from.
    pub load: Load<'a>,
}

impl Job<'_> {
    /// A simulation of requests that are made up.
    pub fn generated(name: impl Into<String>, config: Config) -> Self {
        Self { name: name.into(), config, load: Load::Generated }
    }

    /// Blocks that it reads and writes, the warm-up included.
    pub fn ios(&self) -> u64 {
        let Load::Trace { ios, .. } = self.load else {
            let config = &self.config;
            let set = config.working_set_blocks / u64::from(config.scale.max(1));
            let of_host = set as f64 * config.volume_multiple;
            #[expect(clippy::cast_sign_loss, reason = "a float below 0 becomes 0")]
            return (of_host * f64::from(config.hosts)) as u64;
        };
        ios
    }

    /// Bytes of memory that it takes at most, roughly.
    pub fn memory_bytes(&self) -> u64 {
        memory::needed_bytes(&self.config, &self.load)
    }
}
