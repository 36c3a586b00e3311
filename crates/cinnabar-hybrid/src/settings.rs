//! How a volume's extents are moved.

use cinnabar_placement::planner::{Benefit, BenefitSettings, Mobbs, MobbsSettings, Planner};
use cinnabar_placement::{Device, Devices, volume};

/// Which planner decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlannerKind {
    /// The most saved time for each byte of the fast pool.
    #[default]
    Benefit,
    /// As the authors of MOBBS coded it.
    Mobbs,
}

impl PlannerKind {
    /// As an operator writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Benefit => "benefit",
            Self::Mobbs => "mobbs",
        }
    }
}

/// What an operator sets of moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    pub planner: PlannerKind,
    /// Seconds from round to round; `None`: the planner's own.
    pub round_s: Option<f64>,
    /// Seconds within which a move must have saved what its copies cost; `benefit` only.
    pub horizon_s: f64,
    /// Bytes that are copied a second, on average; 0 moves nothing.
    pub copy_bytes_per_s: u64,
    /// Another budget of the fast pool than the table has, in bytes.
    pub budget_bytes: Option<u64>,
}

impl Default for Settings {
    /// `benefit`, a horizon of 30 minutes, 32 MiB/s.
    fn default() -> Self {
        Self {
            planner: PlannerKind::Benefit,
            round_s: None,
            horizon_s: BenefitSettings::default().horizon_s,
            copy_bytes_per_s: volume::Settings::default().copy_bytes_per_s,
            budget_bytes: None,
        }
    }
}

impl Settings {
    /// The planner, with what the pools take.
    pub(crate) fn planner(&self, devices: Devices) -> Box<dyn Planner + Send> {
        match self.planner {
            PlannerKind::Benefit => {
                let own = BenefitSettings::default();
                let period_s = self.round_s.unwrap_or(own.period_s);
                // A memory of as many rounds as by default.
                let memory_s = own.memory_s * period_s / own.period_s;
                let settings = BenefitSettings { period_s, memory_s, horizon_s: self.horizon_s };
                Box::new(Benefit::new(settings, devices))
            }
            PlannerKind::Mobbs => {
                let own = MobbsSettings::default();
                let period_s = self.round_s.unwrap_or(own.period_s);
                Box::new(Mobbs::new(MobbsSettings { period_s, ..own }))
            }
        }
    }
}

/// What was measured of the slow and the fast pool, if it was and says which pool is fast: the load of the moment may
/// have hidden it.
pub(crate) fn devices(measured: Option<[Device; 2]>) -> Devices {
    let Some([slow, fast]) = measured else { return Devices::default() };
    Devices::new(slow, fast).unwrap_or_else(|error| {
        tracing::warn!(%error, "moves are planned for a disk and an SSD as they commonly are; probe the pools again");
        Devices::default()
    })
}
