//! The configuration file read again while the daemon serves: `cinnabar reload` and SIGHUP.
//!
//! The whole file is checked before anything is changed. Then what can change is changed (module `plan`),
//! in the turn of one command; everything else that differs is named.

mod carry;
mod check;
mod plan;
pub mod report;
#[cfg(test)]
mod tests;

use self::plan::{Plan, Step, Wants, plan};
use self::report::{
    ChangeReport, KeptReason, ReloadAction, ReloadInput, ReloadReport, ReloadState,
};
use super::Control;
use super::api::{Answer, from_json};
use super::configured::{Configured, volume_of};
use super::describe::Changes;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::Json;
use cinnabar_config::Config;
use cinnabar_config::messages::{CommandError, CommandErrorKind, DataStatus, VolumeConfig};
use std::fmt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

/// Read the configuration file again, and change what can be changed
///
/// The file is checked as a whole first: if something is wrong with it nothing is changed, and the
/// error names the line. What needs a restart is named and not changed. A key of a volume or the
/// manager that can change counts if its value in the file is another one than when the file was last
/// read, so that a change by command stays until then. Single changes may fail; they are tried again by
/// the next reload.
#[utoipa::path(post, path = "/v1/reload", tag = "daemon", operation_id = "reload",
    request_body(content = ReloadInput, content_type = "application/json"),
    responses((status = 200, description = "What was changed, and what was not", body = ReloadReport), Changes))]
pub(super) async fn reload(
    State(control): State<Arc<Control>>,
    body: Bytes,
) -> Answer<Json<ReloadReport>> {
    Ok(Json(control.reload(from_json(&body)?).await?))
}

/// Learns how reloads go.
pub trait ReloadListener: Send + Sync + fmt::Debug {
    /// The file was read again, or not. Must not wait.
    fn reloaded(&self, result: Result<&ReloadReport, &CommandError>);
}

/// The file as it is now, with what follows from it.
struct Again {
    new: Box<Config>,
    plan: Plan,
    warnings: Vec<String>,
}

impl Control {
    /// Reads the configuration file again and changes what can be changed. It is done to its end, also
    /// if nobody waits for the answer any more.
    ///
    /// # Errors
    /// If nothing was changed: something is wrong with the file, or it asks for what can't be done.
    pub async fn reload(
        self: &Arc<Self>,
        input: ReloadInput,
    ) -> Result<ReloadReport, CommandError> {
        self.commands()?;
        self.configured()?;
        let turn = self.turn().await;
        let control = Arc::clone(self);
        let done = tokio::spawn(async move {
            let result = control.reload_in_turn(input).await;
            // Not over the last words of a daemon that stops.
            let told = control.reload_listener.get().filter(|_| control.commands().is_ok());
            if let Some(listener) = told.filter(|_| !input.dry_run) {
                listener.reloaded(result.as_ref());
            }
            drop(turn);
            if let Err(error) = &result {
                let (reason, hint) = (&error.message, &error.hint);
                tracing::error!("the configuration is not read again: {reason} (hint: {hint})");
            }
            result
        });
        done.await.unwrap_or_else(|_| Err(CommandError::gone()))
    }

    async fn reload_in_turn(
        self: &Arc<Self>,
        input: ReloadInput,
    ) -> Result<ReloadReport, CommandError> {
        let was = self.configured()?;
        let now = self.status().await?;
        // Its files are looked at by another thread: this one serves all operators.
        let looks = {
            let was = was.clone();
            move || look(&was, &now, input.remove_volumes)
        };
        let Again { new, plan, warnings } = self.with_files(looks).await??;
        let mut report = ReloadReport {
            file: path_of(&was).display().to_string(),
            dry_run: input.dry_run,
            changes: plan.steps.iter().map(planned).collect(),
            restart: plan.restart,
            kept: plan.kept,
            warnings,
        };
        if !input.dry_run {
            self.carry_out(&plan.steps, &mut report.changes).await;
            report.warnings.extend(self.reload_tls().await);
            let read = settle(was, *new, &plan.steps, &report);
            self.note(|configured| *configured = read);
            tell(&report);
            self.observer.look_soon();
        }
        Ok(report)
    }
}

fn path_of(was: &Configured) -> &Path {
    was.running.path.as_ref().unwrap_or(&was.running.file)
}

