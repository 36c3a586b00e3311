//! The writes of one volume, brought to a back end without the daemon.
//!
//! The same destage as the daemon's: epoch by epoch, with a flush of the back end and a durable record
//! after each, so it can be interrupted at any moment and begun again.

use super::{OpenLog, Session};
use crate::offline::{OfflineError, Watch};
use cinnabar_backend::Disk;
use cinnabar_backend::claim::{Claim, ClaimError, ClaimErrorKind, Location};
use cinnabar_writeback::format::directory::Record;
use cinnabar_writeback::{Command, Config, LogVolumeId, Refusal, Status};
use std::sync::Arc;

/// What a rescue has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Rescued {
    /// Chunks of the log that the back end did not have.
    pub chunks: u64,
    /// Blocks written to the back end.
    pub blocks: u64,
    /// Requests that took.
    pub writes: u64,
    /// The claim was there, and says now that this was done; the volume's place in the log is gone.
    pub claim_released: bool,
}

/// What the writes of a volume are brought to.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// Its back end, with its claim at this place. Once the writes are there, the volume's place in the log goes,
    /// and the claim says from then on that they came past every cache.
    BackEnd(Option<&'a Location>),
    /// A copy: the log keeps the writes, so that the back end gets them, too.
    Copy,
}

impl<'a> Target<'a> {
    /// Its claim of this incarnation of the volume, if it is there.
    fn claim(
        self,
        open: &OpenLog,
        record: &Record,
    ) -> Result<Option<(&'a Location, Claim)>, OfflineError> {
        match self {
            Self::BackEnd(Some(location)) => own_claim(location, open, record),
            Self::BackEnd(None) | Self::Copy => Ok(None),
        }
    }
}

/// Brings the dirty data of a volume to `to`.
///
/// # Errors
/// If the log has no such volume, its dirty data are damaged, `to` is too small or claimed by another
/// log, has no claim though it is to be the back end, or either device fails. What was destaged until then
/// is recorded, but of a copy.
///
/// # Panics
/// If something is dirty after the drain.
pub fn rescue(
    open: OpenLog,
    volume: &str,
    to: Arc<Disk>,
    kind: Target<'_>,
    watch: &mut impl Watch,
) -> Result<Rescued, OfflineError> {
    let found = open.volume(volume)?;
    let (device, target) = (open.device.clone(), to.path().display().to_string());
    let damaged = |reason: String| {
        let (device, volume) = (device.clone(), volume.to_owned());
        OfflineError::DirtyDamaged { device, volume, reason }
    };
    if let Some(damage) = found.damage {
        return Err(damaged(damage.to_string()));
    }
    let (have, need) = (to.size_bytes(), found.record.size_bytes);
    if have < need {
        return Err(OfflineError::TargetSmall { to: target, have, need });
    }
    let (place, chunks) = (LogVolumeId(found.record.volume), found.chunks.len());
    let is_copy = matches!(kind, Target::Copy);
    let claimed = kind.claim(&open, &found.record)?;
    if claimed.is_none() && chunks > 0 && !is_copy {
        // Of another disk the log would forget writes that this one lacks.
        return Err(OfflineError::TargetUnclaimed { to: target, volume: volume.to_owned() });
    }
    let pages = found.chunks.iter().map(|header| u64::from(header.data_pages()));
    let (of, size_bytes) = (pages.sum(), found.record.size_bytes);

    let (disk, log) = open.begin(Config::default())?;
    let io = |error: std::io::Error| {
        let message = error.to_string();
        OfflineError::WriteLogIo { device: device.clone(), message }
    };
    let refused = |refusal: Refusal| match refusal {
        Refusal::Damaged => damaged("its data are not those that were written".to_owned()),
        Refusal::Lost => io(std::io::Error::other(refusal)),
        refusal => OfflineError::WriteLog { device: device.clone(), message: refusal.to_string() },
    };
    let mut session = Session::new(log, disk, Some((to, place))).map_err(io)?;
    if is_copy {
        session.keep_log();
    }
    // A volume is destaged once it was attached since the log was opened.
    let (name, group) = (volume.to_owned(), String::new());
    let attach = Command::Attach { name, size_bytes, incarnation: 0, group };
    session.carry_out(attach).map_err(refused)?;
    let drained = drain(&mut session, place, of, watch).map_err(|error| match error {
        Undrained::Log(error) => io(error),
        Undrained::Refused(refusal) => refused(refusal),
        Undrained::Target(errno) => {
            OfflineError::TargetIo { to: target.clone(), message: errno.to_string() }
        }
    })?;
    assert_eq!(drained.dirty_bytes, 0, "a drained volume has nothing that is dirty");
    // Without its claim a place in the log would say that others may have written the back end. The log
    // is still locked: nothing can be added to it meanwhile.
    if let Some((location, claim)) = &claimed {
        give_up(&mut session, place).map_err(refused)?;
        let claim = Claim { rescued: true, ..claim.clone() };
        location.write(&claim).map_err(|error| of_claim(&error))?;
    }
    Ok(Rescued {
        chunks: chunks as u64,
        blocks: drained.destaged_blocks,
        writes: drained.destaged_writes,
        claim_released: claimed.is_some(),
    })
}

