//! What operators and the other host say.

use super::record::{self, Kept};
use super::work::MoveStep;
use super::{Moves, Swap, fence_of};
use crate::dataplane::plane::DataPlane;
use cinnabar_config::messages::{AnswerTo, CommandError, CommandErrorKind, Given, Peer};
use cinnabar_config::peer::check_movable;
use cinnabar_driver::Ownership;
use cinnabar_driver::ownership::{Asker, EPOCH_MAX, Event, Role};
use cinnabar_driver::write_mode::Route;
use cinnabar_engine::units::Instant;
use std::path::PathBuf;

/// A volume becomes one that may move, or ends to be one, once that is durable.
pub(in super::super) enum MoveChange {
    Out(Peer, AnswerTo<()>),
    Cancel(AnswerTo<()>),
    /// It is removed, which ends behind this: one that is added by that name reads what is kept.
    Forget,
}

/// A daemon asks for a volume.
pub(in super::super) struct Asking {
    /// The highest epoch that it knows.
    pub(in super::super) epoch: u64,
    /// Which daemon it is, if it says so.
    pub(in super::super) from: Option<String>,
    pub(in super::super) answer: AnswerTo<Given>,
}

fn busy(message: String, hint: &str) -> CommandError {
    CommandError::new(CommandErrorKind::Busy, message, hint)
}

impl DataPlane {
    pub(super) fn moves_folder(&self) -> PathBuf {
        self.claims_dir.with_file_name("moves")
    }

    pub(super) fn key_by_name(&self, name: &str) -> Option<usize> {
        self.volumes.iter().find(|(_, volume)| volume.config.name == name).map(|(key, _)| key)
    }

    /// A daemon asks for a volume: the other host's, or one that is none of the two.
    pub(in super::super) fn give(&mut self, now: Instant, name: &str, asking: Asking) {
        let epoch = asking.epoch;
        let found = self.key_by_name(name).filter(|_| self.stop.is_none());
        let changes = found.is_some_and(|key| self.volumes[key].move_change.is_some());
        let moves = found.and_then(|key| Some((key, self.volumes[key].moves.as_mut()?)));
        let error = match (found, moves) {
            _ if self.stop.is_some() => CommandError::gone(),
            (_, Some((_, moves))) if moves.ends => {
                busy(format!("volume {name:?} is being removed"), "try again in a moment")
            }
            // Whether it may move at all, and to which host, is not known before that is durable.
            (_, Some(_)) if changes => {
                busy(format!("volume {name:?} is changing"), "try again in a moment")
            }
            (_, Some((key, _))) if epoch < EPOCH_MAX => return self.give_to(now, key, asking),
            (_, Some(_)) => {
                let message = format!("epoch: {epoch} is none");
                CommandError::new(CommandErrorKind::Invalid, message, "see docs/guide/moving.md")
            }
            (Some(_), None) => busy(
                format!("volume {name:?} is served here, and may not move"),
                "say so first, on the host that has it: cinnabar migrate out NAME --to URL",
            ),
            (None, None) if self.absents.reason(name).is_some() => busy(
                format!("volume {name:?} is waiting here, not served yet"),
                "remove it there, or make it a standby: cinnabar migrate in NAME --from URL",
            ),
            (None, None) => {
                let message = format!("there is no volume {name:?}");
                let hint = "`cinnabar volume list` shows those there are";
                CommandError::new(CommandErrorKind::NotFound, message, hint)
            }
        };
        let _ = asking.answer.send(Err(error));
    }

    /// Gives it to the other host. Who says a number that is not known as its is looked up by asking it.
    fn give_to(&mut self, now: Instant, key: usize, asking: Asking) {
        let moves = self.moving(key);
        if asking.from.is_some() && asking.from != moves.peer_id {
            if moves.asking.is_some() {
                let error = busy("another daemon asks just now".into(), "try again in a moment");
                return drop(asking.answer.send(Err(error)));
            }
            moves.asking = Some(asking);
            let peer = moves.peer.clone();
            return self.start_move(key, MoveStep::Identify(peer));
        }
        let asker = if asking.from.is_some() { Asker::Peer } else { Asker::Unknown };
        if !moves.own.may_ask(asker) {
            let reason = "the daemon that asks does not say which it is";
            return self.refuse_stranger(key, asking, reason);
        }
        moves.asked.push(asking.answer);
        moves.note_asked(asking.epoch);
        self.move_on(now, key, Event::Asked(asking.epoch));
    }

