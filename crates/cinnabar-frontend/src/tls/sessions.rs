//! How many clients there are: sessions that have begun, and handshakes that are under way, in all and of each
//! address.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Sessions at a time, from their beginning to when nothing of them is left, which may be after the server's
/// own end of them. Each has three descriptors here and one there.
pub(crate) const SESSIONS_MAX: usize = 2048;
/// Clients whose handshake is not over, those that wait for their turn among them.
const OPENING_MAX: usize = 512;
/// Those of one address: one host is not to keep the others out.
const OPENING_OF_ONE_MAX: usize = 128;
/// Handshakes that are listened to at a time; others wait for their turn. Each takes some 1 ms of a processor,
/// and memory until its client has shown who it is.
const TURNS_MAX: usize = 64;
/// Those of one address.
const TURNS_OF_ONE_MAX: usize = 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct Sessions {
    turns: Arc<Semaphore>,
    counts: Mutex<Counts>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    established: usize,
    opening: usize,
    of_each: BTreeMap<Option<IpAddr>, OfOne>,
}

/// The handshakes of one address.
#[derive(Debug)]
struct OfOne {
    opening: usize,
    turns: Arc<Semaphore>,
}

/// A handshake's turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _of_all: OwnedSemaphorePermit,
    _of_one: OwnedSemaphorePermit,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Session {
    sessions: Arc<Sessions>,
    peer: Option<IpAddr>,
    turns: Arc<Semaphore>,
    is_open: bool,
}

impl Default for Sessions {
    fn default() -> Self {
        let turns = Arc::new(Semaphore::new(TURNS_MAX));
        Self { turns, counts: Mutex::default(), ended: Condvar::new() }
    }
}

impl Sessions {
    /// One more client, if there is room for it. `peer` is an address with a port, or another text.
    pub(crate) fn begin(self: &Arc<Self>, peer: &str) -> Option<Session> {
        let peer = peer.parse().ok().map(|at: SocketAddr| at.ip().to_canonical());
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.all >= SESSIONS_MAX || counts.opening >= OPENING_MAX {
            return None;
        }
        let of_one = counts.of_each.entry(peer).or_insert_with(|| OfOne {
            opening: 0,
            turns: Arc::new(Semaphore::new(TURNS_OF_ONE_MAX)),
        });
        if of_one.opening >= OPENING_OF_ONE_MAX {
            return None;
        }
        of_one.opening += 1;
        let turns = Arc::clone(&of_one.turns);
        counts.all += 1;
        counts.opening += 1;
        drop(counts);
        Some(Session { sessions: Arc::clone(self), peer, turns, is_open: false })
    }

    /// Waits until all sessions that were established have ended, but no longer than this. False if some have
    /// not.
    pub(crate) fn finish(&self, wait_max: Duration) -> bool {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let waited =
            self.ended.wait_timeout_while(counts, wait_max, |counts| counts.established > 0);
        waited.is_ok_and(|(counts, _)| counts.established == 0)
    }
}

impl Counts {
    fn opened(&mut self, peer: Option<IpAddr>) {
        self.opening -= 1;
        if let Some(of_one) = self.of_each.get_mut(&peer) {
            of_one.opening -= 1;
            if of_one.opening == 0 {
                self.of_each.remove(&peer);
            }
        }
    }
}

impl Session {
    /// Waits for its turn: first among those of its address, then among all.
    pub(crate) async fn turn(&self) -> Option<Turn> {
        let of_one = Arc::clone(&self.turns).acquire_owned().await.ok()?;
        let of_all = Arc::clone(&self.sessions.turns).acquire_owned().await.ok()?;
        Some(Turn { _of_all: of_all, _of_one: of_one })
    }

    /// Its handshake is over.
    pub(crate) fn established(&mut self) {
        let mut counts = self.sessions.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.opened(self.peer);
        counts.established += 1;
        self.is_open = true;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut counts = self.sessions.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.all -= 1;
        if self.is_open {
            counts.established -= 1;
        } else {
            counts.opened(self.peer);
        }
        drop(counts);
        self.sessions.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_a_share_of_the_handshakes_and_all_have_a_bound() {
        let sessions: Arc<Sessions> = Arc::default();
        let begin = |host: usize, port: usize| {
            sessions.begin(&format!("10.0.{}.{}:{port}", host / 250, host % 250))
        };
        let mut held: Vec<_> =
            (0..OPENING_OF_ONE_MAX).map_while(|port| begin(1, port + 1)).collect();
        assert_eq!(held.len(), OPENING_OF_ONE_MAX);
        assert!(begin(1, 999).is_none(), "its share is used up");
        assert!(sessions.begin("[::ffff:10.0.0.1]:7").is_none(), "the same host");
        held.push(begin(2, 1).expect("another host has its own"));
        held[0].established();
        held.push(begin(1, 999).expect("one of its handshakes is over"));
        for host in 3.. {
            let Some(more) = begin(host, 1) else { break };
            held.push(more);
        }
        assert_eq!(held.len(), OPENING_MAX + 1, "and one session");
        assert!(!sessions.finish(Duration::ZERO));
        held.remove(0);
        assert!(sessions.finish(Duration::ZERO), "handshakes are not waited for");
        held.clear();
        let counts = sessions.counts.lock().expect("no panic");
        assert!(counts.all == 0 && counts.opening == 0 && counts.of_each.is_empty());
    }

    #[test]
    fn sessions_are_bounded() {
        let sessions: Arc<Sessions> = Arc::default();
        let mut held = Vec::new();
        while let Some(mut session) = sessions.begin("10.0.0.1:1") {
            session.established();
            held.push(session);
        }
        assert_eq!(held.len(), SESSIONS_MAX);
        held.pop();
        assert!(sessions.begin("10.0.0.1:1").is_some());
    }
}
