//! What the cache and its volumes did, over the control API.

use super::Control;
use super::api::{Answer, not_found};
use super::describe::ChangesNamed;
use super::observer::now_ms;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Json;
use cinnabar_config::SettingError;
use cinnabar_config::history::{SamplesReport, Step};
use serde::Deserialize;
use std::sync::Arc;
use utoipa::IntoParams;

/// Query of `GET /v1/history`.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SamplesQuery {
    /// The volume; default: all together, and the cache.
    #[serde(default)]
    volume: Option<String>,
    /// Samples that ended after this time only, in milliseconds since 1970; default: all that are kept.
    #[serde(default)]
    since: Option<u64>,
    /// Seconds from one sample to the next, 10 or 300; default: the finest that reaches back to
    /// `since`, or 10.
    #[serde(default)]
    step: Option<u64>,
}

/// What a volume, or the cache, did over time
#[utoipa::path(get, path = "/v1/history", tag = "history", operation_id = "samples",
    params(SamplesQuery),
    responses((status = 200, description = "The samples", body = SamplesReport), ChangesNamed))]
pub(super) async fn samples(
    State(control): State<Arc<Control>>,
    query: Result<Query<SamplesQuery>, QueryRejection>,
) -> Answer<Json<SamplesReport>> {
    let Query(SamplesQuery { volume, since, step }) = query?;
    let step = match (step, since) {
        (Some(seconds), _) => Step::of_seconds(seconds).ok_or_else(no_such_step)?,
        (None, Some(since)) => Step::reaching(now_ms().saturating_sub(since)),
        (None, None) => Step::Fine,
    };
    let history = control.observer.history();
    let volume = volume.as_deref();
    let points = history.points(volume, step, since.unwrap_or(0));
    let points = points.ok_or_else(|| not_found(volume.unwrap_or_default()))?;
    let report = SamplesReport::new(volume, step, points);
    let volumes = history.volumes().map(str::to_owned).collect();
    Ok(Json(SamplesReport { volumes, left_out: history.left_out() as u64, ..report }))
}

fn no_such_step() -> SettingError {
    let message = "there are no samples at this step";
    SettingError::new("step", message, "samples are 10 seconds apart, or 300")
}
