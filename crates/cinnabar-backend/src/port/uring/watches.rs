//! Watched sockets: a one-shot poll each, armed again before every wait, which makes it
//! level-triggered: bytes left unread are reported again.
//!
//! One wrinkle: the kernel always tells that the peer has sent its last byte (`POLLRDHUP`), asked
//! or not, and would do so again and again. Where no read is wanted, the poll is then made to tell
//! changes only.

use super::super::threads::{poll_mask, readiness};
use super::ring::Ring;
use super::{Interest, KIND_NONE, KIND_POLL, KIND_SHIFT, PortEvent};
use io_uring::{opcode, types};
use slab::Slab;
use std::collections::HashMap;
use std::os::fd::RawFd;

/// Lower bits of `user_data`: the place of a watch; above them its generation.
const GENERATION_SHIFT: u32 = 32;
/// So many that one comes again only when the cancelled poll is long gone.
const GENERATION_MASK: u32 = (1 << 30) - 1;

/// See the module.
#[derive(Default)]
pub(super) struct Watches {
    places: Slab<Watch>,
    by_token: HashMap<u64, usize>,
    /// Places to arm before the next wait.
    to_arm: Vec<usize>,
    /// Told apart from all polls there were at the same place.
    generation: u32,
}

struct Watch {
    fd: RawFd,
    token: u64,
    interest: Interest,
    /// The poll that is under way.
    armed: Option<u64>,
    /// Polling it failed: the descriptor is not what it was.
    failed: bool,
    /// Poll for changes only.
    changes: bool,
}

impl Watches {
    pub(super) fn watch(&mut self, fd: RawFd, token: u64, interest: Interest, ring: &mut Ring) {
        if let Some(&place) = self.by_token.get(&token) {
            let watch = &mut self.places[place];
            if watch.fd == fd && watch.interest == interest {
                return;
            }
            (watch.fd, watch.interest) = (fd, interest);
            (watch.failed, watch.changes) = (false, false);
            disarm(watch, ring);
            self.to_arm.push(place);
        } else {
            let place = self.places.insert(Watch {
                fd,
                token,
                interest,
                armed: None,
                failed: false,
                changes: false,
            });
            self.by_token.insert(token, place);
            self.to_arm.push(place);
        }
    }

    pub(super) fn unwatch(&mut self, token: u64, ring: &mut Ring) {
        if let Some(place) = self.by_token.remove(&token) {
            let mut watch = self.places.remove(place);
            disarm(&mut watch, ring);
        }
    }

    /// Arms what is not armed. A place may be listed twice, or be someone else's by now.
    pub(super) fn arm(&mut self, ring: &mut Ring) {
        for place in self.to_arm.drain(..) {
            let Some(watch) = self.places.get_mut(place) else { continue };
            if watch.armed.is_some() || watch.failed {
                continue;
            }
            self.generation = (self.generation + 1) & GENERATION_MASK;
            let name = u64::from(self.generation) << GENERATION_SHIFT | place as u64;
            let mask = u32::from(poll_mask(watch.interest).cast_unsigned());
            let poll = opcode::PollAdd::new(types::Fd(watch.fd), mask).multi(watch.changes);
            let entry = poll.build();
            ring.push(entry.user_data(KIND_POLL << KIND_SHIFT | name));
            watch.armed = Some(name);
        }
    }

    /// Takes the completion of a poll.
    pub(super) fn completed(
        &mut self,
        name: u64,
        result: i32,
        more: bool,
        events: &mut Vec<PortEvent>,
    ) {
        let place = (name & u64::from(u32::MAX)) as usize;
        let Some(watch) = self.places.get_mut(place) else { return };
        if watch.armed != Some(name) {
            // Of an earlier watch, or of one that was changed.
            return;
        }
        if !more {
            watch.armed = None;
            self.to_arm.push(place);
        }
        // A poll that fails (a closed descriptor) is reported as an error of the socket, once.
        watch.failed = result < 0;
        let mut revents = if result < 0 { libc::POLLNVAL } else { (result & 0x7fff) as i16 };
        if !watch.interest.read && revents & libc::POLLRDHUP != 0 {
            revents &= !libc::POLLRDHUP;
            watch.changes = true;
        }
        events.extend(readiness(watch.token, revents));
    }
}

fn disarm(watch: &mut Watch, ring: &mut Ring) {
    if let Some(name) = watch.armed.take() {
        let entry = opcode::PollRemove::new(KIND_POLL << KIND_SHIFT | name).build();
        ring.push(entry.user_data(KIND_NONE << KIND_SHIFT));
    }
}
