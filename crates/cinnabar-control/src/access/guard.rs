//! In front of the routes: whether a request may reach them.

use crate::access::hosts::single;
use crate::access::{Hosts, Refusal, Token};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HeaderMap};
use axum::http::{Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The log is told of a token that can't be read at most so often.
const WARN_EVERY: Duration = Duration::from_mins(1);

/// What a request must have.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// `None`: any, for nothing is told without the token.
    hosts: Option<Hosts>,
    /// Read for each change: replacing the file replaces the token.
    token_file: Option<PathBuf>,
    /// When the log was last told that the file can't be used: every client can ask for that.
    warned: Arc<Mutex<Option<Instant>>>,
}

/// Lets a request through to the routes behind this layer, or answers it.
pub async fn guard(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let verdict = guard.check(request.method(), request.uri(), request.headers());
    let verdict = match verdict {
        Ok(None) => Ok(()),
        Ok(Some(given)) => guard.check_token(given).await,
        Err(refusal) => Err(refusal),
    };
    match verdict {
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            tracing::debug!("{} {}: {refusal}", request.method(), request.uri().path());
            refusal.into_response()
        }
    }
}

impl Guard {
    /// Serves these hosts; changes need the token in this file, and are refused without one.
    pub fn new(hosts: Hosts, token_file: Option<PathBuf>) -> Self {
        Self { hosts: Some(hosts), token_file, warned: Arc::default() }
    }

    /// All needs the token in this file, reading, too.
    pub fn of_all(token_file: PathBuf) -> Self {
        Self { hosts: None, token_file: Some(token_file), warned: Arc::default() }
    }

    /// All but the token: `None` if the request needs none, else the one that it brings.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn check(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Option<Vec<u8>>, Refusal> {
        if let Some(hosts) = &self.hosts {
            hosts.check(uri, headers)?;
            if [Method::GET, Method::HEAD].contains(method) {
                return Ok(None);
            }
        }
        if self.token_file.is_none() {
            return Err(Refusal::NoChanges);
        }
        let given = single(headers, &AUTHORIZATION).ok().flatten().ok_or(Refusal::NoToken)?;
        let (scheme, token) = given.split_once(' ').ok_or(Refusal::NoToken)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(Refusal::NoToken);
        }
        Ok(Some(token.trim().as_bytes().to_vec()))
    }

    /// Whether this is the token.
    async fn check_token(&self, given: Vec<u8>) -> Result<(), Refusal> {
        let Some(path) = self.token_file.clone() else { return Err(Refusal::NoChanges) };
        // The file may be on storage that hangs; this thread serves all operators.
        let warned = Arc::clone(&self.warned);
        let read = tokio::task::spawn_blocking(move || {
            Token::read(&path).map_err(|error| {
                let mut warned = warned.lock().unwrap_or_else(PoisonError::into_inner);
                if warned.is_none_or(|last| last.elapsed() > WARN_EVERY) {
                    *warned = Some(Instant::now());
                    tracing::warn!("token_file {}: {error}; {}", path.display(), error.hint());
                }
            })
        });
        match read.await {
            Ok(Ok(token)) if token.is(&given) => Ok(()),
            Ok(Ok(_)) => Err(Refusal::WrongToken),
            Ok(Err(())) | Err(_) => Err(Refusal::NoTokenFile),
        }
    }
}

#[cfg(test)]
mod tests;
