//! `[manager]`: how shares of the cache are planned while it serves.

use super::planned::ManagerConfig;
use super::section_keys::ManagerKeys;
use super::values::{choice_of, quantity, up_to};
use cinnabar_policy::monitor::Sampling;
use cinnabar_policy::sizing::Allocator;
use cinnabar_text::toml_reader::{Located, Section, Source};
use cinnabar_text::{ConfigError, suggest};
use std::num::NonZeroU32;
use std::time::Duration;

const EVERY_S_MAX: u64 = 86_400;
const SAMPLE_BLOCKS_MIN: u64 = 64;
const SAMPLE_BLOCKS_MAX: u64 = 1 << 16;
const PRICE_US_MAX: u64 = 60_000_000;
/// With less, metadata alone may be more.
const SSD_BUDGET_MIN: u64 = 1 << 30;

pub(super) fn read_manager(
    source: Source<'_>,
    section: Option<Section<'_>>,
) -> Result<Option<ManagerConfig>, ConfigError> {
    let Some(section) = section else { return Ok(None) };
    let keys = ManagerKeys::read(section)?;
    let mut manager = ManagerConfig::default();
    let number = |key, found: Option<Located<u64>>, min, max| {
        found.map(|found| up_to(source, key, &found, min, max)).transpose()
    };
    let percent = |value: u64| value as f64 / 100.0;
    if let Some(seconds) = number("interval_s", keys.interval_s, 1, EVERY_S_MAX)? {
        manager.every = Duration::from_secs(seconds);
    }
    if let Some(part) = number("decay_percent", keys.decay_percent, 0, 99)? {
        manager.monitor.decay = percent(part);
    }
    if let Some(part) = number("step_percent", keys.step_percent, 1, 100)? {
        manager.rules.steadiness.step_max = percent(part);
    }
    if let Some(blocks) =
        number("sample_blocks", keys.sample_blocks, SAMPLE_BLOCKS_MIN, SAMPLE_BLOCKS_MAX)?
    {
        let blocks = NonZeroU32::new(blocks as u32).unwrap_or(NonZeroU32::MIN);
        manager.monitor.sampling = Sampling::Blocks(blocks);
    }
    if let Some(seed) = number("seed", keys.seed, 0, u64::MAX)? {
        manager.monitor.seed = seed;
    }
    if let Some(part) = number("omega_percent", keys.omega_percent, 0, 1000)? {
        manager.rules.prices.omega = percent(part);
    }
    let prices = &mut manager.rules.prices;
    for (key, found, price) in [
        ("ssd_read_us", keys.ssd_read_us, &mut prices.ssd_read_us),
        ("ssd_write_us", keys.ssd_write_us, &mut prices.ssd_write_us),
        ("backend_read_us", keys.backend_read_us, &mut prices.backend_read_us),
        ("backend_write_us", keys.backend_write_us, &mut prices.backend_write_us),
    ] {
        if let Some(told) = number(key, found, 1, PRICE_US_MAX)? {
            *price = told as f64;
        }
    }
    // A block written costs what its write takes.
    prices.lambda_us = prices.ssd_write_us;
    if let Some(name) = keys.allocator {
        manager.rules.allocator = allocator(source, &name)?;
    }
    if let Some(prices) = keys.prices {
        let values = [("measured", true), ("told", false)];
        manager.measured = choice_of(source, "prices", &prices, &values)?;
    }
    if let Some(budget) = keys.ssd_budget {
        manager.ssd_bytes_a_day = Some(bytes_a_day(source, &budget)?);
    }
    manager.apply = keys.apply.is_none_or(|apply| apply.value);
    Ok(Some(manager))
}

/// `2 TB/day`.
fn bytes_a_day(source: Source<'_>, text: &Located<String>) -> Result<u64, ConfigError> {
    let Some(amount) = text.value.trim().strip_suffix("/day") else {
        let message = format!("ssd_budget: {:?} does not say in which time", text.value);
        return Err(source.error(Some(text.line), message, "write it such as \"2TB/day\""));
    };
    let bytes =
        quantity(source, "ssd_budget", &Located { value: amount.to_owned(), line: text.line })?;
    if bytes < SSD_BUDGET_MIN {
        let message = format!("ssd_budget: {:?} is too little to hold", text.value);
        let hint = "write at least \"1GiB/day\", or mode = \"pass-through\" for its volumes";
        return Err(source.error(Some(text.line), message, hint));
    }
    Ok(bytes)
}

fn allocator(source: Source<'_>, name: &Located<String>) -> Result<Allocator, ConfigError> {
    name.value.parse().map_err(|error| {
        let names = Allocator::ALL.map(Allocator::name);
        source.error(Some(name.line), format!("allocator: {error}"), suggest(&name.value, &names))
    })
}
