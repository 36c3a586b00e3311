//! How long a connection to the control plane may live.

use super::peer::Peer;
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// A life that was made shorter is noticed after so long.
const LOOK_AFTER: Duration = Duration::from_secs(10);

/// A client that takes nothing of an answer for so long is let go. That is seen by a socket that can't be written
/// to, and Linux lets a TCP socket be written to only when about a third of its buffer is free. Of 4 MiB, the most
/// that a buffer grows to unless the host is tuned, that is 1.4 MB: a client that takes it at 50 kB/s is slow, not
/// stuck.
const ANSWER_STALL_MAX: Duration = Duration::from_secs(30);

/// Of one connection; the request handlers find it among a request's extensions.
#[derive(Clone, Debug)]
pub struct Life {
    peer: Peer,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    until: Instant,
    stall_max: Duration,
    place: Option<Box<dyn Any + Send>>,
}

impl Life {
    /// Of a connection of this client that begins now.
    pub fn new(max: Duration, peer: Peer) -> Self {
        let until = Instant::now() + max;
        let state = State { until, stall_max: ANSWER_STALL_MAX, place: None };
        Self { peer, state: Arc::new(Mutex::new(state)) }
    }

    /// Whose connection it is.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// It may live as long as this from now on, whatever was said before: its client has taken what
    /// it was sent. The client may take nothing for so long.
    pub fn lasts(&self, more: Duration) {
        let mut state = self.state();
        state.until = Instant::now() + more;
        state.stall_max = more;
    }

    /// How long the client may take nothing of what it is sent.
    pub(crate) fn stall_max(&self) -> Duration {
        self.state().stall_max
    }

    /// A place that is free again when the connection has ended, and everything is sent.
    pub fn holds(&self, place: impl Send + 'static) {
        self.state().place = Some(Box::new(place));
    }

    /// Waits for something within the life; `None` if that is over before.
    pub async fn live<T>(&self, connection: impl Future<Output = T>) -> Option<T> {
        let mut connection = std::pin::pin!(connection);
        loop {
            let until = self.state().until;
            if until <= Instant::now() {
                return None;
            }
            let look = until.min(Instant::now() + LOOK_AFTER);
            if let Ok(output) = timeout_at(look, &mut connection).await {
                return Some(output);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What is in it is whole at any time.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::sleep;

    const TICK: Duration = Duration::from_millis(20);

    fn run<T>(future: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().expect("a runtime").block_on(future)
    }

    #[test]
    fn a_life_ends_in_time_unless_it_is_prolonged() {
        run(async {
            assert_eq!(
                Life::new(TICK, Peer::Operator).live(std::future::pending::<()>()).await,
                None
            );
            let life = Life::new(TICK, Peer::Operator);
            let busy = async {
                for _ in 0..5 {
                    life.lasts(TICK * 50);
                    sleep(TICK).await;
                }
                "done"
            };
            assert_eq!(life.live(busy).await, Some("done"));
        });
    }

    #[test]
    fn a_place_is_kept_as_long_as_the_connection() {
        let places = Arc::new(tokio::sync::Semaphore::new(1));
        let life = Life::new(TICK, Peer::Operator);
        let copy = life.clone();
        copy.holds(Arc::clone(&places).try_acquire_owned().expect("it is free"));
        drop(copy);
        assert_eq!(places.available_permits(), 0);
        drop(life);
        assert_eq!(places.available_permits(), 1);
    }
}
