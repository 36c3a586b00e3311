//! Reports as web pages: text, tables and charts in one HTML file, without a script and without
//! anything to load, for reading, printing and sending around.
//!
//! Filled by the commands that report (`bench`, and whatever else learns to); nothing here knows
//! what the numbers mean. The same page gives the same bytes: what is to be dated says so itself.
//!
//! ```
//! use cinnabar_bench::report::page::{Axis, Lines, Page, Section, Style};
//! use cinnabar_text::{Table, Unit};
//!
//! let load = Lines::new(
//!     "Response time over load",
//!     Axis::linear("load (BSU)", Unit::Count),
//!     Axis::linear("mean response time", Unit::Micros),
//! )
//! .series("without cache", Style::Line, [(10.0, 9_000.0), (20.0, 14_000.0), (30.0, 41_000.0)])
//! .series("with cache", Style::Line, [(10.0, 4_000.0), (20.0, 5_000.0), (30.0, 7_500.0)])
//! .limit(30_000.0, "30 ms");
//!
//! let found = Table::new(1, &["cache", "BSU"]).row(["none", "26"]).row(["25 %", "71"]);
//! let page = Page::new("The highest load within 30 ms", "three files on /srv/vm")
//!     .section(Section::new("Load").text("Each point is 300 s.").chart(load).table(found));
//! assert!(page.to_html().starts_with("<!DOCTYPE html>"));
//! ```

mod html;
mod save;

pub use cinnabar_text::chart::{Axis, Groups, Lines, Scale, Style};
pub use save::{PageError, save};

use cinnabar_text::Table;
use cinnabar_text::chart::{Colours, Figure, Look};
use std::path::Path;

/// Height of a plot, nearly half of its width.
const HEIGHT: u16 = 460;

/// A report. All its text is plain text: whatever is in it is shown, never obeyed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// In large letters, and for the browser.
    pub title: String,
    /// One line about what was measured; may be empty.
    pub subtitle: String,
    /// From top to bottom.
    pub sections: Vec<Section>,
}

/// What belongs under one heading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// May be empty.
    pub heading: String,
    /// From top to bottom.
    pub parts: Vec<Part>,
}

/// A piece of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// A paragraph.
    Text(String),
    Table(Table),
    /// Lines over two axes.
    Lines(Lines),
    Bars(Groups),
}

impl Part {
    /// A chart, alone, in the colours of a page or in its own; none if it is something else.
    pub fn svg(&self, colours: Option<&Colours>) -> Option<String> {
        let figure: &dyn Figure = match self {
            Self::Lines(lines) => lines,
            Self::Bars(bars) => bars,
            Self::Text(_) | Self::Table(_) => return None,
        };
        Some(figure.svg(&Look { titled: true, height: HEIGHT, colours, ..Look::default() }))
    }

    /// What has a colour.
    fn names(&self) -> Vec<&str> {
        match self {
            Self::Lines(lines) => lines.lines.iter().map(|line| line.name.as_str()).collect(),
            Self::Bars(bars) => bars.names.iter().map(String::as_str).collect(),
            Self::Text(_) | Self::Table(_) => Vec::new(),
        }
    }
}

impl Page {
    /// A page without sections.
    pub fn new(title: impl Into<String>, subtitle: impl Into<String>) -> Self {
        Self { title: title.into(), subtitle: subtitle.into(), sections: Vec::new() }
    }

    /// With one more section.
    #[must_use]
    pub fn section(mut self, section: Section) -> Self {
        self.sections.push(section);
        self
    }

    /// The HTML file.
    pub fn to_html(&self) -> String {
        html::page(self)
    }

    /// Writes the HTML file. A file that is there already is replaced at once, never half.
    ///
    /// # Errors
    /// Names the path if it can't be written; it is then as it was.
    pub fn save(&self, path: &Path) -> Result<(), PageError> {
        save::save(path, &self.to_html())
    }
}

impl Section {
    /// An empty section.
    pub fn new(heading: impl Into<String>) -> Self {
        Self { heading: heading.into(), parts: Vec::new() }
    }

    /// With one more part.
    #[must_use]
    pub fn part(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// With one more paragraph.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.part(Part::Text(text.into()))
    }

    /// With one more table.
    #[must_use]
    pub fn table(self, table: Table) -> Self {
        self.part(Part::Table(table))
    }

    /// With one more chart of lines.
    #[must_use]
    pub fn chart(self, chart: Lines) -> Self {
        self.part(Part::Lines(chart))
    }

    /// With one more chart of bars.
    #[must_use]
    pub fn bars(self, bars: Groups) -> Self {
        self.part(Part::Bars(bars))
    }
}

#[cfg(test)]
mod tests;
