//! (being laid out)

use super::address::{Address, AddressError};
use super::export::{Export, ExportError, ExportId};
use super::interest::{Interest, Ready, Token};
use super::limits::Limits;
use super::request::{Body, Buffers, Incoming, Ticket};
use super::stats::Stats;
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Failure, RawMemory};
use std::io;
use std::marker::PhantomData;
use std::path::PathBuf;

/// Why a server can't listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address itself is impossible.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Somebody listens there.
    #[error("address in use: {0}")]
    InUse(Address),
    /// A file that is no socket is in the way.
    #[error("{0} exists and is not a socket")]
    NotASocket(PathBuf),
    /// An export that was not added.
    #[error("no export has the id {0}")]
    NoExport(u32),
    /// Anything else.
    #[error("can't listen at {address}")]
    Io {
        /// Where.
        address: Address,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// The NBD server: all listeners, exports and connections of a daemon.
pub struct Server<M> {
    limits: Limits,
    interests: Vec<Interest>,
    stats: Stats,
    memory: PhantomData<M>,
}

impl<M: RawMemory> Server<M> {
    /// A server without exports and listeners.
    pub fn new(limits: Limits) -> Self {
        Self { limits, interests: Vec::new(), stats: Stats::default(), memory: PhantomData }
    }

    /// Its limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Makes an export known; it can be reached once a listener serves it.
    ///
    /// # Errors
    /// Impossible values, an id or name in use.
    pub fn add_export(&mut self, export: Export) -> Result<(), ExportError> {
        export.check()
    }

    /// Closes the export's connections and forgets it; requests in flight are still to be answered.
    /// A listener without exports is closed. False if there is no such export.
    pub fn remove_export(&mut self, _export: ExportId, _buffers: &mut impl Buffers<M>) -> bool {
        false
    }

    /// Serves `exports` at `address`, in addition to those served there already. Returns the
    /// address with the port that the kernel chose for port 0.
    ///
    /// A unix socket gets the mode 0660. One left behind by a server that is dead is replaced.
    ///
    /// # Errors
    /// The address is in use or impossible, an export is unknown.
    pub fn listen(
        &mut self,
        address: &Address,
        _exports: &[ExportId],
    ) -> Result<Address, ListenError> {
        Ok(address.clone())
    }

    /// Changes in what is to be watched, oldest first. To be applied before the loop waits.
    pub fn take_interests(&mut self) -> std::vec::Drain<'_, Interest> {
        self.interests.drain(..)
    }

    /// A descriptor is ready: accepts, receives, appends requests to `incoming`.
    pub fn on_ready(
        &mut self,
        _token: Token,
        _ready: Ready,
        _now: Instant,
        _buffers: &mut impl Buffers<M>,
        _incoming: &mut Vec<Incoming<M>>,
    ) {
    }

    /// Whether [`Self::resume`] has something to do now, so that the loop must not wait.
    pub fn has_backlog(&self) -> bool {
        false
    }

    /// Goes on with connections that were left with unread data.
    pub fn resume(
        &mut self,
        _now: Instant,
        _buffers: &mut impl Buffers<M>,
        _incoming: &mut Vec<Incoming<M>>,
    ) {
    }

    /// Answers a request. What is answered twice, or never was asked, is ignored.
    pub fn reply(
        &mut self,
        _ticket: Ticket,
        _result: Result<Body<M>, Failure>,
        _buffers: &mut impl Buffers<M>,
    ) {
    }

    /// Sends what is queued; buffers that were sent go back to `buffers`.
    pub fn flush(&mut self, _now: Instant, _buffers: &mut impl Buffers<M>) {}

    /// When [`Self::tick`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Ends connections that took too long.
    pub fn tick(&mut self, _now: Instant, _buffers: &mut impl Buffers<M>) {}

    /// Closes the listeners, removing unix sockets; connections go on.
    pub fn stop_accepting(&mut self) {}

    /// Stops in an orderly way: no new connections or requests, those in flight are answered, then
    /// each connection is closed.
    pub fn drain(&mut self, _buffers: &mut impl Buffers<M>) {}

    /// After [`Self::drain`]: every request is answered and every connection closed.
    pub fn is_drained(&self) -> bool {
        true
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }
}
