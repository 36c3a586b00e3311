//! What the charts share: where title, legend, axes and plot lie, and the attributes for scripts.

use super::calendar;
use super::grid::{number, raw, shortened};
use super::pen::Pen;
use super::signs::Key;
use super::svg::{BASELINE, FONT, LINE, MARGIN, attribute, path, root, text};
use super::{Across, Head, Look, NAME_MAX};
use crate::chart::ruler::Ruler;
use crate::chart::text::{cut, width, wrap};
use crate::chart::{Axis, Scale};
use std::fmt::Write;

/// A title longer than that is cut.
const TITLE_LINES_MAX: usize = 3;
/// Bold text is wider than the same text is otherwise.
const BOLD: f64 = 1.15;
/// Room for a tick's label on the axis of time.
const TICK: i32 = 190;

/// The axis from bottom to top.
#[derive(Debug)]
pub(super) struct Upright {
    pub(super) ruler: Ruler,
    pub(super) title: String,
    /// For scripts.
    pub(super) unit: &'static str,
    /// Where labels stand, and what they are.
    pub(super) labels: Vec<(f64, String)>,
    /// Whether lines go from them through the plot.
    pub(super) lines: bool,
}

impl Upright {
    pub(super) fn of(axis: &Axis, ruler: Ruler, look: &Look) -> Self {
        let each = FONT * 1.3 / f64::from(look.height.max(1));
        let label = |tick: &(f64, String)| (tick.0, ruler.label(tick.0, each));
        let labels = ruler.ticks().iter().map(label).collect();
        let title = ruler.title(&shortened(&axis.label, NAME_MAX));
        Self { ruler, title, unit: raw(axis.unit), labels, lines: true }
    }
}

/// A drawing with a plot, as it is made: series are added to `body`.
#[derive(Debug)]
pub(super) struct Plot<'a> {
    head: &'a Head,
    x: Ruler,
    y: Ruler,
    /// For scripts.
    units: [&'static str; 2],
    width: i32,
    height: i32,
    pub(super) left: i32,
    pub(super) right: i32,
    pub(super) top: i32,
    pub(super) bottom: i32,
    pub(super) body: String,
}

impl<'a> Plot<'a> {
    /// Draws legend and axes. `xs` is what an axis of values has to reach.
    pub(super) fn new(
        head: &'a Head,
        look: &Look,
        keys: &[Key],
        xs: impl Iterator<Item = f64>,
        upright: &Upright,
    ) -> Self {
        let width = i32::from(look.width.clamp(320, 8192));
        let widest = upright.labels.iter().map(|(_, label)| self::width(label, FONT));
        let left = MARGIN + widest.fold(0.0, f64::max).ceil().min(f64::from(width / 3)) as i32 + 14;
        let x = across(head, xs, usize::try_from((width - left) / TICK).unwrap_or(0));
        let widest = x.labels().map(|label| self::width(label, FONT)).fold(0.0, f64::max);
        let right = width - MARGIN - (widest / 2.0).min(f64::from(width / 6)).ceil() as i32;
        let mut body = String::new();
        let mut top = header(&mut body, head, look, keys, width);
        if !upright.title.is_empty() {
            let title = cut(&upright.title, FONT, f64::from(width - 2 * MARGIN));
            text(&mut body, (MARGIN, top + LINE / 2 + BASELINE), "", &title);
            top += LINE;
        }
        top += LINE / 2;
        let bottom = top + i32::from(look.height.clamp(40, 4096));
        let units = [unit_of(&head.across), upright.unit];
        let height = bottom + 2 * LINE + MARGIN;
        let y = upright.ruler.clone();
        let mut plot = Self { head, x, y, units, width, height, left, right, top, bottom, body };
        plot.axes(upright, widest);
        plot
    }

    /// Grid, axes and the labels of their ticks.
    fn axes(&mut self, upright: &Upright, widest: f64) {
        let each = (widest + FONT / 2.0) / f64::from(self.right - self.left);
        let (mut lines, mut frame) = (Pen::default(), Pen::default());
        let mut labels = String::from("<g text-anchor=\"middle\">");
        for (tick, _) in self.x.ticks() {
            let (Some(at), label) = (self.x(*tick), self.x.label(*tick, each)) else { continue };
            frame.start((at, self.bottom));
            frame.to((at, self.bottom + 7));
            if !label.is_empty() {
                // A label of the first tick may be wider than what is left of the plot.
                let half = (width(&label, FONT) / 2.0).ceil() as i32;
                let at = at.min(self.width - half).max(half);
                text(&mut labels, (at, self.bottom + 7 + LINE / 2 + BASELINE), "", &label);
            }
        }
        let title = match &self.head.across {
            Across::Time { from_ms, to_ms } => calendar::title(*from_ms, *to_ms),
            Across::Values(axis) => self.x.title(&shortened(&axis.label, NAME_MAX)),
        };
        let room = f64::from(self.width - 2 * MARGIN);
        let title = cut(&title, FONT, room);
        let half = (width(&title, FONT) / 2.0).ceil() as i32;
        let middle = i32::midpoint(self.left, self.right);
        let middle = middle.min(self.width - MARGIN - half).max(MARGIN + half);
        text(&mut labels, (middle, self.bottom + 7 + LINE * 3 / 2 + BASELINE - 4), "", &title);
        labels += "</g><g text-anchor=\"end\">";
        for (tick, label) in &upright.labels {
            let Some(at) = self.y(*tick).filter(|_| !label.is_empty()) else { continue };
            let label = cut(label, FONT, f64::from(self.left - MARGIN - 14));
            text(&mut labels, (self.left - 10, at + BASELINE), "", &label);
            if upright.lines {
                lines.start((self.left, at));
                lines.to((self.right, at));
            }
        }
        labels += "</g>";
        frame.start((self.left, self.top));
        frame.to((self.left, self.bottom));
        frame.to((self.right, self.bottom));
        for (pen, opacity) in [(lines, ".15"), (frame, ".6")] {
            let stroke = format!("stroke=\"currentColor\" stroke-opacity=\"{opacity}\"");
            path(&mut self.body, &pen, &format!("fill=\"none\" {stroke} stroke-width=\"2\""));
        }
        self.body += &labels;
    }

