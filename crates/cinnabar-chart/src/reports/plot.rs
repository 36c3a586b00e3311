//! Lines and points over two axes.

use super::colours::colour;
use super::frame::{Header, Key, Labels, MARGIN, axes};
use super::paint::{Area, DASHED, FONT, Painted, SOLID, WIDTH, line, marker, svg};
use super::{Chart, Mark, Series, Style, marks, path};
use crate::Colours;
use crate::ruler::{Ruler, draws};
use crate::text::{cut, width};
use plotters::prelude::*;

/// Height of the plot with its labels, without title and legend.
const HEIGHT: i32 = 820;
/// Height of the tick labels and the label below.
const BELOW: i32 = 128;
/// A line of at most so many points has them marked.
const MARKED_MAX: usize = 40;
/// Size of a marker on a line, and of a dot.
const MARKER: i32 = 10;
/// See [`MARKER`].
const DOT: i32 = 6;

/// Draws the chart.
pub(super) fn draw(chart: &Chart, colours: &Colours) -> String {
    let points = || chart.series.iter().flat_map(|series| &series.points);
    // A point without a place on one axis has no say in how far the other reaches.
    let drawable = || points().filter(|(x, y)| draws(&chart.x, *x) && draws(&chart.y, *y));
    let vertical = chart.marks.iter().filter_map(|mark| match mark {
        Mark::Vertical { at, .. } => Some(*at),
        Mark::Horizontal { .. } => None,
    });
    let horizontal = chart.marks.iter().filter_map(|mark| match mark {
        Mark::Horizontal { at, .. } => Some(*at),
        Mark::Vertical { .. } => None,
    });
    let x = Ruler::new(&chart.x, drawable().map(|point| point.0), vertical);
    let y = Ruler::new(&chart.y, drawable().map(|point| point.1), horizontal);
    let key = |(place, series): (usize, &Series)| Key {
        index: colours.of_series(chart, place),
        style: Some(series.style),
        name: series.name.clone(),
    };
    let keys = chart.series.iter().enumerate().map(key);
    let beyond = marks::beyond(&chart.marks, &x, &y).map(Key::of_text);
    let header = Header::new(&chart.title, keys.chain(beyond).collect());
    svg(&chart.title, header.height + HEIGHT, |area| {
        header.paint(area)?;
        plot(&area.split_vertically(header.height).1, chart, colours, &x, &y)
    })
}

fn plot(area: &Area, chart: &Chart, colours: &Colours, x: &Ruler, y: &Ruler) -> Painted {
    let widest = |ruler: &Ruler| ruler.labels().map(|label| width(label, FONT)).fold(0.0, f64::max);
    // The label of the axis, turned, then the ticks' labels and the ticks.
    let left = 64 + widest(y).ceil() as i32 + 20;
    // The last label is centred below the end of the axis.
    let right = MARGIN + (widest(x) / 2.0).ceil() as i32;
    let mut context = ChartBuilder::on(area)
        .margin_top(MARGIN)
        .margin_bottom(MARGIN / 2)
        .margin_left(MARGIN / 2)
        .margin_right(right)
        .x_label_area_size(BELOW)
        .y_label_area_size(left)
        .build_cartesian_2d(x.clone(), y.clone())?;
    let x_title = cut(&x.title(&chart.x.label), FONT, f64::from(WIDTH - left - right));
    let y_title = cut(&y.title(&chart.y.label), FONT, f64::from(HEIGHT - BELOW));
    let across = context.plotting_area().dim_in_pixel();
    let each = [(widest(x) + FONT / 2.0) / f64::from(across.0), FONT * 1.3 / f64::from(across.1)];
    axes(
        &mut context,
        &Labels { title: &x_title, tick: &|tick| x.label(*tick, each[0]) },
        &Labels { title: &y_title, tick: &|tick| y.label(*tick, each[1]) },
        true,
    )?;
    let inside = context.plotting_area().strip_coord_spec();
    let size = inside.dim_in_pixel();
    let size = (size.0.cast_signed(), size.1.cast_signed());
    let (base, inner) = (area.get_base_pixel(), inside.get_base_pixel());
    let corner = (inner.0 - base.0, inner.1 - base.1);
    for (place, series) in chart.series.iter().enumerate() {
        let index = colours.of_series(chart, place);
        let stroke = if series.style == Style::Dashed { DASHED } else { SOLID };
        if series.style != Style::Points {
            for points in path::lines(series, x, y, size) {
                line(&inside, points, colour(index).stroke_width(stroke))?;
            }
        }
        let few = series.points.len() <= MARKED_MAX;
        let (dots, radius) = match series.style {
            Style::Points => (path::dots(series, x, y, size), if few { MARKER } else { DOT }),
            Style::Line if few => (path::dots(series, x, y, size), MARKER),
            _ => (path::lonely(series, x, y, size), DOT),
        };
        // Not on `inside`, which would cut those off that lie on its edge.
        for (x, y) in dots {
            marker(area, index, (x + corner.0, y + corner.1), radius)?;
        }
    }
    marks::paint(&inside, &chart.marks, x, y, size)
}
