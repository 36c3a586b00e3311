//! The cache device: what is written to it and why, what is left of a budget; RAM by part.

use crate::charts;
use crate::data::Data;
use crate::facts::{Facts, size};
use crate::html::{Grid, el, escaped, pairs, section, wrap};
use crate::views::backends::mean;
use cinnabar_engine::seam::units::BLOCK_BYTES;
use cinnabar_text::{Unit, percent_of};

const DAY_S: f64 = 86_400.0;

pub(crate) fn html(data: &Data, facts: &Facts) -> String {
    [
        section("device", "Device", &device(data, facts)),
        section("endurance", "Endurance", &endurance(data, facts)),
        section("causes", "What is written, and why", &causes(data)),
        section("segments", "Segments", &segments(facts)),
        section("ram", "RAM", &ram(data)),
    ]
    .concat()
}

fn device(data: &Data, facts: &Facts) -> String {
    let cache = &data.report.cache;
    let io = data.status.cache.io_totals;
    let reason =
        if cache.reason.is_empty() { String::new() } else { format!(" ({})", cache.reason) };
    let mut rows = vec![
        ("Device", wrap("code", &escaped(&cache.device))),
        ("State", facts.html("cache:state") + &escaped(&reason)),
        ("Size", format!("{} of at most {}", size(cache.size_bytes), size(cache.size_max_bytes))),
        ("Room for data", facts.html("cache:capacity_blocks")),
        ("Holds", facts.html("cache:cached_blocks")),
        ("Of volumes that are not attached", facts.html("cache:detached_blocks")),
        ("I/O", escaped(&cache.io)),
        ("Shards, data threads", format!("{}, {}", cache.shards, cache.threads)),
        ("A read takes", mean(io.ssd_reads) + " (mean since the start)"),
        ("A write takes", mean(io.ssd_writes) + " (mean since the start)"),
        ("Errors", facts.html("cache:device_errors")),
        ("Wrong checksums", facts.html("cache:checksum_failures")),
    ];
    if let Some(resizing) = &cache.resizing {
        let done = format!("{} of {} segments", resizing.segments_done, resizing.segments);
        rows.push(("Resize", format!("to {}: {done}", size(resizing.to_bytes))));
    }
    pairs("device-facts", &rows)
}

fn endurance(data: &Data, facts: &Facts) -> String {
    let window = data.window();
    let written = window.ssd_written_blocks as f64 * BLOCK_BYTES as f64;
    let mut rows = vec![
        ("Written since the start", facts.html("cache:flash_written_bytes")),
        ("Written now", facts.html("cache:now_ssd_bytes")),
    ];
    if let Some(a_second) = window.a_second(written) {
        let a_day = Unit::Bytes.show(a_second * DAY_S);
        let text = format!("{a_day}, at the rate {}", data.range.words());
        rows.push(("Written a day", escaped(&text)));
        let capacity = data.report.cache.capacity_blocks * BLOCK_BYTES;
        if capacity > 0 {
            let writes = a_second * DAY_S / capacity as f64;
            rows.push((
                "Room for data overwritten",
                format!("{} times a day", Unit::Count.show(writes)),
            ));
        }
        if let Some(budget) = data.plan().and_then(|plan| plan.budget) {
            let part = a_second * DAY_S / budget.bytes_per_day.max(1) as f64;
            let text = format!(
                "{} a day, {} of it at that rate{}",
                size(budget.bytes_per_day),
                Unit::Ratio.show(part),
                if budget.throttled { "; it is used up, nothing goes to flash now" } else { "" }
            );
            rows.push(("Budget", escaped(&text)));
        }
    }
    let note = "How many days are left depends on what the maker promises (TBW): divide what is \
        left of that, as the device tells it (smartctl -a), by what is written a day.";
    pairs("endurance-facts", &rows)
        + &el("p class=\"hint\"", note)
        + &charts::all(&["ssd-writes"], data)
}

fn causes(data: &Data) -> String {
    let mut grid = Grid::new(
        "cause-table",
        "Written to the SSD since the start",
        &[("Cause", false), ("Written", true), ("Part", true)],
    );
    let all = data.report.cache.flash_written_bytes;
    for (cause, bytes) in charts::cache::causes(data) {
        let value = format!("<data value=\"{bytes}\">{}</data>", size(bytes));
        grid.row(vec![escaped(cause), value, percent_of(bytes, all)]);
    }
    charts::beside(&["ssd-causes"], data, &grid.html())
}

fn segments(facts: &Facts) -> String {
    let rows = [
        ("Segments freed", facts.html("cache:segments_freed")),
        ("Blocks copied forward by that", facts.html("cache:reinserted_blocks")),
        ("Blocks that left", facts.html("cache:evicted_blocks")),
        ("Blocks that entered the cache", facts.html("cache:fills")),
        ("Blocks that left RAM without a second use", facts.html("cache:rejected_blocks")),
        ("Misses of blocks that had left lately", facts.html("cache:returned_blocks")),
        ("Blocks held back by the budget", facts.html("cache:throttled_blocks")),
    ];
    pairs("segment-facts", &rows)
}

fn ram(data: &Data) -> String {
    let cache = &data.report.cache;
    let ram = cache.ram_bytes;
    let all = ram.address_map + ram.descriptors + ram.ghost + ram.buffers + ram.other + ram.edges;
    let text = format!(
        "{} in all; index, descriptors and ghost take {:.1} bytes for each block of 4 KiB.",
        size(all),
        cache.ram_bytes_per_block
    );
    let manager = data.plan().map(|plan| {
        el("p", &format!("The manager takes about {} beside that.", size(plan.ram_bytes)))
    });
    el("p", &text) + &manager.unwrap_or_default() + &charts::all(&["ram"], data)
}
