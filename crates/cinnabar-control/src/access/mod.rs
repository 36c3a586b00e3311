//! Who may use the daemon's control API over HTTP.
//!
//! The mode of the control socket protects it; a loopback address is open to every account of the
//! host and, through a browser that runs there, to every web page. A [`Guard`] in front of the routes
//! refuses names that an attacker's DNS may lead to this host, requests of other pages, and changes
//! without the operator's token. It knows nothing of the routes: whatever is not a GET or HEAD counts
//! as a change. What this means for a client stands in the description of the API, too ([`complete`]).

mod description;
mod fetch;
mod guard;
mod hosts;
mod refusal;
mod token;

pub use description::{Asks, Changes, ChangesNamed, complete};
pub use fetch::same_site;
pub use guard::{Guard, guard};
pub use hosts::Hosts;
pub use refusal::{ErrorBody, Refusal};
pub use token::{Token, TokenError};
