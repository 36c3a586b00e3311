//! The script and the style: part of the program, asked for again only when they have changed.

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cinnabar_page::{SCRIPT, STYLE};
use std::hash::{DefaultHasher, Hash, Hasher};

pub(super) async fn script(headers: HeaderMap) -> Response {
    asset(&headers, SCRIPT, "text/javascript; charset=utf-8")
}

pub(super) async fn style(headers: HeaderMap) -> Response {
    asset(&headers, &STYLE, "text/css; charset=utf-8")
}

fn asset(headers: &HeaderMap, text: &'static str, kind: &'static str) -> Response {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let tag = format!("\"{:016x}\"", hasher.finish());
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let keep = [(header::ETAG, tag.as_str()), (header::CACHE_CONTROL, "no-cache")];
    if known.is_some_and(|known| known.split(',').any(|one| one.trim() == tag)) {
        return (StatusCode::NOT_MODIFIED, keep).into_response();
    }
    (keep, [(header::CONTENT_TYPE, kind)], text).into_response()
}
