//! How a volume becomes this process's: the former owner is known to be gone and fenced off, the lock is taken and
//! the epoch raised.

use super::keeper::{LOCK, lease};
use super::names;
use super::place::{Connected, Heads};
use super::pools::RadosPools;
use crate::librados::lock_state::{TAKE_AFTER, now_ns};
use crate::librados::owner::{self, Owner};
use crate::librados::{Locker, Patience, WriteOp};
use crate::pools::{Contents, OpenError, Pools, Wait};
use cinnabar_placement::Header;
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

/// An object that there never is.
const NOTHING: &str = "cinnabar_hybrid_nothing";
/// Between two looks.
const POLL: Duration = Duration::from_millis(200);
/// For how long a lock must be seen to be free before its owner counts as gone. When the OSD with the table was
/// away, all leases are over when it comes back: owners that live renew theirs in this time.
const GRACE: Duration = Duration::from_secs(12);
/// Looks that show a lock of one client and an owner that is another, until the holder of the lock is told: a lock
/// and its owner are written in one step, so that one look between is torn, and not all of them.
const TORN_MAX: u32 = 10;

/// How it is known that an owner is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    /// A process of this host that there is no more.
    Process,
    /// Its lock was not renewed.
    Lease,
    /// The operator says so.
    Word,
}

