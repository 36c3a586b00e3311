//! Things that take time: devices, the file server, links.
//!
//! Requests come in order of time, so a queue is no more than the instants at which its servers are
//! free.

use super::config::{Config, Duplex, Service};
use cinnabar_engine::units::BLOCK_BYTES;
use std::collections::VecDeque;

/// A device, or the file server.
#[derive(Clone, Debug)]
pub(super) struct Station {
    /// When each server is free; empty for a delay centre.
    free_ns: Vec<u64>,
}

impl Station {
    pub(super) fn new(service: Service) -> Self {
        let servers = match service {
            Service::Delay => 0,
            Service::Servers(servers) => servers as usize,
        };
        Self { free_ns: vec![0; servers] }
    }

    /// Does it matter in which order requests arrive?
    pub(super) fn queues(&self) -> bool {
        !self.free_ns.is_empty()
    }

    /// When what arrives now, and takes so long by itself, is done.
    #[inline]
    pub(super) fn serve(&mut self, now: u64, ns: u64) -> u64 {
        let Some(free) = self.free_ns.iter_mut().min() else { return now + ns };
        *free = now.max(*free) + ns;
        *free
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// To the file server.
    Up,
    /// From the file server to the host.
    Down,
}

/// A link: packets of a direction one behind the other.
#[derive(Clone, Debug)]
pub(super) struct Link {
    ways: [Direction; 2],
    packet_ns: u64,
    data_ns: u64,
    half: bool,
    packet_holds: bool,
}

/// One direction, or both of a half-duplex link.
#[derive(Clone, Debug, Default)]
struct Direction {
    free_ns: u64,
    /// Jobs whose packets give way to all others, and whether each has data.
    yielding: VecDeque<(u32, bool)>,
}

impl Link {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            ways: Default::default(),
            packet_ns: config.timings.packet_ns,
            data_ns: config.timings.block_transfer_ns,
            half: config.duplex == Duplex::Half,
            packet_holds: config.packet_holds_link,
        }
    }

    fn way(&mut self, way: Way) -> &mut Direction {
        &mut self.ways[if self.half { 0 } else { way as usize }]
    }

    /// When a packet that is ready now arrives, with a block's data or without.
    #[inline]
    pub(super) fn send(&mut self, now: u64, way: Way, data: bool) -> u64 {
        let data_ns = if data { self.data_ns } else { 0 };
        self.send_for(now, way, data_ns)
    }

    /// The same for a packet with so many bytes of data.
    pub(super) fn send_bytes(&mut self, now: u64, way: Way, bytes: u64) -> u64 {
        self.send_for(now, way, self.data_ns * bytes / BLOCK_BYTES)
    }

    #[inline]
    fn send_for(&mut self, now: u64, way: Way, data_ns: u64) -> u64 {
        let (packet_ns, holds) = (self.packet_ns, self.packet_holds);
        let way = self.way(way);
        let start = now.max(way.free_ns);
        let arrival = start + packet_ns + data_ns;
        way.free_ns = if holds { arrival } else { start + data_ns };
        arrival
    }

    /// The same for a packet that neither waits nor keeps others waiting.
    pub(super) fn pass(&self, now: u64, data: bool) -> u64 {
        now + self.packet_ns + if data { self.data_ns } else { 0 }
    }

    /// The same for a packet that gives way to all others.
    pub(super) fn give_way(&mut self, now: u64, id: u32, way: Way, data: bool) -> Yielded {
        let direction = self.way(way);
        if direction.yielding.is_empty() && direction.free_ns <= now {
            return Yielded::Arrives(self.send(now, way, data));
        }
        let first = direction.yielding.is_empty();
        direction.yielding.push_back((id, data));
        if first { Yielded::AskAgain(direction.free_ns) } else { Yielded::Waits }
    }

    /// Asks again for a packet that gave way: gives its job and arrival, if it has gone now, and when
    /// to ask for the next.
    pub(super) fn idle(&mut self, now: u64, way: Way) -> (Option<(u32, u64)>, Option<u64>) {
        let direction = self.way(way);
        if direction.free_ns > now {
            return (None, Some(direction.free_ns));
        }
        let Some((id, data)) = direction.yielding.pop_front() else { return (None, None) };
        let arrival = self.send(now, way, data);
        let direction = self.way(way);
        let again = (!direction.yielding.is_empty()).then_some(direction.free_ns);
        (Some((id, arrival)), again)
    }
}

/// What becomes of a packet that gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Yielded {
    /// It arrives then.
    Arrives(u64),
    /// It waits behind others of its kind.
    Waits,
    /// It waits, the first of its kind: [`Link::idle`] has to be asked then.
    AskAgain(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_centre_keeps_nobody_waiting_and_servers_do() {
        let mut delay = Station::new(Service::Delay);
        assert_eq!((delay.serve(10, 5), delay.serve(10, 5)), (15, 15));
        assert!(!delay.queues());
        let mut two = Station::new(Service::Servers(2));
        assert_eq!((two.serve(0, 10), two.serve(1, 10), two.serve(2, 10)), (10, 11, 20));
        assert_eq!(two.serve(100, 1), 101);
    }

    #[test]
    fn packets_of_a_direction_wait_for_each_other() {
        let config = Config::default();
        let mut full = Link::new(&config);
        assert_eq!(full.send(0, Way::Up, true), 40_968);
        assert_eq!(full.send(0, Way::Up, false), 49_168);
        assert_eq!(full.send(0, Way::Down, false), 8_200);
        let mut half = Link::new(&Config { duplex: Duplex::Half, ..config });
        assert_eq!(half.send(0, Way::Up, true), 40_968);
        assert_eq!(half.send(0, Way::Down, false), 49_168);
        let mut data_only = Link::new(&Config { packet_holds_link: false, ..config });
        assert_eq!(data_only.send(0, Way::Up, true), 40_968);
        assert_eq!(data_only.send(0, Way::Up, false), 40_968);
    }
    #[test]
    fn a_packet_that_gives_way_goes_when_the_link_is_idle() {
        let mut link = Link::new(&Config::default());
        assert_eq!(link.give_way(0, 1, Way::Up, true), Yielded::Arrives(40_968));
        assert_eq!(link.give_way(1, 2, Way::Up, true), Yielded::AskAgain(40_968));
        assert_eq!(link.give_way(2, 3, Way::Up, true), Yielded::Waits);
        // Who asks meanwhile goes first, but stops nothing that is on its way.
        assert_eq!(link.send(3, Way::Up, false), 49_168);
        assert_eq!(link.idle(40_968, Way::Up), (None, Some(49_168)));
        assert_eq!(link.idle(49_168, Way::Up), (Some((2, 90_136)), Some(90_136)));
        assert_eq!(link.idle(90_136, Way::Up), (Some((3, 131_104)), None));
        assert_eq!(link.idle(131_104, Way::Up), (None, None));
    }
}
