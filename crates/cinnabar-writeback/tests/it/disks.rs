//! The disks of a guest together: those of a write group.

use super::guest::{Guest, Pending};
use super::oracle::Oracle;
use super::world::{Checked, World};

impl World {
    pub(crate) fn check_backends(&self) -> Checked {
        (0..self.guests.len()).try_for_each(|index| self.check_backend(index))
    }

    /// Whether the back ends of a guest may hold what they do: of all disks of its group together.
    pub(crate) fn check_backend(&self, index: usize) -> Checked {
        let group =
            if index < self.settings.group { 0..self.settings.group } else { index..index + 1 };
        let all = self.guests[group].iter();
        Oracle::check_images(
            all.map(|guest| (&guest.oracle, |sector| guest.disk.candidates(sector).collect())),
        )
        .map_err(|wrong| format!("volume{index}: the back end's image is illegal: {wrong}"))
    }

    /// Takes a volume out of the log; what a group has there is given up together.
    pub(crate) fn remove(&mut self, index: usize, discard: bool) -> Checked {
        let members = 0..self.settings.group;
        if !discard || !members.contains(&index) {
            return self.command(index, Pending::Remove { discard });
        }
        let busy = |guest: &Guest| guest.command.is_some() || !guest.asked.is_empty();
        if self.guests[members.clone()].iter().any(busy) {
            return Ok(());
        }
        for member in members {
            if self.guests[member].place.is_some() && self.guests[member].command.is_none() {
                self.command(member, Pending::Remove { discard })?;
            }
        }
        Ok(())
    }

    /// Whether a volume's destage waits for another one of its group.
    pub(crate) fn note_waiting(&mut self, index: usize) {
        let place = self.guests[index].place.filter(|_| self.settings.group > 0);
        let waits_for = place.and_then(|place| self.log.status(place)?.waits_for);
        self.counts.waited_for += u64::from(waits_for.is_some());
    }
}
