//! The control API: HTTP and JSON under `/v1` on the control socket.
//!
//! Errors are `{"error": "...", "hint": "..."}`.

use super::describe::{self, Asks, Changes, ChangesNamed};
use super::observer::Observer;
use super::{Control, Phase, actions, events, history, migrate, policy, recordings, reload, warm};
pub use crate::access::ErrorBody;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Json, Response};
use axum::{Router, body::Bytes};
use cinnabar_config::checks::{check_beside, check_control, check_minimums, check_order_in};
use cinnabar_config::looks::Looks;
use cinnabar_config::messages::{
    CommandError, CommandErrorKind, DataStatus, Message, Share, VolumeConfig,
};
use cinnabar_config::status::report::{StatusReport, VolumeReport};
use cinnabar_config::volume::{check_ack, check_order};
use cinnabar_config::{ChangeInput, SettingError, VolumeInput};
use cinnabar_engine::seam::units::BLOCK_BYTES;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use utoipa::{IntoParams, OpenApi, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

/// Body of `GET /v1/ready`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReadyBody {
    /// Whether every volume answers.
    pub ready: bool,
    /// `starting`, `serving`, `stopping`, or `stuck`: a thread of the daemon does not turn.
    pub state: String,
}

/// Body of `GET /v1/version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionBody {
    /// Version of the daemon.
    pub version: String,
    /// Version of what is on the cache device.
    pub format_version: u32,
    /// The daemon's process.
    pub pid: u32,
}

/// Query of `DELETE /v1/volumes/{name}`.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RemoveQuery {
    /// Cut off clients that are attached.
    #[serde(default)]
    force: bool,
    /// Forget writes that the back end does not have yet; of a write group once all volumes with such writes are
    /// removed so.
    #[serde(default)]
    discard_dirty: bool,
}

/// The query of a change without parameters: one that is given is refused.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoQuery {}

/// What a handler fails with.
pub(super) struct Failed(StatusCode, ErrorBody);

pub(super) type Answer<T> = Result<T, Failed>;

/// The name in a path, unless that is not UTF-8.
pub(super) type VolumeName = Result<Path<String>, PathRejection>;

/// The routes, each with its description.
pub(super) fn routes() -> OpenApiRouter<Arc<Control>> {
    OpenApiRouter::with_openapi(describe::Frame::openapi())
        .routes(routes!(status))
        .routes(routes!(ready))
        .routes(routes!(version))
        .routes(routes!(describe::describe))
        .routes(routes!(reload::reload))
        .routes(routes!(list, add))
        .routes(routes!(change, remove))
        .routes(routes!(resize))
        .routes(routes!(actions::flush))
        .routes(routes!(actions::invalidate))
        .routes(routes!(migrate::identity))
        .routes(routes!(migrate::give))
        .routes(routes!(migrate::out))
        .routes(routes!(migrate::into))
        .routes(routes!(migrate::cancel))
        .routes(routes!(warm::list, warm::fetch))
        .routes(routes!(actions::replace))
        .routes(routes!(actions::resize))
        .routes(routes!(actions::abandon))
        .routes(routes!(recordings::begin))
        .routes(routes!(recordings::end))
        .routes(routes!(policy::plan, policy::apply))
        .routes(routes!(policy::explain))
        .routes(routes!(policy::pin, policy::unpin))
        .routes(routes!(policy::history))
        .routes(routes!(history::samples))
        .routes(routes!(events::events))
}

/// What daemons on other hosts ask.
pub(super) fn peer_routes() -> OpenApiRouter<Arc<Control>> {
    OpenApiRouter::new()
        .routes(routes!(migrate::identity))
        .routes(routes!(migrate::give))
        .routes(routes!(warm::list, warm::fetch))
}

/// The routes of the control socket.
pub fn router(control: Arc<Control>) -> Router {
    finished(routes(), control)
}

