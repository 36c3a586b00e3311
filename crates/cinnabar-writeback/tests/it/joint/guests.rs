//! Guests, what they ask for, and what the oracle says of the answers.

use super::world::World;
use crate::guest::{Asked, draw};
use crate::memory::Mem;
use crate::world::Checked;
use cinnabar_engine::{Answer, Failure, IoError, Op, Payload, RequestId};
use rand::RngExt;

/// What guests fill their memory with when its request is answered.
const REUSED: u64 = u64::MAX - 0xBAD;
/// Of the newest so much is kept an eye on.
const REUSED_MAX: usize = 64;

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
        let own_memory = key % 2 == 1;
        self.submit(key, op, submitted, own_memory)?;
        self.pump()
    }

    /// A guest submits a request; its buffers are whole blocks. `own_memory`: it reads into its own, not
    /// into a server's.
    pub(super) fn submit(
        &mut self,
        key: usize,
        op: Op<Mem>,
        submitted: u64,
        own_memory: bool,
    ) -> Checked {
        let id = self.new_id();
        let alloc = |blocks| {
            let mem = Mem::alloc(blocks as u32);
            if own_memory { mem.of_guest() } else { mem }
        };
        let op = match op {
            Op::Read { span, .. } => Op::Read { span, data: alloc(span.blocks()) },
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
        if let (true, Op::Read { data, .. }) = (own_memory, &given) {
            self.lent.insert(id.0, data.clone());
        }
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
        let checked = self.check_answer(key, id, result);
        // The guest uses its memory for something else.
        if let Some(memory) = self.lent.remove(&id.0) {
            memory.fill(REUSED);
            self.reused.push_back(memory);
            self.check_reused(REUSED_MAX)?;
        }
        checked
    }

    /// Nothing was written to memory that guests use for something else, but for what comes so late that
    /// the last few tell.
    pub(super) fn check_reused(&mut self, most: usize) -> Checked {
        while self.reused.len() > most {
            let memory = self.reused.pop_front().expect("just counted");
            if !memory.is_full_of(REUSED) {
                return Err("a guest's memory was written after its request was answered".into());
            }
        }
        Ok(())
    }

    fn check_answer(
        &mut self,
        key: usize,
        id: RequestId,
        result: Result<Answer<Mem>, Failure>,
    ) -> Checked {
        let volume = &mut self.volumes[key];
        let Asked { op, submitted } = volume.asked.remove(&id.0).ok_or("an answer to nothing")?;
        let settings = &self.settings;
        let answer = match result {
            Ok(answer) => answer,
            Err(failure)
                if settings.backend_fails > 0.0
                    || settings.flush_fails > 0.0
                    || self.stopping
                    || self.log.is_lost()
                    || settings.late > 0.0 && failure == Failure::Io(IoError::TimedOut) =>
            {
                // What it would have written may be there, or not.
                self.renew(key);
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
