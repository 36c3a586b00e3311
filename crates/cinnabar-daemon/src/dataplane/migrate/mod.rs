//! Volumes that move between two hosts: what the rules say ([`Ownership`]) is carried out here
//! (docs/design/migration.md).
//!
//! A standby is attached to the engines, too, under a name of its own and past the cache, on a back end
//! that is open for reading only and not locked. Giving and taking exchange one attachment for the other,
//! under guests that stay connected. What blocks is done by background threads ([`work`]).

mod admit;
mod commands;
mod lock_state;
mod peer;
mod record;
mod steps;
mod warm;
mod work;

pub(super) use commands::{Asking, MoveChange};
pub(super) use warm::{Arrival, Door, WarmDone, WarmStep, WarmTask};
pub(super) use work::{MoveDone, MoveStep, open};

use super::disks::OpenedVolume;
use super::plane::DataPlane;
use super::requests::Waiting;
use super::volume::Volume;
use cinnabar_backend::Disk;
use cinnabar_backend::spec::Place;
use cinnabar_config::messages::{
    AnswerTo, CommandError, CommandErrorKind, Given, MigrationRole, MigrationStatus, Peer, State,
    VolumeConfig,
};
use cinnabar_config::volume::backend_place;
use cinnabar_driver::Ownership;
use cinnabar_driver::ownership::{Fence, Record, Role, Trust};
use cinnabar_engine::units::Instant;
use cinnabar_engine::volume::ProofToken;
use std::sync::Arc;
use std::time::Duration;

/// What is kept of a volume that may move.
pub(super) struct Moves {
    own: Ownership,
    peer: Peer,
    attached: Attached,
    swap: Swap,
    /// Of the present or the last attempt to serve it.
    trust: Trust,
    /// Its last flush was good.
    drained: bool,
    /// A hand-over has failed, and it is to be served here as before.
    returns: bool,
    /// The proof that was read then, behind a good flush.
    kept_proof: Option<ProofToken>,
    /// The back end for writing, until the engines have it.
    opened: Option<Box<OpenedVolume>>,
    /// One that is being let go of: something may hold it for a moment.
    leaving: Option<Arc<Disk>>,
    /// Requests of the other host that are yet to be answered; the newest is refused first.
    asked: Vec<AnswerTo<Given>>,
    /// Which daemon the other host's is, as it has said.
    peer_id: Option<String>,
    /// One that asks and is not known by that: the other host is asked who it is.
    asking: Option<Asking>,
    /// Operators who want the volume here.
    takers: Vec<AnswerTo<()>>,
    /// The pause after a failed attempt ends then.
    again_at: Option<Instant>,
    /// Failed attempts in a row.
    tries: u32,
    /// A standby that could not be attached, or whose back end could not be opened, tries again then: it has
    /// no other way.
    stand_by_at: Option<Instant>,
    /// Reads that wait for a look at the claim, and those for which it is being looked at.
    reads: Vec<Waiting>,
    checking: Vec<Waiting>,
    /// That look is under way.
    looks: bool,
    /// The next one begins then: the storage is silent.
    looks_again_at: Option<Instant>,
    /// It is removed: nothing of this goes on.
    ends: bool,
    /// Guests that were connected when the lock was lost.
    shut_out: Vec<lock_state::Guest>,
    /// Why the last attempt has failed.
    reason: String,
    given: u64,
    taken: u64,
    /// Guests wait since then.
    held_since: Option<Instant>,
    last_take: Duration,
    /// What the last hand-over has left in the cache here.
    left: Option<warm::Left>,
    /// The epoch that the other host knew when it asked for that; `None`: it has counted on since.
    left_for: Option<u64>,
    /// What may come along if this attempt ends with this host as the owner.
    due: warm::Due,
    /// What comes along.
    warm: Option<Box<warm::Warming>>,
}

/// As what the engines have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attached {
    /// Past the cache, for reading.
    Standby,
    /// As any volume.
    Owner,
}

/// Between two attachments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Swap {
    /// None is under way.
    None,
    /// The engines let go of it, to hand it over.
    Draining,
    /// They have, or have refused it.
    Out,
    /// They let go of the standby.
    EndingStandby,
    /// The standby is to end as soon as the engines have it.
    Due,
}

/// What the engines call a standby: no operator can choose this.
pub(super) fn standby_name(attachment: u64) -> String {
    format!("\u{1}standby {attachment:016x}")
}

/// What keeps two hosts from serving a volume at a time.
fn fence_of(config: &VolumeConfig) -> Fence {
    match backend_place(&config.backend) {
        Some(Place::Rbd(_)) => Fence::Lock,
        Some(Place::File(_) | Place::Nbd(_) | Place::Hybrid(_)) | None => Fence::Word,
    }
}

