//! A ruler as `plotters` wants it: it draws grid and tick labels by it.

use crate::ruler::Ruler;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use std::ops::Range;

impl Ranged for Ruler {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (start, end): (i32, i32)) -> i32 {
        let place = self.place(*value).unwrap_or(0.0).clamp(0.0, 1.0);
        start + (f64::from(end - start) * place).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks().iter().map(|(tick, _)| *tick).collect()
    }

    fn range(&self) -> Range<f64> {
        let (low, high) = self.ends();
        low..high
    }
}
