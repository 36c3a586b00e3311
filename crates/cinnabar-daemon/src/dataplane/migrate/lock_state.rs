//! Whether this host still has a back end's lock, where other hosts can break it (RBD images, hybrid volumes on Ceph):
//! looked at when a guest's request comes, and when the back end says that it was lost.
//!
//! A process that was stopped for a while learns late that another host has taken the volume. So a request
//! waits unless the lock was seen within the lease ([`LockState`]). The time is read behind the request's
//! arrival: one that came before the process was stopped, and is answered after it, is as good as one that was
//! answered at once.

use super::Attached;
use crate::dataplane::clock::after;
use crate::dataplane::front::{Caller, Side};
use crate::dataplane::plane::DataPlane;
use cinnabar_backend::Memory;
use cinnabar_backend::rbd::LockState;
use cinnabar_driver::ownership::Event;
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Failure, IoError};
use cinnabar_frontend::Incoming;
use cinnabar_frontend::nbd::ExportId;
use std::time::Duration;

/// Until a lock is asked for again that was not seen for too long.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A guest's connection: by server, and its number there, which no later one gets.
pub(super) type Guest = (Side, u64);

impl DataPlane {
    /// A request to a volume that is served here.
    pub(in super::super) fn admit_owned(
        &mut self,
        now: Instant,
        arrived: Instant,
        caller: Caller,
        request: Incoming<Memory>,
    ) {
        let key = request.export.0 as usize;
        match self.volumes[key].io.disk.lock_state() {
            LockState::Held | LockState::Released => {
                if std::mem::take(&mut self.volumes[key].unconfirmed) {
                    self.admit_waiting(now, key);
                }
                if self.volumes[key].unconfirmed {
                    // Again: those before it wait.
                    return self.keep_waiting(arrived, caller, request);
                }
                self.admit_here(now, arrived, caller, request);
            }
            LockState::Unconfirmed => {
                self.keep_waiting(arrived, caller, request);
                self.note_unconfirmed(now, key);
            }
            LockState::Lost if self.volumes[key].moves.is_none() => {
                // For good: it has to be removed and added again.
                self.volumes[key].unconfirmed = false;
                self.answer(caller, key, Err(Failure::Io(IoError::Io)));
            }
            LockState::Lost => {
                self.keep_waiting(arrived, caller, request);
                self.lost_lock(now, key);
            }
        }
    }

    fn note_unconfirmed(&mut self, now: Instant, key: usize) {
        if !std::mem::replace(&mut self.volumes[key].unconfirmed, true) {
            let volume = &self.volumes[key].config.name;
            tracing::warn!(volume, "its lock was not seen for too long: guests wait until it is");
        }
        let at = after(now, LOOK_AGAIN);
        self.look_at = Some(self.look_at.map_or(at, |other| other.min(at)));
    }

    /// Goes on with requests that wait for locks to be seen.
    pub(in super::super) fn look_at_unconfirmed(&mut self, now: Instant) {
        let unconfirmed = |key: &usize| self.volumes[*key].unconfirmed;
        let keys: Vec<usize> = self.order.iter().copied().filter(unconfirmed).collect();
        for key in keys {
            let moves = self.volumes[key].moves.is_some();
            match self.volumes[key].io.disk.lock_state() {
                _ if moves && self.is_over_to_move(key) => {}
                LockState::Unconfirmed => self.note_unconfirmed(now, key),
                LockState::Lost if moves => self.lost_lock(now, key),
                LockState::Held | LockState::Released | LockState::Lost => {
                    self.volumes[key].unconfirmed = false;
                    self.admit_waiting(now, key);
                }
            }
        }
    }

    /// Becomes a standby if the lock is another host's.
    pub(in super::super) fn check_lock(&mut self, now: Instant, key: usize) {
        let Some(volume) = self.volumes.get(key) else { return };
        let is_owner = |moves: &super::Moves| moves.attached == Attached::Owner && !moves.ends;
        if volume.moves.as_ref().is_some_and(|moves| is_owner(moves))
            && volume.io.disk.lock_state() == LockState::Lost
        {
            self.lost_lock(now, key);
        }
    }

    fn lost_lock(&mut self, now: Instant, key: usize) {
        if self.is_over_to_move(key) {
            return;
        }
        self.volumes[key].unconfirmed = false;
        let volume = &self.volumes[key];
        let owns = volume.moves.as_ref().is_some_and(|moves| moves.is_owner());
        if owns && volume.life.serving().is_none() {
            // It leaves already.
            return;
        }
        let before = self.moving(key).own.is_lost();
        // Whom it is handed over to may have served it meanwhile, to the same guest: what this one still has
        // to write would go over newer data. It gets errors until it connects again.
        let guests = self.front.guests(ExportId(key as u32));
        self.move_on(now, key, Event::Lost);
        let moves = self.moving(key);
        if before || !moves.own.is_lost() {
            return;
        }
        moves.reason = "another client has taken the back end's lock".into();
        let shut_out = guests.len();
        moves.shut_out.extend(guests);
        let volume = &self.volumes[key].config.name;
        tracing::error!(
            volume,
            shut_out,
            "the back end's lock was lost: the volume becomes a standby, and guests that are connected get \
             errors until they connect again"
        );
    }

    /// Forgets guests that are gone. Not before all that they had asked for was refused.
    pub(super) fn forget_shut_out(&mut self, key: usize) {
        let moves = self.volumes[key].moves.as_mut().expect("it moves");
        if !moves.shut_out.is_empty() && !moves.own.is_lost() {
            let there = self.front.guests(ExportId(key as u32));
            moves.shut_out.retain(|guest| there.contains(guest));
        }
    }

    /// Refuses a request of a guest that was connected when the volume was lost.
    pub(in super::super) fn is_shut_out(&mut self, caller: Caller, key: usize) -> bool {
        let Some(moves) = self.volumes.get(key).and_then(|volume| volume.moves.as_ref()) else {
            return false;
        };
        if moves.shut_out.is_empty() {
            return false;
        }
        let guest = self.front.guest_of(caller.side, caller.ticket);
        let shut_out = guest.is_none_or(|guest| moves.shut_out.contains(&(caller.side, guest)));
        if shut_out {
            self.answer(caller, key, Err(Failure::Io(IoError::Io)));
        }
        shut_out
    }
}