    /// The other host has said who it is, or nothing of use.
    pub(super) fn identified(&mut self, now: Instant, key: usize, result: Result<String, String>) {
        let moves = self.moving(key);
        let Some(mut asking) = moves.asking.take() else { return };
        let (asker, reason) = match result {
            Ok(id) if asking.from.as_ref() == Some(&id) => {
                moves.peer_id = Some(id);
                (Asker::Peer, String::new())
            }
            Ok(_) => (Asker::Stranger, "another daemon asks".into()),
            Err(reason) => (Asker::Unknown, format!("that one does not say who it is: {reason}")),
        };
        if !moves.own.may_ask(asker) {
            return self.refuse_stranger(key, asking, &reason);
        }
        // Without a number it is not looked up again.
        asking.from = asking.from.filter(|_| asker == Asker::Peer);
        let name = self.volumes[key].config.name.clone();
        self.give(now, &name, asking);
    }

    fn refuse_stranger(&self, key: usize, asking: Asking, reason: &str) {
        let volume = &self.volumes[key];
        let (volume, moves) = (&volume.config.name, volume.moves.as_ref().expect("it moves"));
        let peer = &moves.peer.address;
        tracing::warn!(volume, peer, reason, "a daemon that is not known as the other host's asks");
        let message = format!("volume {volume:?} is given to the daemon at {peer} alone: {reason}");
        let hint = "each of two daemons names the other one, and reaches it; update an older one";
        let _ = asking.answer.send(Err(busy(message, hint)));
    }

    /// A volume may move from now on.
    pub(in super::super) fn migrate_out(&mut self, name: &str, peer: Peer, answer: AnswerTo<()>) {
        let checked = self.find(name).and_then(|key| self.check_out(key).map(|()| key));
        let key = match checked {
            Ok(key) => key,
            Err(error) => return drop(answer.send(Err(error))),
        };
        let known = match &self.volumes[key].moves {
            // The other host may be a standby, which would be told that nobody serves the volume.
            Some(moves) if moves.peer.address != peer.address => {
                let message = format!("volume {name:?} moves to and from {}", moves.peer.address);
                let hint = "remove it there, and say here: cinnabar migrate cancel NAME";
                return drop(answer.send(Err(busy(message, hint))));
            }
            Some(moves) => Ok(moves.own.record()),
            // It is small, and beside the daemon's own state: no storage of a guest's can make it hang.
            None => record::read(&self.moves_folder(), name)
                .map(|kept| Ownership::first_record(kept.record)),
        };
        let record = match known {
            Ok(record) => record,
            Err(error) => {
                let path = record::path_of(&self.moves_folder(), name);
                let message = format!("{}: {error}", path.display());
                let hint = "delete it: the volume is served here";
                let error = CommandError::new(CommandErrorKind::Io, message, hint);
                return drop(answer.send(Err(error)));
            }
        };
        let kept = Kept { record, peer: Some(peer.clone()) };
        self.volumes[key].move_change = Some(MoveChange::Out(peer, answer));
        let (folder, name) = (self.moves_folder(), name.to_owned());
        self.start_move(
            key,
            MoveStep::Record { folder, name, kept, disown: None, by_command: true },
        );
    }

