//! What views are made of. Gathered by the control plane; nothing here asks anybody.

use crate::range::Range;
use crate::rates::Rates;
use crate::window::Window;
use cinnabar_config::history::{EventReport, Point};
use cinnabar_config::status::raw::{DataStatus, VolumeStatus};
use cinnabar_config::status::report::{StatusReport, VolumeReport};
use cinnabar_manager::report::{ExplainReport, HistoryReport, PlanReport};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why there is no answer, and what would help.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// One line.
    pub message: String,
    /// Another one; may be empty.
    pub hint: String,
}

/// Another size, or another allocator.
#[derive(Clone, Debug, PartialEq)]
pub struct WhatIf {
    /// As it was asked for, in bytes; absent: as large as it is.
    pub size_bytes: Option<u64>,
    /// As it was asked for; absent: who divides the cache now.
    pub allocator: Option<String>,
    /// What was asked for cannot be read.
    pub wrong: Option<Trouble>,
    /// As it is.
    pub now: Result<PlanReport, Trouble>,
    /// As it would be.
    pub then: Result<PlanReport, Trouble>,
}

/// See the module. A view uses what it needs of it; the rest may be empty.
#[derive(Clone, Debug)]
pub struct Data {
    /// The time, in milliseconds since 1970.
    pub now_ms: u64,
    /// Of the daemon.
    pub version: String,
    /// Which run of the daemon it is.
    pub run: u64,
    /// The control socket, for command lines.
    pub socket: String,
    /// Changes can be made over HTTP.
    pub may_act: bool,
    /// As the data plane said it.
    pub status: Arc<DataStatus>,
    /// The same as `GET /v1/status` has it.
    pub report: Arc<StatusReport>,
    /// What happens now; absent: nothing is known yet.
    pub rates: Option<Rates>,
    /// Of which time the view is.
    pub range: Range,
    /// Samples of the cache, of that time.
    pub samples: Vec<Point>,
    /// What each volume did in that time.
    pub windows: BTreeMap<String, Window>,
    /// The volume that is looked at.
    pub volume: String,
    pub volume_samples: Vec<Point>,
    /// Samples of all volumes.
    pub shares: Vec<(String, Vec<Point>)>,
    /// The newest plans, the newest last.
    pub plans: Result<HistoryReport, Trouble>,
    /// Why the volume has what it has.
    pub explain: Option<Result<ExplainReport, Trouble>>,
    /// What would be.
    pub what_if: Option<WhatIf>,
    /// What happened, the newest last.
    pub events: Vec<EventReport>,
    /// Which events are shown: those with this word.
    pub filter: String,
    /// All rows of long tables are shown.
    pub all_rows: bool,
}

impl Data {
    /// Of a status, what is reported of it, and a time; the rest is empty.
    pub fn new(
        now_ms: u64,
        status: Arc<DataStatus>,
        report: Arc<StatusReport>,
        range: Range,
    ) -> Self {
        Self {
            now_ms,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            run: 0,
            socket: String::new(),
            may_act: false,
            status,
            report,
            rates: None,
            range,
            samples: Vec::new(),
            windows: BTreeMap::new(),
            volume: String::new(),
            volume_samples: Vec::new(),
            shares: Vec::new(),
            plans: Err(Trouble::default()),
            explain: None,
            what_if: None,
            events: Vec::new(),
            filter: String::new(),
            all_rows: false,
        }
    }

    pub(crate) fn window(&self) -> Window {
        Window::of(&self.samples)
    }

    pub(crate) fn window_of(&self, name: &str) -> Window {
        self.windows.get(name).copied().unwrap_or_default()
    }

    /// The volume that is looked at, as it is reported and raw.
    pub(crate) fn own(&self) -> Option<(&VolumeReport, &VolumeStatus)> {
        let at = self.report.volumes.iter().position(|volume| volume.name == self.volume)?;
        Some((&self.report.volumes[at], &self.status.volumes[at]))
    }

    /// Whether there is the volume that is looked at.
    pub fn has_volume(&self) -> bool {
        self.own().is_some()
    }

    pub(crate) fn plan(&self) -> Option<&PlanReport> {
        self.plans.as_ref().ok().and_then(|history| history.plans.last())
    }
}
