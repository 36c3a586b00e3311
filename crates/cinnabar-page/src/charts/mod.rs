//! The charts of the page, each under an id: as part of a view, and alone as SVG and as CSV.

pub(crate) mod cache;
mod sheet;
pub(crate) mod volume;

use crate::data::Data;
use crate::html::{el, escaped, in_url};
use cinnabar_text::chart::Look;
use sheet::Sheet;

/// Rows of the table beside a chart; CSV has all of them.
const TABLE_ROWS: usize = 40;

/// A chart, and the numbers that it is made of.
pub struct Figure {
    id: String,
    title: String,
    chart: Box<dyn cinnabar_text::chart::Figure>,
    /// There is nothing to draw.
    is_empty: bool,
}

/// The chart of that id, of these data; `None`: there is none.
pub fn figure(id: &str, data: &Data) -> Option<Figure> {
    let sheet: Sheet = match id {
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
        "volume-mix" => volume::mix(data)?,
        "volume-bypass" => volume::bypass(data)?,
        "volume-histogram" => return volume::histogram(data),
        _ => return None,
    };
    let (title, is_empty) = (sheet.title.clone(), sheet.rows.is_empty());
    Some(Figure { id: id.to_owned(), title, chart: sheet.figure(), is_empty })
}

impl Figure {
    /// The drawing alone, with its title: for a file.
    pub fn svg(&self) -> String {
        self.chart.svg(&Look { titled: true, ..Look::default() })
    }

    /// All its numbers.
    pub fn csv(&self) -> String {
        self.chart.csv()
    }

    /// What is within the figure's element of a view: the drawing, links to it alone, its numbers as a
    /// table. `page.js` fetches it again.
    pub fn inner(&self, data: &Data) -> String {
        let Self { id, title, chart, is_empty } = self;
        let query = escaped(&query(data, id));
        let drawing = if *is_empty {
            el("p class=\"empty\"", nothing(id))
        } else {
            format!("<div class=\"drawing\">{}</div>", chart.svg(&Look::default()))
        };
        let title = escaped(title);
        let of = format!("<span class=\"unseen\"> of {title}</span>");
        let table = if *is_empty { String::new() } else { chart.table(TABLE_ROWS) };
        format!(
            "<figcaption class=\"title\">{title}</figcaption>{drawing}<div class=\"tools\">\
             <details id=\"table-{id}\"><summary>Table{of}</summary>{table}</details> \
             <a href=\"/ui/chart/{id}.svg?{query}\" download=\"{id}.svg\">SVG{of}</a> \
             <a href=\"/ui/chart/{id}.csv?{query}\" download=\"{id}.csv\">CSV{of}</a></div>"
        )
    }

    /// As part of a view.
    pub(crate) fn html(&self, data: &Data) -> String {
        let (id, query) = (&self.id, escaped(&query(data, &self.id)));
        format!(
            "<figure class=\"plot\" id=\"chart-{id}\" data-chart=\"{id}\" \
             data-src=\"/ui/chart/{id}.html?{query}\" data-csv=\"/ui/chart/{id}.csv?{query}\">{}</figure>\n",
            self.inner(data)
        )
    }
}

/// Why there is nothing to draw.
fn nothing(id: &str) -> &'static str {
    match id {
        "volume-bypass" => "None, as far as requests have come.",
        "volume-mix" => "None yet: no block was used twice, as far as the manager remembers.",
        "volume-histogram" => "No request has come yet.",
        "dirty" => "No volume that is served has writes that its back end lacks.",
        "qos-waits" => "No request has begun yet.",
        "ssd-causes" => "Nothing was written yet.",
        "what-if" => "No volume was read yet.",
        _ => "There is nothing in this range. A sample is taken every 10 seconds.",
    }
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
            query = format!("{query}&size={bytes}");
        }
        if let Some(allocator) = &what_if.allocator {
            query = format!("{query}&allocator={}", in_url(allocator));
        }
    }
    query
}

/// Figures side by side.
pub(crate) fn all(ids: &[&str], data: &Data) -> String {
    beside(ids, data, "")
}

/// Figures, and what is shown beside them: HTML.
pub(crate) fn beside(ids: &[&str], data: &Data, more: &str) -> String {
    let figures = ids.iter().filter_map(|id| figure(id, data));
    let figures: String = figures.map(|figure| figure.html(data)).collect();
    format!("<div class=\"charts\">\n{figures}{more}</div>\n")
}
