//! I/O of the engines: in hand, sent, at its medium, ended. What was sent before its host froze or died goes
//! on without it.

use crate::hosts::HostFault;
use crate::hosts::world::{Item, Work, World};
use crate::medium::{Transfer, offset_bytes};
use crate::stamp::Stamped;
use crate::violation::Violation;
use cinnabar_engine::units::SECTOR_BYTES;
use cinnabar_engine::{Event, IoError, IoOp, IoRequest, Target};
use std::ops::Range;

/// What a dead daemon has sent lands within this time, in ns.
const LANDING_NS_MAX: u64 = 3_000_000_000;

/// An I/O under way.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) host: usize,
    run: u64,
    transfer: Transfer,
    /// By whom the image was opened that it goes to; `None` of the cache device.
    pub(super) session: Option<usize>,
    /// It stays on its host.
    local: bool,
    /// Parts that have not happened yet.
    ahead: Vec<Range<usize>>,
    sent: bool,
    error: Option<IoError>,
    /// Its host is gone.
    pub(super) dead: bool,
    not_before: u64,
}

fn is_sync(op: &IoOp<Stamped>) -> bool {
    matches!(op, IoOp::Flush | IoOp::Prove)
}

impl World {
    /// The engine asks for an I/O.
    pub(super) fn take_off(
        &mut self,
        host: usize,
        request: IoRequest<Stamped>,
    ) -> Result<(), Violation> {
        let tick = self.judge.oracle.tick();
        let on_cache = request.target == Target::Cache;
        let local = on_cache || matches!(request.op, IoOp::BumpGeneration { .. });
        let transfer = self.with_media(host, |media| media.start(request, tick))?;
        let number = self.number();
        if let Some(life) = self.hosts[host].life.as_ref().filter(|_| !on_cache) {
            life.ios().begin();
        }
        let ahead = if local { Vec::new() } else { self.parts(&transfer) };
        let session = self.hosts[host].session.filter(|_| !local);
        let error = if local { None } else { self.draw_error(&transfer.request.op) };
        let run = self.hosts[host].run;
        let flight = Flight {
            host,
            run,
            transfer,
            session,
            local,
            ahead,
            sent: false,
            error,
            dead: false,
            not_before: 0,
        };
        self.flights.insert(number, flight);
        if local {
            let lasts = self.profile.cache_latency.sample(&mut self.rng);
            self.enter(lasts, Item::At(host, run, Work::Finish(number)));
        } else {
            let in_hand = self.rng.pick(&[0, 10_000, 1_000_000]);
            self.soon_at(host, in_hand, Work::Send(number));
        }
        Ok(())
    }

    /// Parts of an I/O of the image: no part is in two regions, and one region may be two parts.
    fn parts(&mut self, transfer: &Transfer) -> Vec<Range<usize>> {
        let units = transfer.units();
        if units == 0 {
            return vec![Range { start: 0, end: 0 }];
        }
        let first = offset_bytes(&transfer.request.op) / SECTOR_BYTES;
        let mut cut: Vec<usize> = (1..units)
            .filter(|at| {
                let at = first + *at as u64;
                self.image.region_of(at) != self.image.region_of(at - 1)
            })
            .collect();
        if units > 1 && self.rng.chance(0.3) {
            cut.push(self.rng.within(1..units as u64) as usize);
        }
        cut.extend([0, units]);
        cut.sort_unstable();
        cut.dedup();
        cut.windows(2).map(|pair| pair[0]..pair[1]).collect()
    }

    fn draw_error(&mut self, op: &IoOp<Stamped>) -> Option<IoError> {
        let rate = if is_sync(op) { self.profile.sync_errors } else { self.profile.io_errors };
        (self.faults_on && self.rng.chance(rate)).then_some(IoError::Io)
    }

    pub(super) fn send(&mut self, number: u64) {
        let flight = self.flights.get_mut(&number).expect("it is in hand");
        flight.sent = true;
        let (host, writes) = (flight.host, flight.transfer.writes());
        for part in flight.ahead.clone() {
            let lasts = self.profile.backend_latency.sample(&mut self.rng);
            self.enter(lasts, Item::Land(number, part.start, part.end));
        }
        // Its answer comes when others have written.
        let may_freeze = writes && self.faults_on && self.profile.long_freeze;
        if may_freeze && self.rng.chance(0.1) {
            self.freeze(host);
        }
    }

    /// A host goes on whose connections are gone: it sends again what it has no answer to, also if that was
    /// carried out.
    pub(super) fn send_again(&mut self, host: usize) {
        let session = self.hosts[host].session;
        let lost = |flight: &Flight| flight.sent && flight.session == session;
        let numbers: Vec<u64> = self.flights.keys().copied().collect();
        for number in numbers {
            if session.is_none() || !lost(&self.flights[&number]) {
                continue;
            }
            let mut flight = self.flights.remove(&number).expect("just seen");
            flight.ahead = self.parts(&flight.transfer);
            // The first answer finds nobody that waits for it.
            let again = self.number();
            self.flights.insert(again, flight);
            self.happened(HostFault::SentAgain);
            self.send(again);
        }
    }

