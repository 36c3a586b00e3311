//! Watched sockets: a one-shot poll each, armed anew before every wait, which makes it
//! level-triggered: whoever leaves bytes unread is told again.
//!
//! Called by the uring port alone.

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
}

impl Watches {
    pub(super) fn watch(&mut self, fd: RawFd, token: u64, interest: Interest, ring: &mut Ring) {
        if let Some(&place) = self.by_token.get(&token) {
            let watch = &mut self.places[place];
            if watch.fd == fd && watch.interest == interest {
                return;
            }
            (watch.fd, watch.interest) = (fd, interest);
            disarm(watch, ring);
            self.to_arm.push(place);
        } else {
            let place = self.places.insert(Watch { fd, token, interest, armed: None });
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
            if watch.armed.is_some() || watch.interest == Interest::default() {
                continue;
            }
            self.generation = (self.generation + 1) & GENERATION_MASK;
            let name = u64::from(self.generation) << GENERATION_SHIFT | place as u64;
            let mask = u32::from(poll_mask(watch.interest).cast_unsigned());
            let entry = opcode::PollAdd::new(types::Fd(watch.fd), mask).build();
            ring.push(entry.user_data(KIND_POLL << KIND_SHIFT | name));
            watch.armed = Some(name);
        }
    }

    /// Takes the completion of a poll.
    pub(super) fn completed(&mut self, name: u64, result: i32, events: &mut Vec<PortEvent>) {
        let place = (name & u64::from(u32::MAX)) as usize;
        let Some(watch) = self.places.get_mut(place) else { return };
        if watch.armed != Some(name) {
            // Of an earlier watch, or of one that was changed.
            return;
        }
        watch.armed = None;
        self.to_arm.push(place);
        // A poll that fails (a closed descriptor) is told as an error of the socket, once: the
        // owner will find out by using it.
        let revents = i16::try_from(result).unwrap_or(0);
        let (readable, writable) = if result < 0 { (true, true) } else { readiness(revents) };
        if result < 0 {
            watch.interest = Interest::default();
        }
        let token = watch.token;
        events.push(PortEvent::Ready { token, readable, writable });
    }
}

fn disarm(watch: &mut Watch, ring: &mut Ring) {
    if let Some(name) = watch.armed.take() {
        let entry = opcode::PollRemove::new(KIND_POLL << KIND_SHIFT | name).build();
        ring.push(entry.user_data(KIND_NONE << KIND_SHIFT));
    }
}
