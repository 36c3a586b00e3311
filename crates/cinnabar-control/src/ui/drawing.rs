//! Bounds what is drawn at a time: drawing takes a core, which data threads want, too.

use super::Problem;
use axum::http::StatusCode;
use std::sync::Arc;
use tokio::sync::Semaphore;

const AT_A_TIME: usize = 2;
/// Those that wait included: as many as the charts that pages that are kept live show at once, or so.
const PLACES: usize = 128;

/// See the module.
#[derive(Debug)]
pub(super) struct Drawing {
    places: Semaphore,
    turns: Arc<Semaphore>,
}

impl Default for Drawing {
    fn default() -> Self {
        Self { places: Semaphore::new(PLACES), turns: Arc::new(Semaphore::new(AT_A_TIME)) }
    }
}

impl Drawing {
    /// Draws on a thread of its own, when it is its turn.
    ///
    /// # Errors
    /// If too many wait, or the daemon stops.
    pub(super) async fn draw<T: Send + 'static>(
        &self,
        draw: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let Ok(_place) = self.places.try_acquire() else {
            let message = format!("{PLACES} views and charts are asked for at this moment.");
            let code = StatusCode::SERVICE_UNAVAILABLE;
            return Err(Problem::new(code, "Busy", message, "Try again in a moment."));
        };
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let turn = turn.expect("it is never closed");
        let drawn = tokio::task::spawn_blocking(move || {
            // It ends with the drawing, whether there still is someone who waits for it.
            let _turn = turn;
            draw()
        });
        drawn.await.map_err(|_| cinnabar_config::messages::CommandError::gone())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn two_are_drawn_at_a_time_and_waits_are_bounded() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let is_open = Arc::new(AtomicBool::new(false));
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime").block_on(async {
            let drawing = Arc::new(Drawing::default());
            let one = |_| {
                let drawing = Arc::clone(&drawing);
                let (now, most) = (Arc::clone(&now), Arc::clone(&most));
                let is_open = Arc::clone(&is_open);
                tokio::spawn(async move {
                    let draw = move || {
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        while !is_open.load(Ordering::SeqCst) {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        now.fetch_sub(1, Ordering::SeqCst);
                        Ok(())
                    };
                    drawing.draw(draw).await
                })
            };
            let mut all: Vec<_> = (0..PLACES + 5).map(one).collect();
            for beyond in all.split_off(PLACES) {
                let refused = beyond.await.expect("it does not panic").expect_err("it is full");
                assert_eq!(refused.code, StatusCode::SERVICE_UNAVAILABLE);
            }
            while now.load(Ordering::SeqCst) < AT_A_TIME {
                tokio::task::yield_now().await;
            }
            // A third one would come now.
            std::thread::sleep(Duration::from_millis(50));
            is_open.store(true, Ordering::SeqCst);
            for one in all {
                one.await.expect("it does not panic").expect("it is drawn");
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), AT_A_TIME);
    }
}
