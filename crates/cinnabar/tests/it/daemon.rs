//! A daemon in a folder: its configuration, its status, its end.

use super::http;
use super::rig::{MIB, Running, Site};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;

/// A volume on `vm1.raw`.
pub(crate) const VM1: &str = "[[volume]]\nname = \"vm1\"\nbackend = \"file:vm1.raw\"\n";

impl Site {
    /// A configuration with this one volume, of 8 MiB.
    pub(crate) fn with_vm1() -> Self {
        let site = Self::new();
        site.disk("vm1.raw", 8 * MIB);
        site.config(VM1);
        site
    }

    /// A configuration with a cache of 64 MiB, and `volumes` behind it. `{dir}` is the folder.
    pub(crate) fn config(&self, volumes: &str) -> PathBuf {
        self.write(
            "c.toml",
            &format!(
                "[cache]\ndevice = \"cache.img\"\nsize = \"64MiB\"\nlock_wait_s = 0\n{volumes}"
            ),
        )
    }

    /// `status --json`.
    pub(crate) fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.ask(&["status", "--json"])).expect("it is JSON")
    }

    /// Starts a daemon with `c.toml` and waits until it is ready.
    pub(crate) fn serve(&self) -> Running {
        let mut daemon = self.start(&mut self.command(&["serve", "--config", "c.toml"]));
        daemon.wait_until("ready", || self.is_ready());
        daemon
    }

    /// The same with a log that goes elsewhere.
    pub(crate) fn serve_into(&self, stderr: impl Into<Stdio>) -> Running {
        let mut command = self.command(&["serve", "--config", "c.toml"]);
        let mut daemon = Running::new(&mut command, stderr, self.path("no-log"));
        daemon.wait_until("ready", || self.is_ready());
        daemon
    }

    fn is_ready(&self) -> bool {
        let answer = http::get(&self.path("control.sock"), "/v1/ready");
        answer.is_ok_and(|answer| answer.code == 200)
    }
}

impl Running {
    /// Stops it the clean way.
    pub(crate) fn stop(mut self) -> String {
        self.terminate();
        let status = self.wait();
        let log = self.log();
        assert_eq!(status.code(), Some(0), "{log}");
        log
    }
}

/// A TCP port of the loopback that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("it is bound").port()
}
