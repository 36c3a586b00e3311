//! Gathers what a view or a chart is made of, and has it drawn.

use super::{Problem, Ui};
use crate::Control;
use crate::policy::named;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use cinnabar_config::history::{EVENTS_MAX, Point};
use cinnabar_config::messages::CommandError;
use cinnabar_config::units::parse_size;
use cinnabar_engine::seam::units::BLOCK_BYTES;
use cinnabar_manager::report::HistoryReport;
use cinnabar_page::{Data, Range, Rates, Trouble, View, WhatIf, Window};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Plans that are asked for at most.
const PLANS_MAX: usize = 256;
/// What is of the last sample is of so long ago at most, in milliseconds.
const NOW_MS: u64 = 30_000;

/// Query of views and charts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    /// `5m`, `15m`, `1h`, `6h`, `24h`, `all`.
    range: Option<String>,
    /// Milliseconds since 1970.
    from: Option<u64>,
    to: Option<u64>,
    /// `all`.
    rows: Option<String>,
    /// Of events.
    filter: Option<String>,
    /// Of charts of a volume.
    volume: Option<String>,
    /// Of what-if.
    size: Option<String>,
    allocator: Option<String>,
}

/// How a chart is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Svg,
    Csv,
    Html,
}

impl Kind {
    pub(super) fn of(ending: &str) -> Option<Self> {
        match ending {
            "svg" => Some(Self::Svg),
            "csv" => Some(Self::Csv),
            "html" => Some(Self::Html),
            _ => None,
        }
    }

    const fn content_type(self) -> &'static str {
        match self {
            Self::Svg => "image/svg+xml",
            Self::Csv => "text/csv; charset=utf-8",
            Self::Html => "text/html; charset=utf-8",
        }
    }
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    View(View),
    Chart(String, Kind),
}

/// What of it has to be asked or looked up.
#[derive(Clone, Copy, Debug, Default)]
struct Needs {
    plans: bool,
    explain: bool,
    what_if: bool,
    /// Windows of all volumes.
    windows: bool,
    /// Samples of all volumes.
    shares: bool,
    events: bool,
}

impl Wanted {
    fn needs(&self) -> Needs {
        let none = Needs::default();
        match self {
            Self::View(View::Overview) => Needs { plans: true, windows: true, ..none },
            Self::View(View::Shares) => Needs { plans: true, shares: true, ..none },
            Self::View(View::Volume(_)) => {
                Needs { plans: true, explain: true, windows: true, ..none }
            }
            Self::View(View::Ssd) => Needs { plans: true, ..none },
            Self::View(View::Events) => Needs { events: true, ..none },
            Self::View(View::WhatIf) => Needs { what_if: true, ..none },
            Self::View(View::Backends | View::Recovery) => none,
            Self::Chart(id, _) => match id.as_str() {
                "shares" => Needs { plans: true, shares: true, ..none },
                "held" => Needs { shares: true, ..none },
                "volume-hits" => Needs { plans: true, ..none },
                "volume-curve" | "volume-mix" => Needs { explain: true, ..none },
                "what-if" => Needs { what_if: true, ..none },
                _ => none,
            },
        }
    }

    /// The volume that is looked at.
    fn volume(&self, asked: &Asked) -> String {
        match self {
            Self::View(View::Volume(name)) => name.clone(),
            Self::View(_) => String::new(),
            Self::Chart(..) => asked.volume.clone().unwrap_or_default(),
        }
    }
}

/// The answer to what is asked for.
pub(super) async fn html(ui: &Ui, wanted: Wanted, asked: Asked) -> Result<Response, Problem> {
    let sample = ui.sampler.sample().await?;
    let range = Range::read(asked.range.as_deref(), asked.from, asked.to, sample.at_ms);
    let range = range.map_err(|(message, hint)| {
        Problem::new(StatusCode::BAD_REQUEST, "Bad query", message, &hint)
    })?;
    let needs = wanted.needs();
    let (status, report) = (Arc::clone(&sample.status), Arc::clone(&sample.report));
    let mut data = Data::new(sample.at_ms, status, report, range);
    data.rates.clone_from(&sample.rates);
    data.run = ui.control.observer.run();
    data.socket = ui.control.socket.display().to_string();
    data.may_act = ui.may_act;
    data.volume = wanted.volume(&asked);
    data.all_rows = asked.rows.as_deref() == Some("all");
    data.filter = asked.filter.clone().unwrap_or_default();
    if needs.explain && !data.has_volume() {
        return Err(no_volume(&data.volume));
    }
    let plans = async { if needs.plans { Some(plans(ui, &wanted).await) } else { None } };
    let explain =
        async { if needs.explain { Some(ui.answers.explain(&data.volume).await) } else { None } };
    // Side by side, so that a manager that hangs costs the wait once.
    let (plans, explain) = tokio::join!(plans, explain);
    data.plans = plans.unwrap_or(data.plans);
    data.explain = explain;
    if needs.what_if {
        data.what_if = Some(what_if(ui, &asked).await);
    }
    let control = Arc::clone(&ui.control);
    let draw = move || {
        look_up(&control, needs, &mut data);
        draw(&wanted, &data)
    };
    ui.drawing.draw(draw).await
}

