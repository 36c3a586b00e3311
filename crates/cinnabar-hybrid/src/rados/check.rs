//! Compares a volume's table with its pools.

use super::RadosPlace;
use super::keeper::LOCK;
use super::place::Connected;
use crate::check::{Checked, Checking};
use crate::pools::{LIST_MAX, OpenError};
use cinnabar_placement::Pool;

impl RadosPlace {
    /// Compares. Writes nothing. All objects of both pools are listed, those of other volumes, too; how many bytes
    /// an object takes the pools do not tell.
    ///
    /// # Errors
    /// [`OpenError`]; [`OpenError::InUse`] while something serves the volume, or begins to.
    pub fn check(&self) -> Result<Checked, OpenError> {
        let connected = Connected::to(self.spec())?;
        let header = connected.idle()?;
        let records = connected.records(&header)?;
        let mut checking = Checking::new(header, records)?;
        let prefix = Connected::prefix(&header);
        for (pool, which) in [(&connected.slow, Pool::Slow), (&connected.fast, Pool::Fast)] {
            let failed = |errno| connected.failed(&format!("list the {which} pool"), errno);
            let mut after = None;
            loop {
                let page = pool.list(after.as_deref(), LIST_MAX).map_err(failed)?;
                let listed = page.names.iter().filter_map(|name| prefix.listed(name, which));
                for listed in listed {
                    if let Some(object) = checking.listed(which, listed) {
                        checking.is_there(object);
                    }
                }
                match page.next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
        }
        let now = connected.idle()?;
        if now != header {
            return Err(OpenError::InUse("another process, which has begun meanwhile".into()));
        }
        Ok(checking.end())
    }
}

impl Connected {
    /// The header of a volume that nothing serves.
    fn idle(&self) -> Result<cinnabar_placement::Header, OpenError> {
        let failed = |errno| self.failed("ask for the lock", errno);
        match self.table.locker(&self.object, LOCK).map_err(failed)? {
            Some(locker) => {
                let (client, address) =
                    (locker.client.escape_debug(), locker.address.escape_debug());
                Err(OpenError::InUse(format!("{client} at {address}")))
            }
            None => Ok(self.heads()?.header()?),
        }
    }
}
