//! The data plane: the data threads. The first one owns the volumes; all of them serve guests, and run
//! shards and their I/O (docs/design/data-threads.md).
//!
//! One turn of the loop (`plane`): wait in the port for completions, sockets, messages and the
//! next due time, all in one system call; make events of them; let the engine apply the batch; make
//! port jobs and replies of its actions; send the replies. Nothing here blocks once it serves: what
//! may take long (opening and locking a backend, proving that nobody wrote it) is done by
//! `background` threads.

mod absent;
mod background;
mod cache;
mod clock;
mod clones;
mod control;
mod data_thread;
mod device;
mod device_life;
mod disks;
mod forced;
mod format;
mod front;
mod grow;
mod guest_limits;
mod guests;
mod idle;
mod inbox;
mod invalidate;
mod io_table;
mod migrate;
mod opening;
mod patience;
mod plane;
mod proofs;
mod qos;
mod recordings;
mod renewal;
mod replace;
mod requests;
mod resize;
mod restarted;
mod returns;
mod served;
mod shard_set;
mod shares;
mod sockets;
mod startup;
mod state_folder;
mod status;
mod stop;
#[cfg(test)]
mod tests;
mod volume;
mod warnings;
mod watch;
mod worker;
mod writes;

use cinnabar_config::messages::{
    Commands, DataPlaneHandle, StartConfig, StartError, StartErrorKind, Subject, Waker, channel,
};
use cinnabar_config::status::faults;
use plane::DataPlane;
use std::sync::{Arc, mpsc};
use tokio::sync::oneshot;

/// What the first data thread is called.
const FIRST_THREAD: &str = "cinnabar-data";

/// Starts the data plane: blocks until every volume answers, or something is in the way.
///
/// # Errors
/// [`StartError`] if something it needs is missing or in the way. Nothing on the cache device was
/// changed then, unless it was the device itself that failed.
pub fn start(config: StartConfig) -> Result<DataPlaneHandle, StartError> {
    let (started, starting) = mpsc::sync_channel(1);
    let (end, ended) = oneshot::channel();
    let thread = std::thread::Builder::new().name(FIRST_THREAD.into());
    thread
        .spawn(move || match DataPlane::start(&config) {
            Ok((mut plane, commands)) => {
                let _ = started.send(Ok((commands, plane.streams.take(), plane.pulses())));
                let result = plane.run();
                plane.end();
                let _ = end.send(result);
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        })
        .map_err(|error| no_thread(&error.to_string()))?;
    match starting.recv() {
        Ok(result) => result.map(|(commands, streams, pulses)| DataPlaneHandle {
            commands,
            ended,
            streams,
            pulses,
        }),
        Err(_) => Err(no_thread("it ended unexpectedly")),
    }
}

fn no_thread(reason: &str) -> StartError {
    StartError::new(
        StartErrorKind::Resources,
        Subject::Daemon,
        format!("the data thread can't run: {reason}"),
        "see the log; check the limits on threads and memory",
    )
}

/// The port's waker, as the control plane knows it.
#[derive(Debug)]
struct PortWaker(cinnabar_backend::Waker);

impl Waker for PortWaker {
    fn wake(&self) {
        self.0.wake();
    }
}

impl Drop for PortWaker {
    /// The last sender is gone: let the loop notice.
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// The queue of messages for a port's thread.
fn message_queue(
    waker: cinnabar_backend::Waker,
) -> (Commands, mpsc::Receiver<cinnabar_config::messages::Message>) {
    channel(Arc::new(PortWaker(waker)))
}
