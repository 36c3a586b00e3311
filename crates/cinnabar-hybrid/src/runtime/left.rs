//! What pools have under a volume's name, and nothing needs: deleted, some at a time. What it never made stays.

use super::worker::{Left, Pending, Worker};
use crate::pools::{Listed, Listing, Op};
use cinnabar_placement::volume::Verdict;
use cinnabar_placement::{Object, Pool};

/// Objects that are deleted at a time.
const DELETES_MAX: usize = 16;

impl Worker {
    /// Deletes what is left, and notes what is foreign.
    pub(super) fn judge(&mut self, pool: Pool, listing: Listing) {
        for listed in listing.objects {
            match listed {
                Listed::Object(object) => self.judge_object(object),
                Listed::Foreign(name) => self.note_foreign(format!("{name} in the {pool} pool")),
            }
        }
        if let Some(after) = listing.next {
            self.left.pages.push((pool, after));
        }
        self.delete_left();
    }

    /// One is deleted, or could not be.
    pub(super) fn left_deleted(&mut self) {
        self.left.deleting -= 1;
        self.delete_left();
    }

    /// Deletes some of what is left. Behind the last of it the next pages are asked for.
    fn delete_left(&mut self) {
        if self.volume.is_fenced() {
            self.left = Left { deleting: self.left.deleting, ..Left::default() };
            return;
        }
        while self.left.deleting < DELETES_MAX
            && let Some(object) = self.left.objects.pop()
        {
            // It may have come into use since the list.
            if self.volume.judge(object) == Verdict::Left {
                self.left.deleting += 1;
                self.submit(Pending::DeleteLeft, Op::Delete { object });
            }
        }
        if self.left.objects.is_empty() && self.left.deleting == 0 {
            for (pool, after) in std::mem::take(&mut self.left.pages) {
                self.submit(Pending::List(pool), Op::List { pool, after: Some(after) });
            }
        }
    }

    fn judge_object(&mut self, object: Object) {
        match self.volume.judge(object) {
            Verdict::InUse => {}
            Verdict::Left => self.left.objects.push(object),
            Verdict::Foreign => self.note_foreign(format!("{object} in the {} pool", object.pool)),
        }
    }

    fn note_foreign(&mut self, what: String) {
        self.status.foreign += 1;
        if self.status.foreign_name.is_none() {
            tracing::warn!(what, "this is no object of the volume, and stays");
            self.status.foreign_name = Some(what);
        }
    }
}
