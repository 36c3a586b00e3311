//! Messages from the control plane, and the engine's answers to commands: volumes come, change
//! and go.

use super::background::{Finished, Opening, Task};
use super::disks::OpenedVolume;
use super::migrate::{Asking, MoveChange};
use super::plane::DataPlane;
use super::volume::{Change, Fault, Volume};
use cinnabar_backend::Memory;
use cinnabar_config::messages::{
    AnswerTo, CommandError, CommandErrorKind, Message, StartError, StartErrorKind, VolumeChange,
    VolumeConfig, VolumeMode,
};
use cinnabar_config::status::report::WarmthReport;
use cinnabar_driver::{EndError, EndStep, Phase};
use cinnabar_engine::plan::{Plan, VolumePlan};
use cinnabar_engine::units::{Instant, VolumeId};
use cinnabar_engine::volume::{ProofToken, Warmth};
use cinnabar_engine::{Answer, Command, Failure, Reply, RequestId};
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

/// Set in the ids of commands; those of guests' requests leave it free.
pub(super) const COMMAND: u64 = 1 << 63;
/// Time for a stop that nobody asked for: the control plane is gone.
const ORPHAN_DEADLINE: Duration = Duration::from_secs(30);

/// A command in the engine's hands.
pub(super) enum PendingCommand {
    Open,
    /// Of the volume of this key; the answer is for whoever asked, if not the start of the daemon.
    Attach(usize, Option<AnswerTo<()>>),
    /// Of the end of the volume of this key.
    End(usize),
    /// Of what its server may have lost, and which leaves. The seal has the answer to that.
    Discard,
    /// Asked at this time.
    Load(Instant),
    /// Of a device that is to be let go of.
    GiveUp,
    /// With another device in its place.
    Replace,
    /// Of the volume of this name, which is not attached.
    Forget(String, AnswerTo<()>),
    /// Of a standby that has ended.
    ForgetStandby,
    /// The volume of this key, attached as that, to so many bytes.
    Grow(usize, u64, u64, AnswerTo<u64>),
    /// The volume of this key, with another proof.
    Reproved(usize),
    /// Of the cache; by its number.
    Resize(u64),
    Close,
}

impl DataPlane {
    /// Sends the engines a command with the next batch.
    pub(super) fn command(&mut self, awaited: PendingCommand, command: &Command) {
        let id = RequestId(COMMAND | self.awaited.insert(awaited) as u64);
        let reply = self.shard_set.control(&mut self.data_thread, id, command);
        self.replies.extend(reply);
    }

