//! Pools that fail, or die, at a chosen operation.

use cinnabar_hybrid::pools::{Completion, Contents, Op, OpError, OpenError, Place, Pools, Wait};
use cinnabar_placement::Header;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Whether an operation is one of those that fail.
pub(crate) type Chosen = fn(&Op) -> bool;

/// When what happens.
#[derive(Clone)]
pub(crate) struct Plan {
    /// Operations of moves and of the table so far.
    pub(crate) steps: Arc<AtomicU64>,
    /// The process dies at this one: nothing more is done. `after`: this one still is.
    pub(crate) dies_at: u64,
    pub(crate) after: bool,
    /// Instead of dying: operations that are chosen fail with this.
    pub(crate) fails: Option<(Chosen, OpError)>,
    /// Nothing answers until then.
    pub(crate) silent_until: Option<Instant>,
}

pub(crate) struct Faulty<P>(pub(crate) P, pub(crate) Plan);

struct FaultyPools {
    inner: Box<dyn Pools>,
    plan: Plan,
    dead: bool,
    failed: Vec<Completion>,
    /// Always readable: a test may look too often.
    bell: OwnedFd,
    /// The operation whose end nobody hears of.
    mute: Option<u64>,
}

impl<P: Place> Place for Faulty<P> {
    fn name(&self) -> String {
        self.0.name()
    }
    fn create(&mut self, header: &Header) -> Result<(), OpenError> {
        self.0.create(header)
    }
    fn look(&mut self) -> Result<Contents, OpenError> {
        self.0.look()
    }
    fn take_over(
        &mut self,
        wait: &mut dyn FnMut(Wait<'_>) -> bool,
    ) -> Result<(Contents, Box<dyn Pools>), OpenError> {
        let (contents, inner) = self.0.take_over(wait)?;
        let bell = eventfd(1, EventfdFlags::empty()).expect("an eventfd");
        let (plan, failed) = (self.1.clone(), Vec::new());
        let pools = FaultyPools { inner, plan, dead: false, failed, bell, mute: None };
        Ok((contents, Box::new(pools)))
    }
}

impl Pools for FaultyPools {
    fn submit(&mut self, token: u64, op: Op) {
        let step = matches!(
            op,
            Op::Probe { .. }
                | Op::Copy { .. }
                | Op::Patch { .. }
                | Op::Delete { .. }
                | Op::StoreRecord { .. }
        );
        let fail = self.plan.fails.as_ref().filter(|(which, _)| which(&op));
        if let Some((_, error)) = fail {
            return self.failed.push(Completion { token, result: Err(error.clone()) });
        }
        if step && !self.dead && self.plan.steps.fetch_add(1, Relaxed) == self.plan.dies_at {
            self.dead = true;
            if self.plan.after {
                self.mute = Some(token);
                return self.inner.submit(token, op);
            }
        }
        if self.dead {
            self.failed.push(Completion { token, result: Err(OpError::Fenced) });
        } else {
            self.inner.submit(token, op);
        }
    }
    fn completions(&mut self, out: &mut Vec<Completion>) {
        if self.trouble().is_some() {
            return;
        }
        out.append(&mut self.failed);
        let first = out.len();
        self.inner.completions(out);
        for ended in &mut out[first..] {
            if Some(ended.token) == self.mute {
                ended.result = Err(OpError::Fenced);
            }
        }
    }
    fn events(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
    fn trouble(&self) -> Option<String> {
        let silent = self.plan.silent_until.is_some_and(|until| Instant::now() < until);
        silent.then(|| "no answer".into())
    }
    fn moved_through_host(&self) -> u64 {
        self.inner.moved_through_host()
    }
}