/// Routes with all that is around them.
pub(super) fn finished(routes: OpenApiRouter<Arc<Control>>, control: Arc<Control>) -> Router {
    Router::from(routes)
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(&control.observer), tell_of_changes))
        .with_state(control)
}

/// Those who listen to events learn at once what an operator has changed.
async fn tell_of_changes(
    State(observer): State<Arc<Observer>>,
    request: Request,
    next: Next,
) -> Response {
    // Another daemon that fetches blocks changes nothing here, many times a second.
    let reads = [Method::GET, Method::HEAD].contains(request.method())
        || warm::is_fetch(request.uri().path());
    let answer = next.run(request).await;
    if !reads && answer.status().is_success() {
        observer.look_soon();
    }
    answer
}

/// The cache and its volumes
#[utoipa::path(get, path = "/v1/status", tag = "daemon", operation_id = "status",
    responses((status = 200, description = "The status", body = StatusReport), Asks))]
async fn status(State(control): State<Arc<Control>>) -> Answer<Json<StatusReport>> {
    Ok(Json(StatusReport::new(&control.status().await?)))
}

/// Whether the daemon serves
#[utoipa::path(get, path = "/v1/ready", tag = "daemon", operation_id = "ready", responses(
    (status = 200, description = "Every volume answers", body = ReadyBody),
    (status = 503, description = "The daemon starts or stops, or a thread of it is stuck", body = ReadyBody)))]
pub(super) async fn ready(State(control): State<Arc<Control>>) -> Response {
    let (code, state) = match control.phase() {
        Phase::Serving(_) if control.is_stuck() => (StatusCode::SERVICE_UNAVAILABLE, "stuck"),
        Phase::Serving(_) => (StatusCode::OK, "serving"),
        Phase::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting"),
        Phase::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
    };
    let ready = code == StatusCode::OK;
    (code, Json(ReadyBody { ready, state: state.to_owned() })).into_response()
}

/// The version of the daemon
#[utoipa::path(get, path = "/v1/version", tag = "daemon", operation_id = "version",
    responses((status = 200, description = "The version", body = VersionBody)))]
async fn version() -> Json<VersionBody> {
    Json(VersionBody {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        format_version: cinnabar_format::superblock::FORMAT_VERSION,
        pid: std::process::id(),
    })
}

/// The volumes, in the order they were added
#[utoipa::path(get, path = "/v1/volumes", tag = "volumes", operation_id = "list_volumes",
    responses((status = 200, description = "The volumes", body = Vec<VolumeReport>), Asks))]
async fn list(State(control): State<Arc<Control>>) -> Answer<Json<Vec<VolumeReport>>> {
    Ok(Json(control.status().await?.volumes.iter().map(VolumeReport::new).collect()))
}

/// Serve another volume, until the daemon ends
///
/// To keep it, write it into the configuration file as well.
#[utoipa::path(post, path = "/v1/volumes", tag = "volumes", operation_id = "add_volume",
    request_body(content = VolumeInput, content_type = "application/json"),
    responses((status = 201, description = "It is served", body = VolumeReport), Changes))]
async fn add(
    State(control): State<Arc<Control>>,
    query: Result<Query<NoQuery>, QueryRejection>,
    body: Bytes,
) -> Answer<(StatusCode, Json<VolumeReport>)> {
    query?;
    let input: VolumeInput = from_json(&body)?;
    let volume = input.check(&control.base)?;
    let name = volume.name.clone();
    add_in_turn(&control, volume).await?;
    Ok((StatusCode::CREATED, Json(report_of(&control, &name).await?)))
}

async fn add_in_turn(control: &Control, volume: VolumeConfig) -> Answer<()> {
    let _one_at_a_time = control.changes.lock().await;
    let now = control.status().await?;
    let others = || now.volumes.iter().map(|volume| &volume.config);
    if others().any(|other| other.name == volume.name) {
        let message = format!("there is a volume {:?} already", volume.name);
        return Err(CommandError::new(CommandErrorKind::Exists, message, "choose another").into());
    }
    check_files(control, &volume, others().cloned().collect(), now.cache.device.clone()).await?;
    check_shares(&now, &volume)?;
    check_control(&volume, &control.socket)?;
    for warning in cinnabar_config::checks::warnings(&volume) {
        tracing::warn!("{warning}");
    }
    let new = Box::new(volume.clone());
    control.ask(control.change_wait_max, |answer| Message::AddVolume(new, answer)).await?;
    control.note(|configured| configured.has_added(volume));
    Ok(())
}

