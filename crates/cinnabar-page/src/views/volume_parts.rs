//! Parts of a volume's page.

use crate::charts;
use crate::charts::volume::share_of;
use crate::data::Data;
use crate::facts::{Facts, UNKNOWN, number, size, size_of};
use crate::html::{Grid, el, escaped, name, pairs, section, wrap};
use crate::words;
use cinnabar_config::status::raw::VolumeStatus;
use cinnabar_config::status::report::{VolumeReport, WriteBackReport};
use cinnabar_text::{Unit, percent};

fn or_unknown(text: Option<String>) -> String {
    text.unwrap_or_else(|| UNKNOWN.to_owned())
}

pub(super) fn tiles(data: &Data, facts: &Facts, volume: &VolumeReport) -> String {
    let window = data.window_of(&volume.name);
    let fact = |key: &str| facts.of_volume(&volume.name, key);
    let reason = if volume.reason.is_empty() {
        String::new()
    } else {
        el("span", &format!(" ({})", volume.reason))
    };
    let latency = volume.latency_us.read;
    let rows = [
        ("State", fact("state") + &reason),
        ("Back end", wrap("code", &escaped(&volume.backend))),
        ("Size", fact("size_bytes")),
        ("Mode", fact("mode")),
        ("Share", fact("share_blocks") + &el("span", &bounds(volume))),
        ("Held", fact("cached_blocks")),
        (
            "Hits",
            format!(
                "{} {}; now {}",
                or_unknown(window.hit_ratio().map(percent)),
                data.range.words(),
                fact("now_hit_ratio")
            ),
        ),
        (
            "Reads",
            format!(
                "{} mean {}; now {}; since it was attached {} mean, {} median, 99 % within {}",
                or_unknown(window.read_mean_us().map(|us| Unit::Micros.show(us))),
                data.range.words(),
                fact("now_read_us"),
                Unit::Micros.show(latency.mean),
                Unit::Micros.show(latency.p50 as f64),
                Unit::Micros.show(latency.p99 as f64),
            ),
        ),
        (
            "I/Os a second now",
            format!(
                "{} of the guest, {} of the back end; {}",
                fact("now_iops"),
                fact("now_backend_iops"),
                fact("now_bytes")
            ),
        ),
        ("From the last run", escaped(&words::warmth(volume))),
    ];
    pairs("volume-facts", &rows)
}

fn bounds(volume: &VolumeReport) -> String {
    format!(" (at least {}, at most {})", volume.share_min, volume.share_max)
}

pub(super) fn reuse(data: &Data) -> String {
    let mut html = String::new();
    if let Some(share) = share_of(data) {
        let mix = share.mix;
        html += &el(
            "p",
            &format!(
                "It read {} and wrote {} blocks, as far as the manager remembers; {} different ones, \
                 of which {} of cache would reach nearly all hits. {} of the blocks were looked at.",
                number(mix.reads),
                number(mix.writes),
                number(mix.working_set),
                size_of(mix.useful),
                percent(mix.sampled)
            ),
        );
    }
    let mut kept_out = String::new();
    if let Some(Ok(explain)) = &data.explain {
        let columns = [("Why blocks were not cached", false), ("Blocks", true), ("Of", false)];
        let mut grid = Grid::new("not-cached", "What kept blocks out", &columns);
        for reason in &explain.not_cached {
            let of = if reason.of_cache { "all volumes together" } else { "this volume" };
            let value =
                format!("<data value=\"{}\">{}</data>", reason.blocks, number(reason.blocks));
            grid.row(vec![escaped(&reason.reason), value, of.to_owned()]);
        }
        if !grid.is_empty() {
            kept_out = grid.html();
        }
    }
    html + &charts::beside(&["volume-mix", "volume-bypass"], data, &kept_out)
}

pub(super) fn writes(
    data: &Data,
    facts: &Facts,
    volume: &VolumeReport,
    raw: &VolumeStatus,
) -> String {
    let why = match (volume.auto_mode, raw.mode_by_operator) {
        (_, true) => "The operator has set it while the volume served; plans leave it.",
        (true, false) => "Plans may change it (auto_mode).",
        (false, false) => "As configured; plans leave it (auto_mode = false).",
    };
    let mut rows = vec![
        ("Mode", el("b", words::mode(volume.mode)) + " " + &escaped(words::mode_does(volume.mode))),
        ("Why", escaped(why)),
    ];
    if let Some(share) = share_of(data).filter(|share| !share.policy.is_empty()) {
        rows.push(("The allocator would", el("b", &share.policy)));
    }
    let limit = |bytes: u64| if bytes == 0 { "never".to_owned() } else { size(bytes) };
    rows.push(("Sequential runs bypass from", limit(volume.bypass_sequential_bytes)));
    rows.push(("Requests bypass from", limit(volume.bypass_large_bytes)));
    if volume.fill_limit_bytes > 0 {
        let capped = facts.of_volume(&volume.name, "capped_blocks");
        let limit = format!("{}/s; {capped} blocks were held back", size(volume.fill_limit_bytes));
        rows.push(("Limit of fills", limit));
    }
    if let Some(log) = &volume.write_back {
        write_back(facts, volume, log, &mut rows);
    }
    pairs("write-facts", &rows)
}

