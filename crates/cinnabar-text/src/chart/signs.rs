//! Signs of names: their colours, their pieces of the legend, their shapes on lines.

use super::pen::{Pen, Pixel};
use super::svg::path;
use crate::chart::colours::{Rgb, colour};

/// The number of the colour of what is left over.
pub(super) const OTHERS: usize = usize::MAX;
/// What a name of the legend looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// A filled rectangle.
    Area,
    /// A line with a shape on it.
    Line {
        /// Broken.
        dashed: bool,
    },
    /// A shape alone.
    Point,
    /// Nothing: a remark.
    Remark,
}

#[derive(Clone, Debug)]
pub(super) struct Key {
    /// Which colour and shape.
    pub(super) index: usize,
    pub(super) sign: Sign,
    pub(super) name: String,
}

impl Key {
    /// How wide its sign is, with the gap behind it.
    pub(super) const fn width(&self) -> i32 {
        match self.sign {
            Sign::Area | Sign::Point => 34,
            Sign::Line { .. } => 58,
            Sign::Remark => 0,
        }
    }

    /// Draws the sign right of a place.
    pub(super) fn paint(&self, body: &mut String, (x, y): Pixel) {
        let mut pen = Pen::default();
        match self.sign {
            Sign::Area => {
                pen.rectangle((x, y - 11), (x + 24, y + 11));
                path(body, &pen, &fill(self.index));
            }
            Sign::Line { dashed } => {
                pen.through(&[(x, y), (x + 48, y)]);
                path(body, &pen, &stroke(self.index, dashed));
                let mut pen = Pen::default();
                shape(&mut pen, self.index, (x + 24, y));
                path(body, &pen, &fill(self.index));
            }
            Sign::Point => {
                shape(&mut pen, self.index, (x + 12, y));
                path(body, &pen, &fill(self.index));
            }
            Sign::Remark => {}
        }
    }
}

/// The attributes of an area.
pub(super) fn fill(index: usize) -> String {
    if index == OTHERS {
        return "fill=\"currentColor\" fill-opacity=\".3\"".to_owned();
    }
    format!("fill=\"{}\"", hex(index))
}

/// The attributes of a line.
pub(super) fn stroke(index: usize, dashed: bool) -> String {
    let colour = if index == OTHERS { "currentColor".to_owned() } else { hex(index) };
    let dashes = if dashed { " stroke-dasharray=\"14 9\"" } else { "" };
    format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"3\" stroke-linecap=\"round\"{dashes}")
}

fn hex(index: usize) -> String {
    let Rgb(red, green, blue) = colour(index);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// A shape of a name, for those who can't tell its colour.
pub(super) fn shape(pen: &mut Pen, index: usize, (x, y): Pixel) {
    let corners: &[Pixel] = match index % 5 {
        0 => &[(-3, -7), (3, -7), (7, -3), (7, 3), (3, 7), (-3, 7), (-7, 3), (-7, -3)],
        1 => &[(-7, -7), (7, -7), (7, 7), (-7, 7)],
        2 => &[(0, -9), (9, 7), (-9, 7)],
        3 => &[(0, -10), (10, 0), (0, 10), (-10, 0)],
        _ => &[(0, 9), (9, -7), (-9, -7)],
    };
    for (number, (across, down)) in corners.iter().enumerate() {
        let corner = (x + across, y + down);
        if number == 0 { pen.start(corner) } else { pen.to(corner) }
    }
    pen.close();
}
