//! Why a volume has the share that it has: in numbers, and in sentences.

use super::report::{ExplainReport, NeighbourReport, PlanReport, ReasonReport, ShareReport};
use super::share::fine_curve;
use super::thread::Manager;
use cinnabar_config::messages::{CommandError, CommandErrorKind, DataStatus, VolumeStatus};
use cinnabar_config::units::show_size;

/// Sizes of the curve of a volume that is explained.
const CURVE_POINTS: u64 = 64;
/// Neighbours told of.
const NEIGHBOURS_MAX: usize = 8;

impl Manager {
    /// Why a volume has what it has.
    pub(super) fn explain(
        &mut self,
        name: &str,
        at_ms: Option<u64>,
    ) -> Result<ExplainReport, CommandError> {
        let mut curve = Vec::new();
        let (plan, status) = match at_ms {
            None => {
                let (plan, status, seen) = self.preview(None)?;
                if let Some(seen) = seen.get(name) {
                    let capacity_blocks = status.cache.counters.capacity_blocks;
                    curve = fine_curve(seen, capacity_blocks, CURVE_POINTS);
                }
                (plan, status)
            }
            Some(at_ms) => {
                let plan = self.history.at(at_ms).cloned().ok_or_else(|| {
                    let hint = "cinnabar policy history lists the plans that are kept";
                    let message = "no plan of that time is kept";
                    CommandError::new(CommandErrorKind::NotFound, message, hint)
                })?;
                (plan, self.status()?)
            }
        };
        let own = plan.volumes.iter().find(|share| share.volume == name).cloned();
        let own = own.ok_or_else(|| {
            let message = format!("there is no volume {name:?} in that plan");
            let hint = "list them: cinnabar volume list";
            CommandError::new(CommandErrorKind::NotFound, message, hint)
        })?;
        let volume = status.volumes.iter().find(|volume| volume.config.name == name);
        let not_cached = volume.map_or_else(Vec::new, |volume| reasons(volume, &status));
        let mut neighbours: Vec<NeighbourReport> =
            plan.volumes.iter().filter(|share| share.volume != name).map(neighbour).collect();
        neighbours.sort_by(|a, b| b.next_gib_reads.total_cmp(&a.next_gib_reads));
        let more_neighbours = neighbours.len().saturating_sub(NEIGHBOURS_MAX) as u64;
        neighbours.truncate(NEIGHBOURS_MAX);
        let words = in_words(&plan, &own, &neighbours, &not_cached);
        let plan = PlanReport { volumes: vec![own], ..plan };
        Ok(ExplainReport { plan, neighbours, more_neighbours, curve, not_cached, words })
    }
}

fn neighbour(share: &ShareReport) -> NeighbourReport {
    NeighbourReport {
        volume: share.volume.clone(),
        target_bytes: share.target_bytes.unwrap_or(0),
        held_bytes: share.held_bytes,
        next_gib_reads: share.next_gib_hits * share.mix.reads as f64,
    }
}

/// What kept blocks out of the cache, as far as that is counted, most first.
fn reasons(volume: &VolumeStatus, status: &DataStatus) -> Vec<ReasonReport> {
    let counts = &volume.counters.bypassed;
    let cache = &status.cache.counters;
    let own = [
        (counts.sequential, "part of a long sequential run (bypass_sequential)"),
        (counts.large, "in a large request (bypass_large)"),
        (counts.pass_through, "the volume was in mode pass-through"),
        (counts.write_around, "written in mode write-around"),
        (counts.write_not_reused, "written, and the volume hardly reads what it wrote"),
        (counts.no_space, "no buffer or segment was free at that moment"),
        (counts.loading, "the index was still being loaded"),
        (counts.no_device, "the cache device was not in use"),
    ];
    let all = [(cache.rejected_blocks, "left probation without a second use: not worth flash")];
    let told = |of_cache: bool| {
        move |(blocks, reason): (u64, &str)| ReasonReport {
            reason: reason.into(),
            blocks,
            of_cache,
        }
    };
    let own = own.into_iter().map(told(false)).chain(all.into_iter().map(told(true)));
    let mut own: Vec<_> = own.filter(|reason| reason.blocks > 0).collect();
    own.sort_by_key(|reason| (reason.of_cache, std::cmp::Reverse(reason.blocks)));
    own
}

