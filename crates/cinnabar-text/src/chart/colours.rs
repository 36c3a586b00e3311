//! Which colour a name has: one colour a name over a whole page, and never one colour for two names.

#[derive(Clone, Copy, Debug)]
pub(super) struct Rgb(pub(super) u8, pub(super) u8, pub(super) u8);

/// Each can be told from white and from the dark page's paper (a contrast of 3 at least), and from
/// those before it as well as possible, by colour-blind readers, too. The first ones are Okabe and
/// Ito's, a little darker.
const PALETTE: [Rgb; 26] = [
    Rgb(0x00, 0x72, 0xB2),
    Rgb(0xD5, 0x5E, 0x00),
    Rgb(0x00, 0x9E, 0x73),
    Rgb(0xC5, 0x65, 0xA0),
    Rgb(0x70, 0x67, 0x43),
    Rgb(0x8F, 0x1F, 0xFF),
    Rgb(0xD1, 0x00, 0x15),
    Rgb(0x5A, 0x84, 0x96),
    Rgb(0x6B, 0x7A, 0xFF),
    Rgb(0xD1, 0x00, 0xBC),
    Rgb(0xAE, 0x8D, 0x42),
    Rgb(0x34, 0x98, 0x1B),
    Rgb(0x8C, 0x54, 0x7B),
    Rgb(0xFF, 0x4D, 0x70),
    Rgb(0x90, 0x89, 0xD2),
    Rgb(0xBD, 0x51, 0x51),
    Rgb(0x7E, 0x96, 0x5A),
    Rgb(0x1F, 0x78, 0xFF),
    Rgb(0xA6, 0x67, 0xE4),
    Rgb(0xFF, 0x3D, 0xC5),
    Rgb(0xB6, 0x86, 0x8B),
    Rgb(0x6F, 0x69, 0xA5),
    Rgb(0xCC, 0x24, 0x78),
    Rgb(0xB4, 0x00, 0xE0),
    Rgb(0x4D, 0x5C, 0xE0),
    Rgb(0xFF, 0x4B, 0x1F),
];

/// A number for each name, in the order in which they are met; it decides colour and marker.
#[derive(Clone, Debug, Default)]
pub struct Colours {
    names: Vec<String>,
}

impl Colours {
    /// With one more name, unless it is there already.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        self.add(name.to_owned());
        self
    }

    pub(super) fn add(&mut self, name: String) {
        if !self.names.contains(&name) {
            self.names.push(name);
        }
    }

    /// The number of a name, if it has one.
    pub fn of_name(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|one| one == name)
    }
}

/// The colour of a number. Beyond the palette colours still differ, but markers and the order of the
/// legend tell more.
pub(super) fn colour(index: usize) -> Rgb {
    let Rgb(red, green, blue) = PALETTE[index % PALETTE.len()];
    let round = index / PALETTE.len();
    let shade = |part: u8, bits: usize| part ^ ((round >> bits & 7) as u8) << 1;
    Rgb(shade(red, 0), shade(green, 3), shade(blue, 6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn parts(Rgb(red, green, blue): Rgb) -> (u8, u8, u8) {
        (red, green, blue)
    }

    #[test]
    fn colours_differ_and_can_be_seen_on_both_papers() {
        let all: BTreeSet<_> = (0..1000).map(|index| parts(colour(index))).collect();
        assert_eq!(all.len(), 1000);
        let linear = |part: u8| {
            let part = f64::from(part) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        let light = |(red, green, blue): (u8, u8, u8)| {
            0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
        };
        let dark = light((0x16, 0x18, 0x1b));
        for one in PALETTE {
            let light = light(parts(one));
            assert!(1.05 / (light + 0.05) >= 3.0, "{one:?} on white");
            assert!((light + 0.05) / (dark + 0.05) >= 3.0, "{one:?} on the dark page");
        }
    }
}
