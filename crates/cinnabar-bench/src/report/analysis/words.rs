//! The answer in sentences, and what is to be known before it is believed.
//!
//! Called for terminals, pages and JSON alike.

use super::BLOCK_BYTES;
use super::rows::ranked;
use cinnabar_policy::sizing::{Allocator, Prices, WritePolicy};
use cinnabar_study::analysis::{Analysis, Found, Settings, Verdict};
use cinnabar_text::Unit;

/// Volumes named in a sentence.
const NAMED_MAX: usize = 6;
/// A size that stands on fewer sampled blocks is no more than a guess.
const SAMPLED_MIN: f64 = 200.0;
/// More reads than that which nothing came before are worth a word.
const COLD_PART: f64 = 0.1;
/// A shorter trace does not know a day.
const DAY_S: f64 = 86_400.0;

/// Would a cache help, how large, and with which policy?
pub(crate) fn answer(analysis: &Analysis, settings: &Settings) -> Vec<String> {
    let prices = &settings.rules.prices;
    let mut said = vec![verdict(analysis, settings)];
    let helps = analysis.verdict(prices) != Verdict::HelpsNot;
    let knee = analysis.recommended.blocks;
    if settings.cache_blocks.is_some() && knee > 0 {
        let size = size(knee);
        said.push(format!("95 % of what any size would save takes {size}."));
    }
    let named = WritePolicy::ALL.into_iter().rev().filter_map(|policy| {
        let is_of = |found: &&Found| found.part.is_some_and(|part| part.policy == policy);
        let names: Vec<_> = ranked(analysis).into_iter().filter(is_of).collect();
        (!names.is_empty()).then(|| format!("{policy} for {}", list(&names)))
    });
    let named: Vec<String> = named.collect();
    if helps && !named.is_empty() {
        said.push(format!("Policies: {}.", named.join("; ")));
    }
    said
}

fn verdict(analysis: &Analysis, settings: &Settings) -> String {
    let prices = &settings.rules.prices;
    let expected = analysis.expected(prices);
    let reads = analysis.mix().reads as f64;
    let hits = Unit::Ratio.show(expected.read_hits / reads.max(1.0));
    let saved = Unit::Ratio.show(analysis.saved_part(prices));
    let waiting = if prices.omega > 0.0 { "the waiting" } else { "the waiting for reads" };
    let (asked, allocator) = (settings.cache_blocks.is_some(), settings.rules.allocator);
    // Ours is the one that recommends; with another one a good size may be badly divided.
    let divided = match allocator {
        Allocator::Urd => String::new(),
        _ => format!(", divided by {allocator},"),
    };
    let size = size(analysis.cache_blocks) + &divided;
    let what = format!("{hits} of the blocks read come from it, which saves {saved} of {waiting}");
    match analysis.verdict(prices) {
        Verdict::Helps if asked => format!("A cache of {size} would help: {what}."),
        Verdict::Helps => format!("A cache would help, and {size} are enough: {what}."),
        Verdict::HelpsLittle => format!("A cache of {size} would help little: {what}."),
        Verdict::HelpsNot if asked => {
            format!("A cache of {size} would not help: {}.", why_not(analysis, prices))
        }
        Verdict::HelpsNot => format!("A cache would not help: {}.", why_not(analysis, prices)),
    }
}

fn why_not(analysis: &Analysis, prices: &Prices) -> String {
    let mix = analysis.mix();
    let again = (mix.rar + mix.raw) as f64 / mix.reads.max(1) as f64;
    let reused = format!("{} of the blocks read were used before", Unit::Ratio.show(again));
    if mix.reads == 0 && prices.omega <= 0.0 {
        "nothing is read, and writes are not waited for".to_owned()
    } else if analysis.recommended.most_value_us <= 0.0 {
        format!("{reused}, which does not pay for what goes to the SSD")
    } else {
        format!(
            "{reused}, and it saves {} of the waiting",
            Unit::Ratio.show(analysis.saved_part(prices))
        )
    }
}

/// What is to be known before the answer is believed.
pub fn notes(analysis: &Analysis) -> Vec<String> {
    let mix = analysis.mix();
    let mut notes = Vec::new();
    let cold = mix.reads.saturating_sub(mix.rar + mix.raw) as f64 / mix.reads.max(1) as f64;
    if cold > COLD_PART {
        let part = Unit::Ratio.show(cold);
        notes.push(format!(
            "{part} of the blocks read were never used before within the trace; in a longer one more of them may hit"
        ));
    }
    match analysis.seconds() {
        None => notes.push("the trace has no times: nothing is known of a day".to_owned()),
        Some(seconds) if seconds < DAY_S => {
            let length = Unit::Seconds.show(seconds);
            notes.push(format!(
                "the trace is {length} long: what is said of a day goes on as it did"
            ));
        }
        Some(_) => {}
    }
    if analysis.out_of_order > 0 {
        notes.push(format!(
            "{} requests are earlier than the one before them: reuse and intervals go by the order of \
            the file; sort a canonical trace by time with sort -s -n -t, -k1,1",
            Unit::Count.show(analysis.out_of_order as f64)
        ));
    }
    let estimates: Vec<_> =
        analysis.volumes.iter().filter(|found| found.curves.rate() < 1.0).collect();
    if !estimates.is_empty() {
        notes.push(format!(
            "{} of {} volumes are estimates (~) from a sample of their blocks; --exact looks at all",
            estimates.len(),
            analysis.volumes.len()
        ));
    }
    let coarse: Vec<_> = estimates.into_iter().filter(|found| is_coarse(found)).collect();
    if !coarse.is_empty() {
        let names = list(&coarse);
        notes.push(format!(
            "little is known of so small a size: {names}; look closer with --exact or more --sample-blocks"
        ));
    }
    let is_back = |found: &&Found| found.part.is_some_and(|part| part.policy == WritePolicy::Back);
    if analysis.shared.is_some() || analysis.volumes.iter().any(|found| is_back(&found)) {
        notes.push(
            "write-back needs a write log: write_log in [cache]; without one the nearest is write-through"
                .to_owned(),
        );
    }
    notes
}

/// Does its size stand on too few sampled blocks?
pub(crate) fn is_coarse(found: &Found) -> bool {
    let rate = found.curves.rate();
    let blocks = found.part.map_or(0, |part| part.blocks) as f64;
    rate < 1.0 && blocks > 0.0 && blocks * rate < SAMPLED_MIN
}

fn size(blocks: u64) -> String {
    Unit::Bytes.show(blocks.saturating_mul(BLOCK_BYTES) as f64)
}

fn list(volumes: &[&Found]) -> String {
    let names: Vec<&str> = volumes.iter().take(NAMED_MAX).map(|found| &*found.name).collect();
    match volumes.len().saturating_sub(names.len()) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}
