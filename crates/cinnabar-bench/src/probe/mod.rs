//! `cinnabar-lab bench probe`: how long a device or backend takes, by operation, size and depth, and a
//! model of it to use in its place.
//!
//! * [`plan`]: what is measured. `device`: what it is measured on. `scratch`: a file for that.
//! * `prober`: the measurement, with the data plane's own disks, port and models. `offsets`: where
//!   operations go. [`window`]: which of them count. `waits`: time that was lost to other work.
//! * [`mod@fit`], `curve`: from figures to a model, pure; [`mod@predict`]: from a model to figures again.
//! * [`report`]: the figures as rows.

mod curve;
mod device;
mod error;
pub mod fit;
mod offsets;
pub mod plan;
pub mod predict;
mod prober;
pub mod report;
mod scratch;
mod waits;
pub mod window;

pub use device::Target;
pub use error::ProbeError;

use self::device::Device;
use self::fit::fit;
use self::plan::{Cell, Plan};
use self::predict::predict;
use self::prober::Prober;
use self::report::{Predicted, PresetReport, Report, Row, comments};
use self::window::Measured;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_model::file;

/// Disturbed operations that are worth a word, in per cent.
const DISTURBED_PERCENT: f64 = 1.0;

/// How far a probe is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A file is made for it: bytes of bytes.
    Making(u64, u64),
    /// A cell is measured: its number of so many.
    Measuring(usize, usize, Cell),
}

/// What a probe found.
#[derive(Clone, Debug)]
pub struct Found {
    device_bytes: u64,
    measured: Vec<Measured>,
    /// The figures; a preset is not among them yet.
    pub report: Report,
}

/// Measures all cells of a plan.
///
/// # Errors
/// [`ProbeError`], whose [`hint`](ProbeError::hint) helps. A file that was made is removed.
pub fn probe(
    target: &Target,
    plan: &Plan,
    progress: &mut dyn FnMut(Progress),
) -> Result<Found, ProbeError> {
    let bytes = target.size_bytes.unwrap_or(0);
    let device = Device::open(target, plan, &mut |done| progress(Progress::Making(done, bytes)))?;
    let (mut prober, notes) = Prober::new(device)?;
    let cells = plan.cells();
    let mut measured = Vec::with_capacity(cells.len());
    for (number, &cell) in cells.iter().enumerate() {
        progress(Progress::Measuring(number + 1, cells.len(), cell));
        measured.push(prober.measure(plan, cell)?);
    }
    let disk = prober.disk();
    let notes = notes.into_iter().chain(disturbed(&measured)).collect();
    let report = Report {
        device: target.text.clone(),
        device_bytes: disk.size_bytes(),
        io: prober.port_name(),
        direct: disk.is_direct(),
        pattern: plan.pattern,
        seed: plan.seed,
        notes,
        cells: measured.iter().map(Row::new).collect(),
        preset: None,
    };
    Ok(Found { device_bytes: disk.size_bytes(), measured, report })
}

impl Found {
    /// Fits a model, says in each row what it does there, and returns the text of its file, which
    /// is to be called `name`.
    ///
    /// # Errors
    /// [`Unfit`](fit::Unfit) if the plan had not what it takes.
    pub fn fit(&mut self, plan: &Plan, name: &str) -> Result<String, fit::Unfit> {
        let spec = fit(&self.measured)?;
        let text = file::render(&spec, &comments(&self.report.device, plan, &self.measured));
        let (mut iops, mut latency) = (0.0, 0.0);
        for (row, measured) in self.report.cells.iter_mut().zip(&self.measured) {
            let predicted = predict(&spec, measured.cell, plan.pattern, self.device_bytes);
            let one = Predicted { iops: predicted.iops(), mean_us: predicted.mean_ns() / 1000.0 };
            iops = f64::max(iops, off_percent(one.iops, row.iops));
            if row.depth == 1 {
                latency = f64::max(latency, off_percent(one.mean_us, row.latency_us.mean));
            }
            row.preset = Some(one);
        }
        self.report.preset = Some(PresetReport {
            file: name.to_owned(),
            text: text.clone(),
            iops_off_percent_max: iops,
            latency_off_percent_max: latency,
        });
        Ok(text)
    }
}

/// What to say of a host that has other things to do.
fn disturbed(measured: &[Measured]) -> Option<String> {
    let all: u64 = measured.iter().map(|one| one.completed).sum();
    let count: u64 = measured.iter().map(Measured::operations).sum();
    let percent = (all - count) as f64 / all.max(1) as f64 * 100.0;
    (percent >= DISTURBED_PERCENT).then(|| {
        format!(
            "other work kept the probe from the CPU in {percent:.1} % of the operations; they are left \
             out, but an idle host measures better"
        )
    })
}

/// How far one figure is from what it should be, in per cent.
fn off_percent(is: f64, should: f64) -> f64 {
    if should > 0.0 { (is / should - 1.0).abs() * 100.0 } else { 0.0 }
}

// What is measured is what a preset's settings speak of.
const _: () = assert!(BLOCK_BYTES == 4096 && plan::SIZE_BYTES_MAX.is_multiple_of(BLOCK_BYTES));