fn write_back(
    facts: &Facts,
    volume: &VolumeReport,
    log: &WriteBackReport,
    rows: &mut Vec<(&'static str, String)>,
) {
    let fact = |key: &str| facts.of_volume(&volume.name, key);
    let dirty = format!("{}, the oldest {} old", fact("dirty_bytes"), fact("dirty_age_s"));
    rows.push(("The back end lacks", dirty));
    rows.push(("Epochs it lacks", fact("epochs")));
    rows.push((
        "Brought there",
        format!("{} in {} requests", size(log.destaged_bytes), number(log.destaged_writes)),
    ));
    let pace = serde_json::to_value(log.destage_pace).unwrap_or_default();
    let pace = pace.as_str().unwrap_or_default();
    let most =
        log.destage_at_most.map_or("as many as there are".to_owned(), |most| most.to_string());
    rows.push(("Destage at a time", escaped(&format!("{most} ({pace})"))));
    rows.push(("Claim", wrap("code", &escaped(&log.claim))));
}

/// Where the extents of a hybrid volume lie.
pub(super) fn hybrid(volume: &VolumeReport) -> String {
    let Some(hybrid) = &volume.hybrid else { return String::new() };
    let rows = [
        ("Planner", escaped(&hybrid.planner)),
        ("Extents", format!("{} of {}", hybrid.extents, size(hybrid.extent_bytes))),
        ("Objects in the slow pool", hybrid.objects_slow.to_string()),
        ("Objects in the fast pool", hybrid.objects_fast.to_string()),
        (
            "Room in the fast pool",
            format!("{} of {}", size(hybrid.fast_bytes), size(hybrid.budget_bytes)),
        ),
        ("Moving now", hybrid.moving.to_string()),
        ("Moved to fast, to slow", format!("{}, {}", hybrid.moved_fast, hybrid.moved_slow)),
        ("Given up", hybrid.given_up.to_string()),
        ("No room in the budget", hybrid.over_budget.to_string()),
        ("Writes that waited for a move", hybrid.held_writes.to_string()),
        ("Moves of the last round save", format!("{:.1} ms/s", hybrid.gain_ms_per_s)),
        ("Last move", escaped(&hybrid.last_move)),
        ("Lost objects", hybrid.lost_objects.to_string()),
    ];
    section("hybrid", "Extents by pool", &pairs("hybrid-facts", &rows))
}

/// The parent of a clone, and the other host of a volume that moves.
pub(super) fn relatives(volume: &VolumeReport) -> String {
    let mut html = String::new();
    if let Some(parent) = &volume.parent {
        let rows = [
            ("Parent", name(&parent.name)),
            ("Not read from it", escaped(&parent.reason)),
            ("Reads that it was given", number(parent.reads)),
            ("Blocks that it has answered", number(parent.blocks)),
            (
                "Objects the clone has itself",
                format!("{} of {}", parent.own_objects, parent.objects),
            ),
        ];
        html += &section("parent", "Clone", &pairs("parent-facts", &rows));
    }
    if let Some(migration) = &volume.migration {
        let role = serde_json::to_value(migration.role).unwrap_or_default();
        let mut rows = vec![
            ("This host", escaped(role.as_str().unwrap_or_default())),
            ("The other one", wrap("code", &escaped(&migration.peer))),
            ("Given, taken", format!("{}, {}", migration.given, migration.taken)),
            ("The last take", Unit::Seconds.show(migration.last_take_s)),
        ];
        if let Some(warm) = &migration.warm {
            let ended = warm.ended.as_deref().unwrap_or("it goes on");
            let text = format!("{} of {} blocks; {ended}", warm.fetched, warm.listed);
            rows.push(("What stayed warm", escaped(&text)));
        }
        html += &section("migration", "Moving between hosts", &pairs("migration-facts", &rows));
    }
    html
}

/// Names of counters, as in the status, and what they count.
const COUNTERS: [(&str, &str); 23] = [
    ("reads", "Read requests"),
    ("writes", "Write requests"),
    ("flushes", "Flushes"),
    ("trims", "Trims"),
    ("zeroes", "Write-zeroes"),
    ("blocks_read", "Blocks read"),
    ("blocks_written", "Blocks written"),
    ("read_hits", "Read blocks that hit"),
    ("read_hits_ram", "Of those, in RAM"),
    ("read_hits_log", "Of those, in the write log"),
    ("misses", "Read blocks that missed"),
    ("partial_hits", "Reads with both"),
    ("write_hits", "Written blocks that were cached"),
    ("backend_reads", "Reads of the back end"),
    ("backend_writes", "Writes of the back end"),
    ("backend_flushes", "Flushes of the back end"),
    ("backend_read_bytes", "Read from the back end"),
    ("backend_write_bytes", "Written to the back end"),
    ("backend_errors", "Errors of the back end"),
    ("invalidation_waits", "Writes that waited for an invalidation record"),
    ("region_writes", "Writes to cached blocks that waited for none"),
    ("invalidated_blocks", "Blocks dropped by command"),
    ("refused", "Requests refused"),
];

pub(super) fn counters(facts: &Facts, volume: &VolumeReport) -> String {
    let mut grid =
        Grid::new("counter-table", "Since it was attached", &[("Counter", false), ("Value", true)]);
    for (key, what) in COUNTERS {
        grid.row(vec![el("span", what), facts.of_volume(&volume.name, key)]);
    }
    grid.row(vec!["Share of its own".into(), share_words(volume.share_blocks)]);
    wrap("details", &(el("summary", "Since it was attached") + &grid.html()))
}

/// Blocks as a size, or a word for none.
fn share_words(blocks: u64) -> String {
    if blocks == 0 { "none of its own".to_owned() } else { size_of(blocks) }
}
