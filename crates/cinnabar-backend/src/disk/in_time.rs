//! Waiting for what may hang, on a thread of its own: as long as it gets on.
//!
//! For start-up, when no volume is served yet. What hangs is left to its thread.

use super::open::OpenOptions;
use super::progress::Progress;
use cinnabar_driver::Silence;
use cinnabar_engine::units::Instant as EngineInstant;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often it is looked whether it gets on.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The result of `work`, which counts its steps in `progress`. `None`: no step was done for so long, or
/// the start was given up; no further step of it changes the device.
pub fn in_time<T: Send + 'static>(
    progress: &Progress,
    bound: Duration,
    options: &OpenOptions,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, result) = mpsc::channel();
    let thread = std::thread::Builder::new().name("cinnabar-slow".into());
    let work = move || {
        // What comes too late is closed with it.
        let _ = done.send(work());
    };
    if let Err(error) = thread.spawn(work) {
        tracing::warn!(%error, "no thread for a slow operation");
        return None;
    }
    let began = Instant::now();
    let now = || EngineInstant(began.elapsed().as_nanos() as u64);
    let (mut steps, mut silence) = (progress.steps(), Silence::since(now()));
    loop {
        match result.recv_timeout(LOOK_EVERY) {
            Ok(result) => return Some(result),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if steps != progress.steps() {
            (steps, silence) = (progress.steps(), Silence::since(now()));
        }
        let cancelled = options.cancel.as_ref().is_some_and(|cancel| cancel.load(Relaxed));
        if cancelled || silence.is_over(now(), bound) {
            progress.give_up();
            return None;
        }
    }
}