impl Moves {
    /// Of a volume that another host may serve.
    pub(super) fn standby(config: &VolumeConfig, peer: Peer, record: Record) -> Self {
        Self::new(Ownership::standby(fence_of(config), record), peer, Attached::Standby)
    }

    /// Of one that is served here, after `record` was made durable.
    fn owner(config: &VolumeConfig, peer: Peer, record: Record) -> Self {
        Self::new(Ownership::owner(fence_of(config), record), peer, Attached::Owner)
    }

    fn new(own: Ownership, peer: Peer, attached: Attached) -> Self {
        Self {
            own,
            peer,
            attached,
            swap: Swap::None,
            trust: Trust::ProofOnly,
            drained: false,
            returns: false,
            kept_proof: None,
            opened: None,
            leaving: None,
            asked: Vec::new(),
            peer_id: None,
            asking: None,
            takers: Vec::new(),
            again_at: None,
            tries: 0,
            stand_by_at: None,
            reads: Vec::new(),
            checking: Vec::new(),
            looks: false,
            looks_again_at: None,
            ends: false,
            shut_out: Vec::new(),
            reason: String::new(),
            given: 0,
            taken: 0,
            held_since: None,
            last_take: Duration::ZERO,
            left: None,
            left_for: None,
            due: warm::Due::default(),
            warm: None,
        }
    }

    /// Whether this host serves it.
    pub(super) fn is_owner(&self) -> bool {
        self.own.role() == Role::Owner
    }

    /// The other host asks for the volume, and knows this epoch. It knows a higher one whenever it has taken
    /// the volume, by force and without an answer, too, and that one may be the number of a hand-over from
    /// here. So what is kept for it counts only as long as it knows what it knew then.
    fn note_asked(&mut self, epoch: u64) {
        if self.is_owner() {
            self.left_for = Some(epoch);
        } else if self.left_for != Some(epoch) {
            (self.left, self.left_for) = (None, None);
        }
    }

    /// Whether it is, or is about to be, attached past the cache.
    pub(super) fn stands_by(&self) -> bool {
        self.attached == Attached::Standby
    }

    /// What cached blocks need to be believed at the attach that is under way.
    pub(super) const fn trust(&self) -> Trust {
        self.trust
    }

    /// How the volume is, unless it is served here.
    pub(super) fn state(&self) -> Option<(State, String)> {
        let with = |text: String| match &self.reason {
            reason if reason.is_empty() => text,
            reason => format!("{text}: {reason}"),
        };
        let peer = &self.peer.address;
        match self.own.role() {
            Role::Owner => None,
            Role::Standby if self.own.reads_through() && !self.shut_out.is_empty() => {
                let guests = self.shut_out.len();
                let reason = format!(
                    "its lock was lost: {guests} guests that were connected get errors until they \
                     connect again"
                );
                Some((State::Standby, reason))
            }
            Role::Standby if self.own.reads_through() => Some((State::Standby, String::new())),
            Role::Standby => {
                Some((State::Standby, with(format!("it could not be taken from {peer}"))))
            }
            Role::Giving if self.own.is_lost() => {
                Some((State::Standby, with("it lets go of the back end".into())))
            }
            Role::Giving => {
                Some((State::Standby, with(format!("it is being handed over to {peer}"))))
            }
            Role::Taking => Some((State::Standby, with(format!("it is being taken from {peer}")))),
        }
    }
}

impl Volume {
    /// Why operators' commands can't be obeyed: another host may serve it.
    pub(super) fn is_elsewhere(&self) -> Option<CommandError> {
        let moves = self.moves.as_ref().filter(|moves| !moves.is_owner())?;
        let message = format!(
            "volume {:?} is a standby: {} may serve it",
            self.config.name, moves.peer.address
        );
        let hint = "say it there, or take it here: cinnabar migrate in NAME --take";
        Some(CommandError::new(CommandErrorKind::Busy, message, hint))
    }
}

impl DataPlane {
    /// What the status says of a volume that may move.
    pub(super) fn migration_status(&self, key: usize) -> Option<MigrationStatus> {
        let moves = self.volumes[key].moves.as_ref()?;
        let held = self.waiting.iter().filter(|waiting| waiting.is_of(key)).count();
        Some(MigrationStatus {
            role: match moves.own.role() {
                Role::Owner => MigrationRole::Owner,
                Role::Giving => MigrationRole::Giving,
                Role::Standby => MigrationRole::Standby,
                Role::Taking => MigrationRole::Taking,
            },
            peer: moves.peer.address.clone(),
            epoch: moves.own.record().epoch,
            given: moves.given,
            taken: moves.taken,
            last_take: moves.last_take,
            held: held as u64,
            reason: moves.reason.clone(),
            warm: moves.warm_status(),
        })
    }

    /// Whether the engines have it as a standby.
    pub(super) fn stands_by(&self, key: usize) -> bool {
        self.volumes[key].moves.as_ref().is_some_and(|moves| moves.stands_by())
    }
}
