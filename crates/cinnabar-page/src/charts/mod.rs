//! The charts of the page, each under an id: as part of a view, and alone as SVG and as CSV.

pub(crate) mod cache;
mod sheet;
pub(crate) mod volume;

use crate::data::Data;
use crate::html::{el, escaped, in_url};
use sheet::Sheet;

/// A chart, and the numbers that it is made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// Names it in paths.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// Drawn.
    pub svg: String,
    /// Its numbers.
    pub csv: String,
    /// The same as a table, of a bounded number of rows.
    table: String,
    /// There is nothing to draw.
    is_empty: bool,
}

/// The chart of that id, of these data; `None`: there is none.
pub fn figure(id: &str, data: &Data) -> Option<Figure> {
    let sheet = match id {
        "spared" => cache::spared(data),
        "hits" => cache::hits(data),
        "latency" => cache::latency(data),
        "ssd-writes" => cache::ssd_writes(data),
        "shares" => cache::shares(data),
        "held" => cache::held(data),
        "ssd-causes" => cache::ssd_causes(data),
        "ram" => cache::ram(data),
        "qos-waits" => cache::qos_waits(data),
        "dirty" => cache::dirty(data),
        "what-if" => cache::what_if(data)?,
        "volume-curve" => volume::curve(data)?,
        "volume-hits" => volume::hits(data)?,
        "volume-iops" => volume::iops(data)?,
        "volume-latency" => volume::latency(data)?,
        "volume-share" => volume::share(data)?,
        "volume-histogram" => volume::histogram(data)?,
        "volume-mix" => volume::mix(data)?,
        "volume-bypass" => volume::bypass(data)?,
        _ => return None,
    };
    Some(drawn(id, &sheet))
}

fn drawn(id: &str, sheet: &Sheet) -> Figure {
    Figure {
        id: id.to_owned(),
        title: sheet.title.clone(),
        svg: sheet.svg(),
        csv: sheet.csv(),
        table: sheet.table(),
        is_empty: sheet.rows.is_empty(),
    }
}

/// A figure as part of a view: the drawing, links to it alone, its numbers as a table.
pub(crate) fn figure_html(figure: &Figure, data: &Data) -> String {
    let query = query(data, &figure.id);
    let id = &figure.id;
    format!(
        "<figure class=\"plot\" id=\"chart-{id}\" data-chart=\"{id}\" data-src=\"/ui/chart/{id}.html?{}\">{}</figure>\n",
        escaped(&query),
        inner(figure, &query)
    )
}

/// What is within the figure's element: what `page.js` fetches again.
pub fn figure_inner(figure: &Figure, data: &Data) -> String {
    inner(figure, &query(data, &figure.id))
}

fn inner(figure: &Figure, query: &str) -> String {
    let Figure { id, title, svg, table, is_empty, .. } = figure;
    let query = escaped(query);
    let drawing = if *is_empty {
        el("p class=\"empty\"", &format!("{title}: nothing is known of this range yet."))
    } else {
        format!("<div class=\"drawing\">{svg}</div>")
    };
    let title = escaped(title);
    format!(
        "{drawing}<figcaption><details id=\"table-{id}\"><summary>Table<span class=\"unseen\"> of \
         {title}</span></summary>{table}</details> \
         <a href=\"/ui/chart/{id}.svg?{query}\" download=\"{id}.svg\">SVG<span class=\"unseen\"> of {title}</span></a> \
         <a href=\"/ui/chart/{id}.csv?{query}\" download=\"{id}.csv\">CSV<span class=\"unseen\"> of {title}</span></a>\
         </figcaption>"
    )
}

/// The query that gives a chart again.
fn query(data: &Data, id: &str) -> String {
    let mut query = data.range.query();
    if id.starts_with("volume-") {
        query = format!("volume={}&{query}", in_url(&data.volume));
    }
    if id == "what-if"
        && let Some(what_if) = &data.what_if
    {
        if let Some(bytes) = what_if.size_bytes {
            query += &format!("&size={bytes}");
        }
        if let Some(allocator) = &what_if.allocator {
            query += &format!("&allocator={}", in_url(allocator));
        }
    }
    query
}

/// Figures side by side.
pub(crate) fn all(ids: &[&str], data: &Data) -> String {
    let figures = ids.iter().filter_map(|id| figure(id, data));
    let figures: String = figures.map(|figure| figure_html(&figure, data)).collect();
    format!("<div class=\"charts\">\n{figures}</div>\n")
}
