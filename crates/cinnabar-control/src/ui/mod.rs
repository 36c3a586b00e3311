//! The page for people, beside the control API at the HTTP address: views, charts alone, the script and
//! the style, and a stream that keeps a view live.
//!
//! Reading needs no token, as with the API; what changes something goes through `/v1`. One sampler
//! serves all viewers ([`sampler`]). What is shown is made by `cinnabar-page`, on a thread of its own, because this
//! one serves all operators.

mod answers;
mod assets;
mod drawing;
mod gather;
mod live;
mod sampler;
#[cfg(test)]
mod tests;

use super::Control;
use answers::Answers;
use axum::Router;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use cinnabar_page::{Trouble, View, problem};
use drawing::Drawing;
use gather::{Asked, Wanted};
use sampler::Sampler;
use std::sync::Arc;

/// What the handlers share.
#[derive(Debug)]
pub(super) struct Ui {
    control: Arc<Control>,
    /// There is a token that changes can bring.
    may_act: bool,
    sampler: Arc<Sampler>,
    answers: Answers,
    drawing: Drawing,
}

pub(super) fn routes(control: &Arc<Control>, may_act: bool) -> Router {
    let sampler = Arc::new(Sampler::new(Arc::clone(control)));
    let answers = Answers::new(Arc::clone(control));
    let ui = Arc::new(Ui {
        control: Arc::clone(control),
        may_act,
        sampler,
        answers,
        drawing: Drawing::default(),
    });
    Router::new()
        .route("/", get(|| async { Redirect::temporary("/ui/") }))
        .route("/ui", get(|| async { Redirect::temporary("/ui/") }))
        .route("/ui/", get(|ui, query| view(ui, View::Overview, query)))
        .route("/ui/shares", get(|ui, query| view(ui, View::Shares, query)))
        .route("/ui/backends", get(|ui, query| view(ui, View::Backends, query)))
        .route("/ui/ssd", get(|ui, query| view(ui, View::Ssd, query)))
        .route("/ui/recovery", get(|ui, query| view(ui, View::Recovery, query)))
        .route("/ui/events", get(|ui, query| view(ui, View::Events, query)))
        .route("/ui/what-if", get(|ui, query| view(ui, View::WhatIf, query)))
        .route("/ui/volumes/{name}", get(volume))
        .route("/ui/chart/{file}", get(chart))
        .route("/ui/live", get(live::live))
        .route("/ui/page.js", get(assets::script))
        .route("/ui/page.css", get(assets::style))
        .route("/ui/{*rest}", get(unknown))
        .with_state(ui)
}

type AskedQuery = Result<Query<Asked>, QueryRejection>;

async fn view(State(ui): State<Arc<Ui>>, view: View, query: AskedQuery) -> Response {
    let asked = match query {
        Ok(Query(asked)) => asked,
        Err(rejection) => return bad_query(&rejection),
    };
    match gather::html(&ui, Wanted::View(view), asked).await {
        Ok(answer) => answer,
        Err(failed) => failed.into_response(),
    }
}

async fn volume(
    ui: State<Arc<Ui>>,
    name: Result<Path<String>, PathRejection>,
    query: AskedQuery,
) -> Response {
    match name {
        Ok(Path(name)) => view(ui, View::Volume(name), query).await,
        Err(rejection) => {
            let hint = "escape a name in a path: %20 is a space";
            Problem::new(StatusCode::BAD_REQUEST, "Bad path", rejection.body_text(), hint)
                .into_response()
        }
    }
}

/// `ID.svg`, `ID.csv`, or `ID.html`: what is within its figure.
async fn chart(
    State(ui): State<Arc<Ui>>,
    file: Result<Path<String>, PathRejection>,
    query: AskedQuery,
) -> Response {
    let Ok(Path(file)) = file else { return unknown().await };
    let asked = match query {
        Ok(Query(asked)) => asked,
        Err(rejection) => return bad_query(&rejection),
    };
    let Some((id, kind)) = file.rsplit_once('.') else { return unknown().await };
    let Some(kind) = gather::Kind::of(kind) else { return unknown().await };
    match gather::html(&ui, Wanted::Chart(id.to_owned(), kind), asked).await {
        Ok(answer) => answer,
        Err(failed) => failed.into_response(),
    }
}

async fn unknown() -> Response {
    let message = "There is no such page.".to_owned();
    Problem::new(StatusCode::NOT_FOUND, "Not found", message, "Views are in the navigation above.")
        .into_response()
}

fn bad_query(rejection: &QueryRejection) -> Response {
    let hint = "docs/guide/page.md has the parameters";
    Problem::new(StatusCode::BAD_REQUEST, "Bad query", rejection.body_text(), hint).into_response()
}

/// A page that says why there is no other.
#[derive(Debug)]
struct Problem {
    code: StatusCode,
    title: &'static str,
    trouble: Trouble,
}

impl Problem {
    fn new(code: StatusCode, title: &'static str, message: String, hint: &str) -> Self {
        Self { code, title, trouble: Trouble { message, hint: hint.to_owned() } }
    }
}

impl From<cinnabar_config::messages::CommandError> for Problem {
    fn from(error: cinnabar_config::messages::CommandError) -> Self {
        let trouble = Trouble { message: error.message, hint: error.hint };
        Self { code: StatusCode::SERVICE_UNAVAILABLE, title: "No answer", trouble }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let will_pass = self.code == StatusCode::SERVICE_UNAVAILABLE;
        let html = problem(self.title, &self.trouble, env!("CARGO_PKG_VERSION"), will_pass);
        (self.code, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response()
    }
}
