//! How many files the process may have open: each client, each disk and each queue of a guest takes some.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// No process needs more, and the hard limit may be without bound.
const WANTED: u64 = 1 << 20;
/// With fewer the log warns: it is some hundred guests, or as many connections as clients may make.
const FEW: u64 = 4096;

/// Raises the soft limit to the hard one. A shell's is 1024, for programs that use `select`; this one does not.
pub(crate) fn raise() {
    let before = getrlimit(Resource::Nofile);
    let raised = raised(before);
    if raised != before
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::warn!("can't raise the limit on open files: {error}");
    }
    if let Some(count) = getrlimit(Resource::Nofile).current.filter(|count| *count < FEW) {
        tracing::warn!(
            "no more than {count} files may be open, connections included: clients and disks beyond that \
             are refused; raise the hard limit (ulimit -Hn, or LimitNOFILE= in the unit)"
        );
    }
}

/// The limits to have; no limit is `None`.
fn raised(limits: Rlimit) -> Rlimit {
    let hard = limits.maximum.unwrap_or(u64::MAX);
    let current = limits.current.map(|soft| soft.max(hard.min(WANTED)));
    Rlimit { current, maximum: limits.maximum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one_and_never_less() {
        for (soft, hard, expected) in [
            (Some(1024), Some(4096), Some(4096)),
            (Some(1024), Some(u64::MAX - 1), Some(WANTED)),
            (Some(1024), None, Some(WANTED)),
            (Some(2 * WANTED), None, Some(2 * WANTED)),
            (Some(65_536), Some(65_536), Some(65_536)),
            (None, None, None),
        ] {
            let limits = raised(Rlimit { current: soft, maximum: hard });
            assert_eq!((limits.current, limits.maximum), (expected, hard));
        }
    }
}
