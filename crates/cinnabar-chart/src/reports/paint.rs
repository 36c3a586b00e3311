//! Colours, shapes and the SVG itself: `plotters` writes it, and here it learns what `plotters` has
//! no word for: the colour of the page's text, dashes, and being as wide as its place.

use super::colours::colour;
use crate::escape::escaped;
use crate::text::cut;
use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Width of every drawing, in its own units; a page shows two to four of them per pixel.
pub(super) const WIDTH: i32 = 1440;
/// Size of the text: more than 9 pixels on a telephone, where a drawing is 358 pixels wide.
pub(super) const FONT: f64 = 38.0;
/// Size of the title.
pub(super) const TITLE_FONT: f64 = 42.0;

/// Stands for the colour of the text around, which may be dark or light.
pub(super) const INK: RGBColor = RGBColor(1, 2, 3);
/// Width of a line that is drawn through.
pub(super) const SOLID: u32 = 5;
/// Widths that stand for broken lines: a series, a reference line.
pub(super) const DASHED: u32 = 7;
/// See [`DASHED`].
pub(super) const REFERENCE: u32 = 9;

/// What is put in for what stands for something else. A quote inside of text is escaped, so text
/// can't look like this.
const MEANINGS: [(&str, &str); 4] = [
    ("\"#010203\"", "\"currentColor\""),
    ("stroke-width=\"7\"", "stroke-width=\"5\" stroke-dasharray=\"20 12\""),
    ("stroke-width=\"9\"", "stroke-width=\"3\" stroke-dasharray=\"7 9\""),
    (" font-family=\"sans-serif\"", ""),
];

/// A part of the drawing.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Whether it worked, which it does: see [`svg`].
pub(super) type Painted = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Draws an `svg` element of that height.
pub(super) fn svg(title: &str, height: i32, paint: impl FnOnce(&Area) -> Painted) -> String {
    let mut drawn = String::new();
    let area = SVGBackend::with_string(&mut drawn, (WIDTH.unsigned_abs(), height.unsigned_abs()))
        .into_drawing_area();
    let painted = paint(&area).and_then(|()| area.present());
    painted.expect("a drawing in memory needs neither a file nor a font");
    drop(area);
    for (stand_in, meaning) in MEANINGS {
        drawn = drawn.replace(stand_in, meaning);
    }
    let (_, inside) = drawn.split_once('>').expect("it begins with an svg tag");
    let label = escaped(title);
    format!(
        "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         role=\"img\" aria-label=\"{label}\" font-family=\"system-ui, sans-serif\" \
         stroke-linejoin=\"round\">{inside}"
    )
}

/// The style of text.
pub(super) fn font(size: f64, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    // Plotters writes sizes divided by this.
    let font = FontDesc::new(FontFamily::SansSerif, size * 1.24, FontStyle::Normal);
    TextStyle::from(font).color(&INK).pos(Pos::new(horizontal, vertical))
}

/// Text beside a place, cut to a width.
pub(super) fn label(area: &Area, text: &str, at: (i32, i32), anchor: HPos, width: f64) -> Painted {
    area.draw_text(&cut(text, FONT, width), &font(FONT, anchor, VPos::Center), at)
}

/// The marker of a series: shapes differ, too, for those who can't see the colours.
pub(super) fn marker(area: &Area, index: usize, (x, y): (i32, i32), radius: i32) -> Painted {
    let style = colour(index).filled();
    let corners: &[(i32, i32)] = match index % 5 {
        1 => &[(-9, -9), (9, -9), (9, 9), (-9, 9)],
        2 => &[(0, -12), (11, 8), (-11, 8)],
        3 => &[(0, -13), (13, 0), (0, 13), (-13, 0)],
        4 => &[(0, 12), (11, -8), (-11, -8)],
        _ => return area.draw(&Circle::new((x, y), radius, style)),
    };
    let corner = |(dx, dy): &(i32, i32)| (x + dx * radius / 10, y + dy * radius / 10);
    area.draw(&Polygon::new(corners.iter().map(corner).collect::<Vec<_>>(), style))
}

/// A joined line.
pub(super) fn line(area: &Area, points: Vec<(i32, i32)>, style: ShapeStyle) -> Painted {
    area.draw(&PathElement::new(points, style))
}
