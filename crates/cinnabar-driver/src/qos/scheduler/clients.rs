//! The clients of a group.

use super::{Client, ClientId, Refusal};
use crate::qos::cost::Cost;
use crate::qos::limits::{CLIENTS_MAX, IDLE_FORGET_NS};
use crate::qos::mutant::{Mutant, Mutants};
use crate::qos::queue::{Line, Table};
use crate::qos::report::ClientReport;
use crate::qos::settings::Settings;
use crate::qos::tags::{Head, Tags};
use std::collections::BTreeMap;

/// A client.
#[derive(Debug)]
pub(super) struct Slot {
    name: Client,
    turn: u32,
    pub(super) settings: Settings,
    pub(super) tags: Tags,
    pub(super) line: Line,
    pub(super) under_way: usize,
    /// Since when nothing of it waits or is under way, if so.
    idle_ns: u64,
    pub(super) counters: Counters,
}

/// What a client has had.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) by_reservation: u64,
    pub(super) by_weight: u64,
    pub(super) cost: Cost,
    pub(super) held_ns: u64,
    pub(super) reservation_queued_ns: u64,
    pub(super) weight_queued_ns: u64,
    pub(super) waited_ns_max: u64,
    pub(super) exempt: u64,
    pub(super) refused: u64,
    pub(super) withdrawn: u64,
}

impl Slot {
    /// The tags of its first waiting request.
    pub(super) fn head(&self, requests: &Table, mutants: Mutants) -> Option<Head> {
        let first = requests.first(&self.line)?;
        Some(self.tags.head(&self.settings, first.arrival_ns, mutants))
    }

    /// It has a request again. After a long idleness it begins as a new client; after a short one
    /// its proportional tag stays if it is ahead, or a client with one request at a time would be the
    /// first each time.
    pub(super) fn wake(&mut self, now_ns: u64, start: u128, mutants: Mutants) {
        let idle = now_ns.saturating_sub(self.idle_ns) >= IDLE_FORGET_NS;
        if (self.under_way == 0 && idle) || mutants.is(Mutant::ForgetAtOnce) {
            self.tags.forget();
        }
        if !mutants.is(Mutant::IdleCredit) {
            self.tags.lift(start);
        }
    }

    /// It may have become idle.
    pub(super) fn rest(&mut self, now_ns: u64) {
        self.idle_ns = now_ns;
    }

    /// Its counters.
    pub(super) fn report(&self) -> ClientReport {
        let counted = &self.counters;
        ClientReport {
            by_reservation: counted.by_reservation,
            by_weight: counted.by_weight,
            milli_ios: counted.cost.milli_ios(),
            held_ns: counted.held_ns,
            reservation_queued_ns: counted.reservation_queued_ns,
            weight_queued_ns: counted.weight_queued_ns,
            waited_ns_max: counted.waited_ns_max,
            exempt: counted.exempt,
            refused: counted.refused,
            withdrawn: counted.withdrawn,
            ..ClientReport::default()
        }
    }
}

/// The clients of a group, by place and by name.
#[derive(Debug, Default)]
pub(super) struct Clients {
    slots: Vec<Option<Slot>>,
    /// Uses of each place so far.
    turns: Vec<u32>,
    free: Vec<u32>,
    names: BTreeMap<Client, u32>,
}

impl Clients {
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn add(
        &mut self,
        name: Client,
        settings: Settings,
        now_ns: u64,
    ) -> Result<ClientId, Refusal> {
        if self.names.contains_key(&name) {
            return Err(Refusal::Known);
        }
        if self.names.len() >= CLIENTS_MAX {
            return Err(Refusal::TooManyClients);
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.turns.push(0);
            self.slots.len() as u32 - 1
        });
        let turn = self.turns[index as usize];
        self.slots[index as usize] = Some(Slot {
            name,
            turn,
            settings,
            tags: Tags::default(),
            line: Line::EMPTY,
            under_way: 0,
            idle_ns: now_ns,
            counters: Counters::default(),
        });
        self.names.insert(name, index);
        Ok(ClientId { index, turn })
    }

    pub(super) fn remove(&mut self, id: ClientId) {
        let slot = self.slots[id.index as usize].take().expect("it is there");
        assert!(slot.line.count == 0, "what waits was given back");
        self.names.remove(&slot.name);
        self.turns[id.index as usize] = id.turn.wrapping_add(1);
        self.free.push(id.index);
    }

    pub(super) fn find(&self, name: Client) -> Option<ClientId> {
        let index = *self.names.get(&name)?;
        Some(ClientId { index, turn: self.turns[index as usize] })
    }

    pub(super) fn get(&self, id: ClientId) -> Option<&Slot> {
        self.slots.get(id.index as usize)?.as_ref().filter(|slot| slot.turn == id.turn)
    }

    pub(super) fn get_mut(&mut self, id: ClientId) -> Option<&mut Slot> {
        self.slots.get_mut(id.index as usize)?.as_mut().filter(|slot| slot.turn == id.turn)
    }

    /// A client by the place that a heap or a waiting request has.
    pub(super) fn at_mut(&mut self, index: u32) -> &mut Slot {
        self.slots[index as usize].as_mut().expect("a client that waits is there")
    }

    /// The highest proportional tag.
    pub(super) fn highest_share(&self) -> u128 {
        self.slots.iter().flatten().map(|slot| slot.tags.share()).max().unwrap_or(0)
    }

    /// The sum of all reservations, in I/Os a second.
    pub(super) fn reserved_iops(&self) -> u64 {
        let settings = self.slots.iter().flatten().map(|slot| slot.settings);
        settings.map(|settings| u64::from(settings.reservation_iops)).sum()
    }
}
