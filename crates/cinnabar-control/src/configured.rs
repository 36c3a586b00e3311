//! The configuration that the daemon runs with, beside what its file said when it was last read.

use super::Control;
use cinnabar_config::Config;
use cinnabar_config::messages::{CommandError, CommandErrorKind, VolumeConfig};
use std::sync::PoisonError;
use std::time::Duration;

/// See the module.
#[derive(Clone, Debug)]
pub struct Configured {
    /// As it was started; volumes as they were added since. What needs a restart is compared with this.
    pub running: Config,
    /// As the file says, without what could not be done of it. What can change while it serves is
    /// compared with this: only a key whose value in the file is another one counts, so that changes
    /// by command stay.
    pub read: Config,
    /// The size of the cache that the file has asked for, unless a command has asked for one since.
    pub resized_to: Option<u64>,
}

impl Configured {
    /// The daemon was started with this.
    pub fn new(config: &Config) -> Self {
        Self { running: config.clone(), read: config.clone(), resized_to: None }
    }

    /// This volume is served, as the file says.
    pub fn has_added(&mut self, volume: VolumeConfig) {
        self.running.volumes.retain(|other| other.name != volume.name);
        self.running.volumes.push(volume);
    }

    /// This volume is served no more, and the file does not have it.
    pub fn has_removed(&mut self, name: &str) {
        self.running.volumes.retain(|other| other.name != name);
    }

    /// What the file is taken to say of this volume; `None`: nothing.
    pub fn reads(&mut self, name: &str, volume: Option<VolumeConfig>) {
        self.read.volumes.retain(|other| other.name != name);
        self.read.volumes.extend(volume);
    }
}

/// A volume of a configuration.
pub(super) fn volume_of<'c>(config: &'c Config, name: &str) -> Option<&'c VolumeConfig> {
    config.volumes.iter().find(|volume| volume.name == name)
}

impl Control {
    /// The daemon runs with this, if it has a file that can be read again.
    pub fn set_config(&self, config: &Config) {
        let configured = config.path.is_some().then(|| Configured::new(config));
        *self.configured.lock().unwrap_or_else(PoisonError::into_inner) = configured;
    }

    /// What it runs with.
    ///
    /// # Errors
    /// If there is no file.
    pub fn configured(&self) -> Result<Configured, CommandError> {
        let configured = self.configured.lock().unwrap_or_else(PoisonError::into_inner).clone();
        configured.ok_or_else(|| {
            let message = "the daemon has no configuration file";
            let hint = "a demonstration has none; start it with cinnabar serve --config FILE";
            CommandError::new(CommandErrorKind::Invalid, message, hint)
        })
    }

    /// Notes what has changed of it. Its caller has the turn among changes.
    pub(super) fn note(&self, change: impl FnOnce(&mut Configured)) {
        let mut configured = self.configured.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(configured) = configured.as_mut() {
            change(configured);
        }
    }

    /// The longest clean stop, as the file says now.
    pub fn stop_wait_max(&self) -> Option<Duration> {
        let configured = self.configured.lock().unwrap_or_else(PoisonError::into_inner);
        configured.as_ref().map(|configured| configured.read.control.stop_wait_max)
    }
}
