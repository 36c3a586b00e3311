//! The description of the control API (`OpenAPI` 3.1), made from its routes and types.

use super::api::{ErrorBody, routes};
use super::recordings::Word;
use crate::access::complete;
pub(super) use crate::access::{Asks, Changes, ChangesNamed};
use axum::http::header;
use axum::response::IntoResponse;
use cinnabar_config::history::EventReport;
use std::sync::LazyLock;
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Description;

/// As it is sent: the types do not change while the daemon runs.
static TEXT: LazyLock<String> =
    LazyLock::new(|| description().to_pretty_json().expect("a description has no keys that fail"));

/// What the description says beside routes and types.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Cinnabar control API",
        description = "Status and commands of a running daemon. Paths, keys and words are only ever \
            added below `/v1`; a client ignores those that it does not know. Errors have an \
            `ErrorBody`. A request whose head cannot be read gets a status without a body and the \
            connection is closed.",
        license(name = "Apache-2.0 OR MIT", identifier = "Apache-2.0 OR MIT"),
    ),
    tags(
        (name = "daemon", description = "The daemon as a whole"),
        (name = "volumes", description = "Virtual disks"),
        (name = "cache", description = "The cache device"),
        (name = "policy", description = "How the cache is divided, and why"),
        (name = "history", description = "What happened, and what happens"),
        (name = "recordings", description = "What guests ask for, as a trace"),
    ),
    components(schemas(ErrorBody, EventReport, Word)),
)]
pub(super) struct Frame;

/// The description of every route of the control API.
pub fn description() -> Description {
    complete(routes().into_openapi())
}

/// [`description`] as JSON, indented.
///
/// # Panics
/// Never: its keys are strings.
pub fn text() -> &'static str {
    &TEXT
}

/// The description of this API
#[utoipa::path(get, path = "/v1/openapi.json", tag = "daemon", operation_id = "describe",
    responses((status = 200, description = "An OpenAPI 3.1 document", body = serde_json::Value)))]
pub(super) async fn describe() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], text())
}

#[cfg(test)]
mod tests;
