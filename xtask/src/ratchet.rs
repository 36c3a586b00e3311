//! Sizes that may only fall. A change that needs more says so by raising a number here, for a reviewer
//! to see; one that takes away lowers it, so that nothing grows into what was won.

use crate::count;
use crate::shell::root;
use anyhow::Result;

/// A size, and what it may be.
struct Ratchet {
    what: &'static str,
    max: usize,
    now: usize,
}

/// Crates of the workspace, the tools beside them included.
const CRATES: usize = 39;
/// Lines of Rust that production compiles, tests left out.
const LINES: usize = 206_300;
/// Part of a maximum that may lie idle, in percent, before it must be lowered.
const SLACK_PERCENT: usize = 1;

/// What has grown, or has fallen without its maximum.
///
/// # Errors
/// When the sources can't be read.
pub(crate) fn check() -> Result<Vec<String>> {
    let sizes = count::sizes(root())?;
    let all = [
        Ratchet { what: "CRATES", max: CRATES, now: sizes.crates },
        Ratchet { what: "LINES", max: LINES, now: sizes.own_lines },
    ];
    Ok(all.iter().filter_map(Ratchet::complaint).collect())
}

impl Ratchet {
    fn complaint(&self) -> Option<String> {
        let Self { what, max, now } = self;
        if now > max {
            return Some(format!("{what} is {now}, more than {max} (xtask/src/ratchet.rs)"));
        }
        let idle = max - now > max * SLACK_PERCENT / 100;
        idle.then(|| {
            format!("{what} is {now}: lower its maximum from {max} (xtask/src/ratchet.rs)")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Ratchet;

    #[test]
    fn it_holds_both_ways() {
        let complaint = |now, max| Ratchet { what: "LINES", max, now }.complaint();
        assert!(complaint(1001, 1000).expect("it has grown").contains("more than 1000"));
        assert!(complaint(989, 1000).expect("it has fallen").contains("lower"));
        assert_eq!(complaint(1000, 1000).or(complaint(990, 1000)), None);
        assert_eq!(complaint(36, 36), None);
        assert!(complaint(35, 36).is_some(), "a crate less is a crate less");
    }
}