/// Checks a new volume against those that are there. Their files are looked at by another thread: this
/// one serves all operators.
async fn check_files(
    control: &Control,
    new: &VolumeConfig,
    others: Vec<VolumeConfig>,
    cache_device: PathBuf,
) -> Answer<()> {
    let new = new.clone();
    let check = control.with_files(move || {
        let mut looks = Looks::default();
        let result = check_beside(&new, &others, &cache_device, &mut looks);
        (result, looks.warnings())
    });
    let (result, warnings) = check.await?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(result?)
}

/// Change settings of a volume, until the daemon ends; what is absent stays
#[utoipa::path(patch, path = "/v1/volumes/{name}", tag = "volumes", operation_id = "change_volume",
    params(("name" = String, Path, description = "The volume")),
    request_body(content = ChangeInput, content_type = "application/json"),
    responses((status = 200, description = "It is changed", body = VolumeReport), ChangesNamed))]
async fn change(
    State(control): State<Arc<Control>>,
    name: VolumeName,
    query: Result<Query<NoQuery>, QueryRejection>,
    body: Bytes,
) -> Answer<Json<VolumeReport>> {
    let Path(name) = name?;
    query?;
    let input = from_json::<ChangeInput>(&body)?;
    change_in_turn(&control, name.clone(), input).await?;
    Ok(Json(report_of(&control, &name).await?))
}

async fn change_in_turn(control: &Control, name: String, input: ChangeInput) -> Answer<()> {
    // What can't be right for any volume is refused without a look at them.
    input.check(None)?;
    let _one_at_a_time = control.changes.lock().await;
    let now = control.status().await?;
    let old = now.volumes.iter().find(|volume| volume.config.name == name);
    let mut new = old.ok_or_else(|| not_found(&name))?.config.clone();
    let change = input.check(Some(&new))?;
    new.apply(change);
    check_ack(new.ack, new.nbd.as_ref())?;
    check_order(new.share_min, new.share_max)?;
    check_shares(&now, &new)?;
    let message = |answer| Message::SetVolume { name, change, answer };
    Ok(control.ask(control.change_wait_max, message).await?)
}

/// Detach a volume and forget it
#[utoipa::path(delete, path = "/v1/volumes/{name}", tag = "volumes", operation_id = "remove_volume",
    params(("name" = String, Path, description = "The volume"), RemoveQuery),
    responses((status = 204, description = "It is detached"), ChangesNamed))]
async fn remove(
    State(control): State<Arc<Control>>,
    name: VolumeName,
    query: Result<Query<RemoveQuery>, QueryRejection>,
) -> Answer<StatusCode> {
    let Path(name) = name?;
    let Query(RemoveQuery { force, discard_dirty }) = query?;
    let _one_at_a_time = control.changes.lock().await;
    let gone = name.clone();
    let message = |answer| Message::RemoveVolume { name, force, discard_dirty, answer };
    let removed = control.ask(control.change_wait_max, message).await;
    // It may be gone, and that have cost something.
    if removed.is_ok() || report_of(&control, &gone).await.is_err_and(|e| e.is_not_found()) {
        control.note(|configured| configured.has_removed(&gone));
    }
    removed?;
    Ok(StatusCode::NO_CONTENT)
}

/// Serve all of a backend that has grown
#[utoipa::path(post, path = "/v1/volumes/{name}/resize", tag = "volumes",
    operation_id = "resize_volume",
    params(("name" = String, Path, description = "The volume")),
    responses((status = 200, description = "All of it is served", body = VolumeReport), ChangesNamed))]
