//! Guests, what they ask for, and what the oracle says of the answers.

use super::world::World;
use crate::guest::{Asked, draw};
use crate::memory::Mem;
use crate::world::Checked;
use cinnabar_engine::{Answer, Failure, Op, Payload, RequestId};
use rand::RngExt;

impl World {
    pub(super) fn ask(&mut self) -> Checked {
        let key = self.rng.random_range(0..self.volumes.len());
        let base = self.settings.base;
        let volume = &mut self.volumes[key];
        if volume.asked.len() >= base.in_flight || self.stopping {
            return self.happen_now().map(|_| ());
        }
        let oracle = (&volume.asked, &mut volume.oracle);
        let drawn = draw(&base, volume.sectors, oracle, &mut self.next_value, &mut self.rng);
        let Some((op, submitted)) = drawn else { return self.happen_now().map(|_| ()) };
        self.counts.note(match op {
            Op::Read { .. } => "reads",
            Op::Flush => "flushes",
            _ => "writes",
        });
        self.submit(key, op, submitted)?;
        self.pump()
    }

    /// A guest submits a request; its buffers are whole blocks.
    pub(super) fn submit(&mut self, key: usize, op: Op<Mem>, submitted: u64) -> Checked {
        let id = self.new_id();
        let op = match op {
            Op::Read { span, .. } => Op::Read { span, data: Mem::alloc(span.blocks() as u32) },
            op => op,
        };
        let given = match &op {
            Op::Write { span, data, fua } => {
                let own = Mem::alloc(span.blocks() as u32);
                own.copy_from(0, data, 0, span.blocks() * 4096);
                Op::Write { span: *span, data: own, fua: *fua }
            }
            op => op.clone(),
        };
        self.trace("guest", &(key, id, &given));
        self.volumes[key].asked.insert(id.0, Asked { op, submitted });
        self.admit(key, id, given)
    }

    pub(super) fn replied(
        &mut self,
        key: usize,
        id: RequestId,
        result: Result<Answer<Mem>, Failure>,
    ) -> Checked {
        self.trace("replied", &(key, id, result.as_ref().map(|_| ())));
        let volume = &mut self.volumes[key];
        let Asked { op, submitted } = volume.asked.remove(&id.0).ok_or("an answer to nothing")?;
        let settings = &self.settings;
        let answer = match result {
            Ok(answer) => answer,
            Err(_)
                if settings.backend_fails > 0.0 || settings.flush_fails > 0.0 || self.stopping =>
            {
                // What it would have written may be there, or not.
                volume.again |= volume.backend.sticks;
                self.counts.note("failed");
                return Ok(());
            }
            Err(failure) => return Err(format!("{op:?} failed: {failure}")),
        };
        match op {
            Op::Flush => volume.oracle.barrier(submitted),
            Op::Read { span, .. } => {
                let Answer::Data(data) = answer else { return Err("a read without data".into()) };
                for (n, sector) in crate::disk::sectors(span).enumerate() {
                    let value = data.value((span.offset % 4096) as usize / 512 + n);
                    let value = value.ok_or_else(|| format!("sector {sector} is torn"))?;
                    if !volume.oracle.check_read(sector, value, submitted) {
                        return Err(format!("{key}: sector {sector} was read as {value}: stale"));
                    }
                }
            }
            Op::Write { span, fua, .. }
            | Op::Trim { span, fua }
            | Op::WriteZeroes { span, fua, .. } => {
                volume.oracle.written(crate::disk::sectors(span));
                if fua {
                    volume.oracle.fua(crate::disk::sectors(span));
                }
            }
            Op::Invalidate { .. } => unreachable!("never asked"),
        }
        Ok(())
    }
}
