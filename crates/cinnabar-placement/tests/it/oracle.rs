//! What each part of the volume may hold, whatever the hosts did.

use std::collections::BTreeSet;

#[derive(Clone, Debug)]
struct Part {
    /// Versions that it may hold now.
    possible: BTreeSet<u64>,
    /// Writes of the owner under way.
    writing: u32,
    /// Rises with each write that begins or ends.
    changes: u64,
    /// Rises when the part is cut off.
    life: u64,
    /// A write has begun since it is there.
    touched: bool,
}

/// A read under way.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    first: usize,
    allowed: Vec<BTreeSet<u64>>,
    changes: Vec<u64>,
    pub(crate) id: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    parts: Vec<Part>,
    reading: Vec<Reading>,
    next: u64,
}

/// A write under way.
#[derive(Clone, Debug)]
pub(crate) struct Writing {
    pub(crate) first: usize,
    pub(crate) version: u64,
    lives: Vec<u64>,
}

impl Oracle {
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// The volume has another size; what is cut off comes back as zeros.
    pub(crate) fn resize(&mut self, parts: usize) {
        let new =
            Part { possible: [0].into(), writing: 0, changes: 0, life: self.next, touched: false };
        self.next += 1;
        self.parts.resize(parts, new);
    }

    /// Whether a write of the owner is under way in the range.
    pub(crate) fn is_written(&self, first: usize, count: usize) -> bool {
        self.parts[first..first + count].iter().any(|part| part.writing > 0)
    }

    /// Whether a write of any of these has begun since they are there.
    pub(crate) fn is_touched(&self, first: usize, count: usize) -> bool {
        self.parts[first..first + count].iter().any(|part| part.touched)
    }

    pub(crate) fn write_begins(&mut self, first: usize, count: usize) -> Writing {
        self.next += 1;
        let version = self.next;
        for (at, part) in self.parts.iter_mut().enumerate().skip(first).take(count) {
            part.possible.insert(version);
            part.touched = true;
            part.writing += 1;
            part.changes += 1;
            for reading in &mut self.reading {
                if let Some(allowed) =
                    at.checked_sub(reading.first).and_then(|i| reading.allowed.get_mut(i))
                {
                    allowed.insert(version);
                }
            }
        }
        let lives = self.parts[first..first + count].iter().map(|part| part.life).collect();
        Writing { first, version, lives }
    }

    pub(crate) fn write_ends(&mut self, writing: &Writing, acknowledged: bool) {
        for (i, life) in writing.lives.iter().enumerate() {
            let Some(part) = self.parts.get_mut(writing.first + i) else { continue };
            if part.life != *life {
                continue;
            }
            part.writing = part.writing.saturating_sub(1);
            part.changes += 1;
            if acknowledged {
                part.possible = [writing.version].into();
            }
        }
    }

    pub(crate) fn read_begins(&mut self, first: usize, count: usize) -> u64 {
        self.next += 1;
        let of = &self.parts[first..first + count];
        let allowed = of.iter().map(|part| part.possible.clone()).collect();
        let changes = of.iter().map(|part| part.changes).collect();
        self.reading.push(Reading { first, allowed, changes, id: self.next });
        self.next
    }

    /// Judges what a read gave; `None`: it failed.
    pub(crate) fn read_ends(&mut self, id: u64, found: Option<&[u64]>) -> Result<(), String> {
        let at = self.reading.iter().position(|reading| reading.id == id);
        let reading = self.reading.swap_remove(at.expect("a read under way"));
        for (i, version) in found.into_iter().flatten().enumerate() {
            let at = reading.first + i;
            let allowed = &reading.allowed[i];
            if !allowed.contains(version) {
                return Err(format!("part {at} gave {version}; possible: {allowed:?}"));
            }
            // What was seen once is not to change by itself.
            if let Some(part) = self.parts.get_mut(at)
                && part.changes == reading.changes[i]
                && part.writing == 0
            {
                part.possible = [*version].into();
            }
        }
        Ok(())
    }

    /// The owner is gone: writes under way may have happened, or not, or happen still.
    pub(crate) fn owner_gone(&mut self) {
        self.reading.clear();
        for part in &mut self.parts {
            part.writing = 0;
            part.changes += 1;
        }
    }
}
