//! Documents: those of late are opened again, old ones now and then, and some are new every day.
//!
//! What was opened today is in the guest's memory and is not read again today.

use super::day::Day;
use super::disk::{Area, Disk, Run, Zipf, count, pick};
use super::parameters::{
    DOCUMENT_REQUESTS, GAP_SECONDS, NEW_DOCUMENT, OLD_DOCUMENT, RECENT_DOCUMENTS, SHARES,
};
use crate::generate::Chance;

/// The documents that a user knows of.
#[derive(Debug)]
pub(super) struct Documents {
    /// Documents that were opened lately, latest first.
    recent: Vec<Run>,
    most: usize,
    popularity: Zipf,
}

impl Documents {
    pub(super) fn new(requests_per_day: u32, disk: &mut Disk, chance: &mut Chance) -> Self {
        let most = count(f64::from(requests_per_day) * RECENT_DOCUMENTS).max(1);
        let recent = (0..most).map(|_| document(&mut disk.documents, chance)).collect();
        Self { recent, most, popularity: Zipf::new(most) }
    }

    pub(super) fn day(&mut self, day: &mut Day, disk: &mut Disk) {
        let mut today = Vec::new();
        let mut left = day.budget(SHARES.document_reads);
        while left > 0 {
            let document = if self.recent.is_empty() || day.chance.with(OLD_DOCUMENT) {
                document(&mut disk.archive, &mut day.chance)
            } else {
                let rank = self.popularity.rank(self.recent.len(), &mut day.chance);
                self.recent.remove(rank)
            };
            let mut at_s = day.user_moment();
            for (block, blocks) in document.requests().take(left) {
                day.read(at_s, block, blocks);
                at_s += day.chance.exponential(GAP_SECONDS);
            }
            left -= document.sizes.len().min(left);
            today.push(document);
        }
        save(&mut today, day, disk);
        // The last one opened is the first to be thought of tomorrow.
        today.reverse();
        today.append(&mut self.recent);
        today.truncate(self.most);
        self.recent = today;
    }
}

/// Rewrites documents that were opened today, and writes new ones, which count as opened from then
/// on.
fn save(today: &mut Vec<Run>, day: &mut Day, disk: &mut Disk) {
    let mut left = day.budget(SHARES.document_writes);
    while left > 0 {
        let nth = if today.is_empty() || day.chance.with(NEW_DOCUMENT) {
            today.push(document(&mut disk.documents, &mut day.chance));
            today.len() - 1
        } else {
            // Office programs write a new file and rename it.
            let nth = day.chance.below(today.len() as u64) as usize;
            today[nth].rewrite(&mut disk.documents, &mut day.chance);
            nth
        };
        let mut at_s = day.user_moment();
        for (block, blocks) in today[nth].requests().take(left) {
            day.write(at_s, block, blocks);
            at_s += day.chance.exponential(GAP_SECONDS);
        }
        left -= today[nth].sizes.len().min(left);
    }
}

fn document(area: &mut Area, chance: &mut Chance) -> Run {
    Run::new(pick(DOCUMENT_REQUESTS, chance), area, chance)
}
