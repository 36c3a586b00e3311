//! Things that take time: devices, the file server, links.
//!
//! Called by the model, always in order of time, so a queue is no more than the instants at which
//! its servers are free.

use super::config::{Config, Duplex, Service};

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

/// Which way a packet goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// To the file server.
    Up,
    /// From it.
    Down,
}

/// A link: packets of a direction one behind the other.
#[derive(Clone, Debug)]
pub(super) struct Link {
    free_ns: [u64; 2],
    packet_ns: u64,
    data_ns: u64,
    half: bool,
    packet_holds: bool,
}

impl Link {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            free_ns: [0; 2],
            packet_ns: config.timings.packet_ns,
            data_ns: config.timings.block_transfer_ns,
            half: config.duplex == Duplex::Half,
            packet_holds: config.packet_holds_link,
        }
    }

    /// When a packet that is ready now arrives, with a block's data or without.
    #[inline]
    pub(super) fn send(&mut self, now: u64, way: Way, data: bool) -> u64 {
        let direction = if self.half { 0 } else { way as usize };
        let start = now.max(self.free_ns[direction]);
        let data_ns = if data { self.data_ns } else { 0 };
        let arrival = start + self.packet_ns + data_ns;
        self.free_ns[direction] = if self.packet_holds { arrival } else { start + data_ns };
        arrival
    }
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
}
