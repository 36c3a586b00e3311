//! What the status says of the write log and of volumes in write-back mode.

use super::Writes;
use crate::dataplane::plane::DataPlane;
use crate::dataplane::volume::Volume;
use cinnabar_config::messages::{VolumeMode, WriteBackStatus, WriteLogStatus};
use cinnabar_engine::units::{BLOCK_BYTES, Instant};
use cinnabar_writeback::Counters;
use std::time::Duration;

impl DataPlane {
    /// The write log's own.
    pub(in super::super) fn write_log_status(&self, now: Instant) -> Option<WriteLogStatus> {
        match &self.writes {
            Writes::Off => None,
            Writes::Missing { path, reason } => Some(WriteLogStatus {
                device: path.clone(),
                reason: reason.clone(),
                size_bytes: 0,
                used_bytes: 0,
                ram_bytes: 0,
                counters: Counters::default(),
                memory: None,
                halves: Vec::new(),
            }),
            Writes::On(running) => {
                let (size_bytes, used_bytes) = running.log.room_bytes();
                let lost = running.log.is_lost();
                let reason = if lost { running.halves.loss() } else { String::new() };
                Some(WriteLogStatus {
                    device: running.halves.path().to_owned(),
                    reason,
                    size_bytes,
                    used_bytes,
                    ram_bytes: running.log.ram_bytes(),
                    counters: running.log.counters(),
                    memory: running.memory_status(now),
                    halves: running.halves.status(),
                })
            }
        }
    }

    /// A volume's, if it is in the log.
    pub(in super::super) fn write_back_status(
        &self,
        now: Instant,
        volume: &Volume,
    ) -> Option<WriteBackStatus> {
        volume.claims.as_ref()?;
        let log = self.writes.log()?;
        let place = volume.writes.place();
        let status = place.and_then(|place| log.status(place)).unwrap_or_default();
        let age_ns = place.and_then(|place| log.dirty_age_ns(place, now));
        Some(WriteBackStatus {
            dirty_bytes: status.dirty_bytes,
            dirty_age: age_ns.map_or(Duration::ZERO, Duration::from_nanos),
            epochs: status.epoch.saturating_sub(status.retired_epoch),
            destaged_bytes: status.destaged_blocks * BLOCK_BYTES,
            destaged_writes: status.destaged_writes,
            pace: status.pace,
            damaged: status.damaged,
            leaving: volume.writes.leaves(),
            ack: volume.config.ack,
            claim: volume.claim_at.to_string(),
            group: status.group,
            waits_for: status.waits_for,
        })
    }

    /// Blocks of reads that the log has answered alone, since it has the volume.
    pub(in super::super) fn answered_alone(&self, volume: &Volume) -> Option<u64> {
        let status = self.writes.log()?.status(volume.writes.place()?)?;
        Some(status.answered_blocks)
    }

    /// Why a volume waits, and that writes of it do so, too.
    pub(in super::super) fn reason_of_absent(&self, name: &str, reason: &str) -> String {
        let place = self.writes.place_of(name);
        match place.and_then(|place| self.writes.log()?.status(place)) {
            Some(status) if status.dirty_bytes > 0 => {
                let dirty_bytes = status.dirty_bytes;
                format!(
                    "{reason}; {dirty_bytes} bytes in the write log are not at its back end yet"
                )
            }
            _ => reason.to_owned(),
        }
    }

    /// Why a volume in write-back mode is not as it should be.
    pub(in super::super) fn write_back_trouble(
        &self,
        now: Instant,
        volume: &Volume,
    ) -> Option<String> {
        if volume.config.mode == VolumeMode::WriteBack && volume.claims.is_none() {
            return Some(
                "it could not join the write log and is served in write-through (hint: the \
                 daemon's log has the reason; `cinnabar volume set --mode write-back` tries again)"
                    .to_owned(),
            );
        }
        let status = self.write_back_status(now, volume)?;
        let log = self.writes.log()?;
        if log.is_lost() {
            return Some("the write log's device has failed: its requests fail".to_owned());
        }
        if status.damaged {
            return Some("some of its writes in the log are damaged: its requests fail".to_owned());
        }
        if let Some(failure) = log.status(volume.writes.place()?)?.failing {
            return Some(format!("bringing its writes to the back end fails: {failure}"));
        }
        (status.dirty_age > self.rpo.saturating_mul(2)).then(|| {
            let age_s = status.dirty_age.as_secs();
            let waits_for = status.waits_for.as_ref().map_or(String::new(), |other| {
                format!(", behind earlier ones of volume {other:?}, of the same write group")
            });
            format!("the oldest write has been waiting for the back end for {age_s} s{waits_for}")
        })
    }
}
