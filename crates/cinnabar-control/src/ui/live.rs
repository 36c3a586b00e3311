//! What keeps a page live: server-sent events with the numbers on it that have changed, once a second,
//! and a word when there is a new sample or event to draw.

use super::sampler::VIEWERS_MAX;
use super::{Problem, Ui};
use crate::events::Sending;
use crate::life::Life;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use cinnabar_config::history::Step;
use cinnabar_page::{Scope, View};
use serde::Deserialize;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// A viewer that hears nothing else hears this often that the connection lives.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);

/// Query of `GET /ui/live`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LiveQuery {
    #[serde(default)]
    view: String,
    /// The volume, of its view.
    #[serde(default)]
    name: String,
    /// `all`: all rows are shown.
    #[serde(default)]
    rows: String,
}

pub(super) async fn live(
    State(ui): State<Arc<Ui>>,
    Extension(life): Extension<Life>,
    query: Result<Query<LiveQuery>, QueryRejection>,
) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(rejection) => return super::bad_query(&rejection),
    };
    let Some((place, news)) = ui.sampler.watch(life.peer()) else {
        let message = format!(
            "{VIEWERS_MAX} pages are kept live at a time, and for one account or host no more than \
             it leaves free."
        );
        return Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many",
            message,
            "Close one of them.",
        )
        .into_response();
    };
    life.holds(place);
    let view = match query.view.as_str() {
        "overview" => View::Overview,
        "volume" => View::Volume(query.name),
        _ => View::Shares,
    };
    let scope = view.scope(query.rows == "all");
    let (pieces, to_send) = mpsc::channel(1);
    tokio::spawn(tell(ui, scope, news, pieces));
    Sending::response(to_send, life)
}

/// Puts news into pieces as long as there is a viewer who takes them.
async fn tell(
    ui: Arc<Ui>,
    scope: Scope,
    mut samples: watch::Receiver<u64>,
    pieces: mpsc::Sender<Bytes>,
) {
    let run = ui.control.observer.run();
    let mut text = format!("retry: 2000\n\nevent: hello\ndata: {{\"run\":{run}}}\n\n");
    let mut facts = None;
    let mut drawn = None;
    loop {
        if pieces.send(Bytes::from(std::mem::take(&mut text))).await.is_err() {
            return;
        }
        let heard = tokio::time::timeout(HEARTBEAT_EVERY, samples.changed());
        let heard = tokio::select! {
            heard = heard => matches!(heard, Ok(Ok(()))),
            () = pieces.closed() => return,
        };
        let sample = ui.sampler.newest().filter(|_| heard);
        let Some(sample) = sample else {
            text.push_str(": still there\n\n");
            continue;
        };
        let news = sample.news(&scope, facts.as_ref());
        writeln!(text, "event: facts\ndata: {}\n", news.json).expect("a string takes everything");
        facts = Some(news.facts);
        let now = (newest_sample(&ui), ui.control.observer.events().next());
        if drawn.replace(now).is_some_and(|drawn| drawn != now) {
            let (at, event) = now;
            writeln!(text, "event: news\ndata: {{\"sample\":{at},\"event\":{event}}}\n")
                .expect("a string takes everything");
        }
    }
}

/// When the newest point of the history ended, in seconds since 1970.
fn newest_sample(ui: &Ui) -> u32 {
    let history = ui.control.observer.history();
    let points = history.points(None, Step::Fine, 0);
    points.and_then(Iterator::last).map_or(0, |point| point.at_s)
}
