//! Volumes that move between two hosts: what operators and the other daemon ask for.

use super::Control;
use super::api::{Answer, VolumeName, from_json, report_of};
use super::describe::{Asks, ChangesNamed};
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Json;
use cinnabar_config::SettingError;
use cinnabar_config::messages::{Given, Message};
use cinnabar_config::peer::read_peer;
use cinnabar_config::status::report::VolumeReport;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};

/// Longest wait for a volume to be drained for the other host: it is drained all the same after that.
const GIVE_WAIT_MAX: Duration = Duration::from_mins(2);

/// Longest wait for the data plane to say who it is.
const IDENTITY_WAIT_MAX: Duration = Duration::from_secs(5);

/// Answer of `GET /v1/identity`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IdentityBody {
    /// A number in hexadecimal that each start draws.
    pub id: String,
}

/// Query of `POST /v1/volumes/{name}/give`.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct GiveQuery {
    /// `id` of the daemon that asks, as its `GET /v1/identity` says; absent: of an earlier release.
    from: Option<String>,
}

/// Body of `POST /v1/volumes/{name}/give`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GiveInput {
    /// The highest epoch of the volume that the asking host knows.
    pub epoch: u64,
}

/// Whether the asking host may have a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GivenBody {
    /// This host does not own it, and will not before it has asked the other one. All that it has
    /// acknowledged is durable at the back end.
    pub free: bool,
    /// The highest epoch known here.
    pub epoch: u64,
    /// If it is free: the last epoch in which this host was the owner. While that stays the same, so does
    /// what the asking host has cached.
    pub owned: u64,
    /// Why the volume stays here, or empty.
    pub reason: String,
}

/// Body of `POST /v1/volumes/{name}/migrate-out`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MigrateOutInput {
    /// `http://HOST:PORT` of the daemon on the other host.
    pub to: String,
    /// Path of the token for changes at that daemon; relative paths are taken from the configuration's
    /// folder.
    pub token_file: String,
}

/// Body of `POST /v1/volumes/{name}/migrate-in`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MigrateInInput {
    /// `http://HOST:PORT` of the daemon on the other host; absent: as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Path of the token for changes at that daemon, with `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<String>,
    /// Take it now, not at the first write of a guest.
    #[serde(default)]
    pub take: bool,
    /// With `take`: the other daemon is dead, or it is certain in another way that it does not serve the
    /// volume and will not.
    #[serde(default)]
    pub force: bool,
}

/// Which daemon this is
///
/// Other daemons ask this, to know who asks them for a volume.
#[utoipa::path(get, path = "/v1/identity", tag = "daemon", operation_id = "identity",
    responses((status = 200, description = "Its number", body = IdentityBody), Asks))]
pub(super) async fn identity(State(control): State<Arc<Control>>) -> Answer<Json<IdentityBody>> {
    let id = control.ask(IDENTITY_WAIT_MAX, Message::Identity).await?;
    Ok(Json(IdentityBody { id }))
}

/// Let go of a volume that may move, for the other host
///
/// Other daemons ask this; 409 if it is not the one to which the volume may move. Answered when this host does
/// not own the volume; all requests of its guests wait from then on, or are reads of the back end.
#[utoipa::path(post, path = "/v1/volumes/{name}/give", tag = "volumes", operation_id = "give_volume",
    params(("name" = String, Path, description = "The volume"), GiveQuery),
    request_body(content = GiveInput, content_type = "application/json"),
    responses((status = 200, description = "Whether it is free", body = GivenBody), ChangesNamed))]
pub(super) async fn give(
    State(control): State<Arc<Control>>,
    name: VolumeName,
    query: Result<Query<GiveQuery>, QueryRejection>,
    body: Bytes,
) -> Answer<Json<GivenBody>> {
    let Path(name) = name?;
    let Query(GiveQuery { from }) = query?;
    let GiveInput { epoch } = from_json(&body)?;
    // Not one change at a time: an operator's command may wait for this very volume.
    let message = |answer| Message::Give { name, epoch, from, answer };
    let Given { free, epoch, owned, reason } = control.ask(GIVE_WAIT_MAX, message).await?;
    Ok(Json(GivenBody { free, epoch, owned, reason }))
}

/// A volume that is served here may move to another host
#[utoipa::path(post, path = "/v1/volumes/{name}/migrate-out", tag = "volumes",
    operation_id = "migrate_out",
    params(("name" = String, Path, description = "The volume")),
    request_body(content = MigrateOutInput, content_type = "application/json"),
    responses((status = 200, description = "It may", body = VolumeReport), ChangesNamed))]
pub(super) async fn out(
    State(control): State<Arc<Control>>,
    name: VolumeName,
    body: Bytes,
) -> Answer<Json<VolumeReport>> {
    let Path(name) = name?;
    let input: MigrateOutInput = from_json(&body)?;
    let peer = read_peer(Some(&input.to), Some(&input.token_file), &control.base)?;
    let peer = peer.ok_or_else(|| {
        SettingError::new("to", "there is no other host", "name its daemon: http://HOST:PORT")
    })?;
    let _one_at_a_time = control.changes.lock().await;
    let message = |answer| Message::MigrateOut { name: name.clone(), peer, answer };
    control.ask(control.change_wait_max, message).await?;
    Ok(Json(report_of(&control, &name).await?))
}

/// A volume comes from another host
#[utoipa::path(post, path = "/v1/volumes/{name}/migrate-in", tag = "volumes",
    operation_id = "migrate_in",
    params(("name" = String, Path, description = "The volume")),
    request_body(content = MigrateInInput, content_type = "application/json"),
    responses((status = 200, description = "It stands by, or with `take` this host owns it",
        body = VolumeReport), ChangesNamed))]
pub(super) async fn into(
    State(control): State<Arc<Control>>,
    name: VolumeName,
    body: Bytes,
) -> Answer<Json<VolumeReport>> {
    let Path(name) = name?;
    let input: MigrateInInput = from_json(&body)?;
    let peer = read_peer(input.from.as_deref(), input.token_file.as_deref(), &control.base)?;
    if input.force && !input.take {
        let hint = "force is a way to take a volume";
        return Err(SettingError::new("force", "force without take", hint).into());
    }
    let _one_at_a_time = control.changes.lock().await;
    if peer.is_some() {
        let message = |answer| {
            let (name, peer) = (name.clone(), peer.clone());
            Message::MigrateIn { name, peer, take: None, answer }
        };
        control.ask(control.change_wait_max, message).await?;
    }
    if input.take || peer.is_none() {
        let take = input.take.then_some(input.force);
        let message = |answer| Message::MigrateIn { name: name.clone(), peer: None, take, answer };
        control.ask(control.change_wait_max, message).await?;
    }
    Ok(Json(report_of(&control, &name).await?))
}

/// A volume that is served here may not move any more
#[utoipa::path(post, path = "/v1/volumes/{name}/migrate-cancel", tag = "volumes",
    operation_id = "migrate_cancel",
    params(("name" = String, Path, description = "The volume")),
    responses((status = 204, description = "It stays here"), ChangesNamed))]
pub(super) async fn cancel(
    State(control): State<Arc<Control>>,
    name: VolumeName,
) -> Answer<StatusCode> {
    let Path(name) = name?;
    let _one_at_a_time = control.changes.lock().await;
    let message = |answer| Message::MigrateCancel { name, answer };
    control.ask(control.change_wait_max, message).await?;
    Ok(StatusCode::NO_CONTENT)
}
