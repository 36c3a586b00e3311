//! SVG as text: the element itself, paths and texts in it.

use super::grid::shortened;
use super::pen::{Pen, Pixel};
use super::{Head, NAME_MAX};
use crate::chart::escape::escaped;
use std::fmt::Write;

/// Size of the text: 12 pixels on a telephone, where 960 units are 358 pixels. Labels are laid out for
/// it; [`super::CSS`] has smaller ones for wider places, which fit in as well.
pub(super) const FONT: f64 = 32.0;
/// From one line of text to the next.
pub(super) const LINE: i32 = 42;
/// Around everything.
pub(super) const MARGIN: i32 = 10;
/// From the middle of a line of text to its baseline.
pub(super) const BASELINE: i32 = 10;
/// Text that can be read on whatever it lies on.
pub(super) const HALO: &str =
    " class=\"halo\" stroke=\"#fff\" stroke-width=\"5\" paint-order=\"stroke\"";

/// An `svg` element with the names that screen readers say.
pub(super) fn root(head: &Head, summary: &str, size: Pixel, data: &str, body: &str) -> String {
    let title = escaped(&shortened(&head.title, NAME_MAX));
    let summary = if head.summary.is_empty() { summary } else { &head.summary };
    let summary = escaped(&shortened(summary, 10 * NAME_MAX));
    let (width, height) = size;
    format!(
        "<svg class=\"chart live\" xmlns=\"http://www.w3.org/2000/svg\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\"{data} font-family=\"system-ui, sans-serif\" \
         font-size=\"{FONT}\" fill=\"currentColor\" stroke-linejoin=\"round\">\
         <title>{title}</title><desc>{summary}</desc>{body}</svg>\n"
    )
}

/// A text whose baseline is at a place; `attributes` begin with a blank.
pub(super) fn text(body: &mut String, (x, y): Pixel, attributes: &str, text: &str) {
    let text = escaped(text);
    write!(body, "<text x=\"{x}\" y=\"{y}\"{attributes}>{text}</text>").expect("a string takes it");
}

/// A path with attributes, unless it is empty.
pub(super) fn path(body: &mut String, pen: &Pen, attributes: &str) {
    if !pen.path().is_empty() {
        write!(body, "<path {attributes} d=\"{}\"/>", pen.path()).expect("a string takes it");
    }
}

pub(super) fn attribute(data: &mut String, name: &str, value: &str) {
    write!(data, " data-{name}=\"{value}\"").expect("a string takes everything");
}