    /// A part of an I/O reaches the image.
    pub(super) fn land(&mut self, number: u64, units: Range<usize>) {
        let Some(flight) = self.flights.get(&number) else { return };
        let cut_until = self.cut_until(flight.host).map_or(0, |until| until.0);
        let later = flight.not_before.max(cut_until).saturating_sub(self.now.0);
        if later > 0 {
            return self.enter(later, Item::Land(number, units.start, units.end));
        }
        let mut flight = self.flights.remove(&number).expect("just seen");
        flight.ahead.retain(|part| *part != units);
        let first = offset_bytes(&flight.transfer.request.op) / SECTOR_BYTES;
        let region = self.image.region_of(first + units.start as u64);
        let writes = flight.transfer.writes();
        let admitted = flight.session.is_none_or(|session| {
            let fenced = is_sync(&flight.transfer.request.op) && self.image.is_fenced(session);
            !fenced && self.image.admits(session, region, self.now)
        });
        if !admitted {
            flight.error = Some(IoError::Io);
            if writes {
                self.happened(HostFault::Fenced);
            }
        } else if flight.error.is_none() || self.rng.chance(0.5) {
            if writes {
                self.note_late_write(&flight, first + units.start as u64..first + units.end as u64);
            }
            let host = flight.host;
            let transfer = &mut flight.transfer;
            self.with_media(host, |media| media.effect(transfer, units));
        }
        let (ended, host, run, dead) =
            (flight.ahead.is_empty(), flight.host, flight.run, flight.dead);
        if !ended || !dead {
            self.flights.insert(number, flight);
        }
        if ended && dead {
            let tick = self.judge.oracle.tick();
            self.image.backend.abandon(tick);
            self.settle_doubts();
        } else if ended {
            self.soon(100_000, Item::At(host, run, Work::Finish(number)));
        }
    }

    fn note_late_write(&mut self, flight: &Flight, sectors: Range<u64>) {
        let session = flight.session;
        if flight.dead || self.judge.zombies[flight.host].is_some() {
            self.happened(HostFault::LateWrite);
            let host = flight.host;
            self.note(|| format!("a late write of host {host}, session {session:?}: {sectors:?}"));
        }
    }

    /// An I/O has ended, and its host hears of it.
    pub(super) fn finish(&mut self, number: u64) -> Result<(), Violation> {
        // What was sent again has another number.
        let Some(mut flight) = self.flights.remove(&number) else { return Ok(()) };
        let host = flight.host;
        let sync = is_sync(&flight.transfer.request.op);
        let local = flight.local;
        let (id, on_cache) =
            (flight.transfer.request.id, flight.transfer.request.target == Target::Cache);
        if let Some(session) = flight.session.filter(|_| sync) {
            let session = &mut self.image.sessions[session];
            if session.sync_failed {
                flight.error = Some(IoError::Io);
            }
            session.sync_failed |= flight.error.is_some();
        }
        let proves = matches!(flight.transfer.request.op, IoOp::Prove);
        let tick = self.judge.oracle.tick();
        let result = flight.error.map_or(Ok(()), Err);
        let mut transfer = flight.transfer;
        let mut done = self.with_media(host, |media| {
            if local {
                let units = 0..transfer.units();
                media.effect(&mut transfer, units);
            }
            media.finish(transfer, result, tick)
        })?;
        let life = self.hosts[host].life.as_ref();
        if let (Some(session), Some(life), true, Ok(())) = (flight.session, life, proves, result) {
            let proof = self.image.proof(session);
            done.proof = proof.map(|proof| proof.of_attachment(life.attachment()));
        }
        if let Some(life) = self.hosts[host].life.as_ref().filter(|_| !on_cache) {
            let _quiet = life.ios().end();
        }
        assert_eq!(done.id, id, "an I/O completes under its own name");
        self.tell(host, Event::IoDone(done))
    }

    /// A host's daemon is gone: what it had in hand never happens, what it had sent may land late.
    pub(super) fn orphan(&mut self, host: usize) {
        let numbers: Vec<u64> = self.flights.keys().copied().collect();
        for number in numbers {
            if self.flights[&number].host != host || self.flights[&number].dead {
                continue;
            }
            let mut flight = self.flights.remove(&number).expect("just seen");
            let bumps = matches!(flight.transfer.request.op, IoOp::BumpGeneration { .. });
            if flight.local && !bumps {
                let units = flight.transfer.units();
                let part =
                    if units > 1 { self.rng.below(units as u64 + 1) as usize } else { units };
                let transfer = &mut flight.transfer;
                let happens = self.rng.chance(0.5);
                self.with_media(host, |media| {
                    if happens {
                        media.effect(transfer, 0..part);
                        media.miss(transfer, part..units);
                    } else {
                        media.miss(transfer, 0..units);
                    }
                });
            } else if bumps && self.rng.chance(0.5) {
                self.hosts[host].generation += 1;
            } else if flight.sent && !flight.ahead.is_empty() && !self.rng.chance(0.2) {
                flight.dead = true;
                if self.rng.chance(0.5) {
                    flight.not_before = self.now.plus_ns(self.rng.below(LANDING_NS_MAX)).0;
                }
                self.flights.insert(number, flight);
            }
        }
    }

    /// Whether I/O of a session may still reach the image.
    pub(super) fn is_under_way(&self, session: usize) -> bool {
        self.flights.values().any(|flight| flight.session == Some(session))
    }
}