pub(super) fn trouble(error: CommandError) -> Trouble {
    Trouble { message: error.message, hint: error.hint }
}

/// The newest plan, or those of the range where moves are told.
async fn plans(ui: &Ui, wanted: &Wanted) -> Result<HistoryReport, Trouble> {
    let is_of_moves = match wanted {
        Wanted::View(view) => matches!(view, View::Shares | View::Volume(_)),
        Wanted::Chart(..) => true,
    };
    let count = if is_of_moves { PLANS_MAX } else { 1 };
    ui.answers.plans(count).await
}

async fn what_if(ui: &Ui, asked: &Asked) -> WhatIf {
    let text =
        |text: Option<&str>| text.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    let (size, allocator) = (text(asked.size.as_deref()), text(asked.allocator.as_deref()));
    let read = size.as_deref().map(parse_size).transpose();
    let (size_bytes, mut wrong) = match read {
        Ok(size_bytes) => (size_bytes, None),
        Err((message, hint)) => (None, Some(Trouble { message: format!("size: {message}"), hint })),
    };
    let named = match named(allocator.as_deref()) {
        Ok(named) => named,
        Err(error) => {
            wrong = Some(Trouble { message: error.message, hint: error.hint });
            None
        }
    };
    let capacity_blocks = size_bytes.map(|bytes| bytes / BLOCK_BYTES);
    let none = || Err(Trouble::default());
    let asked = WhatIf { size_bytes, allocator, wrong, now: none(), then: none() };
    ui.answers.what_if(asked, named, capacity_blocks).await
}

/// What is kept here: samples and events.
fn look_up(control: &Control, needs: Needs, data: &mut Data) {
    let step = data.range.step(data.now_ms);
    let (from_ms, to_ms) = (data.range.from_ms, data.range.to_ms);
    // For a volume at a time: the look at the status waits for the history, and so do all who ask.
    let history = || control.observer.history();
    let is_within = |point: &&Point| u64::from(point.at_s) * 1000 <= to_ms;
    let points = |volume: Option<&str>| -> Vec<Point> {
        let history = history();
        let points = history.points(volume, step, from_ms).into_iter().flatten();
        points.take_while(is_within).copied().collect()
    };
    let window = |volume: &str| {
        let history = history();
        let points = history.points(Some(volume), step, from_ms).into_iter().flatten();
        Window::of(points.take_while(is_within))
    };
    data.samples = points(None);
    if !data.volume.is_empty() {
        data.volume_samples = points(Some(&data.volume));
    }
    for volume in &data.status.volumes {
        let name = &volume.config.name;
        let is_wanted = data.volume.is_empty() || data.volume == *name;
        if needs.windows && is_wanted {
            data.windows.insert(name.clone(), window(name));
        }
        if needs.shares {
            data.shares.push((name.clone(), points(Some(name))));
        }
    }
    if data.rates.is_none() {
        data.rates = last_rates(control, data);
    }
    if needs.events {
        data.events = control.observer.events().from(0, EVENTS_MAX).events;
    }
}

/// Of the newest sample of each volume, until two statuses were seen.
fn last_rates(control: &Control, data: &Data) -> Option<Rates> {
    let newest = |volume: Option<&str>| {
        let since = data.now_ms.saturating_sub(NOW_MS);
        control
            .observer
            .history()
            .points(volume, cinnabar_config::history::Step::Fine, since)
            .and_then(Iterator::last)
            .copied()
    };
    let all = Window::of(&[newest(None)?]);
    let volumes = data.status.volumes.iter().filter_map(|volume| {
        let name = &volume.config.name;
        Some((name.clone(), Window::of(&[newest(Some(name))?])))
    });
    Some(Rates::of_windows(&all, &volumes.collect::<BTreeMap<_, _>>()))
}

fn draw(wanted: &Wanted, data: &Data) -> Result<Response, Problem> {
    match wanted {
        Wanted::View(view) => {
            let html = cinnabar_page::render(view, data).ok_or_else(|| no_volume(&data.volume))?;
            let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
            Ok((kind, html).into_response())
        }
        Wanted::Chart(id, kind) => {
            let figure = cinnabar_page::figure(id, data).ok_or_else(|| {
                let message = "There is no such chart, or nothing to draw in it.".to_owned();
                let hint = "Charts have links to them alone below each.";
                Problem::new(StatusCode::NOT_FOUND, "Not found", message, hint)
            })?;
            let text = match kind {
                Kind::Svg => figure.svg(),
                Kind::Csv => figure.csv(),
                Kind::Html => figure.inner(data),
            };
            Ok(([(header::CONTENT_TYPE, kind.content_type())], text).into_response())
        }
    }
}

fn no_volume(name: &str) -> Problem {
    let message = format!("There is no volume {name:?}.");
    Problem::new(StatusCode::NOT_FOUND, "Not found", message, "The overview lists all volumes.")
}
