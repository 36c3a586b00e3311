//! What the cache does for each volume, and which one deserves more of it.

use crate::advice::{best, worth};
use crate::data::Data;
use crate::facts::{Facts, UNKNOWN, change, number, size_of};
use crate::html::{Grid, el, escaped, section, wrap};
use crate::views::{all_rows, link_to, trouble};
use crate::{ROWS_FIRST, alerts, charts};
use cinnabar_text::{Unit, percent};

pub(crate) fn html(data: &Data, facts: &Facts) -> String {
    let alerts = alerts::alerts(data);
    let all_well = "Everything works as configured.";
    [
        tiles(data, facts, &alerts),
        section("alerts", "Alerts", &alerts::html(&alerts, all_well)),
        section("advice", "Which volume deserves more cache?", &advice(data)),
        section("volumes", "Volumes", &volumes(data, facts)),
        section("charts", "Over time", &charts::all(&CHARTS, data)),
    ]
    .concat()
}

const CHARTS: [&str; 4] = ["spared", "hits", "latency", "ssd-writes"];

fn tile(id: &str, label: &str, large: &str, small: &str) -> String {
    format!(
        "<div class=\"tile\" id=\"tile-{id}\"><dt>{}</dt><dd><b>{large}</b>{}</dd></div>\n",
        escaped(label),
        wrap("span", small)
    )
}

fn tiles(data: &Data, facts: &Facts, alerts: &[alerts::Alert]) -> String {
    let window = data.window();
    let when = data.range.words();
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.to_owned());
    let spared = or_unknown(window.spared_part().map(percent));
    let spared_words = format!(
        "of the guests\u{2019} I/Os {when}: {} of {}; {} were read from the cache instead. Now {} of {} I/Os a second.",
        Unit::Count.show(window.spared() as f64),
        number(window.ios()),
        size_of(window.hit_blocks),
        facts.html("cache:now_spared_iops"),
        facts.html("cache:now_iops"),
    );
    let with = or_unknown(window.read_mean_us().map(|us| Unit::Micros.show(us)));
    let io = data.status.cache.io_totals.backend_reads;
    let without = (io.count > 0).then(|| io.total_ns as f64 / io.count as f64 / 1e3);
    let without = match without {
        Some(us) => format!(
            "A read of a back end takes <data id=\"backend-read\" value=\"{us:.3}\">{}</data> \
             (mean of misses since the start): without the cache each read would take about that.",
            Unit::Micros.show(us)
        ),
        None => "No back end was read since the start.".to_owned(),
    };
    let latency_words =
        format!("is the mean of reads {when}; now {}. {without}", facts.html("cache:now_read_us"));
    let hits = or_unknown(window.hit_ratio().map(percent));
    let hit_words =
        format!("of the blocks read {when} were hits. Now {}.", facts.html("cache:now_hit_ratio"));
    let health = match alerts.len() {
        0 => "The cache and all volumes are well.".to_owned(),
        1 => "<a href=\"#alerts\">1 alert</a>".to_owned(),
        count => format!("<a href=\"#alerts\">{count} alerts</a>"),
    };
    let health = format!(
        "{health} {} of {} hold data; {} volumes.",
        facts.html("cache:cached_blocks"),
        facts.html("cache:capacity_blocks"),
        data.report.volumes.len()
    );
    let tiles = [
        tile("spared", "Spared to the storage", &spared, &spared_words),
        tile("latency", "Latency with the cache", &with, &latency_words),
        tile("hits", "Hit ratio", &hits, &hit_words),
        tile("health", "Health", &facts.html("cache:state"), &health),
    ];
    wrap("dl class=\"tiles\" id=\"tiles\"", &tiles.concat())
}

fn advice(data: &Data) -> String {
    if let Err(reason) = &data.plans {
        return trouble(reason);
    }
    if data.plan().is_none() {
        return el("p", "No plan was made yet: one is made behind each interval with requests.");
    }
    match best(data) {
        None => {
            el("p id=\"best\"", "None: another GiB would bring next to nothing to any of them.")
        }
        Some(best) => {
            let words = format!(
                ": the next GiB would have {} more of its reads hit, which spares about {} blocks a second at its back end.",
                percent(best.hits),
                Unit::Count.show(best.blocks)
            );
            let volume = wrap("strong", &link_to(data, &best.volume));
            let inner = volume + &escaped(&words);
            wrap(&format!("p id=\"best\" data-volume=\"{}\"", escaped(&best.volume)), &inner)
                + &el(
                    "p class=\"hint\"",
                    "By the newest plan, at the read rate of the range. On its page its share can be moved.",
                )
        }
    }
}

fn volumes(data: &Data, facts: &Facts) -> String {
    let columns = [
        ("Volume", false),
        ("State", false),
        ("Hits", true),
        ("Hits now", true),
        ("Read latency", true),
        ("I/Os a second now", true),
        ("Share", true),
        ("Held", true),
        ("Next GiB", true),
    ];
    let caption = format!("Volumes; hits and latency {}", data.range.words());
    let mut grid = Grid::new("volume-table", &caption, &columns);
    let worths = worth(data);
    let best = best(data).map(|best| best.volume);
    let rows = if data.all_rows { usize::MAX } else { ROWS_FIRST };
    for volume in data.report.volumes.iter().take(rows) {
        let own = &volume.name;
        let window = data.window_of(own);
        let fact = |key: &str| facts.of_volume(own, key);
        let of_window = |value: Option<f64>, show: fn(f64) -> String, key: &str| match value {
            Some(value) => {
                format!("<data data-key=\"{key}\" value=\"{value:.6}\">{}</data>", show(value))
            }
            None => UNKNOWN.to_owned(),
        };
        let worth = worths.iter().find(|worth| worth.volume == *own);
        let next = worth.map_or_else(
            || UNKNOWN.to_owned(),
            |worth| {
                let mark = if best.as_ref() == Some(own) { "\u{25B2} most: " } else { "" };
                format!(
                    "{mark}<data data-key=\"next_gib\" value=\"{:.6}\">{}</data>",
                    worth.hits,
                    change(worth.hits)
                )
            },
        );
        let cells = vec![
            link_to(data, own),
            fact("state"),
            of_window(window.hit_ratio(), percent, "hit_ratio"),
            fact("now_hit_ratio"),
            of_window(window.read_mean_us(), |us| Unit::Micros.show(us), "read_mean_us"),
            fact("now_iops"),
            fact("share_blocks"),
            fact("cached_blocks"),
            next,
        ];
        grid.row_with(format!(" data-volume=\"{}\"", escaped(own)), cells);
    }
    if grid.is_empty() {
        return el("p", "There are no volumes. cinnabar volume add brings one in.");
    }
    let shown = data.report.volumes.len().min(rows);
    grid.html() + &all_rows(data, "/ui/", shown, data.report.volumes.len())
}
