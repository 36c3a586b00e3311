//! Which volumes of a trace a command is to look at.

use cinnabar_text::Failure;
use cinnabar_trace::Trace;
use std::collections::BTreeMap;

/// The volumes named on the command line; none is all of them.
#[derive(Debug)]
pub(super) struct Choice {
    /// With those of them that were met.
    wanted: BTreeMap<String, bool>,
    /// What was found out of a volume's number, which a trace asks again and again.
    last: Option<(u32, bool)>,
}

impl Choice {
    pub(super) fn new(volumes: &[String]) -> Self {
        let wanted = volumes.iter().map(|volume| (volume.clone(), false)).collect();
        Self { wanted, last: None }
    }

    /// Is this volume of the trace among them?
    pub(super) fn has(&mut self, trace: &Trace, volume: u32) -> bool {
        if self.wanted.is_empty() {
            return true;
        }
        if let Some((last, chosen)) = self.last
            && last == volume
        {
            return chosen;
        }
        let wanted = self.wanted.get_mut(&*trace.volume_name(volume));
        let chosen = wanted.map(|met| *met = true).is_some();
        self.last = Some((volume, chosen));
        chosen
    }

    /// All of them must have been met, once the trace was read.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match self.wanted.iter().find(|(_, met)| !**met) {
            None => Ok(()),
            Some((name, _)) => Err(Failure::of_usage(
                format!("volume {name:?} is not there, or asks for nothing then"),
                "cinnabar-lab trace info --volumes all lists them by name, or by number if they have none",
            )),
        }
    }
}
