//! Operations and requests that take too long: on a backend, the caller is told, and the
//! operation is waited for on; the cache device is given up, for every write that needs a mark would
//! hang with it.
//!
//! One look at all of them, in the moment the first of them is due ([`cinnabar_driver::io_tracker`]).

use super::io::Io;
use super::{Driver, after};
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Event, RequestId};

impl Driver {
    /// Tells the engine of what is due and not done. It answers those who wait.
    pub(super) fn tell_overdue(&mut self, now: Instant) {
        let mut device_hangs = false;
        for io in self.ios.overdue(now) {
            let Io { owner: Some(id), volume, what, file } = self.ios.get(io).of else { continue };
            self.events.push(Event::Overdue(id));
            let Some(key) = volume else {
                device_hangs |= self.device.file() == Some(file);
                continue;
            };
            tracing::warn!(
                volume = self.volumes[key].name,
                operation = what.name,
                offset = what.offset,
                len = what.len,
                "the backend takes too long"
            );
        }
        if device_hangs && !self.device.hangs {
            self.device.hangs = true;
            tracing::error!(
                path = %self.device.path.display(),
                "the cache device does not answer and is given up: volumes pass through"
            );
            self.lose_device();
        }
    }

    /// The engine gets requests now: until when they are to be answered.
    pub(super) fn time_fresh(&mut self, now: Instant) {
        for place in self.fresh.drain(..) {
            let asked = &mut self.requests[place];
            if !asked.timeout.is_zero() {
                let due = after(now, asked.timeout);
                asked.answer_by = Some(due);
                self.next_late = Some(self.next_late.map_or(due, |next| next.min(due)));
            }
        }
    }

    /// Tells the engine of requests that were due when the port was last looked at and are not
    /// answered, whatever they wait for.
    pub(super) fn tell_late(&mut self, now: Instant) {
        if self.next_late.is_none_or(|next| next > now) {
            return;
        }
        self.next_late = None;
        for (id, asked) in &mut self.requests {
            match asked.answer_by {
                Some(due) if due <= now => {
                    asked.answer_by = None;
                    self.events.push(Event::Late(RequestId(id as u64)));
                }
                Some(due) => {
                    self.next_late = Some(self.next_late.map_or(due, |next| next.min(due)));
                }
                None => {}
            }
        }
    }
}
