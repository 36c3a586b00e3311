//! The machines of the demonstration at work: a process of the laboratory plays them.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for its end: somewhat longer than it waits for requests under way itself.
const END_MAX: Duration = Duration::from_secs(6);
/// How often an end looks whether it is there.
const LOOK: Duration = Duration::from_millis(10);

/// All machines at work, until it is dropped; they end with this process, too, for their input ends.
#[derive(Debug)]
pub(in crate::cli) struct Load {
    child: Child,
}

impl Load {
    /// Has the laboratory start them; their volumes, of which the sockets are in the folder, are served.
    pub(super) fn start(laboratory: &Path, folder: &Path) -> io::Result<Self> {
        let child = Command::new(laboratory)
            .arg("demo-load")
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // A Ctrl-C is for the demonstration, which then ends them in order.
            .process_group(0)
            .spawn()?;
        Ok(Self { child })
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Ok(Some(status)) = self.child.try_wait() {
            tracing::warn!("the machines of the demonstration ended before it: {status}");
            return;
        }
        drop(self.child.stdin.take());
        let begun = Instant::now();
        while begun.elapsed() < END_MAX {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(LOOK),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        // It may have ended just now.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
