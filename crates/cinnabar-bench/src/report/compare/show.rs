//! A comparison as tables for people.

use cinnabar_study::analysis::Every;
use cinnabar_study::compare::{Cache, Comparison, ECI_CLAIMS, Entry, Gains, Model, Options};
use cinnabar_text::{Table, Unit};

const BLOCK_BYTES: f64 = 4096.0;

/// All of it.
pub fn render(found: &Comparison, options: &Options, room: Option<usize>) -> String {
    let mut text = vec![summary(found)];
    for cache in &found.caches {
        for model in &options.models {
            let (header, rows) = table(cache, *model, options);
            text.push(format!("\n{}\n{}\n", title(cache), what(*model)));
            text.push(render_table(1, &header, rows, room));
        }
    }
    let (header, rows) = claims(found, options);
    if !rows.is_empty() {
        text.push(format!("\n{CLAIMS}\n"));
        text.push(render_table(2, &header, rows, room));
    }
    text.concat()
}

pub(crate) const CLAIMS: &str = "ECI-Cache against Centaur; the paper has +17 % performance, +30 % \
                                 per cost, +65 % lifetime of the SSD";

pub(crate) fn summary(found: &Comparison) -> String {
    let cut = match found.every {
        Every::Time(us) => format!(" of {}", Unit::Seconds.show(us as f64 / 1e6)),
        Every::References(count) => format!(" of {count} references"),
        Every::Never => String::new(),
    };
    let demand = size(found.demand_blocks as f64);
    let (volumes, intervals) = (found.volumes.len(), found.intervals.len());
    format!("{volumes} volumes, {intervals} intervals{cut}; ECI-Cache's sizes come to {demand}\n")
}

pub(crate) fn title(cache: &Cache) -> String {
    let percent = Unit::Ratio.show(cache.part);
    format!("A cache of {}, {percent} of that:", size(cache.capacity_blocks as f64))
}

pub(crate) const fn what(model: Model) -> &'static str {
    match model {
        Model::Papers => {
            "the papers' model: LRU partitions, each miss and each kept write goes to the SSD"
        }
        Model::Engine => {
            "the engine as it is: probation, adaptive admission of writes, metadata counted"
        }
    }
}

/// Header and rows of a cache in a model.
pub(crate) fn table(
    cache: &Cache,
    model: Model,
    options: &Options,
) -> (Vec<String>, Vec<Vec<String>>) {
    let baseline = cache.baseline();
    let than = baseline.map_or_else(String::new, |entry| entry.contestant.name().to_owned());
    let mut header: Vec<String> = ["ALLOCATOR", "READS", "WRITES", "ALL"].map(Into::into).to_vec();
    header.push(format!("x {than}"));
    header.push("A BLOCK".to_owned());
    header.extend(["HITS", "SSD WRITES"].map(Into::into));
    if model == Model::Engine {
        header.push("IF BACK".to_owned());
    }
    header.extend(["BACKEND READS", "BACKEND WRITES", "ALLOCATED"].map(Into::into));
    let row = |entry: &Entry| row(entry, baseline, model, options);
    (header, cache.entries.iter().filter_map(row).collect())
}

fn row(
    entry: &Entry,
    baseline: Option<&Entry>,
    model: Model,
    options: &Options,
) -> Option<Vec<String>> {
    let prices = &options.rules.prices;
    let outcome = entry.outcome(model)?;
    let total = outcome.total();
    let gains = baseline.map_or_else(Gains::default, |over| entry.gains(over, model, prices));
    let times = |gain: Option<f64>| gain.map_or_else(missing, |gain| format!("{:.2}", 1.0 + gain));
    let micros = |us: Option<f64>| us.map_or_else(missing, |us| Unit::Micros.show(us));
    let mut row = vec![
        entry.contestant.name().to_owned(),
        micros(total.read_us(prices)),
        micros(total.write_us(prices)),
        micros(total.mean_us(prices)),
        times(gains.performance),
        times(gains.per_block),
        total.hit_ratio().map_or_else(missing, |ratio| Unit::Ratio.show(ratio)),
        size(outcome.ssd_writes as f64),
    ];
    if model == Model::Engine {
        row.push(size(outcome.ssd_writes_back as f64));
    }
    row.extend([
        size(total.backend_reads() as f64),
        size(total.backend_writes as f64),
        size(entry.allocated_blocks),
    ]);
    Some(row)
}

/// Header and rows of ECI-Cache's claims; no rows if it can't be told.
pub(crate) fn claims(found: &Comparison, options: &Options) -> (Vec<String>, Vec<Vec<String>>) {
    let header = ["CACHE", "MODEL", "PERFORMANCE", "A BLOCK", "LIFETIME"].map(Into::into).to_vec();
    let mut rows = Vec::new();
    for cache in &found.caches {
        for model in &options.models {
            let Some(gains) = cache.eci_over_centaur(*model, &options.rules.prices) else {
                continue;
            };
            rows.push(vec![
                Unit::Ratio.show(cache.part),
                model.name().to_owned(),
                held(gains.performance, ECI_CLAIMS.performance),
                held(gains.per_block, ECI_CLAIMS.per_block),
                held(gains.lifetime, ECI_CLAIMS.lifetime),
            ]);
        }
    }
    (header, rows)
}

fn held(gain: Option<f64>, claimed: Option<f64>) -> String {
    let Some((gain, claimed)) = gain.zip(claimed) else { return missing() };
    let holds = if gain >= claimed { "holds" } else { "does not" };
    format!("{}, {holds}", Unit::Ratio.change(gain))
}

fn missing() -> String {
    "-".to_owned()
}

fn size(blocks: f64) -> String {
    Unit::Bytes.show(blocks * BLOCK_BYTES)
}

fn render_table(
    left: usize,
    header: &[String],
    rows: Vec<Vec<String>>,
    room: Option<usize>,
) -> String {
    let mut table = Table::new(left, header).least(&[
        "IF BACK",
        "BACKEND READS",
        "BACKEND WRITES",
        "A BLOCK",
        "ALLOCATED",
        "SSD WRITES",
    ]);
    for row in rows {
        table.push(row);
    }
    table.render(room)
}
