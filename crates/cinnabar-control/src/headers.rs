//! What every answer of an HTTP address says to browsers, refusals included.

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

/// What a browser may do with a page: load its script and its style, and ask this address; nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Headers of every answer: its type is not guessed, and pages of other origins do not load it.
pub(crate) const OF_ALL: [(&str, &str); 2] =
    [("x-content-type-options", "nosniff"), ("cross-origin-resource-policy", "same-origin")];

/// And of every answer of the page for people.
pub(crate) const OF_PAGE: [(&str, &str); 5] = [
    ("content-security-policy", POLICY),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    (KEPT, "no-store"),
];

/// The one that an answer may have already.
pub(crate) const KEPT: &str = "cache-control";

/// Puts the headers on an answer; what says how it may be kept stays.
pub(crate) async fn strict(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_of_page = path == "/" || path == "/ui" || path.starts_with("/ui/");
    let mut answer = next.run(request).await;
    let of_page = OF_PAGE.iter().filter(|_| is_of_page);
    for (name, value) in OF_ALL.iter().chain(of_page) {
        let headers = answer.headers_mut();
        if *name != KEPT || !headers.contains_key(*name) {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
    }
    answer
}
