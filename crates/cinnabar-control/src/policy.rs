//! How the cache is divided, over the control API: plans, why they are what they are, and the
//! operator's word against them.

use super::Control;
use super::api::{Answer, VolumeName, from_json};
use super::describe::ChangesNamed;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query as Parameters, State};
use axum::response::Json;
use cinnabar_config::SettingError;
use cinnabar_config::units::parse_share;
use cinnabar_manager::Query;
use cinnabar_manager::report::{ExplainReport, HistoryReport, PlanReport};
use cinnabar_policy::sizing::Allocator;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};

/// Plans in an answer, unless more are asked for.
const HISTORY_DEFAULT: usize = 20;

/// Query of `GET /v1/policy/plan`.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PlanQuery {
    /// Who divides the cache; default: who does now.
    #[serde(default)]
    allocator: Option<String>,
}

/// Body of `POST /v1/policy/plan`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyInput {
    /// Who divides the cache from now on, until the daemon ends; default: who does now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocator: Option<String>,
}

/// Query of `GET /v1/policy/volumes/{name}`.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ExplainQuery {
    /// By the plan in force then, in milliseconds since 1970; default: by what would be planned now.
    #[serde(default)]
    at_ms: Option<u64>,
}

/// Body of `PUT /v1/policy/pins/{name}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PinInput {
    /// What the volume is to have: a size or percent of the cache.
    pub size: String,
}

/// Query of `GET /v1/policy/history`.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryQuery {
    /// The newest plans, so many at most; default 20, at most 256.
    #[serde(default)]
    last: Option<usize>,
}

/// What would be planned now; nothing changes
#[utoipa::path(get, path = "/v1/policy/plan", tag = "policy", operation_id = "plan",
    params(PlanQuery),
    responses((status = 200, description = "The plan", body = PlanReport), ChangesNamed))]
pub(super) async fn plan(
    State(control): State<Arc<Control>>,
    query: Result<Parameters<PlanQuery>, QueryRejection>,
) -> Answer<Json<PlanReport>> {
    let Parameters(PlanQuery { allocator }) = query?;
    let allocator = named(allocator.as_deref())?;
    Ok(Json(control.ask_manager(move |answer| Query::Plan(allocator, answer)).await?))
}

/// Make a plan now and carry it out
#[utoipa::path(post, path = "/v1/policy/plan", tag = "policy", operation_id = "apply_plan",
    request_body(content = ApplyInput, content_type = "application/json"),
    responses((status = 200, description = "The plan", body = PlanReport), ChangesNamed))]
pub(super) async fn apply(
    State(control): State<Arc<Control>>,
    body: Bytes,
) -> Answer<Json<PlanReport>> {
    let ApplyInput { allocator } = from_json(&body)?;
    let allocator = named(allocator.as_deref())?;
    Ok(Json(control.manager()?.ask(|answer| Query::Apply(allocator, answer)).await?))
}

/// Why a volume has the share that it has
#[utoipa::path(get, path = "/v1/policy/volumes/{name}", tag = "policy", operation_id = "explain",
    params(("name" = String, Path, description = "The volume"), ExplainQuery),
    responses((status = 200, description = "Why", body = ExplainReport), ChangesNamed))]
pub(super) async fn explain(
    State(control): State<Arc<Control>>,
    name: VolumeName,
    query: Result<Parameters<ExplainQuery>, QueryRejection>,
) -> Answer<Json<ExplainReport>> {
    let Path(name) = name?;
    let Parameters(ExplainQuery { at_ms }) = query?;
    Ok(Json(control.ask_manager(move |answer| Query::Explain(name, at_ms, answer)).await?))
}

/// Give a volume exactly this share, until the daemon ends
#[utoipa::path(put, path = "/v1/policy/pins/{name}", tag = "policy", operation_id = "pin",
    params(("name" = String, Path, description = "The volume")),
    request_body(content = PinInput, content_type = "application/json"),
    responses((status = 200, description = "The plan with it", body = PlanReport), ChangesNamed))]
pub(super) async fn pin(
    State(control): State<Arc<Control>>,
    name: VolumeName,
    body: Bytes,
) -> Answer<Json<PlanReport>> {
    let Path(name) = name?;
    let PinInput { size } = from_json(&body)?;
    let size = parse_share(&size)
        .map_err(|(message, hint)| SettingError::new("size", format!("size: {message}"), hint))?;
    Ok(Json(control.manager()?.ask(|answer| Query::Pin(name, size, answer)).await?))
}

/// Leave a volume's share, and its mode, to plans again
#[utoipa::path(delete, path = "/v1/policy/pins/{name}", tag = "policy", operation_id = "unpin",
    params(("name" = String, Path, description = "The volume")),
    responses((status = 200, description = "The plan without it", body = PlanReport), ChangesNamed))]
pub(super) async fn unpin(
    State(control): State<Arc<Control>>,
    name: VolumeName,
) -> Answer<Json<PlanReport>> {
    let Path(name) = name?;
    Ok(Json(control.manager()?.ask(|answer| Query::Unpin(name, answer)).await?))
}

/// The plans of late
#[utoipa::path(get, path = "/v1/policy/history", tag = "policy", operation_id = "history",
    params(HistoryQuery),
    responses((status = 200, description = "The plans", body = HistoryReport), ChangesNamed))]
pub(super) async fn history(
    State(control): State<Arc<Control>>,
    query: Result<Parameters<HistoryQuery>, QueryRejection>,
) -> Answer<Json<HistoryReport>> {
    let Parameters(HistoryQuery { last }) = query?;
    let last = last.unwrap_or(HISTORY_DEFAULT);
    Ok(Json(control.ask_manager(move |answer| Query::History(last, answer)).await?))
}

pub(super) fn named(allocator: Option<&str>) -> Result<Option<Allocator>, SettingError> {
    let parse = |name: &str| {
        name.parse().map_err(|error: cinnabar_policy::UnknownName| {
            SettingError::new(
                "allocator",
                error.to_string(),
                "docs/guide/analyze.md says what they do",
            )
        })
    };
    allocator.map(parse).transpose()
}
