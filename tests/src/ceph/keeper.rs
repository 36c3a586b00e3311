//! Processes that end with this one, however it ends.
//!
//! The kernel can kill a child when the *thread* that started it ends. So all are started by one
//! thread, which lasts as long as the keeper.

use anyhow::{Context, Result};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// What the thread is asked, and where its answer goes.
type Order = (Command, mpsc::Sender<std::io::Result<Child>>);

#[derive(Debug)]
pub(super) struct Keeper {
    orders: Option<mpsc::Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub(super) fn new() -> Result<Self> {
        let (orders, ordered) = mpsc::channel::<Order>();
        let work = move || {
            for (mut command, answer) in ordered {
                // Who asked may be gone; then the child is, too, with the drop of its pipes.
                let _gone = answer.send(command.spawn());
            }
        };
        let thread = std::thread::Builder::new().name("ceph-keeper".into()).spawn(work)?;
        Ok(Self { orders: Some(orders), thread: Some(thread) })
    }

    /// Starts a command, with its output at the end of the file `log`.
    pub(super) fn start(&self, mut command: Command, log: &Path) -> Result<Child> {
        let out = File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).process_group(0);
        // SAFETY: between fork and exec it makes one system call, which allocates nothing.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        let what = format!("starting {command:?}");
        let (answer, answered) = mpsc::channel();
        let orders = self.orders.as_ref().context("the keeper is there until it is dropped")?;
        orders.send((command, answer)).context("the keeper's thread has ended")?;
        answered.recv().context("the keeper's thread has ended")?.context(what)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing to panic about.
            let _ended = thread.join();
        }
    }
}

/// Removes `folder` once this process is gone, also if that is killed.
pub(super) fn remove_after_us(folder: &Path) -> Result<Child> {
    // Its standard input ends with us. What is written to the folder may last a moment longer.
    let script = "cat >/dev/null; sleep 1; rm -rf -- \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command.spawn().context("starting sh")
}