    /// Takes messages and what the background threads have done.
    pub(super) fn hear(&mut self, now: Instant) {
        loop {
            match self.messages.try_recv() {
                Ok(message) => self.obey(now, message),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.begin_stop(now, ORPHAN_DEADLINE, None);
                    break;
                }
            }
        }
        while let Some(finished) = self.background.take() {
            match finished {
                Finished::Opened { result, attempt: Some(attempt), .. } => {
                    self.tried(now, attempt, result);
                }
                Finished::Opened { name, result, answer, .. } => self.opened(&name, result, answer),
                Finished::Taken { volume, proof } => self.seal(volume, proof),
                Finished::Proved { volume, result } => self.proved(now, volume, result),
                Finished::GenerationsBumped(result) => self.generations_bumped(now, result),
                Finished::DeviceOpened { id, result } => self.device_opened(id, result),
                Finished::Entrusted(result) => self.entrusted(result),
                Finished::Closed => {}
                Finished::Compared { subject, result } => self.compared(now, subject, result),
                Finished::Swept { subject, swept } => self.swept(subject, swept),
                Finished::Measured(sizes) => self.looked(&sizes),
                Finished::RoomKnown(asked, result) => {
                    self.room_known(asked, result);
                }
                Finished::Claimed { subject, result } => self.claimed(now, subject, result),
                Finished::Unclaimed(subject) => self.unclaimed(now, subject),
                Finished::Discarded { name, answer } => self.has_gone(&name, answer, Ok(())),
                Finished::Disowned { result, answer } => Self::disowned(result, answer),
                Finished::Moved { subject, what } => self.move_done(now, subject, what),
                Finished::Warm { task, what } => self.warm_done(now, task, what),
                Finished::Grown { volume, attachment, result, answer } => {
                    self.grown(volume, attachment, result, answer);
                }
            }
        }
    }

    fn obey(&mut self, now: Instant, message: Message) {
        match message {
            Message::Status(answer) => {
                let _ = answer.send(Ok(self.status()));
            }
            Message::AddVolume(config, answer) => self.add_volume(config, answer),
            Message::RemoveVolume { name, force, discard_dirty, answer } => {
                self.remove_volume(now, &name, (force, discard_dirty), answer);
            }
            Message::FlushVolume { name, answer } => self.flush_volume(now, &name, answer),
            Message::SetVolume { name, change, answer } => match self.set_volume(&name, change) {
                Ok((key, Some(mode))) => {
                    let by_operator = change.mode_from.is_none();
                    self.change_write_mode(now, key, (mode, by_operator), answer);
                }
                Ok((_, None)) => drop(answer.send(Ok(()))),
                Err(error) => drop(answer.send(Err(error))),
            },
            Message::FreeMode { name, answer } => {
                let found = self.volumes.iter().find(|(_, volume)| volume.config.name == name);
                let was = found.is_some_and(|(_, volume)| volume.mode_by_operator);
                if let Some(key) = found.map(|(key, _)| key) {
                    self.volumes[key].mode_by_operator = false;
                }
                let _ = answer.send(Ok(was));
            }
            Message::AdoptTargets { targets, answer } => {
                self.adopt_targets(&targets);
                let _ = answer.send(Ok(()));
            }
            Message::AdoptAdmission { admits, answer } => {
                self.adopt_admission(admits);
                let _ = answer.send(Ok(()));
            }
            Message::ResizeVolume { name, answer } => self.resize_volume(&name, answer),
            Message::Invalidate { name, range, answer } => {
                self.invalidate(now, &name, range, answer);
            }
            Message::ReplaceCache { new, answer } => self.replace_cache(new, answer),
            Message::ResizeCache { size_bytes, answer } => self.resize_cache(size_bytes, answer),
            Message::AbandonCache(answer) => self.abandon_cache(answer),
            Message::Record { names, answer } => {
                // Nobody waits any more: the recording ends with its first request.
                let _ = answer.send(self.record(now, names));
            }
            Message::EndRecording { id, answer } => {
                let _ = answer.send(self.end_recording(id));
            }
            Message::Identity(answer) => drop(answer.send(Ok(self.identity.clone()))),
            Message::Give { name, epoch, from, answer } => {
                self.give(now, &name, Asking { epoch, from, answer });
            }
            Message::Hot { name, epoch, after, limit, answer } => {
                self.hot(&name, epoch, (after, limit), answer);
            }
            Message::HotBlocks { name, epoch, blocks, answer } => {
                self.hot_blocks(&name, epoch, &blocks, answer);
            }
            Message::MigrateOut { name, peer, answer } => self.migrate_out(&name, peer, answer),
            Message::MigrateIn { name, peer, take, answer } => {
                self.migrate_in(now, &name, peer, take, answer);
            }
            Message::MigrateCancel { name, answer } => self.migrate_cancel(&name, answer),
            Message::Stop { deadline, answer } => self.begin_stop(now, deadline, Some(answer)),
        }
    }

    fn add_volume(&mut self, config: Box<VolumeConfig>, answer: AnswerTo<()>) {
        let known = self.volumes.iter().any(|(_, volume)| volume.config.name == config.name);
        let known = known || self.absents.reason(&config.name).is_some();
        if self.stop.is_some() {
            let _ = answer.send(Err(CommandError::gone()));
        } else if self.writes.is_going(&config.name) {
            let message = format!("volume {:?} is being removed", config.name);
            let hint = "try again in a moment";
            let _ = answer.send(Err(CommandError::new(CommandErrorKind::Busy, message, hint)));
        } else if known || self.opening.contains(&config.name) {
            let message = format!("volume {:?} exists", config.name);
            let hint = "choose another name, or remove that one first";
            let error = CommandError::new(CommandErrorKind::Exists, message, hint);
            let _ = answer.send(Err(error));
        } else if self.replacing.is_some() {
            let message = "the cache device is being replaced";
            let hint = "try again in a moment";
            let _ = answer.send(Err(CommandError::new(CommandErrorKind::Busy, message, hint)));
        } else {
            self.opening.push(config.name.clone());
            let (options, taken) = (self.open_options.clone(), self.taken());
            let keep = Some((self.ledger.clone(), self.cache.identity()));
            let (answer, attempt) = (Some(answer), None);
            let claims = self.known_claims();
            let opening = Opening { config, options, taken, claims, keep, answer, attempt };
            self.background.start(Task::Open(opening));
        }
    }

    /// A backend was opened in the background, or not.
    fn opened(
        &mut self,
        name: &str,
        result: Result<Box<OpenedVolume>, StartError>,
        answer: Option<AnswerTo<()>>,
    ) {
        self.opening.retain(|opening| opening != name);
        let error = match result {
            _ if self.stop.is_some() => CommandError::gone(),
            Ok(opened) => match self.install(*opened) {
                Ok(key) => return self.attach(key, answer),
                Err(error) => command_error(&error),
            },
            Err(error) => command_error(&error),
        };
        if let Some(answer) = answer {
            let _ = answer.send(Err(error));
        }
    }

    fn remove_volume(
        &mut self,
        now: Instant,
        name: &str,
        (force, discard_dirty): (bool, bool),
        answer: AnswerTo<()>,
    ) {
        let mut answer = Some(answer);
        if self.stop.is_none() && self.absents.reason(name).is_some() {
            if !self.remove_absent_from_log(name, discard_dirty, &mut answer) {
                self.remove_absent(name);
                let _ = answer.map(|answer| answer.send(Ok(())));
            }
            return;
        }
        let gives_up = |volume: &Volume| volume.writes.leaves() && discard_dirty;
        let leaving = self.leaving(name).filter(|key| force && !gives_up(&self.volumes[*key]));
        if let Some(key) = leaving {
            if let Some(answer) = answer {
                self.force_leaving(now, key, discard_dirty, answer);
            }
            return;
        }
        let draining = |volume: &Volume| volume.config.name == name && gives_up(volume);
        let leaving = self.volumes.iter().find(|(_, volume)| draining(volume)).map(|(key, _)| key);
        let leaving = leaving.filter(|_| self.stop.is_none());
        let standby = self.removable_standby(name, force);
        let found = leaving.or(standby).map_or_else(|| self.find_in_log(name), Ok);
        let result = found.and_then(|key| {
            self.check_no_move_change(key)?;
            let connections = if force { 0 } else { self.close_if_unused(key) };
            if connections > 0 {
                let message = format!("volume {name:?} has {connections} clients connected");
                let hint = "disconnect them, or use --force";
                return Err(CommandError::new(CommandErrorKind::Busy, message, hint));
            }
            Ok(key)
        });
        match result {
            Ok(key) => {
                self.forget_move(key);
                let is_in_log = self.remove_from_log(now, key, discard_dirty, &mut answer);
                let leaves = matches!(self.volumes[key].change, Change::Remove);
                if force && (leaves || !is_in_log) {
                    self.force_out(now, key, is_in_log && !discard_dirty);
                }
                if !is_in_log {
                    self.detach(key, answer);
                }
            }
            Err(error) => {
                let _ = answer.map(|answer| answer.send(Err(error)));
            }
        }
    }

    /// All but the mode, which takes its own way ([`DataPlane::change_write_mode`]); gives the one that is
    /// asked for.
    fn set_volume(
        &mut self,
        name: &str,
        change: VolumeChange,
    ) -> Result<(usize, Option<VolumeMode>), CommandError> {
        let key = self.find(name)?;
        if change.mode.is_some() {
            self.check_mode_may_change(key)?;
        }
        let mut config = self.volumes[key].config.clone();
        let by_operator = self.volumes[key].mode_by_operator;
        if change.mode_from.is_some_and(|from| from != config.mode || by_operator) {
            let message = format!("the mode of volume {name:?} was set meanwhile");
            return Err(CommandError::new(CommandErrorKind::Busy, message, "look at the status"));
        }
        if let Some(ack) = change.ack {
            self.check_memory(ack)?;
            config.ack = ack;
        }
        config.share_min = change.share_min.unwrap_or(config.share_min);
        config.share_max = change.share_max.unwrap_or(config.share_max);
        self.check_shares(&config, Some(key)).map_err(|error| command_error(&error))?;
        config.fill_limit_bytes = change.fill_limit_bytes.unwrap_or(config.fill_limit_bytes);
        let (min, max) = self.shares(&config);
        if let Some(volume) = self.volumes[key].life.id() {
            let plan = VolumePlan {
                share_min_blocks: Some(min),
                share_max_blocks: Some(max),
                fill_limit_bytes: Some(config.fill_limit_bytes),
                ..VolumePlan::unchanged(volume)
            };
            self.shard_set
                .adopt(&mut self.data_thread, &Plan { volumes: vec![plan], ..Plan::default() });
        }
        config.qos = change.qos.unwrap_or(config.qos);
        config.guest_iops_limit = change.guest_iops_limit.unwrap_or(config.guest_iops_limit);
        config.guest_bytes_limit = change.guest_bytes_limit.unwrap_or(config.guest_bytes_limit);
        self.volumes[key].config = config;
        self.change_qos(key);
        self.limit_guests(key);
        self.acknowledge(key);
        Ok((key, change.mode))
    }

    /// A volume that serves.
    pub(super) fn find(&self, name: &str) -> Result<usize, CommandError> {
        let found = self.volumes.iter().find(|(_, volume)| volume.config.name == name);
        match found {
            Some((_, volume)) if let Some(error) = volume.is_elsewhere() => Err(error),
            Some((key, volume))
                if volume.life.phase() == Phase::Serving
                    && !matches!(volume.change, Change::Remove) =>
            {
                Ok(key)
            }
            Some((_, volume)) => {
                let message = format!("volume {name:?} is coming or going");
                let hint = if volume.life.phase() == Phase::Leaving {
                    "try again in a moment; removed by --force it does not wait for its back end"
                } else {
                    "try again in a moment"
                };
                Err(CommandError::new(CommandErrorKind::Busy, message, hint))
            }
            None if self.opening.iter().any(|opening| opening == name) => {
                let message = format!("volume {name:?} is being opened");
                let hint = "try again in a moment";
                Err(CommandError::new(CommandErrorKind::Busy, message, hint))
            }
            None if self.absents.reason(name).is_some() => {
                let reason = self.absents.reason(name).unwrap_or_default();
                let message = format!("volume {name:?} is waiting, not served yet: {reason}");
                let hint = "it is served as soon as its back end and its address are there";
                Err(CommandError::new(CommandErrorKind::Busy, message, hint))
            }
            None => {
                let message = format!("there is no volume {name:?}");
                let hint = "`cinnabar volume list` shows those there are";
                Err(CommandError::new(CommandErrorKind::NotFound, message, hint))
            }
        }
    }

    /// Begins the end of a volume that serves: no more requests, then everything of its is finished
    /// and flushed.
    pub(super) fn detach(&mut self, key: usize, answer: Option<AnswerTo<()>>) {
        let Some(first) = self.volumes[key].life.leave() else {
            self.leaves_renewed(key, answer);
            return;
        };
        self.leave_group(key);
        let volume = &mut self.volumes[key];
        volume.renewal.cancel();
        volume.answer = answer;
        self.remove_exports(key);
        self.recordings.leave(key, self.stop.is_some());
        self.volumes[key].io.leave_manager();
        self.discard_lost(key);
        self.command(PendingCommand::End(key), &first);
    }

    /// The proof was taken: the engine may keep the blocks for the next start.
    fn seal(&mut self, key: usize, proof: Option<ProofToken>) {
        let command = self.volumes[key].life.proved(proof);
        self.command(PendingCommand::End(key), &command);
    }

    /// The engine has answered a command of a volume's end.
    fn end_answered(&mut self, key: usize, result: Result<(), Failure>) {
        match self.volumes[key].life.answered(result) {
            EndStep::Ask(command) => self.command(PendingCommand::End(key), &command),
            // It has written nothing, and nothing is cached.
            EndStep::TakeProof if self.stands_by(key) => self.seal(key, None),
            EndStep::TakeProof => {
                let disk = Arc::clone(&self.volumes[key].io.disk);
                let snap = self.snap_to_leave(key);
                self.background.start(Task::Take { volume: key, disk, snap });
            }
            EndStep::Gone(result) if self.is_swapped(key) => self.swapped_out(key, result.is_ok()),
            EndStep::Gone(Ok(())) => self.forget_if_quiet(key),
            // That is why it is renewed.
            EndStep::Gone(Err(_)) if self.volumes[key].is_renewed() => self.forget_if_quiet(key),
            EndStep::Gone(Err(EndError { what, failure })) => {
                let volume = &self.volumes[key].config.name;
                tracing::error!(volume, reason = %failure, "{what} failed; the volume's blocks are dropped");
                // One that was given up has more to say.
                self.volumes[key].failed.get_or_insert_with(|| Fault::End(failed(what, failure)));
                self.forget_if_quiet(key);
            }
        }
    }

    /// The engine has answered a command.
    pub(super) fn command_done(&mut self, now: Instant, reply: Reply<Memory>) {
        match self.awaited.remove((reply.id.0 & !COMMAND) as usize) {
            PendingCommand::Open => self.opened = Some(reply.result.map(drop)),
            PendingCommand::Attach(key, answer) => self.attached(now, key, answer, &reply.result),
            PendingCommand::End(key) => self.end_answered(key, reply.result.map(drop)),
            PendingCommand::Discard | PendingCommand::ForgetStandby => {}
            PendingCommand::Load(opened) => {
                let report = reply.result.and_then(|answer| match answer {
                    Answer::Loaded(report) => Ok(report),
                    _ => Err(Failure::Invalid),
                });
                self.loaded(now, opened, report);
            }
            PendingCommand::GiveUp => self.given_up(reply.result.map(drop)),
            PendingCommand::Replace => self.begun(now, reply.result.map(drop)),
            PendingCommand::Forget(name, answer) => {
                self.forgotten(name, reply.result.map(drop), answer);
            }
            PendingCommand::Grow(key, attachment, size_bytes, answer) => {
                self.has_grown(key, attachment, size_bytes, reply.result.map(drop), answer);
            }
            PendingCommand::Reproved(key) => self.reproved(key, reply.result.map(drop)),
            PendingCommand::Resize(number) => self.resized(number, reply.result.map(drop)),
            PendingCommand::Close => self.closed(now, reply.result.map(drop)),
        }
    }

    fn attached(
        &mut self,
        now: Instant,
        key: usize,
        answer: Option<AnswerTo<()>>,
        result: &Result<Answer<Memory>, Failure>,
    ) {
        match self.volumes[key].life.attached(result) {
            Ok((volume, warmth)) => {
                self.serve(now, key, volume, warmth);
                self.moved_in(now, key);
                if self.attached_again(now, key, Ok(())) && !self.is_detaching() {
                    return;
                }
                if self.is_detaching() {
                    // All others have been told to go while this one was on its way.
                    self.detach(key, answer);
                } else if let Some(answer) = answer {
                    let _ = answer.send(Ok(()));
                }
            }
            Err(error) if self.attached_again(now, key, Err(error)) => {}
            Err(error) if answer.is_none() && self.not_moved_in(now, key, error) => {}
            Err(error) => {
                self.remove_exports(key);
                let volume = &mut self.volumes[key];
                let opens = match std::mem::take(&mut volume.change) {
                    Change::Attach(answer) => answer,
                    _ => None,
                };
                volume.answer = answer.or(opens);
                volume.failed = Some(Fault::Attach(failed("attaching the volume", error)));
                self.admit_waiting(now, key);
                self.submit_early(now, key);
                self.forget_if_quiet(key);
            }
        }
    }

    fn serve(&mut self, now: Instant, key: usize, id: VolumeId, warmth: Warmth) {
        self.shard_set.bind(&mut self.data_thread, id, key);
        let volume = &self.volumes[key];
        let name = &volume.config.name;
        let (size_bytes, at) = (volume.io.disk.size_bytes(), volume.config.addresses());
        tracing::info!(volume = name, size_bytes, at, "serving: {}", WarmthReport::from(warmth));
        self.adopt_last_target(key);
        self.drop_lost_ranges(now);
        self.submit_early(now, key);
        if let Some(step) = self.volumes[key].writes.serves() {
            self.write_step(now, key, step);
        } else {
            self.admit_waiting(now, key);
            self.leave_log_if_unwanted(now, key);
        }
        // Behind what waited, and what is to be dropped first.
        self.open_gate(key, id);
        self.link_clones();
        self.settle_warmth(vec![key]);
        if self.volumes[key].life.is_returning() {
            self.drops_for_return(key);
        } else {
            self.sweep_snaps(key);
        }
    }

    /// Whether the engine has yet to answer for some volume.
    pub(super) fn is_attaching(&self) -> bool {
        self.volumes.iter().any(|(_, volume)| volume.life.phase() == Phase::Attaching)
    }

    /// The same of those that the engines were asked for.
    pub(super) fn is_asked_to_attach(&self) -> bool {
        let joins = |volume: &Volume| {
            matches!(volume.change, Change::Attach(_)) || volume.comparing.is_some()
        };
        let attaches = |volume: &Volume| volume.life.phase() == Phase::Attaching && !joins(volume);
        self.volumes.iter().any(|(_, volume)| attaches(volume))
    }

    /// Forgets a volume of which nothing is left and lets go of its disk, lock included, before
    /// anyone has the answer.
    pub(super) fn forget_if_quiet(&mut self, key: usize) {
        if !self.volumes.get(key).is_some_and(|volume| volume.life.is_over()) {
            return;
        }
        if matches!(self.volumes[key].move_change, Some(MoveChange::Forget)) {
            return;
        }
        let now = self.data_thread.clock.now();
        if self.stays_renewed(now, key) || self.stays_to_move(now, key) {
            return;
        }
        let volume = self.volumes.remove(key);
        let is_forced = self.forced.take(key, volume.number);
        // What the log has asked for in the meantime is not done.
        self.submit_early(now, key);
        self.writes.forget(key);
        // Its key may be another volume's soon: what waited for it must not be done there.
        self.admit_waiting(now, key);
        self.order.retain(|other| *other != key);
        self.shard_set.uninstall(&mut self.data_thread, key);
        // Also where it could not be attached, which is tried again and again.
        volume.io.leave_manager();
        drop(volume.io);
        tracing::info!(volume = volume.config.name, "detached");
        match (volume.answer, volume.failed) {
            // It was to be removed, not attached.
            (Some(answer), Some(Fault::Attach(_))) if is_forced => drop(answer.send(Ok(()))),
            (Some(answer), failed) => {
                let _ = answer.send(failed.map_or(Ok(()), |fault| Err(fault.error())));
            }
            // A configured one that could not be attached: perhaps later.
            (None, Some(fault)) if self.stop.is_none() && !is_forced => {
                self.becomes_absent(volume.config, fault.error().message);
            }
            (None, _) => {}
        }
    }
}

/// What it means to an operator that the engine could not do something.
pub(super) fn failed(what: &str, error: Failure) -> CommandError {
    let kind = match error {
        Failure::Io(_) => CommandErrorKind::Io,
        Failure::Limit => CommandErrorKind::Limit,
        _ => CommandErrorKind::Invalid,
    };
    CommandError::new(kind, format!("{what} failed: {error}"), "see the daemon's log")
}

/// The same for what could not be opened.
pub(super) fn command_error(error: &StartError) -> CommandError {
    let kind = match error.kind {
        StartErrorKind::BackendInUse
        | StartErrorKind::BackendTwice
        | StartErrorKind::AddressInUse
        | StartErrorKind::CacheInUse => CommandErrorKind::Busy,
        StartErrorKind::Io => CommandErrorKind::Io,
        StartErrorKind::Resources => CommandErrorKind::Limit,
        StartErrorKind::Cancelled => CommandErrorKind::Stopping,
        _ => CommandErrorKind::Invalid,
    };
    CommandError::new(kind, error.message.clone(), error.hint.clone())
}