async fn resize(
    State(control): State<Arc<Control>>,
    name: VolumeName,
) -> Answer<Json<VolumeReport>> {
    let Path(name) = name?;
    let _one_at_a_time = control.changes.lock().await;
    let message = |answer| Message::ResizeVolume { name: name.clone(), answer };
    control.ask(control.change_wait_max, message).await?;
    Ok(Json(report_of(&control, &name).await?))
}

pub(super) async fn report_of(control: &Control, name: &str) -> Answer<VolumeReport> {
    let status = control.status().await?;
    let volume = status.volumes.iter().find(|volume| volume.config.name == name);
    Ok(VolumeReport::new(volume.ok_or_else(|| not_found(name))?))
}

/// Checks what a new or changed volume asks of the cache, beside the others.
fn check_shares(now: &DataStatus, new: &VolumeConfig) -> Result<(), SettingError> {
    let capacity_bytes = now.cache.counters.capacity_blocks * BLOCK_BYTES;
    check_order_in(new.share_min, new.share_max, capacity_bytes)?;
    let others = now.volumes.iter().filter(|volume| volume.config.name != new.name);
    let minimums: Vec<Share> =
        others.map(|volume| volume.config.share_min).chain([new.share_min]).collect();
    check_minimums(minimums, Some(capacity_bytes))
}

async fn unknown() -> Failed {
    let hint = "there are /v1/status, ready, version, reload, volumes, recordings, policy, history, events and cache";
    Failed(StatusCode::NOT_FOUND, ErrorBody { error: "no such path".into(), hint: hint.into() })
}

async fn wrong_method() -> Failed {
    let body = ErrorBody { error: "not with this method".into(), hint: String::new() };
    Failed(StatusCode::METHOD_NOT_ALLOWED, body)
}

pub(super) fn not_found(name: &str) -> CommandError {
    let message = format!("there is no volume {name:?}");
    CommandError::new(CommandErrorKind::NotFound, message, "list them: cinnabar volume list")
}

/// Reads a body.
pub(super) fn from_json<T: DeserializeOwned>(body: &[u8]) -> Answer<T> {
    serde_json::from_slice(body).map_err(|error| {
        let hint =
            "docs/guide/cli.md has the keys; those of a volume are as in [[volume]]".to_owned();
        Failed(StatusCode::BAD_REQUEST, ErrorBody { error: format!("bad JSON: {error}"), hint })
    })
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (self.0, Json(self.1)).into_response()
    }
}

impl Failed {
    /// There is no such volume.
    fn is_not_found(&self) -> bool {
        self.0 == StatusCode::NOT_FOUND
    }
}

impl From<CommandError> for Failed {
    fn from(error: CommandError) -> Self {
        let code = match error.kind {
            CommandErrorKind::NotFound => StatusCode::NOT_FOUND,
            CommandErrorKind::Exists | CommandErrorKind::Busy => StatusCode::CONFLICT,
            CommandErrorKind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            CommandErrorKind::Limit => StatusCode::TOO_MANY_REQUESTS,
            CommandErrorKind::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            CommandErrorKind::Io => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(code, ErrorBody { error: error.message, hint: error.hint })
    }
}

impl From<PathRejection> for Failed {
    fn from(rejection: PathRejection) -> Self {
        let hint = "escape a name in a path: %20 is a space".to_owned();
        Self(StatusCode::BAD_REQUEST, ErrorBody { error: rejection.body_text(), hint })
    }
}

impl From<QueryRejection> for Failed {
    fn from(rejection: QueryRejection) -> Self {
        let hint = "the parameters are in /v1/openapi.json".to_owned();
        Self(StatusCode::BAD_REQUEST, ErrorBody { error: rejection.body_text(), hint })
    }
}

impl From<SettingError> for Failed {
    fn from(error: SettingError) -> Self {
        let body = ErrorBody { error: error.message, hint: error.hint };
        Self(StatusCode::UNPROCESSABLE_ENTITY, body)
    }
}
