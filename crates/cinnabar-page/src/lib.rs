//! The page that the daemon serves: what the cache does for each volume, as HTML.
//!
//! Plain data in ([`Data`]: a status, samples, plans, events), text out. Pure: no clock, no file, no
//! network; the same data give the same bytes. It all can be read without a script; `page.js` keeps it
//! live, and acts through the control API. Nothing is loaded from elsewhere, no style or script is
//! within the HTML, and every text that is not the page's own is escaped.
//!
//! - [`View`]: which page; [`Range`]: of which time; [`render`]: the page itself
//! - [`Facts`]: numbers under an id, in the HTML and in what keeps it live
//! - [`figure`]: the charts, each alone, too
//! - [`Rates`], [`Window`]: what happens now, and what happened in a range
//!
//! Scripts and tests find things by these:
//!
//! - `body`: `data-view`, `data-live`, `data-run`; `#now`, `#connection` (a live region)
//! - `<data id="cache:KEY" value="...">`, `<data id="v:NAME:KEY" value="...">` with the keys of the status
//! - `#tile-spared`, `-latency`, `-hits`, `-health`; `#alerts`; `#best[data-volume]`;
//!   `#volume-table tr[data-volume]`; `#event-table tr[data-kind]`
//! - `figure#chart-ID[data-src][data-csv]`, its `#table-ID`; `#range`
//! - `#share-marker` (the slider), `#share-text`, `#pin-size`
//! - `form#act-pin`, `-unpin`, `-mode`, `-flush`, `-invalidate`, `-apply`, each with `.command` and
//!   `.result`; `dialog#token` (`#token-text`, `#token-ok`), `dialog#confirm` (`#confirm-ok`)

mod actions;
mod advice;
mod alerts;
mod charts;
mod data;
mod facts;
mod frame;
mod html;
mod plans;
mod range;
mod rates;
mod shell;
#[cfg(test)]
mod tests;
mod views;
mod window;
mod words;

pub use charts::{Figure, figure};
pub use data::{Data, Trouble, WhatIf};
pub use facts::{Fact, Facts, Scope};
pub use frame::{View, problem, render};
pub use range::Range;
pub use rates::{Rate, Rates};
pub use window::Window;
pub use words::clock;

use std::sync::LazyLock;

/// The one script, an ES module.
pub const SCRIPT: &str = include_str!("page.js");
/// The one style sheet: the page's rules, and those of its charts.
pub static STYLE: LazyLock<String> =
    LazyLock::new(|| [include_str!("page.css"), cinnabar_text::chart::CSS].concat());

/// Rows of a long table that are shown first.
pub const ROWS_FIRST: usize = 50;
