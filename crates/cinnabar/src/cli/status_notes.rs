//! Counters of a volume that deserve words: errors, what did not use the cache and why, a backend of
//! another size.
//!
//! What is zero is not mentioned.

use cinnabar_config::status::report::{BypassedReport, DestagePace, VolumeReport};
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_text::show_size;
use std::fmt::Write as _;

/// Lines about a volume.
pub(super) fn counts(volume: &VolumeReport) -> Vec<String> {
    let name = &volume.name;
    let mut notes = Vec::new();
    if volume.backend_errors > 0 {
        let count = volume.backend_errors;
        notes.push(format!("{name}: {count} operations of the backend failed\n"));
    }
    if volume.refused > 0 {
        notes.push(format!("{name}: {} requests were refused as invalid\n", volume.refused));
    }
    if volume.invalidated_blocks > 0 {
        let size = show_size(volume.invalidated_blocks * BLOCK_BYTES);
        notes.push(format!("{name}: {size} dropped by command\n"));
    }
    if volume.backend_size_bytes > volume.size_bytes {
        let (now, served) = (show_size(volume.backend_size_bytes), show_size(volume.size_bytes));
        notes.push(format!(
            "{name}: the backend has grown to {now}, {served} of it are served: \
             `cinnabar volume resize {name}` serves all of it\n"
        ));
    }
    notes.extend(write_back(volume).map(|text| format!("{name}: {text}\n")));
    notes.extend(parent(volume).map(|text| format!("{name}: {text}\n")));
    notes.extend(hybrid(volume).map(|text| format!("{name}: {text}\n")));
    notes.extend(capped(volume).map(|text| format!("{name}: {text}\n")));
    notes.extend(guest_limits(volume).map(|text| format!("{name}: {text}\n")));
    notes.extend(turns(volume).map(|text| format!("{name}: {text}\n")));
    notes.extend(bypassed(&volume.bypassed).map(|text| format!("{name}: {text}\n")));
    notes
}

/// What it has read from its parent volume, of a clone.
fn parent(volume: &VolumeReport) -> Option<String> {
    let own = volume.parent.as_ref()?;
    let read = show_size(own.blocks * BLOCK_BYTES);
    let (name, objects, reason) = (&own.name, own.objects, &own.reason);
    let parent = format!("{read} read from the cache of volume {name:?}");
    Some(if own.reason.is_empty() {
        format!("{parent}; it has {} of {objects} objects itself", own.own_objects)
    } else {
        format!("{parent}, now nothing: {reason}")
    })
}

/// Where the extents of a hybrid volume lie.
fn hybrid(volume: &VolumeReport) -> Option<String> {
    let own = volume.hybrid.as_ref()?;
    let (fast, budget) = (show_size(own.fast_bytes), show_size(own.budget_bytes));
    let (objects_fast, objects_slow, moving) = (own.objects_fast, own.objects_slow, own.moving);
    let (up, down, copied) = (own.moved_fast, own.moved_slow, show_size(own.host_bytes));
    let mut text = format!(
        "{objects_fast} extents in the fast pool ({fast} of {budget}), {objects_slow} in the slow one, \
         {moving} on their way; {up} moved up and {down} down by {}, {copied} copied here",
        own.planner
    );
    if own.given_up > 0 {
        let _ok = write!(text, "; {} moves were given up", own.given_up);
    }
    if own.lost_objects > 0 {
        let _ok = write!(text, "; {} OBJECTS ARE LOST", own.lost_objects);
    }
    if own.foreign_objects > 0 {
        let _ok = write!(text, "; {} files in its folders are not its own", own.foreign_objects);
    }
    if !own.last_move.is_empty() {
        let _ok = write!(text, "; last move: {}", own.last_move);
    }
    Some(text)
}