    fn check_out(&self, key: usize) -> Result<(), CommandError> {
        let volume = &self.volumes[key];
        let name = &volume.config.name;
        let invalid = |message: String, hint: &str| {
            Err(CommandError::new(CommandErrorKind::Invalid, message, hint))
        };
        self.check_no_move_change(key)?;
        if let Err(error) = check_movable(&volume.config) {
            return invalid(error.message, &error.hint);
        }
        if volume.writes.route() != Route::Engine || volume.writes.changes() {
            let message = format!("volume {name:?} is leaving mode write-back");
            return Err(busy(message, "its writes have to be at the back end first: try again"));
        }
        if let Some(reason) = volume.io.disk.may_read_old() {
            return invalid(
                format!("volume {name:?} can't move: {reason}"),
                "remove it here when its guest is shut down, and add it there",
            );
        }
        if volume.thread != 0 {
            return invalid(
                format!("volume {name:?} is served by data thread {}", volume.thread),
                "volumes that move are served by the first: give it migrate_peer and \
                 migrate_token_file in the configuration, or set threads = 1",
            );
        }
        Ok(())
    }

    /// What an operator wants is durable, or could not be made so.
    pub(super) fn move_changed(&mut self, key: usize, result: Result<(), String>, kept: &Kept) {
        let failed = |reason: String| {
            let hint = "see the state folder's disk";
            Err(CommandError::new(CommandErrorKind::Io, reason, hint))
        };
        let volume = &mut self.volumes[key];
        match (volume.move_change.take(), result) {
            (Some(MoveChange::Out(peer, answer)), Ok(())) => {
                volume.config.peer = Some(peer.clone());
                if let Some(moves) = &mut volume.moves {
                    moves.peer = peer;
                } else {
                    let moves = Moves::owner(&volume.config, peer, kept.record);
                    volume.moves = Some(Box::new(moves));
                }
                let (volume, fence) = (&volume.config.name, fence_of(&volume.config));
                tracing::info!(volume, ?fence, "the volume may move");
                let _ = answer.send(Ok(()));
            }
            (Some(MoveChange::Cancel(answer)), Ok(())) => {
                (volume.moves, volume.config.peer) = (None, None);
                tracing::info!(volume = volume.config.name, "the volume stays on this host");
                let _ = answer.send(Ok(()));
            }
            (Some(MoveChange::Out(_, answer) | MoveChange::Cancel(answer)), Err(reason)) => {
                let _ = answer.send(failed(reason));
            }
            (Some(MoveChange::Forget), result) => {
                if let Err(reason) = result {
                    let volume = &volume.config.name;
                    tracing::error!(volume, reason, "added again, the volume begins as a standby");
                }
                self.forget_if_quiet(key);
            }
            (None, _) => {}
        }
    }

    /// A volume comes from the other host.
    pub(in super::super) fn migrate_in(
        &mut self,
        now: Instant,
        name: &str,
        peer: Option<Peer>,
        take: Option<bool>,
        answer: AnswerTo<()>,
    ) {
        let known = self.key_by_name(name);
        if let Some((key, moves)) =
            known.and_then(|key| Some((key, self.volumes[key].moves.as_mut()?)))
        {
            if peer.is_some_and(|peer| peer.address != moves.peer.address) {
                let message = format!("volume {name:?} moves to and from {}", moves.peer.address);
                let hint = "remove it, and add it with the other address";
                return drop(answer.send(Err(busy(message, hint))));
            }
            let Some(force) = take.filter(|_| !moves.is_owner()) else {
                return drop(answer.send(Ok(())));
            };
            moves.held_since.get_or_insert(now);
            moves.takers.push(answer);
            let event = if force { Event::Force } else { Event::Want };
            return self.move_on(now, key, event);
        }
        let error = match (known, peer) {
            (None, Some(peer)) if self.absents.reason(name).is_some() => {
                return self.try_as_standby(now, name, peer, answer);
            }
            (None, None) if self.absents.reason(name).is_some() => CommandError::new(
                CommandErrorKind::Invalid,
                format!("volume {name:?} is waiting, not served yet, and has no other host"),
                "name it: --from URL --token-file PATH",
            ),
            (Some(_), _) => CommandError::new(
                CommandErrorKind::Exists,
                format!("volume {name:?} is served here already"),
                "it may leave: cinnabar migrate out NAME --to URL",
            ),
            (None, _) => CommandError::new(
                CommandErrorKind::NotFound,
                format!("there is no volume {name:?}"),
                "add it as a standby: cinnabar volume add NAME --backend ... --migrate-peer URL",
            ),
        };
        let _ = answer.send(Err(error));
    }

