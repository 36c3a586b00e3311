//! A device of which each answer has a bound: one that hangs is given up, and does not keep another one
//! from being used.
//!
//! For the halves of a mirrored write log while that is opened. What hangs is left to its thread, which
//! keeps the device open, and so locked, until it ends.

use super::Disk;
use crate::Memory;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_writeback::recover::Media;
use std::cell::RefCell;
use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// What is asked of the device, on its thread.
type Job = Box<dyn FnOnce(&Disk) + Send>;

/// See the module.
#[derive(Debug)]
pub struct BoundedMedia {
    jobs: mpsc::Sender<Job>,
    bound: Duration,
    trouble: RefCell<Trouble>,
}

#[derive(Debug, Default)]
struct Trouble {
    /// It did not answer in time, and is asked nothing more.
    is_silent: bool,
    /// The newest error, for people.
    newest: Option<String>,
}

impl BoundedMedia {
    /// A device that has at most `bound` for each answer.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub fn new(disk: Arc<Disk>, bound: Duration) -> Result<Self> {
        let (jobs, asked) = mpsc::channel::<Job>();
        let work = move || asked.into_iter().for_each(|job| job(&disk));
        std::thread::Builder::new().name("cinnabar-half".into()).spawn(work)?;
        Ok(Self { jobs, bound, trouble: RefCell::default() })
    }

    /// The newest error of the device, if there was one.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.borrow().newest.clone()
    }

    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Disk) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let silent = || {
            let text = format!("it does not answer ({} s)", self.bound.as_secs_f64());
            Error::new(ErrorKind::TimedOut, text)
        };
        if self.trouble.borrow().is_silent {
            return Err(silent());
        }
        let (answer, answered) = mpsc::channel();
        let job = move |disk: &Disk| {
            // What comes too late is not waited for.
            let _late = answer.send(work(disk));
        };
        let gone = || Error::other("its thread has ended");
        self.jobs.send(Box::new(job)).map_err(|_| gone())?;
        let result = answered.recv_timeout(self.bound).unwrap_or_else(|error| match error {
            RecvTimeoutError::Timeout => {
                self.trouble.borrow_mut().is_silent = true;
                Err(silent())
            }
            RecvTimeoutError::Disconnected => Err(gone()),
        });
        if let Err(error) = &result {
            self.trouble.borrow_mut().newest = Some(error.to_string());
        }
        result
    }
}

impl Media<Memory> for BoundedMedia {
    fn read_pages(&self, offset: u64, pages: &mut [MetaPage]) -> Result<()> {
        let mut read = vec![MetaPage::zeroed(); pages.len()];
        let read = self.ask(move |disk| {
            Media::<Memory>::read_pages(disk, offset, &mut read)?;
            Ok(read)
        })?;
        pages.clone_from_slice(&read);
        Ok(())
    }

    fn read_data(&self, offset: u64, blocks: u32) -> Result<Memory> {
        self.ask(move |disk| Media::read_data(disk, offset, blocks))
    }

    fn write_page(&self, offset: u64, page: &MetaPage) -> Result<()> {
        let page = page.clone();
        self.ask(move |disk| Media::<Memory>::write_page(disk, offset, &page))
    }

    fn write_pages(&self, offset: u64, pages: &[MetaPage]) -> Result<()> {
        let pages = pages.to_vec();
        self.ask(move |disk| Media::<Memory>::write_pages(disk, offset, &pages))
    }

    fn flush(&self) -> Result<()> {
        self.ask(Media::<Memory>::flush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{OpenOptions, open_write_log};
    use std::time::Instant;

    #[test]
    fn a_device_that_hangs_is_given_up_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let found = open_write_log(&path, Some(16 << 20), &OpenOptions::default());
        let disk = Arc::new(found.expect("it is made").disk);
        let bound = Duration::from_millis(100);
        let media = BoundedMedia::new(disk, bound).expect("a thread");
        let mut page = MetaPage::zeroed();
        page.0[7] = 3;
        media.write_page(8192, &page).expect("it is written");
        let mut read = [MetaPage::zeroed()];
        media.read_pages(8192, &mut read).expect("it is read");
        assert_eq!(read[0], page);
        assert_eq!(media.trouble(), None);

        let (end, hangs) = mpsc::channel::<()>();
        let error = media.ask(move |_| hangs.recv().map_err(Error::other)).expect_err("it hangs");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let since = Instant::now();
        for _ in 0..100 {
            assert!(media.flush().is_err(), "nothing more is asked of it");
        }
        assert!(since.elapsed() < 50 * bound, "and nothing is waited for");
        assert!(media.trouble().is_some_and(|text| text.contains("does not answer")));
        drop(end);
    }
}