/// Reads the file, checks it, and finds what follows from it. Waits for files.
fn look(was: &Configured, now: &DataStatus, remove_volumes: bool) -> Result<Again, CommandError> {
    let mut new = cinnabar_config::load_again(path_of(was)).map_err(|error| {
        CommandError::new(CommandErrorKind::Invalid, error.to_string(), error.hint)
    })?;
    new.give(was.running.given);
    let is_block_device =
        std::fs::metadata(&new.cache.device).is_ok_and(|meta| meta.file_type().is_block_device());
    let plan = plan(was, &new, now, Wants { remove_volumes, is_block_device })?;
    let mut warnings = check::check(&plan, was, now)?;
    warnings.extend(new.warnings.iter().cloned());
    Ok(Again { new: Box::new(new), plan, warnings })
}

fn planned(step: &Step) -> ChangeReport {
    let (action, volume, keys) = match step {
        Step::StopWait(_) => (ReloadAction::SetControl, None, vec!["stop_wait_s"]),
        Step::Remove(name) => (ReloadAction::RemoveVolume, Some(name), Vec::new()),
        Step::Resize(_) => (ReloadAction::ResizeCache, None, vec!["size"]),
        Step::Manage(_, keys) => (ReloadAction::SetManager, None, keys.clone()),
        Step::Set(name, keys, ..) => (ReloadAction::SetVolume, Some(name), keys.clone()),
        Step::Add(volume) => (ReloadAction::AddVolume, Some(&volume.name), Vec::new()),
    };
    ChangeReport {
        action,
        volume: volume.cloned(),
        keys: keys.into_iter().map(str::to_owned).collect(),
        state: ReloadState::Planned,
        error: String::new(),
        hint: String::new(),
    }
}

/// What the daemon runs with now. What could not be done is not taken as read, so that the next reload
/// tries it again.
fn settle(was: Configured, new: Config, steps: &[Step], report: &ReloadReport) -> Configured {
    let Configured { running, read: old, resized_to } = was;
    let mut is = Configured { running, read: new, resized_to };
    for (step, told) in steps.iter().zip(&report.changes) {
        let failed = told.state == ReloadState::Failed;
        match step {
            Step::Remove(name) if failed => is.reads(name, volume_of(&old, name).cloned()),
            Step::Remove(name) => is.has_removed(name),
            Step::Resize(_) if failed => is.read.cache.size_bytes = old.cache.size_bytes,
            Step::Resize(bytes) => is.resized_to = Some(*bytes),
            Step::Manage(..) if failed => is.read.manager = old.manager,
            Step::Set(name, ..) if failed => is.reads(name, volume_of(&old, name).cloned()),
            Step::Add(volume) if failed => is.reads(&volume.name, None),
            Step::Add(volume) => is.has_added((**volume).clone()),
            Step::StopWait(_) | Step::Manage(..) | Step::Set(..) => {}
        }
    }
    // Served on until they are removed, and named until then.
    for kept in report.kept.iter().filter(|kept| kept.reason == KeptReason::NotInFile) {
        is.reads(&kept.volume, volume_of(&old, &kept.volume).cloned());
    }
    // What waits for a start.
    if report.restart.iter().any(|restart| restart.key == "cache.size") {
        is.read.cache.size_bytes = old.cache.size_bytes;
    }
    for waits in report.restart.iter().filter(|restart| restart.key == "volume") {
        is.reads(waits.name.as_deref().unwrap_or_default(), None);
    }
    let waits = |restart: &&report::RestartReport| {
        ["volume.mode", "volume.ack"].contains(&restart.key.as_str())
    };
    for name in report.restart.iter().filter(waits).filter_map(|restart| restart.name.as_deref()) {
        let before = volume_of(&old, name).map(|before| (before.mode, before.ack));
        let volume = volume_of(&is.read, name).cloned().zip(before);
        is.reads(name, volume.map(|(new, (mode, ack))| VolumeConfig { mode, ack, ..new }));
    }
    is
}

/// Tells the log.
fn tell(report: &ReloadReport) {
    for warning in &report.warnings {
        tracing::warn!("{warning}");
    }
    for change in &report.changes {
        if change.state == ReloadState::Failed {
            tracing::error!("configuration: {} (hint: {})", change.line(), change.hint);
        } else {
            tracing::info!("configuration: {}", change.line());
        }
    }
    for line in report.restart.iter().map(report::RestartReport::line) {
        tracing::warn!("configuration: {line}");
    }
    for line in report.kept.iter().map(report::KeptReport::line) {
        tracing::warn!("configuration: {line}");
    }
    let changes = report.changes.len();
    tracing::info!(file = report.file, changes, "the configuration was read again");
}
