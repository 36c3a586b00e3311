//! The writes of one volume, brought to a back end without the daemon.
//!
//! The same destage as the daemon's: epoch by epoch, with a flush of the back end and a durable record
//! after each, so it can be interrupted at any moment and begun again.

use super::{OpenLog, Session};
use crate::{OfflineError, Watch};
use cinnabar_backend::Disk;
use cinnabar_writeback::Command;
use std::sync::Arc;

/// What a rescue has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Rescued {
    /// Blocks written to the back end.
    pub blocks: u64,
    /// Requests that took.
    pub writes: u64,
}

/// Brings the dirty data of a volume to `to`. The volume's place in the log stays.
///
/// # Errors
/// If the log has no such volume, its dirty data are damaged, `to` is too small, or either device
/// fails. What was destaged until then is recorded.
pub fn rescue(
    open: OpenLog,
    volume: &str,
    to: Arc<Disk>,
    watch: &mut impl Watch,
) -> Result<Rescued, OfflineError> {
    let OpenLog { disk, log } = open;
    let device = disk.path().display().to_string();
    let found = log.places().find_map(|place| {
        let status = log.status(place)?;
        (status.name == volume).then_some((place, status))
    });
    let Some((place, status)) = found else {
        return Err(OfflineError::NotInWriteLog { device, volume: volume.to_owned() });
    };
    let (have, need) = (to.size_bytes(), status.size_bytes);
    if have < need {
        let to = to.path().display().to_string();
        return Err(OfflineError::TargetSmall { to, have, need });
    }
    let target = to.path().display().to_string();
    let io = |error: std::io::Error| {
        let message = error.to_string();
        OfflineError::WriteLogIo { device: device.clone(), message }
    };
    let mut session = Session::new(log, Arc::clone(&disk), Some((to, place))).map_err(io)?;
    let of = status.dirty_bytes / cinnabar_engine::units::BLOCK_BYTES;
    // A volume is destaged once it was attached since the log was opened.
    let attach =
        Command::Attach { name: volume.to_owned(), size_bytes: status.size_bytes, incarnation: 0 };
    session.carry_out(attach).map_err(|refusal| OfflineError::WriteLog {
        device: device.clone(),
        message: refusal.to_string(),
    })?;
    let id = session.command(Command::Drain(place));
    loop {
        session.turn().map_err(io)?;
        let status = session.log().status(place).unwrap_or_default();
        watch.at("blocks written", status.destaged_blocks.min(of), of);
        if let Some(errno) = session.failed() {
            return Err(OfflineError::TargetIo { to: target, message: errno.to_string() });
        }
        if let Some(answer) = session.answer(id) {
            answer.map_err(|refusal| {
                let (device, message) = (device.clone(), refusal.to_string());
                OfflineError::WriteLog { device, message }
            })?;
            let (blocks, writes) = (status.destaged_blocks, status.destaged_writes);
            return Ok(Rescued { blocks, writes });
        }
    }
}