/// What the plan gives it; one that was not carried out says what would be.
fn given(plan: &PlanReport, own: &ShareReport) -> String {
    let PlanReport { allocator, applied, .. } = plan;
    match (own.planned_bytes, own.target_bytes.map(show_size)) {
        (Some(planned), Some(target)) if Some(planned) == own.target_bytes => {
            if *applied {
                format!("{allocator} gives it {target}, and that is its target.")
            } else {
                format!("{allocator} would give it {target}, and that would be its target.")
            }
        }
        (Some(planned), Some(target)) => {
            let (planned, why) = (show_size(planned), &own.why);
            let is = if *applied { "is" } else { "would be" };
            format!("{allocator} would give it {planned}; its target {is} {target} ({why}).")
        }
        (None, Some(target)) => {
            let is = if *applied { "is" } else { "would be" };
            format!("Its target {is} {target} ({}).", own.why)
        }
        (_, None) => format!("It has no share of its own: {}.", own.why),
    }
}

fn in_words(
    plan: &PlanReport,
    own: &ShareReport,
    neighbours: &[NeighbourReport],
    not_cached: &[ReasonReport],
) -> Vec<String> {
    let percent = |part: f64| format!("{:.1} %", part * 100.0);
    let mut words = Vec::new();
    let mix = &own.mix;
    let reuses = mix.rar + mix.raw + mix.war + mix.waw;
    if mix.reads + mix.writes == 0 {
        words.push("It did nothing that the manager still remembers.".into());
    } else if reuses == 0 {
        words.push("It used no block again: a cache brings it nothing.".into());
    } else {
        let reads = (mix.rar + mix.raw) as f64 / reuses as f64;
        words.push(format!(
            "{} of its reuses are reads; {} would reach nearly all that can hit.",
            percent(reads),
            show_size(mix.useful * 4096)
        ));
    }
    words.push(given(plan, own));
    if own.auto_mode && own.mode_by_operator {
        words.push("Its mode stays: the operator has set it (until cinnabar policy unpin).".into());
    }
    if let Some(target) = own.target_bytes {
        if own.held_bytes > target {
            let more = show_size(own.held_bytes - target);
            words.push(format!("It holds {more} more than that: room that others leave idle."));
        } else if own.held_bytes < target / 2 {
            words.push("It holds less than half of that: it has not asked for more.".into());
        }
    }
    let gain = own.next_gib_hits * mix.reads as f64;
    let most = neighbours.first().filter(|one| one.next_gib_reads > gain);
    let rival = most.map(|one| format!("; {} would gain more", one.volume)).unwrap_or_default();
    words.push(format!(
        "The next GiB would have {} of its reads hit beyond the {} expected{rival}.",
        percent(own.next_gib_hits),
        percent(own.expected_hits)
    ));
    if let Some(reason) = not_cached.iter().find(|reason| !reason.of_cache) {
        let ReasonReport { reason, blocks, .. } = reason;
        words.push(format!("What most often kept its blocks out: {reason} ({blocks} blocks)."));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_carried_out_is_not_said_to_be() {
        let mut plan = PlanReport { allocator: "urd".into(), ..PlanReport::default() };
        let size = Some(4 << 30);
        let mut own = ShareReport {
            planned_bytes: size,
            target_bytes: size,
            why: "planned".into(),
            auto_mode: true,
            mode_by_operator: true,
            ..ShareReport::default()
        };
        let words = in_words(&plan, &own, &[], &[]).join("\n");
        assert!(
            words.contains("urd would give it 4.0 GiB, and that would be its target"),
            "{words}"
        );
        assert!(words.contains("Its mode stays"), "{words}");
        plan.applied = true;
        assert_eq!(given(&plan, &own), "urd gives it 4.0 GiB, and that is its target.");
        own.planned_bytes = None;
        assert_eq!(given(&plan, &own), "Its target is 4.0 GiB (planned).");
        plan.applied = false;
        assert_eq!(given(&plan, &own), "Its target would be 4.0 GiB (planned).");
    }
}