impl Connected {
    pub(super) fn take_over(
        self,
        by_force: bool,
        wait: &mut dyn FnMut(Wait<'_>) -> bool,
    ) -> Result<(Contents, Box<dyn Pools>), OpenError> {
        self.may_write()?;
        let mut free_since: Option<(Vec<u8>, Instant)> = None;
        let mut torn = 0;
        let (header, seen_ns, takings, devices) = loop {
            let failed = |errno| self.failed("ask for the lock", errno);
            let locker = self.table.locker(&self.object, LOCK).map_err(failed)?;
            let heads = self.heads()?;
            let owner = Owner::parse(&heads.text(names::OWNER));
            let recorded = !heads.bytes(names::OWNER).is_empty();
            let is_his = locker.as_ref().is_none_or(|locker| holds(locker, &heads));
            if !is_his && torn < TORN_MAX {
                // Another one took it between the two looks, and lives.
                torn += 1;
                std::thread::sleep(POLL);
                continue;
            }
            let gone = match (&locker, &owner) {
                (None, _) if !recorded => None,
                (_, Some(owner)) if is_his && owner.is_dead() => Some(Gone::Process),
                _ if by_force => Some(Gone::Word),
                (Some(locker), owner) => {
                    free_since = None;
                    let holder = describe(locker, owner.as_ref());
                    if wait(Wait::Holder(&holder)) {
                        torn = 0;
                        continue;
                    }
                    return Err(OpenError::InUse(holder));
                }
                (None, _) => {
                    let text = heads.bytes(names::OWNER);
                    let (_, since) = match &free_since {
                        Some(seen) if seen.0 == text => seen,
                        _ => free_since.insert((text.to_vec(), Instant::now())),
                    };
                    if since.elapsed() < GRACE {
                        pause(wait)?;
                        continue;
                    }
                    Some(Gone::Lease)
                }
            };
            if let Some(gone) = gone {
                self.fence(&heads, locker.as_ref(), gone, wait)?;
            }
            let (began_ns, taking) = (now_ns(), taking()?);
            if let Some(header) = self.raise(&heads, taking)? {
                break (header, began_ns, [taking, heads.taking()], heads.devices());
            }
        };
        // From now on the lock is renewed: a long table takes longer to read than it holds. One that can't be read is
        // let go of when the pools are dropped.
        let pools = RadosPools::new(self, &header, seen_ns, takings, devices)?;
        let contents = pools.connected().loaded(&header)?;
        if pools.is_lost() {
            return Err(OpenError::InUse(
                "another host, which took it while its table was read".into(),
            ));
        }
        Ok((contents, Box::new(pools)))
    }

    /// Reads the table as its owner, and gets ready to serve.
    fn loaded(&self, header: &Header) -> Result<Contents, OpenError> {
        // The former owner may have been fenced off by others, whose map an OSD may still lack.
        let failed = |errno| self.failed("take over the table", errno);
        self.cluster.wait_for_map().map_err(failed)?;
        let records = self.records(header)?;
        // What is given up from now on may still be carried out: nothing is.
        self.cluster.set_patience(Patience::Endless).map_err(failed)?;
        Ok(Contents { header: *header, records })
    }

    /// Whether both pools take changes, asked by removing what is not there: the first move would be late to learn it.
    fn may_write(&self) -> Result<(), OpenError> {
        for (pool, what) in [(&self.slow, "slow"), (&self.fast, "fast")] {
            match pool.write(NOTHING, WriteOp::new().remove()) {
                Ok(_) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(self.failed(&format!("write the {what} pool"), errno)),
            }
        }
        Ok(())
    }

    /// Ends the ownership of this client: nobody has to fence it off. Nothing of it may be under way.
    pub(super) fn let_go(&self, epoch: u64) -> Result<(), Errno> {
        let ends = || {
            let op = WriteOp::new().compare_entry(names::EPOCH, &epoch.to_le_bytes());
            op.remove_entry(names::OWNER).remove_entry(names::ADDRESS)
        };
        let let_go = |op| self.table.write(&self.object, op).map(drop);
        match let_go(ends().unlock(&lease())?) {
            // The lock was not renewed in time, and nobody has taken the volume.
            Err(Errno::NOENT) => let_go(ends()),
            done => done,
        }
    }

    /// Keeps a former owner from writing, and takes its lock away.
    fn fence(
        &self,
        heads: &Heads,
        locker: Option<&Locker>,
        gone: Gone,
        wait: &mut dyn FnMut(Wait<'_>) -> bool,
    ) -> Result<(), OpenError> {
        let recorded = heads.text(names::ADDRESS);
        let recorded = Some(recorded).filter(|address| !address.is_empty());
        let locked = locker.map(|locker| locker.address.clone());
        let mut addresses: Vec<String> = recorded.into_iter().chain(locked).collect();
        addresses.dedup();
        if addresses.is_empty() {
            return Err(OpenError::Table("the table names an owner without an address".into()));
        }
        for address in &addresses {
            tracing::info!(object = self.object, address, ?gone, "fencing off the former owner");
            self.cluster
                .fence(address)
                .map_err(|errno| self.failed("fence off the former owner", errno))?;
        }
        // The table's OSD has the map from now on: no later look shows the former owner its lock.
        self.heads()?;
        let may_live = match gone {
            Gone::Process => addresses.iter().any(|address| owner::may_live_elsewhere(address)),
            // Its lock was free for longer than it may serve what it has cached.
            Gone::Lease => false,
            Gone::Word => true,
        };
        let since = Instant::now();
        while may_live && since.elapsed() < TAKE_AFTER {
            pause(wait)?;
        }
        let broken = locker.map(|locker| self.table.break_lock(&self.object, LOCK, locker));
        match broken {
            // Another one was quicker, or the lease is over.
            None | Some(Ok(()) | Err(Errno::NOENT)) => Ok(()),
            Some(Err(errno)) => Err(self.failed("break the lock", errno)),
        }
    }

    /// Takes the lock and raises the epoch in one step, if the table is as it was found. `None`: it is not.
    fn raise(&self, heads: &Heads, taking: u64) -> Result<Option<Header>, OpenError> {
        let failed = |errno| self.failed("take the lock", errno);
        let (found, client) = (heads.header()?, self.cluster.instance());
        let header = found.taken_over();
        let owner = Owner::this(client).map(|owner| owner.to_string());
        let owner = owner.unwrap_or_else(|| format!("client.{client}"));
        let address = self.cluster.address().map_err(failed)?;
        let op = WriteOp::new()
            .compare_entry(names::HEADER, &found.encode())
            .compare_entry(names::OWNER, heads.bytes(names::OWNER))
            .lock(&lease())
            .map_err(failed)?
            .set_entry(names::HEADER, &header.encode())
            .set_entry(names::EPOCH, &header.epoch.to_le_bytes())
            .set_entry(names::TAKING, &taking.to_le_bytes())
            .set_entry(names::OWNER, owner.as_bytes())
            .set_entry(names::ADDRESS, address.as_bytes());
        match self.table.write(&self.object, op) {
            Ok(_) => Ok(Some(header)),
            Err(Errno::CANCELED | Errno::BUSY) => Ok(None),
            Err(errno) => Err(failed(errno)),
        }
    }
}

/// A number that no other taking has, and not 0.
fn taking() -> Result<u64, OpenError> {
    let mut bytes = [0; 8];
    let drawn = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    drawn.map_err(|error| OpenError::Other(format!("/dev/urandom: {error}")))?;
    Ok(u64::from_le_bytes(bytes).max(1))
}

/// A moment of a wait that has a bound of its own.
fn pause(wait: &mut dyn FnMut(Wait<'_>) -> bool) -> Result<(), OpenError> {
    std::thread::sleep(POLL);
    if wait(Wait::Lease) {
        return Ok(());
    }
    Err(OpenError::InUse("a former owner, whose lease is not over".into()))
}

/// Whether the lock is the recorded owner's.
fn holds(locker: &Locker, heads: &Heads) -> bool {
    let recorded = heads.text(names::OWNER);
    let client = Owner::parse(&recorded).map(|owner| format!("client.{}", owner.client));
    locker.client == client.unwrap_or(recorded)
}

fn describe(locker: &Locker, owner: Option<&Owner>) -> String {
    let (client, address) = (locker.client.escape_debug(), locker.address.escape_debug());
    let owner = owner.filter(|owner| locker.client == format!("client.{}", owner.client));
    match owner {
        Some(owner) => format!("{} ({client} at {address})", owner.describe()),
        None => format!("{client} at {address}"),
    }
}