/// What its fill limit kept off the cache device.
fn capped(volume: &VolumeReport) -> Option<String> {
    let kept_off = show_size(volume.capped_blocks * BLOCK_BYTES);
    let limit = show_size(volume.fill_limit_bytes);
    (volume.fill_limit_bytes > 0)
        .then(|| format!("fill limit {limit}/s; it kept {kept_off} off the SSD"))
}

/// What its guests may ask for, and how often that was too little.
fn guest_limits(volume: &VolumeReport) -> Option<String> {
    let (iops, bytes) = (volume.guest_iops_limit, volume.guest_bytes_limit);
    let iops = (iops > 0).then(|| format!("{iops} requests/s"));
    let bytes = (bytes > 0).then(|| format!("{}/s", show_size(bytes)));
    let limits = iops.into_iter().chain(bytes).collect::<Vec<_>>().join(", ");
    let waited = volume.guest_waited;
    (!limits.is_empty()).then(|| format!("guest limit {limits}; {waited} requests waited for it"))
}

/// How it takes turns at its backend.
fn turns(volume: &VolumeReport) -> Option<String> {
    let qos = volume.qos.as_ref()?;
    let own = qos.guest;
    let limit = match volume.iops_limit {
        0 => "no limit".to_owned(),
        limit => format!("limit {limit}"),
    };
    let behind = if own.behind_s >= 1.0 {
        format!(", its reservation is {:.0} s behind", own.behind_s)
    } else {
        String::new()
    };
    Some(format!(
        "takes turns in group {}: reservation {}, {limit}, weight {}; {} begun by reservation, {} by \
         weight, {} wait{behind}",
        qos.group,
        volume.iops_reservation,
        volume.iops_weight,
        own.by_reservation,
        own.by_weight,
        own.waiting
    ))
}

/// What its backend does not have yet.
fn write_back(volume: &VolumeReport) -> Option<String> {
    let own = volume.write_back.as_ref()?;
    if own.dirty_bytes == 0 && !own.leaving {
        return None;
    }
    let pace = own.destage_at_most.filter(|_| own.dirty_bytes > 0);
    let pace = pace.map_or(String::new(), |most| {
        format!("; at most {most} requests at a time{}", pace_reason(own.destage_pace))
    });
    let leaving = if own.leaving { ", on its way out of write-back mode" } else { "" };
    let waits = own.waits_for.as_ref().map_or(String::new(), |other| {
        format!("; they wait for earlier ones of volume {other:?}, of the same write group")
    });
    Some(format!(
        "{} in the write log are not at its backend yet, the oldest for {} s{leaving}{pace}{waits}",
        show_size(own.dirty_bytes),
        own.dirty_age_s
    ))
}

/// Why a destage goes no faster.
const fn pace_reason(pace: DestagePace) -> &'static str {
    match pace {
        DestagePace::Off => "",
        DestagePace::Idle | DestagePace::Pressed => ", as many as keep its backend busy",
        DestagePace::Rpo => ", as many as rpo_s needs",
        DestagePace::Begun => ", for guests read from the backend",
        DestagePace::Quick => ", more while guests' reads of the backend stay quick",
        DestagePace::Slow => ", for guests' reads of the backend have become slow",
    }
}

/// What did not use the cache, and why.
fn bypassed(counts: &BypassedReport) -> Option<String> {
    let reasons = [
        (counts.sequential, "in long sequential runs"),
        (counts.large, "in large requests"),
        (counts.pass_through, "in mode pass-through"),
        (counts.write_around, "written in mode write-around"),
        (counts.write_not_reused, "written and not worth keeping"),
        (counts.no_space, "for want of a free buffer or segment"),
        (counts.loading, "while the index was loaded"),
        (counts.no_device, "without a cache device"),
    ];
    let parts: Vec<String> = reasons
        .iter()
        .filter(|(blocks, _)| *blocks > 0)
        .map(|(blocks, why)| format!("{} {why}", show_size(blocks * BLOCK_BYTES)))
        .collect();
    (!parts.is_empty()).then(|| format!("did not use the cache: {}", parts.join(", ")))
}
