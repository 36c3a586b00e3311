//! What a page of another site may have a browser load from here: nothing but a page to go to.
//!
//! Browsers say in `Sec-Fetch-*` headers who asks and what for, and no script can change them. Another port
//! of this host is another origin of the same site, so that is refused, too.

use crate::access::Refusal;
use crate::access::hosts::single;
use axum::extract::Request;
use axum::http::header::{HeaderMap, HeaderName};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

const SITE: &str = "sec-fetch-site";
const MODE: &str = "sec-fetch-mode";
const DEST: &str = "sec-fetch-dest";

/// Lets a request through that comes from a page of this origin, from the user, from no browser, or that
/// goes to a page as a whole.
pub async fn same_site(request: Request, next: Next) -> Response {
    match check(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            tracing::debug!("{} {}: {refusal}", request.method(), request.uri().path());
            refusal.into_response()
        }
    }
}

fn check(headers: &HeaderMap) -> Result<(), Refusal> {
    let of = |name: &'static str| {
        single(headers, &HeaderName::from_static(name)).map_err(|()| Refusal::WrongSite)
    };
    match of(SITE)? {
        None | Some("same-origin" | "none") => Ok(()),
        // A link in another page, or in a mail: a new page, not a frame.
        Some(_) if of(MODE)? == Some("navigate") && of(DEST)? == Some("document") => Ok(()),
        Some(_) => Err(Refusal::WrongSite),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn of(values: &[(&'static str, &'static str)]) -> Result<(), Refusal> {
        let mut headers = HeaderMap::new();
        for (name, value) in values {
            headers.append(*name, HeaderValue::from_static(value));
        }
        check(&headers)
    }

    #[test]
    fn other_sites_may_only_link_here() {
        assert_eq!(of(&[]), Ok(()), "no browser");
        assert_eq!(of(&[(SITE, "same-origin"), (MODE, "cors")]), Ok(()));
        assert_eq!(of(&[(SITE, "none"), (MODE, "navigate")]), Ok(()));
        let link = [(SITE, "cross-site"), (MODE, "navigate"), (DEST, "document")];
        assert_eq!(of(&link), Ok(()));
        for (site, mode, dest) in [
            ("cross-site", "navigate", "iframe"),
            ("cross-site", "no-cors", "image"),
            ("cross-site", "no-cors", "script"),
            ("cross-site", "cors", "empty"),
            ("same-site", "no-cors", "script"),
            ("anything", "", ""),
        ] {
            let asked = of(&[(SITE, site), (MODE, mode), (DEST, dest)]);
            assert_eq!(asked, Err(Refusal::WrongSite), "{site} {mode} {dest}");
        }
        assert!(of(&[(SITE, "none"), (SITE, "none")]).is_err(), "given twice");
    }
}
