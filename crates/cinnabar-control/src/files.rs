//! Files that are looked at for a command: by other threads, for this one serves all operators, and no
//! longer than a while, for other commands wait meanwhile.

use super::Control;
use cinnabar_config::messages::{CommandError, CommandErrorKind};
use std::sync::Arc;
use std::time::Duration;

/// Threads that wait for files at a time.
pub(super) const LOOKS_MAX: usize = 8;
/// Longest wait for files.
const FILES_WAIT_MAX: Duration = Duration::from_secs(20);

impl Control {
    /// Has another thread do this. One whose storage hangs is left behind, and its place stays taken
    /// until it returns.
    ///
    /// # Errors
    /// If it takes too long.
    pub(super) async fn with_files<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CommandError> {
        self.with_files_for(FILES_WAIT_MAX, work).await
    }

    async fn with_files_for<T: Send + 'static>(
        &self,
        wait_max: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CommandError> {
        let places = Arc::clone(&self.files);
        let works = async move {
            let place = places.acquire_owned().await.ok()?;
            let works = tokio::task::spawn_blocking(move || {
                let done = work();
                drop(place);
                done
            });
            works.await.ok()
        };
        if let Ok(done) = tokio::time::timeout(wait_max, works).await {
            return done.ok_or_else(CommandError::gone);
        }
        let seconds = wait_max.as_secs();
        let message = format!("the configuration or a device does not answer within {seconds} s");
        let hint = "look for storage that hangs: dmesg, mount";
        Err(CommandError::new(CommandErrorKind::Busy, message, hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn storage_that_hangs_is_not_waited_for_and_takes_no_more_threads() {
        let control = Control::new("/".into(), "/c.sock".into(), Duration::from_secs(1));
        let (goes_on, hangs) = std::sync::mpsc::channel::<()>();
        let hangs = Arc::new(std::sync::Mutex::new(hangs));
        let wait = Duration::from_millis(20);
        for _ in 0..LOOKS_MAX {
            let hangs = Arc::clone(&hangs);
            let looks = control.with_files_for(wait, move || {
                let _ended = hangs.lock().map(|hangs| hangs.recv());
            });
            let error = looks.await.expect_err("it hangs");
            assert_eq!(error.kind, CommandErrorKind::Busy);
        }
        let begun = control.with_files_for(wait, || 7);
        let error = begun.await.expect_err("it waits for a place");
        assert_eq!(error.kind, CommandErrorKind::Busy);
        drop(goes_on);
        assert_eq!(control.with_files(|| 7).await.expect("there are places"), 7);
    }
}
