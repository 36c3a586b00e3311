//! The description of the control API (`OpenAPI` 3.1), made from its routes and types.

use super::api::{ErrorBody, routes};
use super::recordings::Word;
use axum::http::header;
use axum::response::IntoResponse;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use utoipa::openapi::response::Response;
use utoipa::openapi::{Content, OpenApi as Description, PathItem, Ref, RefOr, path::Operation};
use utoipa::{IntoResponses, OpenApi, ToSchema};

/// As it is sent: the types do not change while the daemon runs.
static TEXT: LazyLock<String> =
    LazyLock::new(|| description().to_pretty_json().expect("a description has no keys that fail"));

/// Errors that any request may get before a handler sees it.
const ANYWHERE: &[u16] = &[400, 408, 413];

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
        (name = "recordings", description = "What guests ask for, as a trace"),
    ),
    components(schemas(ErrorBody, Word)),
)]
pub(super) struct Frame;

/// Errors of a route that asks the data plane.
pub(super) struct Asks;

/// Errors of a route that changes something.
pub(super) struct Changes;

/// Errors of a route that changes what its path names.
pub(super) struct ChangesNamed;

impl IntoResponses for Asks {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        errors(&[409, 500, 503])
    }
}

impl IntoResponses for Changes {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        errors(&[409, 422, 429, 500, 503])
    }
}

impl IntoResponses for ChangesNamed {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        errors(&[404, 409, 422, 429, 500, 503])
    }
}

/// The description of every route of the control API.
pub fn description() -> Description {
    let mut whole = routes().into_openapi();
    for operation in whole.paths.paths.values_mut().flat_map(operations) {
        for (code, response) in errors(ANYWHERE) {
            operation.responses.responses.entry(code).or_insert(response);
        }
    }
    whole
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

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    [get, put, post, delete, patch].into_iter().flatten()
}

fn errors(codes: &[u16]) -> BTreeMap<String, RefOr<Response>> {
    let error = |code: u16| {
        let mut response = Response::new(meaning(code));
        let body = Content::new(Some(Ref::from_schema_name(ErrorBody::name())));
        response.content.insert("application/json".to_owned(), RefOr::T(body));
        (code.to_string(), RefOr::T(response))
    };
    codes.iter().map(|code| error(*code)).collect()
}

const fn meaning(code: u16) -> &'static str {
    match code {
        400 => "The path, the query or the body is not as described",
        404 => "There is no such volume or recording",
        408 => "The body did not come in time",
        409 => "The name is taken, something else is in the way, or there is no answer in time",
        413 => "The body is too long",
        422 => "The settings cannot be used",
        429 => "A limit is reached",
        500 => "A device or a back end failed",
        503 => "The daemon starts or stops",
        _ => panic!("an error without a meaning"),
    }
}

#[cfg(test)]
mod tests;