    /// Where a value lies from left to right, if it does.
    pub(super) fn x(&self, value: f64) -> Option<i32> {
        let place = self.x.place(value).filter(|place| (-1e-9..=1.0 + 1e-9).contains(place))?;
        Some(self.left + (place * f64::from(self.right - self.left)).round() as i32)
    }

    /// Where a value lies, or the edge that is next to it.
    pub(super) fn x_within(&self, value: f64) -> Option<i32> {
        let place = self.x.place(value)?.clamp(0.0, 1.0);
        Some(self.left + (place * f64::from(self.right - self.left)).round() as i32)
    }

    /// How high a value lies; on the edge if it is beyond.
    pub(super) fn y(&self, value: f64) -> Option<i32> {
        let place = self.y.place(value)?.clamp(0.0, 1.0);
        Some(self.bottom - (place * f64::from(self.bottom - self.top)).round() as i32)
    }

    /// Whether any of a range lies in the plot.
    pub(super) fn overlaps(&self, from: f64, to: f64) -> bool {
        let (low, high) = self.x.ends();
        to > low && from < high
    }

    /// The middle of the line with the title of the axis from bottom to top.
    pub(super) const fn title_middle(&self) -> i32 {
        self.top - LINE
    }

    /// Whether a value lies beyond the plot: below (`false`) or above (`true`).
    pub(super) fn beyond(&self, value: f64) -> Option<bool> {
        let place = self.y.place(value).filter(|place| !(0.0..=1.0).contains(place))?;
        Some(place > 0.5)
    }

    /// All as an `svg` element. `summary` is for those who can't see it.
    pub(super) fn finish(&self, summary: &str) -> String {
        let ((x0, x1), (y0, y1)) = (self.x.ends(), self.y.ends());
        let mut data = String::new();
        for (name, value) in [("x0", x0), ("x1", x1), ("y0", y0), ("y1", y1)] {
            attribute(&mut data, name, &number(value));
        }
        let edges = [self.left, self.right, self.top, self.bottom];
        for (name, value) in ["left", "right", "top", "bottom"].into_iter().zip(edges) {
            attribute(&mut data, name, &value.to_string());
        }
        for ((name, ruler), unit) in [("x", &self.x), ("y", &self.y)].into_iter().zip(self.units) {
            let scale = if ruler.scale() == Scale::Log { "log" } else { "linear" };
            attribute(&mut data, &format!("scale-{name}"), scale);
            attribute(&mut data, &format!("unit-{name}"), unit);
        }
        root(self.head, summary, (self.width, self.height), &data, &self.body)
    }

    /// Its events and markers.
    pub(super) const fn head(&self) -> &'a Head {
        self.head
    }
}

/// Draws title and legend; gives where they end.
pub(super) fn header(body: &mut String, head: &Head, look: &Look, keys: &[Key], width: i32) -> i32 {
    let room = width - 2 * MARGIN;
    let mut top = MARGIN;
    if look.titled {
        let title = shortened(&head.title, NAME_MAX);
        for line in wrap(&title, FONT * BOLD, f64::from(room), TITLE_LINES_MAX) {
            text(body, (MARGIN, top + LINE / 2 + BASELINE), " font-weight=\"bold\"", &line);
            top += LINE;
        }
    }
    let mut left = MARGIN;
    let mut lines = 0;
    let named = keys.iter().enumerate().filter(|(_, key)| !key.name.trim().is_empty());
    for (place, key) in named {
        let name = shortened(&key.name, NAME_MAX);
        let swatch = key.width();
        let needed = (swatch + self::width(&name, FONT).ceil() as i32).min(room);
        if lines == 0 || left + needed > MARGIN + room {
            (left, lines) = (MARGIN, lines + 1);
        }
        let middle = top + (lines - 1) * LINE + LINE / 2;
        write!(body, "<g data-key=\"{place}\">").expect("a string takes everything");
        key.paint(body, (left, middle));
        let shown = cut(&name, FONT, f64::from(MARGIN + room - left - swatch));
        text(body, (left + swatch, middle + BASELINE), "", &shown);
        *body += "</g>";
        left += needed + 26;
    }
    top + lines * LINE
}

fn across(head: &Head, xs: impl Iterator<Item = f64>, ticks_max: usize) -> Ruler {
    match &head.across {
        Across::Time { from_ms, to_ms } => calendar::ruler(*from_ms, *to_ms, ticks_max),
        Across::Values(axis) => {
            let events = head.events.iter().map(|event| event.at);
            let markers = head.markers.iter().map(|marker| marker.at);
            Ruler::new(axis, xs, events.chain(markers))
        }
    }
}

/// What the values from left to right are, for scripts.
const fn unit_of(across: &Across) -> &'static str {
    match across {
        Across::Time { .. } => "ms",
        Across::Values(axis) => raw(axis.unit),
    }
}