    /// A volume stays here.
    pub(in super::super) fn migrate_cancel(&mut self, name: &str, answer: AnswerTo<()>) {
        let checked = self.find(name).and_then(|key| match &self.volumes[key] {
            volume if volume.move_change.is_some() => {
                Err(busy(format!("volume {name:?} is changing"), "try again in a moment"))
            }
            // Reads that have come to the standby wait for a look at the claim.
            volume if volume.moves.as_ref().is_some_and(|moves| moves.looks) => {
                Err(busy(format!("volume {name:?} was taken just now"), "try again in a moment"))
            }
            volume if volume.moves.is_none() => Err(CommandError::new(
                CommandErrorKind::Invalid,
                format!("volume {name:?} does not move"),
                "`cinnabar migrate status` shows those that do",
            )),
            _ => Ok(key),
        });
        let key = match checked {
            Ok(key) => key,
            Err(error) => return drop(answer.send(Err(error))),
        };
        let moves = self.volumes[key].moves.as_ref().expect("just seen");
        let kept = Kept { record: moves.own.record(), peer: None };
        self.volumes[key].move_change = Some(MoveChange::Cancel(answer));
        let (folder, name) = (self.moves_folder(), name.to_owned());
        self.start_move(
            key,
            MoveStep::Record { folder, name, kept, disown: None, by_command: true },
        );
    }

    /// The key of a standby that can be removed now; by force while requests wait for the volume, too.
    pub(in super::super) fn removable_standby(&self, name: &str, force: bool) -> Option<usize> {
        let key = self.key_by_name(name).filter(|_| self.stop.is_none())?;
        let volume = &self.volumes[key];
        let moves = volume.moves.as_ref()?;
        let waits = self.waiting.iter().any(|waiting| waiting.is_of(key));
        let idle = (moves.own.reads_through() && !waits)
            // Between two attempts to take it.
            || (force && moves.own.role() == Role::Standby && moves.swap == Swap::None);
        let idle = idle && volume.life.serving().is_some();
        (idle && !moves.ends && moves.leaving.is_none()).then_some(key)
    }

    /// A volume is removed: what is kept of its owners stays, and no daemon begins with it as a standby.
    pub(in super::super) fn forget_move(&mut self, key: usize) {
        let name = self.volumes[key].config.name.clone();
        let Some(moves) = self.volumes[key].moves.as_mut() else { return };
        moves.ends = true;
        let kept = Kept { record: moves.own.record(), peer: None };
        let asking = moves.asking.take().map(|asking| asking.answer);
        for asked in std::mem::take(&mut moves.asked).into_iter().chain(asking) {
            let error = busy(format!("volume {name:?} is being removed"), "try again in a moment");
            let _ = asked.send(Err(error));
        }
        self.volumes[key].move_change = Some(MoveChange::Forget);
        let folder = self.moves_folder();
        self.start_move(
            key,
            MoveStep::Record { folder, name, kept, disown: None, by_command: true },
        );
    }

    /// What is being made durable of a volume's way must not come behind its removal.
    pub(in super::super) fn check_no_move_change(&self, key: usize) -> Result<(), CommandError> {
        let volume = &self.volumes[key];
        if volume.move_change.is_none() {
            return Ok(());
        }
        let message = format!("volume {:?} is changing", volume.config.name);
        Err(busy(message, "try again in a moment"))
    }

    /// Whether the mode of a volume may change now.
    pub(in super::super) fn check_mode_may_change(&self, key: usize) -> Result<(), CommandError> {
        let volume = &self.volumes[key];
        if volume.moves.is_none() && volume.move_change.is_none() {
            return Ok(());
        }
        let message = format!("volume {:?} may move: its mode stays", volume.config.name);
        Err(busy(message, "end the migration first: cinnabar migrate cancel NAME"))
    }
}
