//! Getting connections: at opening on the caller's thread, after an outage on a thread that lasts
//! until there are some.

use super::address::NbdSpec;
use super::backoff::Backoff;
use super::client::Mailbox;
use super::error::NbdError;
use super::export_info::ExportInfo;
use super::handshake::{self, Trouble};
use super::socket::{self, Timed};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest connecting and handshake.
const DIAL: Duration = Duration::from_secs(10);
/// The same for further connections, without which all works, too.
const DIAL_ANOTHER: Duration = Duration::from_secs(2);

/// A connection that has entered the export.
#[derive(Debug)]
pub(super) struct Dialed {
    pub(super) socket: OwnedFd,
    pub(super) export: ExportInfo,
}

impl Dialed {
    /// Whom it leads to, if that has an address.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        socket::peer(&self.socket)
    }
}

/// What the dialer's thread has to say.
#[derive(Debug)]
pub(super) enum DialEvent {
    /// The first connection after an outage, or another one.
    Connected(Dialed),
    /// An attempt failed; there will be more.
    Failed(NbdError),
}

/// What to connect to, and as what.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) spec: Arc<NbdSpec>,
    pub(super) read_only: bool,
    /// At most so many connections.
    pub(super) connections: u8,
    /// What the volume was attached with.
    pub(super) before: Option<ExportInfo>,
}

impl Target {
    /// The first connection.
    pub(super) fn dial(&self) -> Result<Dialed, NbdError> {
        self.dial_within(DIAL)
    }

    /// Further connections, if the server can do with them; up to the first that fails.
    pub(super) fn dial_others(&self, first: &ExportInfo, mut each: impl FnMut(Dialed) -> bool) {
        let count = if first.multi { self.connections } else { 1 };
        for number in 1..count {
            match self.dial_within(DIAL_ANOTHER) {
                Ok(dialed) if dialed.export == *first => {
                    if !each(dialed) {
                        break;
                    }
                }
                Ok(_) => {
                    tracing::warn!(server = %self.spec, "its connections differ; using the first");
                    break;
                }
                Err(error) => {
                    let reason = error.to_string();
                    tracing::warn!(server = %self.spec, connections = number, reason, "no more connections");
                    break;
                }
            }
        }
    }

    fn dial_within(&self, bound: Duration) -> Result<Dialed, NbdError> {
        let deadline = Instant::now() + bound;
        let socket = socket::open(&self.spec.address, deadline)?;
        let mut stream = Timed { socket: &socket, deadline };
        let export =
            handshake::enter(&mut stream, &self.spec.export).map_err(|trouble| match trouble {
                Trouble::Refused(refusal) => NbdError::Refused(refusal),
                Trouble::Io(error) => match error.kind() {
                    ErrorKind::TimedOut => NbdError::Silent(bound.as_secs()),
                    ErrorKind::UnexpectedEof => NbdError::Ended(None),
                    _ => NbdError::Ended(Errno::from_io_error(&error)),
                },
            })?;
        let export = ExportInfo::judge(&export, self.read_only)?;
        if let Some(before) = &self.before {
            before.check_successor(&export)?;
        }
        Ok(Dialed { socket, export })
    }
}

/// Attempts under way; dropping it ends them.
#[derive(Debug)]
pub(super) struct Dialing {
    cancel: Arc<Cancel>,
}

#[derive(Debug, Default)]
struct Cancel {
    cancelled: Mutex<bool>,
    changed: Condvar,
}

impl Dialing {
    /// Dials until there are connections, and puts them into the mailbox under this outage's
    /// number. The first attempt comes after a pause, too: a server that breaks every connection
    /// must not have us spin.
    pub(super) fn start(
        target: Target,
        mut backoff: Backoff,
        outage: u64,
        mailbox: Arc<Mailbox>,
    ) -> Result<Self, NbdError> {
        let cancel = Arc::new(Cancel::default());
        let dialing = Self { cancel: Arc::clone(&cancel) };
        let work = move || {
            let first = loop {
                if !cancel.sleep(backoff.pause()) {
                    return;
                }
                match target.dial() {
                    Ok(dialed) => break dialed,
                    Err(error) => mailbox.tell(outage, DialEvent::Failed(error)),
                }
            };
            let export = first.export;
            mailbox.tell(outage, DialEvent::Connected(first));
            target.dial_others(&export, |dialed| {
                mailbox.tell(outage, DialEvent::Connected(dialed));
                !cancel.is_cancelled()
            });
        };
        std::thread::Builder::new().name("cinnabar-dial".into()).spawn(work).map_err(|error| {
            NbdError::Thread(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
        })?;
        Ok(dialing)
    }
}

impl Drop for Dialing {
    fn drop(&mut self) {
        *self.cancel.cancelled.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.cancel.changed.notify_all();
    }
}

impl Cancel {
    /// Sleeps; false once it is cancelled.
    fn sleep(&self, pause: Duration) -> bool {
        let guard = self.cancelled.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(guard, pause, |cancelled| !*cancelled);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn is_cancelled(&self) -> bool {
        *self.cancelled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
