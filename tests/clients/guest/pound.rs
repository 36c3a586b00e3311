//! What is known of a disk that a guest pounds on with stamped sectors.
//!
//! The work itself is the program `guest-io`.

use super::machine::{Guest, wait_for};
use anyhow::{Context, Result, ensure};
use e2e::output;
use std::path::Path;
use std::process::Command;

/// Little, so that a round takes about a second.
const MIB: u64 = 4;
const THREADS: u64 = 4;
/// Rounds that may have begun since the last reported one: the line of a second one may be in
/// flight.
const UNDER_WAY: u64 = 2;

/// A disk, and the rounds that are safe on it.
#[derive(Clone, Debug)]
pub(super) struct Pounding {
    /// The disk's serial number.
    disk: String,
    /// Its number in the stamps.
    volume: u64,
    rounds: u64,
    /// Whether there can't be more.
    is_exact: bool,
}

impl Pounding {
    /// An empty disk.
    pub(super) fn new(disk: &str, volume: u64) -> Self {
        Self { disk: disk.into(), volume, rounds: 0, is_exact: true }
    }

    /// Rounds that are safe, as far as was looked.
    pub(super) fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Starts it in the background, on what must be there by now.
    pub(super) fn start(&mut self, guest: &mut Guest) -> Result<()> {
        let (low, high) = self.versions();
        let Self { disk, volume, .. } = self;
        guest.run(&format!(
            "rm -f /run/stop; work {disk} guest-io pound $(disk {disk}) {volume} {MIB} {low} {high} \
             {THREADS} /dev/ttyS2 /run/stop & {disk}=$!"
        ))?;
        (self.is_exact, self.rounds) = (false, high);
        Ok(())
    }

    /// Records what the guest has reported.
    pub(super) fn look(&mut self, guest: &Guest) {
        self.rounds = self.rounds.max(guest.told("round ", &format!(" of {}", self.volume)));
    }

    /// Waits until a round more is safe, while the guest is well.
    pub(super) fn next_round(&mut self, guest: &Guest) -> Result<()> {
        self.look(guest);
        let before = self.rounds;
        wait_for("a round", || {
            self.look(guest);
            guest.check_work()?;
            Ok(self.rounds > before)
        })
    }

    /// Ends it; it must not have met an error.
    pub(super) fn stop(&mut self, guest: &mut Guest) -> Result<()> {
        let disk = &self.disk;
        let text = guest.run(&format!(
            "touch /run/stop; wait ${disk}; ended=$?; cat /run/{disk}.log; [ $ended = 0 ]"
        ))?;
        print!("{disk}: {text}");
        let told = text.strip_prefix("version ").and_then(|rest| rest.split_once(','));
        let version = told.with_context(|| format!("no version: {text}"))?.0.parse()?;
        self.look(guest);
        ensure!(version >= self.rounds, "round {} was reported, {version} written", self.rounds);
        (self.is_exact, self.rounds) = (true, version);
        Ok(())
    }

    /// Reads it all in the guest.
    pub(super) fn check(&self, guest: &mut Guest) -> Result<()> {
        let (low, high) = self.versions();
        let Self { disk, volume, .. } = self;
        let line = format!("guest-io check $(disk {disk}) {volume} {MIB} {low} {high} 2>&1");
        guest.run(&line).map(drop)
    }

    /// Reads the file behind it.
    pub(super) fn check_file(&self, file: &Path) -> Result<()> {
        let (low, high) = self.versions();
        let numbers = [self.volume, MIB, low, high].map(|number| number.to_string());
        let mut command = Command::new(env!("CARGO_BIN_EXE_guest-io"));
        output(command.arg("check").arg(file).args(numbers)).map(drop)
    }

    /// Versions that sectors may have.
    fn versions(&self) -> (u64, u64) {
        let more = if self.is_exact { 0 } else { UNDER_WAY };
        (self.rounds, self.rounds + more)
    }
}
