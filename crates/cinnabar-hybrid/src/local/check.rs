//! Compares a local volume's table with its folders.

use super::folder::io;
use super::table::Unread;
use super::{LocalPlace, folder::Folder};
use crate::check::{Checked, Checking};
use crate::pools::OpenError;
use cinnabar_placement::Pool;

impl LocalPlace {
    /// Compares. Writes nothing.
    ///
    /// # Errors
    /// [`OpenError`]; [`OpenError::InUse`] while something serves the volume.
    pub fn check(&self) -> Result<Checked, OpenError> {
        let unread = Unread::open(&self.table, false)?;
        if !unread.lock()? {
            return Err(OpenError::InUse("another process".into()));
        }
        let loaded = unread.load()?;
        let header = loaded.header;
        let folders = self.folders(&header)?;
        let mut checking = Checking::new(header, loaded.records)?;
        checking.tells_bytes();
        for (folder, pool) in folders.iter().zip([Pool::Slow, Pool::Fast]) {
            list(folder, pool, header.geometry.extent_bytes(), &mut checking)?;
        }
        Ok(checking.end())
    }
}

/// Lists a folder. A file that is shorter than an extent has lost its end.
fn list(
    folder: &Folder,
    pool: Pool,
    extent_bytes: u64,
    checking: &mut Checking,
) -> Result<(), OpenError> {
    let failed = |errno| io(format!("listing the {pool} pool"), errno);
    let mut goes_on = false;
    loop {
        let listing = folder.list(goes_on).map_err(failed)?;
        for listed in listing.objects {
            if let Some(object) = checking.listed(pool, listed) {
                let (size, taken) = folder.measure(object).map_err(failed)?;
                checking.takes(object, taken);
                if size == extent_bytes {
                    checking.is_there(object);
                }
            }
        }
        if listing.next.is_none() {
            return Ok(());
        }
        goes_on = true;
    }
}
