//! The points of the cache and of its volumes.

use crate::history::point::{Level, Point};
use crate::history::ring::Step;
use crate::history::series::Series;
use crate::history::totals::Totals;
use crate::status::raw::DataStatus;
use std::collections::BTreeMap;

/// Volumes that a history is kept of at most, those among them that have left.
///
/// 360 + 288 points of 64 bytes: 41,472 bytes for a volume, 42 MB for all of them.
pub const SERIES_MAX: usize = 1000;

const _: () = assert!(
    size_of::<Point>() * (Step::Fine.points_max() + Step::Coarse.points_max()) == 41_472,
    "the manual states it"
);

/// See the module.
#[derive(Clone, Debug)]
pub struct History {
    pub(crate) cache: Series,
    pub(crate) volumes: BTreeMap<String, Series>,
    /// Bytes written to the device at the last look.
    written_bytes: Option<u64>,
    /// Volumes of the last look for which there was no room.
    left_out: usize,
}

impl Default for History {
    fn default() -> Self {
        Self::new(Series::new(), BTreeMap::new())
    }
}

impl History {
    pub(crate) const fn new(cache: Series, volumes: BTreeMap<String, Series>) -> Self {
        Self { cache, volumes, written_bytes: None, left_out: 0 }
    }

    /// Looks at a status, at a time in milliseconds since 1970.
    pub fn look(&mut self, now_ms: u64, status: &DataStatus) {
        let mut sum = Totals::default();
        self.left_out = 0;
        self.leave(now_ms, status);
        // Those that are known first: one that is new may take the place of one that has left.
        let (known, new): (Vec<_>, Vec<_>) = status
            .volumes
            .iter()
            .partition(|volume| self.volumes.contains_key(&volume.config.name));
        for volume in known.into_iter().chain(new) {
            let counters = &volume.counters;
            let share_blocks = if counters.own_shares > 0 { counters.share_blocks } else { 0 };
            let level = Level { held_blocks: counters.cached_blocks, share_blocks };
            match self.series(&volume.config.name) {
                Some(series) => {
                    sum = sum.plus(&series.look(now_ms, &Totals::of(volume), level));
                }
                None => self.left_out += 1,
            }
        }
        let counters = &status.cache.counters;
        let written = counters.flash_written_bytes;
        if let Some(before) = self.written_bytes.replace(written) {
            // Another device counts from 0.
            sum.ssd_written_bytes = written.checked_sub(before).unwrap_or(written);
        }
        let level =
            Level { held_blocks: counters.cached_blocks, share_blocks: counters.capacity_blocks };
        self.cache.add(now_ms, &sum, level);
    }

    /// The daemon ends, or what follows is of another one: points that are open end.
    pub fn close(&mut self, now_ms: u64) {
        self.written_bytes = None;
        self.cache.close(now_ms);
        for series in self.volumes.values_mut() {
            series.close(now_ms);
        }
    }

    /// Points at this resolution that ended after a time in milliseconds since 1970, the newest last: of
    /// a volume, or of the cache; `None`: nothing is kept of this volume.
    pub fn points(
        &self,
        volume: Option<&str>,
        step: Step,
        after_ms: u64,
    ) -> Option<impl Iterator<Item = &Point>> {
        let series = match volume {
            Some(name) => self.volumes.get(name)?,
            None => &self.cache,
        };
        let points = series.points(step);
        let first = points.partition_point(|point| u64::from(point.at_s) * 1000 <= after_ms);
        Some(points.range(first..))
    }

    /// The volumes that a history is kept of, by name.
    pub fn volumes(&self) -> impl Iterator<Item = &str> {
        self.volumes.keys().map(String::as_str)
    }

    /// Volumes of the last look of which none is kept, because there are too many.
    pub const fn left_out(&self) -> usize {
        self.left_out
    }

    /// Volumes that are not in a status have left; they are forgotten with their last point.
    fn leave(&mut self, now_ms: u64, status: &DataStatus) {
        let mut names: Vec<&str> =
            status.volumes.iter().map(|volume| volume.config.name.as_str()).collect();
        names.sort_unstable();
        self.volumes.retain(|name, series| {
            if names.binary_search(&name.as_str()).is_ok() {
                return true;
            }
            series.close(now_ms);
            series.newest_s() > 0
        });
    }

    /// The series of a volume. For one that is new, another one that has left may be forgotten.
    fn series(&mut self, name: &str) -> Option<&mut Series> {
        if !self.volumes.contains_key(name) && self.volumes.len() >= SERIES_MAX {
            let left = self.volumes.iter().filter(|(_, series)| !series.is_live());
            let oldest = left.min_by_key(|(_, series)| series.newest_s())?.0.clone();
            self.volumes.remove(&oldest);
        }
        Some(self.volumes.entry(name.to_owned()).or_insert_with(Series::new))
    }
}
