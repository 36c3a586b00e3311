//! What all views share: head, navigation, range, and where the script says how it goes.

use crate::data::{Data, Trouble};
use crate::facts::{Facts, Scope};
use crate::html::{el, escaped, in_url, wrap};
use crate::words::{clock, moment};
use crate::{ROWS_FIRST, views};

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// What the cache does for each volume.
    Overview,
    /// Shares over time, and why they moved.
    Shares,
    Volume(String),
    /// Back ends.
    Backends,
    /// The cache device and RAM.
    Ssd,
    /// What a start found, and the journal.
    Recovery,
    /// What happened.
    Events,
    /// Another size or allocator.
    WhatIf,
}

/// Those in the navigation: what names it, its path, its title.
const LINKS: [(View, &str, &str); 7] = [
    (View::Overview, "/ui/", "Overview"),
    (View::Shares, "/ui/shares", "Shares"),
    (View::Backends, "/ui/backends", "Back ends"),
    (View::Ssd, "/ui/ssd", "SSD and RAM"),
    (View::Recovery, "/ui/recovery", "Recovery"),
    (View::Events, "/ui/events", "Events"),
    (View::WhatIf, "/ui/what-if", "What if"),
];

impl View {
    /// Its path, below the address of the daemon.
    pub fn path(&self) -> String {
        match self {
            Self::Volume(name) => format!("/ui/volumes/{}", in_url(name)),
            other => LINKS
                .iter()
                .find(|(view, ..)| view == other)
                .map_or("/ui/", |(_, path, _)| path)
                .to_owned(),
        }
    }

    /// What names it for scripts and tests.
    const fn word(&self) -> &'static str {
        match self {
            Self::Overview => "overview",
            Self::Shares => "shares",
            Self::Volume(_) => "volume",
            Self::Backends => "backends",
            Self::Ssd => "ssd",
            Self::Recovery => "recovery",
            Self::Events => "events",
            Self::WhatIf => "what-if",
        }
    }

    fn title(&self) -> String {
        match self {
            Self::Volume(name) => crate::html::short(name),
            other => LINKS
                .iter()
                .find(|(view, ..)| view == other)
                .map_or("Overview", |(_, _, title)| title)
                .to_owned(),
        }
    }

    /// Whether it is of a range of time.
    const fn is_over_time(&self) -> bool {
        matches!(self, Self::Overview | Self::Shares | Self::Volume(_) | Self::Ssd | Self::Backends)
    }

    /// What its numbers are.
    pub fn scope(&self, all_rows: bool) -> Scope {
        match self {
            Self::Overview => Scope::Overview(if all_rows { usize::MAX } else { ROWS_FIRST }),
            Self::Volume(name) => Scope::Volume(name.clone()),
            _ => Scope::Cache,
        }
    }

    /// Where what keeps it live comes from.
    fn live(&self, all_rows: bool) -> String {
        let more = match self {
            Self::Overview if all_rows => "&rows=all".to_owned(),
            Self::Volume(name) => format!("&name={}", in_url(name)),
            _ => String::new(),
        };
        format!("/ui/live?view={}{more}", self.word())
    }
}

/// A view of these data; `None`: there is no such volume.
pub fn render(view: &View, data: &Data) -> Option<String> {
    let facts = Facts::of(&view.scope(data.all_rows), &data.report, data.rates.as_ref());
    let inner = match view {
        View::Overview => views::overview::html(data, &facts),
        View::Shares => views::shares::html(data),
        View::Volume(_) => views::volume::html(data, &facts)?,
        View::Backends => views::backends::html(data, &facts),
        View::Ssd => views::ssd::html(data, &facts),
        View::Recovery => views::recovery::html(data, &facts),
        View::Events => views::events::html(data),
        View::WhatIf => views::what_if::html(data),
    };
    let picker = if view.is_over_time() { range_picker(view, data) } else { String::new() };
    let title = view.title();
    let heading = match view {
        View::Volume(name) => wrap("h1", &format!("Volume {}", crate::html::name(name))),
        _ => el("h1", &title),
    };
    let live = format!(
        " data-view=\"{}\" data-live=\"{}\" data-run=\"{}\" data-now=\"{}\"",
        view.word(),
        escaped(&view.live(data.all_rows)),
        data.run,
        data.now_ms
    );
    let main = format!("<div class=\"top\">{heading}{picker}</div>\n{inner}");
    Some(document(&title, &data.version, Some((view, data)), &live, &main))
}

