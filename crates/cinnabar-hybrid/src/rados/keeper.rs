//! A thread beside an open volume: it renews the lock, and lists pools, for which the library has blocking calls
//! only. Between two pages the lock is renewed if that is due; the volume's thread renews it with each
//! [`Op::Check`](crate::pools::Op::Check), too.

use super::LEASE_S;
use super::flights::{Inbox, News};
use super::names;
use crate::librados::lock_state::{SeenLock, now_ns};
use crate::librados::{Landed, Lease, Pool, WriteOp};
use crate::pools::LIST_MAX;
use rustix::io::Errno;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// The lock on the table.
pub(super) const LOCK: &str = "cinnabar";
/// Renewed if it was not seen for so long.
const LATE: Duration = Duration::from_secs(4);
/// Between two renewals.
const RENEW: Duration = Duration::from_secs(2);
/// Renewals under way at a time: a slow OSD has the next one when it has done one, a silent one has no more.
const RENEWALS_MAX: u32 = 4;
/// For how long the thread's end is waited for: a silent OSD may hold it up.
const END: Duration = Duration::from_secs(10);

/// A list that is asked for.
pub(super) struct List {
    pub(super) flight: usize,
    pub(super) pool: Arc<Pool>,
    pub(super) after: Option<String>,
}

/// Least time between two looks whether one is due.
const PAUSE: Duration = Duration::from_millis(500);

/// The thread.
#[derive(Debug)]
pub(super) struct Keeper {
    lists: Option<Sender<List>>,
    ended: Receiver<()>,
}

impl Keeper {
    pub(super) fn start(
        inbox: Arc<Inbox>,
        (table, object): (Arc<Pool>, String),
        epoch: u64,
        seen: Arc<SeenLock>,
    ) -> Result<Self, std::io::Error> {
        let (lists, asked) = channel::<List>();
        let (end, ended) = channel();
        let run = move || {
            let under_way = Arc::new(AtomicU32::new(0));
            let mut last = Instant::now();
            loop {
                let is_due = last.elapsed() >= RENEW && seen.since() >= LATE;
                if is_due && under_way.load(Acquire) < RENEWALS_MAX {
                    last = Instant::now();
                    renew(&table, &object, epoch, (&seen, &under_way));
                }
                match asked.recv_timeout(RENEW.saturating_sub(last.elapsed()).max(PAUSE)) {
                    Ok(List { flight, pool, after }) => {
                        let page = pool.list(after.as_deref(), LIST_MAX);
                        inbox.put(flight, News::Listed(page));
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            // The connection goes before the end is told.
            drop((table, asked, inbox));
            let _gone = end.send(());
        };
        std::thread::Builder::new().name("hybrid-keeper".into()).spawn(run)?;
        Ok(Self { lists: Some(lists), ended })
    }

    /// Asks for a page. If the thread has gone, the list is given back.
    pub(super) fn list(&self, list: List) -> Result<(), List> {
        match &self.lists {
            Some(lists) => lists.send(list).map_err(|mpsc::SendError(list)| list),
            None => Err(list),
        }
    }

    /// Ends the thread. False: it hangs.
    pub(super) fn stop(&mut self) -> bool {
        self.lists = None;
        self.ended.recv_timeout(END) != Err(RecvTimeoutError::Timeout)
    }
}

/// Begins to renew the lock, if the epoch is still ours.
fn renew(
    table: &Pool,
    object: &str,
    epoch: u64,
    (seen, under_way): (&Arc<SeenLock>, &Arc<AtomicU32>),
) {
    match check(epoch) {
        Ok(op) => {
            let (began_ns, seen, under_way) = (now_ns(), Arc::clone(seen), Arc::clone(under_way));
            under_way.fetch_add(1, AcqRel);
            let then = Box::new(move |landed: Landed<WriteOp>| {
                note(&seen, began_ns, landed.result);
                under_way.fetch_sub(1, AcqRel);
            });
            table.begin_write(object, op, then);
        }
        Err(errno) => tracing::debug!(%errno, "the lock of a hybrid volume was not renewed"),
    }
}

/// Notes how a renewal ended that began then.
pub(super) fn note(seen: &SeenLock, began_ns: u64, result: Result<(), Errno>) {
    match result {
        Ok(()) => seen.confirm(began_ns),
        Err(errno) if is_lost(errno) => seen.lose(),
        Err(errno) => tracing::debug!(%errno, "the lock of a hybrid volume was not renewed"),
    }
}

/// Whether a change of the table that failed so shows that the volume is another's: another epoch or record,
/// another one's lock, the table deleted, or this client fenced off.
pub(super) fn is_lost(errno: Errno) -> bool {
    matches!(errno, Errno::CANCELED | Errno::BUSY | Errno::NOENT | Errno::SHUTDOWN)
}

/// Renews the lock, or takes it again if its lease was over, if the epoch is still ours.
pub(super) fn check(epoch: u64) -> Result<WriteOp, Errno> {
    WriteOp::new().compare_entry(names::EPOCH, &epoch.to_le_bytes()).lock(&lease())
}

/// The lock as this process takes and renews it.
pub(super) fn lease() -> Lease<'static> {
    let duration = Duration::from_secs(LEASE_S);
    Lease { name: LOCK, cookie: "owner", description: "hybrid volume", duration }
}
