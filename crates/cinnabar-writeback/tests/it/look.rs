//! What a guest finds after a crash.

use super::disk::sectors;
use super::memory::Mem;
use super::world::{Checked, World};
use cinnabar_engine::{Op, Payload};

impl World {
    /// What the guest finds is what was, from now on.
    pub(crate) fn look_at_all(&mut self, index: usize, may_lose: bool) -> Checked {
        let guest = &self.guests[index];
        let (span, place) = (guest.whole(), guest.place.expect("it is attached"));
        let data = Mem::alloc(span.blocks() as u32);
        let op = Op::Read { span, data: data.clone() };
        self.submit(index, place, op, 0)?;
        self.settle()?;
        let guest = &mut self.guests[index];
        for sector in sectors(span) {
            let value = data.value(sector).ok_or_else(|| format!("sector {sector} is torn"))?;
            let newest = guest.oracle.newest(sector);
            if !guest.oracle.check_after_crash(sector, value, may_lose) {
                return Err(format!(
                    "after a crash (may lose: {may_lose}) sector {sector} holds {value}; newest \
                     {newest}"
                ));
            }
            self.counts.lost += u64::from(value != newest);
            guest.oracle.decide(sector, value);
        }
        guest.oracle.crash_barrier();
        Ok(())
    }
}
