//! How long a connection to the control plane may live.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

/// A life that was made shorter is noticed after so long.
const LOOK_AFTER: Duration = Duration::from_secs(10);

/// Of one connection; the request handlers find it among a request's extensions.
#[derive(Clone, Debug)]
pub struct Life(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    until: Instant,
    place: Option<OwnedSemaphorePermit>,
}

impl Life {
    /// Of a connection that begins now.
    pub fn new(max: Duration) -> Self {
        Self(Arc::new(Mutex::new(State { until: Instant::now() + max, place: None })))
    }

    /// It may live as long as this from now on, whatever was said before: its client has taken what
    /// it was sent.
    pub fn lasts(&self, more: Duration) {
        self.state().until = Instant::now() + more;
    }

    /// A place that is free again when the connection has ended, and everything is sent.
    pub fn holds(&self, place: OwnedSemaphorePermit) {
        self.state().place = Some(place);
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
            assert_eq!(Life::new(TICK).live(std::future::pending::<()>()).await, None);
            let life = Life::new(TICK);
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
        let life = Life::new(TICK);
        let copy = life.clone();
        copy.holds(Arc::clone(&places).try_acquire_owned().expect("it is free"));
        drop(copy);
        assert_eq!(places.available_permits(), 0);
        drop(life);
        assert_eq!(places.available_permits(), 1);
    }
}
