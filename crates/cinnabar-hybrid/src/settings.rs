//! How a volume's extents are moved.

use cinnabar_placement::planner::{Benefit, BenefitSettings, Mobbs, MobbsSettings, Planner};
use cinnabar_placement::{Curve, Device, Devices, volume};

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
    /// Which planner.
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
    /// The planner, with what a probe has measured of the slow and the fast pool, if it has.
    pub(crate) fn planner(&self, measured: Option<[Device; 2]>) -> Box<dyn Planner + Send> {
        match self.planner {
            PlannerKind::Benefit => {
                let own = BenefitSettings::default();
                let period_s = self.round_s.unwrap_or(own.period_s);
                // A memory of as many rounds as by default.
                let memory_s = own.memory_s * period_s / own.period_s;
                let settings = BenefitSettings { period_s, memory_s, horizon_s: self.horizon_s };
                Box::new(Benefit::new(settings, devices(measured)))
            }
            PlannerKind::Mobbs => {
                let own = MobbsSettings::default();
                let period_s = self.round_s.unwrap_or(own.period_s);
                Box::new(Mobbs::new(MobbsSettings { period_s, ..own }))
            }
        }
    }
}

/// What was measured, if that says which pool is fast: the load of the moment may have hidden it.
fn devices(measured: Option<[Device; 2]>) -> Devices {
    let Some([slow, fast]) = measured else { return assumed_devices() };
    Devices::new(slow, fast).unwrap_or_else(|error| {
        tracing::warn!(%error, "moves are planned for a disk and an SSD as they commonly are; probe the pools again");
        assumed_devices()
    })
}

/// Disks of 8 ms and 120 MB/s, and SSDs of 0.2 ms and 400 MB/s: until a probe measures them, what is
/// slow and what is fast.
fn assumed_devices() -> Devices {
    let device = |random_ns: f64, on_ns: f64, bytes_per_s: f64| {
        let curve = |ns| Curve::line(ns, bytes_per_s).expect("times");
        let (read, read_on) = (curve(random_ns), curve(on_ns));
        Device { write: read.clone(), write_on: read_on.clone(), read, read_on }
    };
    let slow = device(8e6, 2e5, 120e6);
    Devices::new(slow, device(2e5, 1e5, 400e6)).expect("the fast one is faster")
}
