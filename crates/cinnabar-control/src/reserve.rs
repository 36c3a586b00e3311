//! Descriptors kept for operators: guests and their clients may take all others.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections of operators that find a descriptor when there is none left.
const KEPT: usize = 8;

/// Files that are open to be closed.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedReserve(Arc<Mutex<Vec<File>>>);

impl SharedReserve {
    /// Opens those that are missing, as far as there are descriptors.
    pub(crate) fn fill(&self) {
        let mut files = self.lock();
        while files.len() < KEPT {
            let Ok(file) = File::open("/dev/null") else { return };
            files.push(file);
        }
    }

    /// Gives a descriptor free if that is what was missing; false if it was not, or none is left.
    pub(crate) fn helps(&self, error: &io::Error) -> bool {
        let is_full = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE]
            .iter()
            .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()));
        is_full && self.lock().pop().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<File>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_given_free_only_if_one_is_missing() {
        let reserve = SharedReserve::default();
        let full = io::Error::from(rustix::io::Errno::MFILE);
        assert!(!reserve.helps(&full), "there is none");
        reserve.fill();
        assert!(!reserve.helps(&io::Error::from(rustix::io::Errno::NOMEM)));
        assert_eq!((0..2 * KEPT).filter(|_| reserve.helps(&full)).count(), KEPT);
        reserve.fill();
        assert!(reserve.helps(&full));
    }
}
