//! What is answered to a request that may not be made.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use serde::{Deserialize, Serialize};

/// What went wrong, as a body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ErrorBody {
    /// One line.
    pub error: String,
    /// What would help; may be empty.
    pub hint: String,
}

/// Why a request does not reach a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// `Host` is missing, given twice, or not a host's name.
    #[error("the request has no single valid Host")]
    NoHost,
    /// `Host` is a name that is not allowed.
    #[error("this Host is not served")]
    WrongHost,
    /// A page of another host sent it.
    #[error("requests of other origins are refused")]
    WrongOrigin,
    /// A page of another site has something loaded from here.
    #[error("requests of other sites are refused")]
    WrongSite,
    /// Nothing may be changed over HTTP.
    #[error("changes are not allowed here")]
    NoChanges,
    /// A change without a token.
    #[error("a change needs the token")]
    NoToken,
    /// A change with another token.
    #[error("the token is wrong")]
    WrongToken,
    /// The token's file cannot be used any more.
    #[error("the daemon cannot read its token")]
    NoTokenFile,
}

impl Refusal {
    /// The status code.
    pub const fn code(self) -> StatusCode {
        match self {
            Self::NoHost | Self::WrongHost => StatusCode::MISDIRECTED_REQUEST,
            Self::WrongOrigin | Self::WrongSite | Self::NoChanges => StatusCode::FORBIDDEN,
            Self::NoToken | Self::WrongToken => StatusCode::UNAUTHORIZED,
            Self::NoTokenFile => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// A line that helps.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::NoHost => "send one Host header, such as 127.0.0.1",
            Self::WrongHost => "use an IP address or localhost, or add it to allowed_hosts",
            Self::WrongOrigin => "send the request without a browser, or from a page of this host",
            Self::WrongSite => "open the page by its address, or by a link",
            Self::NoChanges => "use the control socket, or set token_file in [control]",
            Self::NoToken => "send one header Authorization: Bearer TOKEN, from the token_file",
            Self::WrongToken => "the token is the content of the token_file in [control]",
            Self::NoTokenFile => "the daemon's log says why",
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = ErrorBody { error: self.to_string(), hint: self.hint().to_owned() };
        let mut response = (self.code(), Json(body)).into_response();
        if self.code() == StatusCode::UNAUTHORIZED {
            let scheme = header::HeaderValue::from_static("Bearer realm=\"cinnabar\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
