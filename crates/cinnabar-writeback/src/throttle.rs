//! How writers are slowed down as the log fills and its data age.

use crate::log::Config;

/// Delay at full pressure's half, in ns; the curve is that of ZFS's write throttle.
const DELAY_NS: u64 = 500_000;
/// Longest delay of one acknowledgement, in ns.
const DELAY_NS_MAX: u64 = 20_000_000;

/// Whether a volume may hold so many of all pages.
pub(crate) fn within(config: &Config, pages: u64, all: u64) -> bool {
    pages * 100 <= all * u64::from(config.dirty_max_percent)
}

/// How long an acknowledgement is held back: nothing below 60 % of what is allowed, then more and
/// more.
pub(crate) fn delay_ns(config: &Config, (pages, all): (u64, u64), age_ns: u64) -> u64 {
    let most = (all * u64::from(config.dirty_max_percent) / 100).max(1);
    let parts = |value: u64, of: u64| (u128::from(value) * 1000 / u128::from(of.max(1))) as u64;
    let pressure = parts(pages, most).max(parts(age_ns, config.age_max_ns)).min(999);
    match pressure.checked_sub(600) {
        None | Some(0) => 0,
        Some(over) => (DELAY_NS * over / (1000 - pressure)).min(DELAY_NS_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_grows_smoothly() {
        let config = Config { dirty_max_percent: 100, ..Config::default() };
        let delays: Vec<u64> = (0..=100).map(|x| delay_ns(&config, (x, 100), 0)).collect();
        assert!(delays[..=60].iter().all(|delay| *delay == 0));
        assert!(delays.is_sorted());
        assert_eq!((delays[80], delays[100]), (500_000, DELAY_NS_MAX));
    }
}
