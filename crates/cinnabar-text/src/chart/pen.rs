//! Paths in as few bytes as they need: whole numbers, relative to the place before.

use std::fmt::Write;

pub(super) type Pixel = (i32, i32);

/// The `d` of a path, as it is written.
#[derive(Debug, Default)]
pub(super) struct Pen {
    path: String,
    at: Pixel,
    /// Where the part of the path began, to which closing it returns.
    began: Pixel,
    /// The command that numbers without one repeat.
    command: char,
}

impl Pen {
    /// Begins a part at a place.
    pub(super) fn start(&mut self, to: Pixel) {
        // The first one is relative to the corner, which is the same.
        self.command = '\0';
        self.command('m');
        self.number(to.0 - self.at.0);
        self.number(to.1 - self.at.1);
        (self.at, self.began) = (to, to);
        // Numbers behind `m` mean `l`.
        self.command = 'l';
    }

    pub(super) fn to(&mut self, to: Pixel) {
        let (across, down) = (to.0 - self.at.0, to.1 - self.at.1);
        match (across, down) {
            (0, 0) => return,
            (_, 0) => {
                self.command('h');
                self.number(across);
            }
            (0, _) => {
                self.command('v');
                self.number(down);
            }
            _ => {
                self.command('l');
                self.number(across);
                self.number(down);
            }
        }
        self.at = to;
    }

    /// Lines through places, the first of which begins a part. One place alone is a dot, if the ends
    /// of lines are round.
    pub(super) fn through(&mut self, places: &[Pixel]) {
        let Some((first, rest)) = places.split_first() else { return };
        self.start(*first);
        if rest.iter().all(|place| place == first) {
            self.command('h');
            self.number(0);
        }
        for place in rest {
            self.to(*place);
        }
    }

    /// A line back to where the part began.
    pub(super) fn close(&mut self) {
        self.command = '\0';
        self.command('z');
        self.at = self.began;
    }

    pub(super) fn rectangle(&mut self, (left, top): Pixel, (right, bottom): Pixel) {
        self.start((left, top));
        self.to((right, top));
        self.to((right, bottom));
        self.to((left, bottom));
        self.close();
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    fn command(&mut self, command: char) {
        if self.command != command {
            self.path.push(command);
            self.command = command;
        }
    }

    fn number(&mut self, number: i32) {
        if number >= 0 && self.path.ends_with(|last: char| last.is_ascii_digit()) {
            self.path.push(' ');
        }
        write!(self.path, "{number}").expect("a string takes everything");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_short() {
        let mut pen = Pen::default();
        pen.through(&[(10, 20), (14, 8), (18, 11), (30, 11), (30, 5), (30, 5)]);
        pen.start((0, 0));
        pen.to((5, 5));
        pen.close();
        pen.start((2, 3));
        pen.to((1, 1));
        assert_eq!(pen.path(), "m10 20 4-12 4 3h12v-6m-30-5 5 5zm2 3-1-2");
    }

    #[test]
    fn a_place_alone_is_a_dot() {
        let mut pen = Pen::default();
        pen.through(&[(3, 4)]);
        pen.through(&[]);
        assert_eq!(pen.path(), "m3 4h0");
    }
}
