//! The writes of one volume, or of a write group, brought to their back ends without the daemon.
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

/// A volume, and what its writes are brought to.
pub struct Wanted<'a> {
    /// Its name.
    pub volume: &'a str,
    pub to: Arc<Disk>,
    /// What that is.
    pub kind: Target<'a>,
}

/// What the log has of a wanted volume.
struct Looked<'a> {
    place: LogVolumeId,
    size_bytes: u64,
    /// Chunks and pages of data that its back end lacks.
    chunks: u64,
    pages: u64,
    claimed: Option<(&'a Location, Claim)>,
}

/// Brings the dirty data of volumes to where they are wanted. A write group goes there together, in the order of its
/// guest's flushes; to copies each volume may go by itself.
///
/// # Errors
/// If the log has no such volume, its dirty data are damaged, others of its group have dirty data, a disk is too small
/// or claimed by another log, has no claim though it is to be the back end, or a device fails. What was destaged
/// until then is recorded, but of a copy.
///
/// # Panics
/// If something is dirty after the drain.
pub fn rescue(
    open: OpenLog,
    all: &[Wanted<'_>],
    watch: &mut impl Watch,
) -> Result<Vec<Rescued>, OfflineError> {
    let device = open.device.clone();
    let looked = all.iter().map(|wanted| look(&open, wanted)).collect::<Result<Vec<_>, _>>()?;
    let are_copies = all.iter().all(|wanted| matches!(wanted.kind, Target::Copy));
    if !are_copies {
        check_groups(&open, all)?;
    }
    let (disk, log) = open.begin(Config { groups: !are_copies, ..Config::default() })?;
    let io = |error: std::io::Error| {
        let message = error.to_string();
        OfflineError::WriteLogIo { device: device.clone(), message }
    };
    let refused = |volume: &str, refusal: Refusal| match refusal {
        Refusal::Damaged => {
            damaged(&device, volume, "its data are not those that were written".to_owned())
        }
        Refusal::Lost => io(std::io::Error::other(refusal)),
        refusal => OfflineError::WriteLog { device: device.clone(), message: refusal.to_string() },
    };
    let targets = all.iter().zip(&looked).map(|(wanted, of)| (Arc::clone(&wanted.to), of.place));
    let mut session = Session::new(log, disk, targets).map_err(io)?;
    if are_copies {
        session.keep_log();
    }
    for (wanted, of) in all.iter().zip(&looked) {
        // A volume is destaged once it was attached since the log was opened.
        let (name, size_bytes) = (wanted.volume.to_owned(), of.size_bytes);
        let attach = Command::Attach { name, size_bytes, incarnation: 0, group: String::new() };
        session.carry_out(attach).map_err(|refusal| refused(wanted.volume, refusal))?;
    }
    let mut done = Vec::new();
    for (Wanted { volume, .. }, of) in all.iter().zip(&looked) {
        let drained = drain(&mut session, of.place, of.pages, watch);
        let drained = drained.map_err(|error| match error {
            Undrained::Log(error) => io(error),
            Undrained::Refused(refusal) => refused(volume, refusal),
            Undrained::Target(place, errno) => {
                let failed = all.iter().zip(&looked).find(|(_, of)| of.place == place);
                let to = failed.map_or(String::new(), |(of, _)| of.to.path().display().to_string());
                OfflineError::TargetIo { to, message: errno.to_string() }
            }
        })?;
        assert_eq!(drained.dirty_bytes, 0, "a drained volume has nothing that is dirty");
        done.push(Rescued {
            chunks: of.chunks,
            blocks: drained.destaged_blocks,
            writes: drained.destaged_writes,
            claim_released: of.claimed.is_some(),
        });
    }
    // Without its claim a place in the log would say that others may have written the back end. The log
    // is still locked: nothing can be added to it meanwhile.
    for (wanted, of) in all.iter().zip(&looked) {
        if let Some((location, claim)) = &of.claimed {
            give_up(&mut session, of.place).map_err(|refusal| refused(wanted.volume, refusal))?;
            let claim = Claim { rescued: true, ..claim.clone() };
            location.write(&claim).map_err(|error| of_claim(&error))?;
        }
    }
    Ok(done)
}

/// What the log has of a volume, if that can be brought to where it is wanted.
fn look<'a>(open: &OpenLog, wanted: &Wanted<'a>) -> Result<Looked<'a>, OfflineError> {
    let Wanted { volume, to, kind } = wanted;
    let found = open.volume(volume)?;
    if let Some(damage) = found.damage {
        return Err(damaged(&open.device, volume, damage.to_string()));
    }
    let (target, have, need) =
        (to.path().display().to_string(), to.size_bytes(), found.record.size_bytes);
    if have < need {
        return Err(OfflineError::TargetSmall { to: target, have, need });
    }
    let claimed = kind.claim(open, &found.record)?;
    if claimed.is_none() && !found.chunks.is_empty() && !matches!(kind, Target::Copy) {
        // Of another disk the log would forget writes that this one lacks.
        return Err(OfflineError::TargetUnclaimed { to: target, volume: (*volume).to_owned() });
    }
    Ok(Looked {
        place: LogVolumeId(found.record.volume),
        size_bytes: need,
        chunks: found.chunks.len() as u64,
        pages: found.chunks.iter().map(|header| u64::from(header.data_pages())).sum(),
        claimed,
    })
}

/// Others of a group that have dirty data must be there: their epochs lie between those of the volume.
fn check_groups(open: &OpenLog, all: &[Wanted<'_>]) -> Result<(), OfflineError> {
    for Wanted { volume, .. } in all {
        let group = &open.volume(volume)?.record.group;
        let left = open.survey.volumes.iter().filter(|found| {
            let is_dirty = !found.chunks.is_empty() || found.damage.is_some();
            let is_named = all.iter().any(|wanted| wanted.volume == found.record.name);
            !group.is_empty() && found.record.group == *group && is_dirty && !is_named
        });
        let others: Vec<_> = left.map(|found| found.record.name.clone()).collect();
        if !others.is_empty() {
            return Err(OfflineError::Grouped { volume: (*volume).to_owned(), others });
        }
    }
    Ok(())
}

fn damaged(device: &str, volume: &str, reason: String) -> OfflineError {
    let (device, volume) = (device.to_owned(), volume.to_owned());
    OfflineError::DirtyDamaged { device, volume, reason }
}

/// Why a volume could not be drained.
enum Undrained {
    Log(std::io::Error),
    Refused(Refusal),
    Target(LogVolumeId, rustix::io::Errno),
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
        if let Some((place, errno)) = session.failed() {
            return Err(Undrained::Target(place, errno));
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
