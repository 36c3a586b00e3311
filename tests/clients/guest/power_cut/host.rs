//! What serves the guest, daemon and back end, and what happens to them.

use super::backend::{NEW_LOG, SAME_LOG, check_log, forget_unflushed, make_disk, start_server};
use super::setting::{Incident, Setting, VOLUME};
use anyhow::Result;
use e2e::{Config, Daemon, Running, Site};
use std::time::Duration;

const SERVER_END: Duration = Duration::from_secs(30);

/// What serves the guest.
pub(super) struct Host<'s> {
    site: &'s Site,
    setting: &'s Setting,
    config: Config,
    daemon: Daemon,
    server: Running,
    /// Whether the volume's mode is another one than at first.
    is_switched: bool,
    /// Whether it ever was: then a guest may know of writes that are in the server only, unflushed.
    was_switched: bool,
}

impl<'s> Host<'s> {
    /// Starts it, on a new disk.
    pub(super) fn start(site: &'s Site, setting: &'s Setting, config: Config) -> Result<Self> {
        make_disk(site)?;
        let server = start_server(site, NEW_LOG)?;
        check_log(site)?;
        let daemon = site.serve(&config)?;
        let (is_switched, was_switched) = (false, false);
        Ok(Self { site, setting, config, daemon, server, is_switched, was_switched })
    }

    /// Lets something happen.
    pub(super) fn meet(self, incident: Incident) -> Result<Self> {
        match incident {
            Incident::Kill => self.restart_daemon(Daemon::crash),
            Incident::Stop => self.restart_daemon(Daemon::stop),
            Incident::Server => self.restart_server(),
            Incident::Both => self.restart_server()?.restart_daemon(Daemon::crash),
            Incident::Mode => self.switch(),
        }
    }

    fn restart_daemon(mut self, end: fn(Daemon) -> Result<()>) -> Result<Self> {
        end(self.daemon)?;
        self.daemon = self.site.serve(&self.config)?;
        self.is_switched = false;
        Ok(self)
    }

    fn restart_server(mut self) -> Result<Self> {
        if self.setting.is_synchronous() || self.was_switched {
            self.server.ask_to_end()?;
            self.server.wait(SERVER_END)?;
        } else {
            self.server.kill()?;
            forget_unflushed(self.site)?;
        }
        self.server = start_server(self.site, SAME_LOG)?;
        Ok(self)
    }

    fn switch(mut self) -> Result<Self> {
        let mode = if self.is_switched { &self.setting.mode } else { "write-through" };
        self.daemon.command(&["volume", "set", VOLUME, "--mode", mode])?;
        self.is_switched = !self.is_switched;
        self.was_switched = true;
        Ok(self)
    }

    /// Stops it with everything at the back end.
    pub(super) fn stop(mut self) -> Result<()> {
        if !self.setting.is_synchronous() {
            self.daemon.command(&["volume", "flush", VOLUME])?;
        }
        self.daemon.stop()?;
        self.server.ask_to_end()?;
        self.server.wait(SERVER_END)?;
        Ok(())
    }
}
