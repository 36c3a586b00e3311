//! What the description of the API says of errors and of the token, for all routes alike.

use crate::access::ErrorBody;
use std::collections::BTreeMap;
use utoipa::openapi::response::Response;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Content, OpenApi, PathItem, Ref, RefOr, SecurityRequirement};
use utoipa::{IntoResponses, ToSchema};

/// Name of the security scheme.
const TOKEN: &str = "token";

/// Errors that any request may get before a handler sees it.
const ANYWHERE: &[u16] = &[400, 403, 408, 413, 421];

/// Errors of a route that asks the data plane.
#[derive(Clone, Copy, Debug)]
pub struct Asks;

/// Errors of a route that changes something.
#[derive(Clone, Copy, Debug)]
pub struct Changes;

/// Errors of a route that changes what its path names.
#[derive(Clone, Copy, Debug)]
pub struct ChangesNamed;

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

/// Adds what holds for every route: the errors of whatever stands before the handlers, and the token
/// for changes.
pub fn complete(mut whole: OpenApi) -> OpenApi {
    for item in whole.paths.paths.values_mut() {
        let reads = item.get.iter_mut().map(|operation| (operation, false));
        let PathItem { put, post, delete, patch, .. } = item;
        let changes = [put, post, delete, patch].into_iter().flatten();
        for (operation, changes) in reads.chain(changes.map(|operation| (operation, true))) {
            let mut more = errors(ANYWHERE);
            if changes {
                more.extend(errors(&[401]));
                // Nothing on the control socket, the token over HTTP.
                let token = SecurityRequirement::new::<_, [&str; 0], _>(TOKEN, []);
                operation.security = Some(vec![SecurityRequirement::default(), token]);
            }
            for (code, response) in more {
                operation.responses.responses.entry(code).or_insert(response);
            }
        }
    }
    let token = Http::builder()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("Over HTTP: what the `token_file` of the daemon's configuration holds"));
    let components = whole.components.get_or_insert_default();
    components.add_security_scheme(TOKEN, SecurityScheme::Http(token.build()));
    whole
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
        401 => "Over HTTP: there is no token, or another one",
        403 => "Over HTTP: another origin, or changes are not allowed",
        404 => "There is no such volume or recording",
        408 => "The body did not come in time",
        409 => "The name is taken, something else is in the way, or there is no answer in time",
        413 => "The body is too long",
        421 => "Over HTTP: the host is not served",
        422 => "The settings cannot be used",
        429 => "A limit is reached",
        500 => "A device or a back end failed",
        503 => "The daemon starts or stops",
        _ => panic!("an error without a meaning"),
    }
}