/// A page that says what is wrong, and what would help; it looks again by itself if that will pass.
pub fn problem(title: &str, trouble: &Trouble, version: &str, will_pass: bool) -> String {
    let main = el("h1", title)
        + &el("p id=\"problem\"", &trouble.message)
        + &el("p class=\"hint\"", &trouble.hint);
    let retry = if will_pass { " data-retry" } else { "" };
    document(title, version, None, &format!(" data-view=\"problem\"{retry}"), &main)
}

fn document(
    title: &str,
    version: &str,
    of: Option<(&View, &Data)>,
    attributes: &str,
    main: &str,
) -> String {
    let (title, version) = (escaped(title), escaped(version));
    let nav = navigation(of);
    let state = of.map_or_else(String::new, |(_, data)| {
        format!("<time id=\"now\" datetime=\"{}\">{}</time>", data.now_ms, clock(data.now_ms))
    });
    let token = match of {
        Some((_, data)) if data.may_act => TOKEN,
        _ => "",
    };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title} \u{2013} Cinnabar</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <link rel=\"stylesheet\" href=\"/ui/page.css\">\n\
         <script type=\"module\" src=\"/ui/page.js\"></script>\n</head>\n\
         <body{attributes}>\n<a class=\"skip\" href=\"#main\">Skip to content</a>\n\
         <header class=\"bar\"><a class=\"brand\" href=\"/ui/\">Cinnabar</a>\n{nav}\
         <p class=\"state\">{state} <span id=\"connection\" role=\"status\" aria-live=\"polite\"></span></p>\
         </header>\n<main id=\"main\" tabindex=\"-1\">\n{main}</main>\n\
         <footer><p>Cinnabar {version} \u{00B7} <a href=\"/v1/status\">status as JSON</a> \u{00B7} \
         <a href=\"/metrics\">metrics</a> \u{00B7} <a href=\"/v1/openapi.json\">API</a></p></footer>\n\
         {token}</body>\n</html>\n"
    )
}

/// Asks for the token, once for a tab.
const TOKEN: &str = "<dialog id=\"token\" aria-labelledby=\"token-h\"><form method=\"dialog\">\
    <h2 id=\"token-h\">Token</h2>\
    <p>Changes need the content of <code>token_file</code> in <code>[control]</code>. \
    It is kept until this tab is closed.</p>\
    <label>Token <input id=\"token-text\" type=\"password\" autocomplete=\"off\" required></label>\
    <p class=\"buttons\"><button value=\"ok\" id=\"token-ok\">Use it</button> \
    <button value=\"cancel\" formnovalidate>Cancel</button></p></form></dialog>\n\
    <dialog id=\"confirm\" aria-labelledby=\"confirm-text\"><form method=\"dialog\">\
    <p id=\"confirm-text\"></p><p><code id=\"confirm-command\"></code></p>\
    <p class=\"buttons\"><button value=\"ok\" class=\"danger\" id=\"confirm-ok\">Do it</button> \
    <button value=\"cancel\" autofocus>Cancel</button></p></form></dialog>\n";

fn navigation(of: Option<(&View, &Data)>) -> String {
    let query = of.map(|(_, data)| format!("?{}", data.range.query())).unwrap_or_default();
    let mut html = String::from("<nav aria-label=\"Views\"><ul>\n");
    for (view, path, title) in &LINKS {
        let is_current = of.is_some_and(|(current, _)| current == view);
        let current = if is_current { " aria-current=\"page\"" } else { "" };
        let query = if view.is_over_time() { query.as_str() } else { "" };
        let query = escaped(query);
        html.extend(["<li><a href=\"", path, &query, "\"", current, ">", title, "</a></li>\n"]);
    }
    html + "</ul></nav>\n"
}

fn range_picker(view: &View, data: &Data) -> String {
    let path = view.path();
    let rows = if data.all_rows { "&amp;rows=all" } else { "" };
    let mut html =
        String::from("<nav class=\"range\" id=\"range\" aria-label=\"Range of time\"><ul>");
    for (word, shown, is_chosen) in data.range.choices() {
        let current = if is_chosen { " aria-current=\"true\"" } else { "" };
        html.extend([
            "<li><a href=\"",
            &path,
            "?range=",
            word,
            rows,
            "\"",
            current,
            ">",
            shown,
            "</a></li>",
        ]);
    }
    html += "</ul>";
    if data.range.query().starts_with("from") {
        let (from, to) = (moment(data.range.from_ms), moment(data.range.to_ms));
        html += &el("p", &format!("{from} to {to} UTC"));
    }
    html + "</nav>"
}
