//! Back ends: how long they take, how deep their queues are, who waits for a turn, what they lack.

use crate::data::Data;
use crate::facts::{Facts, UNKNOWN, number, size};
use crate::html::{Grid, both_ends, el, escaped, name, pairs, section};
use crate::views::{all_rows, link_to};
use crate::{ROWS_FIRST, charts};
use cinnabar_policy::planning::Latency;
use cinnabar_text::Unit;

pub(crate) fn html(data: &Data, facts: &Facts) -> String {
    let mut html = section("latency", "Latency and load", &latency(data, facts));
    html += &section("backends", "By volume", &by_volume(data));
    if !data.report.qos_groups.is_empty() {
        html += &section("qos", "Turns at shared back ends", &qos(data));
    }
    if data.report.volumes.iter().any(|volume| volume.write_back.is_some()) {
        html += &section("destage", "Writes that back ends lack", &destage(data));
    }
    html
}

/// The mean of operations in us.
pub(crate) fn mean(latency: Latency) -> String {
    if latency.count == 0 {
        return UNKNOWN.to_owned();
    }
    Unit::Micros.show(latency.total_ns as f64 / latency.count as f64 / 1e3)
}

fn latency(data: &Data, facts: &Facts) -> String {
    let io = data.status.cache.io_totals;
    let of = |latency: Latency| format!("{} (mean of {})", mean(latency), number(latency.count));
    let rows = [
        ("Reads of back ends, now", facts.html("cache:now_backend_read_us")),
        ("Writes of back ends, now", facts.html("cache:now_backend_write_us")),
        ("Reads of back ends, since the start", of(io.backend_reads)),
        ("Writes of back ends, since the start", of(io.backend_writes)),
        ("I/Os of back ends a second, now", facts.html("cache:now_backend_iops")),
    ];
    pairs("backend-facts", &rows) + &charts::all(&["spared"], data)
}

fn by_volume(data: &Data) -> String {
    let columns = [
        ("Volume", false),
        ("Back end", false),
        ("Reads", true),
        ("Writes", true),
        ("Read", true),
        ("Written", true),
        ("Errors", true),
        ("Overdue now", true),
        ("Oldest under way", true),
    ];
    let mut grid = Grid::new("backend-table", "Back ends, since volumes were attached", &columns);
    let rows = if data.all_rows { usize::MAX } else { ROWS_FIRST };
    for volume in data.report.volumes.iter().take(rows) {
        let oldest = match volume.backend_oldest_s {
            0.0 => UNKNOWN.to_owned(),
            seconds => Unit::Seconds.show(seconds),
        };
        grid.row(vec![
            link_to(data, &volume.name),
            format!("<code>{}</code>", both_ends(&volume.backend)),
            number(volume.backend_reads),
            number(volume.backend_writes),
            size(volume.backend_read_bytes),
            size(volume.backend_write_bytes),
            number(volume.backend_errors),
            volume.backend_overdue_now.to_string(),
            oldest,
        ]);
    }
    let all = data.report.volumes.len();
    grid.html() + &all_rows(data, "/ui/backends", all.min(rows), all)
}

fn qos(data: &Data) -> String {
    let columns = [
        ("Group", false),
        ("Depth", true),
        ("Under way", true),
        ("Waiting", true),
        ("Reserved I/Os a second", true),
        ("What it does a second", true),
    ];
    let mut groups = Grid::new("qos-groups", "Groups", &columns);
    for group in &data.report.qos_groups {
        groups.row(vec![
            name(&group.name),
            group.depth.to_string(),
            group.under_way.to_string(),
            group.waiting.to_string(),
            group.reserved_iops.to_string(),
            group.capacity_iops.map_or_else(|| UNKNOWN.to_owned(), |iops| iops.to_string()),
        ]);
    }
    let columns = [
        ("Volume", false),
        ("Waiting", true),
        ("By reservation", true),
        ("By weight", true),
        ("Held by its limit", true),
        ("Waited for its reservation", true),
        ("Waited by weight", true),
        ("Longest", true),
    ];
    let mut waits = Grid::new("qos-table", "Waits by phase, summed", &columns);
    let shared =
        data.report.volumes.iter().filter_map(|volume| Some((volume, volume.qos.as_ref()?)));
    let all = shared.clone().count();
    let rows = if data.all_rows { usize::MAX } else { ROWS_FIRST };
    for (volume, qos) in shared.take(rows) {
        let guest = &qos.guest;
        waits.row(vec![
            link_to(data, &volume.name),
            guest.waiting.to_string(),
            number(guest.by_reservation),
            number(guest.by_weight),
            Unit::Seconds.show(guest.limit_wait_s),
            Unit::Seconds.show(guest.reservation_wait_s),
            Unit::Seconds.show(guest.weight_wait_s),
            Unit::Seconds.show(guest.wait_s_max),
        ]);
    }
    let more = all_rows(data, "/ui/backends", all.min(rows), all);
    groups.html() + &waits.html() + &more + &charts::all(&["qos-waits"], data)
}

fn destage(data: &Data) -> String {
    let columns = [
        ("Volume", false),
        ("Dirty", true),
        ("Oldest", true),
        ("Epochs", true),
        ("Destaged", true),
        ("Pace", false),
    ];
    let mut grid = Grid::new("destage-table", "Writes that back ends lack", &columns);
    for volume in &data.report.volumes {
        let Some(log) = &volume.write_back else { continue };
        let pace = serde_json::to_value(log.destage_pace).unwrap_or_default();
        grid.row(vec![
            link_to(data, &volume.name),
            size(log.dirty_bytes),
            Unit::Seconds.show(log.dirty_age_s),
            number(log.epochs),
            size(log.destaged_bytes),
            escaped(pace.as_str().unwrap_or_default()),
        ]);
    }
    let log = data.report.cache.write_log.as_ref().map(|log| {
        el(
            "p",
            &format!("The write log holds {} of {}.", size(log.used_bytes), size(log.size_bytes)),
        )
    });
    log.unwrap_or_default() + &grid.html() + &charts::all(&["dirty"], data)
}
