//! Messages between the hosts: lost, late, doubled, and answered when nobody waits any more.

use crate::hosts::HostFault;
use crate::hosts::world::{Item, Work, World};
use crate::violation::Violation;
use cinnabar_driver::ownership::{Attempt, Epoch, Event, PeerAnswer, Reply};

/// Longest way of one that is late, in ns.
const LATE_NS_MAX: u64 = 8_000_000_000;

/// A message, of an attempt of this run of its asker.
#[derive(Clone, Debug)]
pub(super) struct Message {
    run: u64,
    attempt: Attempt,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Ask(Epoch),
    Answer(Reply),
}

impl World {
    /// The other host is asked for the volume.
    pub(super) fn ask(&mut self, host: usize, attempt: Attempt, epoch: Epoch) {
        let run = self.hosts[host].run;
        self.send_message(1 - host, &Message { run, attempt, what: What::Ask(epoch) });
        let patience = self.profile.patience_ns;
        let ns = self.rng.within(patience / 2..patience + 1);
        self.enter(ns, Item::At(host, run, Work::GiveUp(attempt)));
    }

    /// The other host's request is answered.
    pub(super) fn answer(&mut self, host: usize, reply: Reply) {
        match reply {
            Reply::Free { .. } => self.happened(HostFault::Given),
            Reply::Refused(..) => self.happened(HostFault::Refused),
        }
        self.note(|| format!("host {host} answers {reply:?}"));
        if let Some((run, attempt)) = self.hosts[host].asked.pop() {
            self.send_message(1 - host, &Message { run, attempt, what: What::Answer(reply) });
        }
    }

    fn send_message(&mut self, to: usize, message: &Message) {
        let cut = [0, 1].into_iter().any(|host| self.cut_until(host).is_some());
        if cut || self.faults_on && self.rng.chance(self.profile.lost) {
            return self.happened(HostFault::MessageLost);
        }
        let copies = if self.faults_on && self.rng.chance(self.profile.doubled) { 2 } else { 1 };
        if copies > 1 {
            self.happened(HostFault::MessageDoubled);
        }
        for _ in 0..copies {
            let mut longest = if self.faults_on { self.profile.way_ns_max } else { 1_000_000 };
            if self.faults_on && self.profile.late > 0.0 && self.rng.chance(self.profile.late) {
                longest = LATE_NS_MAX;
            }
            self.soon(longest, Item::Message(to, message.clone()));
        }
    }

    /// A message arrives.
    pub(super) fn hear(&mut self, host: usize, message: Message) -> Result<(), Violation> {
        if !self.hosts[host].up {
            return Ok(());
        }
        let Message { run, attempt, what } = message;
        match what {
            What::Ask(epoch) => {
                self.note(|| format!("host {host} is asked, {attempt:?}, epoch {epoch}"));
                self.hosts[host].asked.push((run, attempt));
                self.rule(host, Event::Asked(epoch))
            }
            // The connection ended with the asker.
            What::Answer(_) if self.hosts[host].run != run => Ok(()),
            What::Answer(reply) => {
                let answer = match reply {
                    Reply::Free { epoch, owned } => PeerAnswer::Free { epoch, owned },
                    Reply::Refused(_, epoch) => PeerAnswer::Refused(epoch),
                };
                let before = self.hosts[host].own.clone();
                self.rule(host, Event::Answered(attempt, answer))?;
                if before == self.hosts[host].own {
                    self.happened(HostFault::AnswerLate);
                }
                Ok(())
            }
        }
    }

    /// No answer has come in time, or it has and this is of no interest.
    pub(super) fn give_up(&mut self, host: usize, attempt: Attempt) -> Result<(), Violation> {
        self.rule(host, Event::Answered(attempt, PeerAnswer::Silent))
    }
}
