//! Changes by command that are written into the configuration file as well.
//!
//! What can be refused is refused before anything is changed: the file must be as it was read, the text
//! with the change must be right, and it is written beside the file already. When the volume has
//! changed, all that is left is to put that text in the file's place. If that fails, the answer says
//! that the change is live and not in the file.

use super::Control;
use super::api::Answer;
use super::configured::volume_of;
use cinnabar_config::diff::change_of;
use cinnabar_config::edit::{Edit, edited};
use cinnabar_config::replace::{ReplaceError, Staged};
use cinnabar_config::{Config, FileText, SettingError, of_text};
use cinnabar_messages::{CommandError, CommandErrorKind};
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;
use utoipa::IntoParams;

/// Query of a change of a volume.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PersistQuery {
    /// Write it into the configuration file as well.
    #[serde(default)]
    pub(super) persist: bool,
}

/// A text that is ready to take the file's place.
struct Ready {
    staged: Staged,
    new: Box<Config>,
    edit: Edit,
    path: PathBuf,
}

/// Carries out a change in its turn, and writes it into the file if there is an `edit`. Then it is
/// brought to its end even if the client leaves.
pub(super) async fn change(
    control: &Arc<Control>,
    edit: Option<Edit>,
    change: impl Future<Output = Answer<()>> + Send + 'static,
) -> Answer<()> {
    let turn = control.turn().await;
    let Some(edit) = edit else { return change.await };
    let control = Arc::clone(control);
    let done = tokio::spawn(async move {
        let _one_at_a_time = turn;
        change_and_write(&control, edit, change).await
    });
    done.await.unwrap_or_else(|_| Err(CommandError::gone().into()))
}

async fn change_and_write(
    control: &Control,
    edit: Edit,
    change: impl Future<Output = Answer<()>>,
) -> Answer<()> {
    // A daemon that starts or stops says so first.
    control.commands()?;
    let Some(ready) = stage(control, edit).await? else { return change.await };
    let Err(error) = change.await else { return Ok(place(control, ready).await?) };
    if !is_done_already(control, &ready).await {
        return Err(error.and("the configuration file is not changed"));
    }
    // A removal that has an error to tell and is one all the same: what it costs is not kept back.
    let is_news = matches!(ready.edit, Edit::Remove(_)) && !error.is_not_found();
    match (place(control, ready).await, is_news) {
        (Ok(()), true) => Err(error.and("it is out of the configuration file, too")),
        (Err(failed), true) => Err(error.and(&failed.to_string())),
        (placed, false) => Ok(placed?),
    }
}

/// Whether it is as after the change, and only the file is not: a command before this one did the rest, or this
/// one, with an error.
async fn is_done_already(control: &Control, ready: &Ready) -> bool {
    let Ok(now) = control.status().await else { return false };
    let served = now.volumes.iter().find(|volume| volume.config.name == ready.edit.volume());
    match (&ready.edit, served) {
        (Edit::Remove(_), None) => true,
        (Edit::Add(_), Some(served)) => {
            volume_of(&ready.new, ready.edit.volume()) == Some(&served.config)
        }
        _ => false,
    }
}

/// Writes the text beside the file; `None` if the file says so already.
async fn stage(control: &Control, edit: Edit) -> Result<Option<Ready>, CommandError> {
    let read = control.configured()?.read;
    control.with_files(move || stage_now(&read, edit)).await?
}

/// The same. Waits for files.
fn stage_now(read: &Config, edit: Edit) -> Result<Option<Ready>, CommandError> {
    let Some(FileText { path, text }) = &read.text else { return Ok(None) };
    let refused = |message: String, hint: String| {
        let message = format!("nothing is changed, for it can't be persisted: {message}");
        CommandError::new(CommandErrorKind::Invalid, message, hint)
    };
    let wrong =
        |error: SettingError| refused(format!("{}: {}", path.display(), error.message), error.hint);
    let right =
        |text: String| of_text(path, text).map_err(|error| refused(error.to_string(), error.hint));
    let old = right(text.clone())?;
    let has = volume_of(&old, edit.volume());
    match (&edit, has) {
        (Edit::Remove(_), None) => return Ok(None),
        (Edit::Add(input), Some(has)) => {
            if input.check(&read.base).as_ref() == Ok(has) {
                return Ok(None);
            }
            let message = format!("{} has another volume {:?}", path.display(), has.name);
            let hint = "take it out of the file, or add this one without --persist";
            return Err(refused(message, hint.into()));
        }
        _ => {}
    }
    let after = edited(text, &edit, &read.base).map_err(wrong)?;
    let new = Box::new(right(after.clone())?);
    let has = volume_of(&new, edit.volume());
    let is_meant = match &edit {
        Edit::Add(input) => input.check(&read.base).as_ref().ok() == has,
        Edit::Set { .. } => has.is_some(),
        Edit::Remove(_) => has.is_none(),
    };
    if !is_meant {
        let message = format!("{} would say something else", path.display());
        return Err(refused(message, "make the change with an editor".into()));
    }
    let staged = Staged::new(path, text, &after).map_err(|error| {
        let kind = kind_of(&error);
        let refused = refused(error.to_string(), error.hint().into());
        CommandError { kind, ..refused }
    })?;
    Ok(Some(Ready { staged, new, edit, path: path.clone() }))
}

/// Puts it in the file's place.
async fn place(control: &Control, ready: Ready) -> Result<(), CommandError> {
    let Ready { staged, new, edit, path } = ready;
    let name = edit.volume();
    let is = match edit {
        Edit::Add(_) => "served",
        Edit::Set { .. } => "changed",
        Edit::Remove(_) => "removed",
    };
    let failed = |kind, how: String, hint: &str| {
        let message = format!("volume {name:?} is {is}, but {how}");
        tracing::error!("{message}");
        CommandError::new(kind, message, hint)
    };
    let placed = control.with_files(move || staged.commit()).await.map_err(|error| {
        let how = format!("it is not known whether it is persisted: {}", error.message);
        failed(error.kind, how, "look at the file, and have it read: cinnabar reload")
    })?;
    if let Err(error) = placed {
        let hint = match error {
            // What was read does not have the change either.
            ReplaceError::Changed(_) => "edit the file: the change is not in it",
            _ => error.hint(),
        };
        return Err(failed(kind_of(&error), format!("not persisted: {error}"), hint));
    }
    tracing::info!(volume = name, file = %path.display(), "persisted");
    control.note(|configured| {
        let volume = volume_of(&new, name).cloned();
        let old = volume_of(&configured.read, name).cloned();
        let reads = match (&edit, old, volume) {
            // Keys that could not be changed when they were read stay so.
            (Edit::Set { keys, .. }, old, Some(volume)) => {
                let keys: Vec<_> = keys.iter().map(|(key, _)| *key).collect();
                old.map(|old| change_of(&keys, &old, &volume).1)
            }
            (.., volume) => volume,
        };
        configured.reads(name, reads);
        configured.read.text.clone_from(&new.text);
    });
    Ok(())
}

fn kind_of(error: &ReplaceError) -> CommandErrorKind {
    match error {
        ReplaceError::Changed(_) => CommandErrorKind::Busy,
        ReplaceError::NotAFile(_)
        | ReplaceError::Linked(_)
        | ReplaceError::Mounted(_)
        | ReplaceError::Listed(_) => CommandErrorKind::Invalid,
        ReplaceError::Owner { .. } | ReplaceError::Io { .. } => CommandErrorKind::Io,
    }
}

#[cfg(test)]
mod tests;