/// Why a volume could not be drained.
enum Undrained {
    Log(std::io::Error),
    Refused(Refusal),
    Target(rustix::io::Errno),
}

/// Brings all that is dirty to the back end: at most `of` blocks.
fn drain(
    session: &mut Session,
    place: LogVolumeId,
    of: u64,
    watch: &mut impl Watch,
) -> Result<Status, Undrained> {
    let id = session.command(Command::Drain(place));
    loop {
        session.turn().map_err(Undrained::Log)?;
        let status = session.log().status(place).unwrap_or_default();
        watch.at("blocks written", status.destaged_blocks.min(of), of);
        if let Some(answer) = session.answer(id) {
            return answer.map(|_| status).map_err(Undrained::Refused);
        }
        if status.damaged {
            return Err(Undrained::Refused(Refusal::Damaged));
        }
        if let Some(errno) = session.failed() {
            return Err(Undrained::Target(errno));
        }
    }
}

/// Gives up the place of a drained volume.
fn give_up(session: &mut Session, place: LogVolumeId) -> Result<(), Refusal> {
    // What was destaged last is still being retired, page by page.
    const TRIES: u32 = 10_000;
    for _ in 0..TRIES {
        match session.carry_out(Command::Remove { place, discard: false }) {
            Err(Refusal::Busy) => session.turn().map_err(|_| Refusal::Lost)?,
            ended => return ended.map(drop),
        }
    }
    Err(Refusal::Busy)
}

impl OpenLog {
    /// Releases a claim if it is of a volume that has left this log: a rescue was
    /// interrupted at its very end. True: there was one.
    ///
    /// # Errors
    /// If the claim can't be read or written.
    pub fn release_old_claim(
        &self,
        volume: &str,
        location: &Location,
    ) -> Result<bool, OfflineError> {
        let found = location.read().map_err(|error| of_claim(&error))?;
        let own = |claim: &Claim| {
            claim.write_log == self.survey.superblock.uuid
                && claim.volume == volume
                && !claim.rescued
        };
        let Some(claim) = found.filter(own) else { return Ok(false) };
        if self.volume(volume).is_ok() {
            return Ok(false);
        }
        // Before it has a number nothing was acknowledged that it stands for.
        if claim.number > 0 && !self.survey.left.contains(&claim.incarnation) {
            return Err(older(location, &self.device));
        }
        let claim = Claim { rescued: true, ..claim };
        location.write(&claim).map_err(|error| of_claim(&error))?;
        Ok(true)
    }
}

/// The log does not know of a claim that it has made.
fn older(location: &Location, device: &str) -> OfflineError {
    let message = format!(
        "claim {location} was made by a newer state of the write log than {device}: this one is an older copy, \
         and lacks writes that came later"
    );
    let hint = "use the newest state of the write log; to see what the older one has, copy the disk, and use --copy";
    OfflineError::Claim { message, hint }
}

/// The claim, if there is one of this incarnation of a volume in this log. With another's the
/// back end may lack writes that are newer than those here.
fn own_claim<'a>(
    location: &'a Location,
    open: &OpenLog,
    record: &Record,
) -> Result<Option<(&'a Location, Claim)>, OfflineError> {
    match location.read().map_err(|error| of_claim(&error))? {
        None => Ok(None),
        Some(claim) if claim.is_of(open.survey.superblock.uuid, record.incarnation) => {
            if claim.number > record.claim {
                return Err(older(location, &open.device));
            }
            Ok(Some((location, claim)))
        }
        Some(claim) => {
            let kind = ClaimErrorKind::Held(Box::new(claim));
            Err(of_claim(&ClaimError { location: location.clone(), kind }))
        }
    }
}

fn of_claim(error: &ClaimError) -> OfflineError {
    OfflineError::Claim { message: error.to_string(), hint: error.hint() }
}
