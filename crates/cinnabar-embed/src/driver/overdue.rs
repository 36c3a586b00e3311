//! Operations and requests that take too long: on a backend, whoever asked is told, and the
//! operation is waited for on; the cache device is given up, for every write that needs a mark would
//! hang with it.
//!
//! One look at all of them, at the moment the first of them is due.

use super::{Awaited, Driver};
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Command, Event, RequestId};

impl Driver {
    /// Until when an operation that starts now must be done; `None` is the cache device.
    pub(super) fn deadline_of(&mut self, now: Instant, volume: Option<usize>) -> Option<Instant> {
        let bound = match volume {
            Some(key) => self.volumes[key].timeout,
            None => self.device.timeout,
        };
        if bound.is_zero() {
            return None;
        }
        let deadline = now.plus_ns(u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX));
        self.next_overdue = Some(self.next_overdue.map_or(deadline, |next| next.min(deadline)));
        Some(deadline)
    }

    /// Tells the engine of what is due and not done. It answers whoever waits.
    pub(super) fn tell_overdue(&mut self, now: Instant) {
        if self.next_overdue.is_none_or(|next| next > now) {
            return;
        }
        let mut device_hangs = false;
        for (_, io) in &mut self.ios {
            if io.deadline.is_none_or(|deadline| deadline > now) {
                continue;
            }
            io.deadline = None;
            let what = io.what;
            match (io.volume, io.owner) {
                (None, Some(id)) => {
                    device_hangs = true;
                    self.events.push(Event::Overdue(id));
                }
                (Some(key), Some(id)) => {
                    self.events.push(Event::Overdue(id));
                    tracing::warn!(
                        volume = self.volumes[key].name,
                        operation = what.name,
                        offset = what.offset,
                        len = what.len,
                        "the backend takes too long"
                    );
                }
                (_, None) => {}
            }
        }
        self.next_overdue = self.ios.iter().filter_map(|(_, io)| io.deadline).min();
        if device_hangs && !self.device.hangs {
            self.device.hangs = true;
            tracing::error!(
                path = %self.device.path.display(),
                "the cache device does not answer and is given up: volumes pass through"
            );
            self.order(Awaited::Unheard, Command::Abandon);
        }
    }

    /// When a request to this volume that is made now must be answered; `None`: whenever.
    pub(super) fn answer_by(&mut self, now: Instant, volume: usize) -> Option<Instant> {
        let bound = self.volumes[volume].timeout;
        if bound.is_zero() {
            return None;
        }
        let due = now.plus_ns(u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX));
        self.next_late = Some(self.next_late.map_or(due, |next| next.min(due)));
        Some(due)
    }

    /// Tells the engine of requests that are due and not answered, whatever they wait for.
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
