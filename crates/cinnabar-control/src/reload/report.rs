//! What is said of a reload, for people and programs.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Body of `POST /v1/reload`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReloadInput {
    /// Say what would be done, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Remove volumes that have left the file; otherwise they are served on, and named. Nothing is
    /// changed if one of them has clients, or writes that its back end does not have.
    #[serde(default)]
    pub remove_volumes: bool,
}

/// What became of a configuration that was read again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReloadReport {
    /// The file.
    pub file: String,
    /// Nothing was changed: it was only asked what would be.
    pub dry_run: bool,
    /// What was changed, or would be.
    pub changes: Vec<ChangeReport>,
    /// What the file says that counts from the next start on.
    pub restart: Vec<RestartReport>,
    /// Volumes that are not served as the file says, because that takes a command.
    pub kept: Vec<KeptReport>,
    /// What is allowed but deserves a word.
    pub warnings: Vec<String>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeReport {
    /// What it is.
    pub action: ReloadAction,
    /// The volume, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The keys that have another value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// Whether it is done.
    pub state: ReloadState,
    /// Why it has failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// What would help.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

/// Kinds of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReloadAction {
    /// A volume is served.
    AddVolume,
    /// A volume is served no more.
    RemoveVolume,
    /// A volume has other settings.
    SetVolume,
    /// The cache gets another size; the status says how far that is.
    ResizeCache,
    /// Shares are managed in another way.
    SetManager,
    /// A setting of `[control]`.
    SetControl,
}

/// How far a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReloadState {
    /// It would be done.
    Planned,
    /// It is done.
    Done,
    /// It could not be done; the next reload tries it again.
    Failed,
}

/// A key that counts from the next start on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RestartReport {
    /// With its section, such as `cache.device` or `volume.backend`; the section alone if it came or went.
    pub key: String,
    /// The volume or the group of that section.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Why, where that is not plain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// A volume that is not served as the file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeptReport {
    /// The volume.
    pub volume: String,
    /// Why.
    pub reason: KeptReason,
}

/// Why a volume is not served as the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeptReason {
    /// It has left the file and is served on.
    NotInFile,
    /// It is in the file and was removed by command.
    RemovedByCommand,
}

impl RestartReport {
    pub(super) fn new(key: impl Into<String>) -> Self {
        Self { key: key.into(), ..Self::default() }
    }

    pub(super) fn named(key: &str, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::new(key) }
    }

    pub(super) fn because(key: &str, reason: &str) -> Self {
        Self { reason: reason.to_owned(), ..Self::new(key) }
    }

    /// One line.
    pub fn line(&self) -> String {
        let reason =
            if self.reason.is_empty() { String::new() } else { format!(" ({})", self.reason) };
        let Some(name) = &self.name else {
            return format!("{}: needs a restart{reason}", self.key);
        };
        match self.key.split_once('.') {
            Some((section, key)) => format!("{section} {name}: {key}: needs a restart{reason}"),
            None => format!("{} {name}: needs a restart{reason}", self.key),
        }
    }
}

impl KeptReport {
    pub(super) fn new(volume: &str, reason: KeptReason) -> Self {
        Self { volume: volume.to_owned(), reason }
    }

    /// One line.
    pub fn line(&self) -> String {
        let what = match self.reason {
            KeptReason::NotInFile => {
                "is not in the file any more and is served on (cinnabar reload --remove-volumes)"
            }
            KeptReason::RemovedByCommand => {
                "is in the file and was removed by command (cinnabar volume add, or a restart)"
            }
        };
        format!("volume {}: {what}", self.volume)
    }
}

impl ChangeReport {
    /// One line.
    pub fn line(&self) -> String {
        let keys = self.keys.join(", ");
        let volume = format!("volume {}", self.volume.as_deref().unwrap_or_default());
        let words = match self.action {
            ReloadAction::AddVolume => ["would be added", "added", "not added"],
            ReloadAction::RemoveVolume => ["would be removed", "removed", "not removed"],
            ReloadAction::ResizeCache => ["would be resized", "resizing", "not resized"],
            _ => ["would change", "changed", "not changed"],
        };
        let subject = match self.action {
            ReloadAction::AddVolume | ReloadAction::RemoveVolume => format!("{volume}:"),
            ReloadAction::ResizeCache => "cache.size:".to_owned(),
            ReloadAction::SetVolume => format!("{volume}: {keys}"),
            ReloadAction::SetManager => format!("manager: {keys}"),
            ReloadAction::SetControl => format!("control: {keys}"),
        };
        match self.state {
            ReloadState::Planned => format!("{subject} {}", words[0]),
            ReloadState::Done => format!("{subject} {}", words[1]),
            ReloadState::Failed => format!("{subject} {}: {}", words[2], self.error),
        }
    }
}

impl ReloadReport {
    /// Whether something could not be done.
    pub fn failures(&self) -> impl Iterator<Item = &ChangeReport> {
        self.changes.iter().filter(|change| change.state == ReloadState::Failed)
    }
}
