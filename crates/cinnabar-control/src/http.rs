//! The HTTP address: Prometheus metrics, made of a fresh status at each scrape, and beside them the
//! control API and the page if they are served there.

use super::Control;
use super::api::{self, ready};
use super::headers::strict;
use super::ui;
use crate::access::{Guard, Hosts};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use cinnabar_config::ApiConfig;
use cinnabar_config::status::exposition::{OPENMETRICS, TEXT, text_of, wants_openmetrics};
use cinnabar_config::status::metrics::render;
use std::path::Path;
use std::sync::Arc;

/// The routes of the HTTP address: metrics, and the control API and the page if they are served there.
///
/// Whatever is served, pages of other hosts and origins read nothing, and only top-level navigations may
/// come from other sites.
pub fn router(control: &Arc<Control>, allowed_hosts: &[String], api: Option<&ApiConfig>) -> Router {
    let metrics = Router::new().route("/metrics", get(metrics));
    let (routes, token_file) = match api {
        None => {
            let few = metrics.route("/v1/ready", get(ready));
            (few.with_state(Arc::clone(control)), None)
        }
        Some(ApiConfig { token_file, page }) => {
            let metrics = metrics.with_state(Arc::clone(control));
            let mut routes = api::router(Arc::clone(control)).merge(metrics);
            if *page {
                routes = routes.merge(ui::routes(control, token_file.is_some()));
            }
            (routes, token_file.clone())
        }
    };
    let guard = Arc::new(Guard::new(Hosts::new(allowed_hosts.iter().cloned()), token_file));
    routes
        .layer(from_fn(crate::access::same_site))
        .layer(from_fn_with_state(guard, crate::access::guard))
        .layer(from_fn(strict))
}

/// The routes of the address for daemons on other hosts: the hand-over of a volume and what comes along
/// with it, nothing else, and nothing without the token in this file.
pub fn peers(control: &Arc<Control>, token_file: &Path) -> Router {
    let guard = Arc::new(Guard::of_all(token_file.to_owned()));
    let routes = api::finished(api::peer_routes(), Arc::clone(control));
    routes.layer(from_fn_with_state(guard, crate::access::guard)).layer(from_fn(strict))
}

async fn metrics(State(control): State<Arc<Control>>, headers: HeaderMap) -> Response {
    let status = match control.status().await {
        Ok(status) => status,
        Err(error) => {
            return (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response();
        }
    };
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let accept = accept.collect::<Vec<_>>().join(",");
    match render(status) {
        Ok(text) if wants_openmetrics(&accept) => {
            ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response()
        }
        Ok(text) => ([(header::CONTENT_TYPE, TEXT)], text_of(&text)).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
