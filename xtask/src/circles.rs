//! Circles of modules: files of a crate that name each other. Each one that is left has a reason
//! here; the check prints them, and fails on any other.

use crate::count::crates;
use crate::modules::Modules;
use crate::shell::root;
use anyhow::{Result, bail};

/// A circle that may stay: its crate, its modules (`a::*` is `a` and all below it), and why.
struct Allowed {
    member: &'static str,
    modules: &'static [&'static str],
    reason: &'static str,
}

const ALLOWED: &[Allowed] = &[
    Allowed {
        member: "crates/cinnabar-writeback",
        modules: &["destage", "log", "memory::kept", "pace", "read", "record", "volume"],
        reason: "the write log is one type over several files, a volume's part in each of them",
    },
    Allowed {
        member: "crates/cinnabar-daemon",
        modules: &["dataplane::*"],
        reason: "the data plane is one type over many files; docs/design/driver.md has the order in which its parts move to cinnabar-driver",
    },
    Allowed {
        member: "crates/cinnabar-control",
        modules: &[
            "actions",
            "api",
            "describe",
            "events",
            "history",
            "migrate",
            "policy",
            "recordings",
            "reload::*",
            "warm",
        ],
        reason: "the table of routes names the handlers, which answer with its types; its \
                 description is made from it and is one of its answers",
    },
    Allowed {
        member: "crates/cinnabar-backend",
        modules: &["nbd::*"],
        reason: "client, dialer and worker talk through the client's mailbox; errors name what they are about",
    },
    Allowed {
        member: "crates/cinnabar-embed",
        modules: &["cache", "driver::*"],
        reason: "the driver fills the report that closing the cache returns",
    },
    Allowed {
        member: "crates/cinnabar-embed",
        modules: &["error", "request"],
        reason: "errors name what they are about",
    },
    Allowed {
        member: "crates/cinnabar-engine",
        modules: &["engine::*", "journal::*", "log::*", "outbox", "store::*"],
        reason: "what an I/O is pending for names the step of start, load or checkpoint that waits for it",
    },
    Allowed {
        member: "crates/cinnabar-engine",
        modules: &["engine::read", "engine::request", "engine::write", "engine::zero"],
        reason: "a request holds the state of its kind",
    },
    Allowed {
        member: "crates/cinnabar-engine",
        modules: &["log::ranks", "log::shares"],
        reason: "ranks order the segments of a share group",
    },
    Allowed {
        member: "crates/cinnabar-policy",
        modules: &["sizing::engine_units", "sizing::volume"],
        reason: "a volume holds what the engine would do with its share, which is divided into its units",
    },
    Allowed {
        member: "crates/cinnabar-shards",
        modules: &["commands", "requests", "router"],
        reason: "the router holds what each kind of join waits for",
    },
    Allowed {
        member: "crates/cinnabar-frontend",
        modules: &["nbd::*", "socket"],
        reason: "sockets are made for exports, which name their peers",
    },
    Allowed {
        member: "crates/cinnabar-frontend",
        modules: &["nbd::long", "nbd::transmission"],
        reason: "long requests go through transmission in parts",
    },
    Allowed {
        member: "crates/cinnabar-model",
        modules: &["file", "preset", "settings"],
        reason: "settings may name a preset or a file, and both hold settings",
    },
    Allowed {
        member: "crates/cinnabar-sim",
        modules: &["driver::*"],
        reason: "the world is one type over many files, a file each for what happens to it",
    },
    Allowed {
        member: "crates/cinnabar-sim",
        modules: &["hosts::*"],
        reason: "the world of two hosts is one type over many files",
    },
    Allowed {
        member: "crates/cinnabar-sim",
        modules: &["medium::*"],
        reason: "rules of a back end name its transfers",
    },
    Allowed {
        member: "crates/cinnabar-search",
        modules: &["device", "requests", "session", "world"],
        reason: "the small world is one type over several files",
    },
    Allowed {
        member: "crates/cinnabar-study",
        modules: &["timed::host", "timed::model", "timed::syncer"],
        reason: "the model is one type over several files",
    },
];

/// Prints the circles that are left.
///
/// # Errors
/// Lists circles without a reason, and reasons without a circle.
pub(crate) fn check() -> Result<()> {
    let mut used = vec![false; ALLOWED.len()];
    let mut wrong = Vec::new();
    for folder in crates(root())? {
        let member = folder.strip_prefix(root()).unwrap_or(&folder).display().to_string();
        for circle in Modules::read(&folder.join("src"))?.circles() {
            let names = circle.join(", ");
            match ALLOWED.iter().rposition(|allowed| allowed.holds(&member, &circle)) {
                Some(at) => {
                    used[at] = true;
                    println!("{member}: {names}: {}", ALLOWED[at].reason);
                }
                None => wrong.push(format!("{member}: these name each other: {names}")),
            }
        }
    }
    let unused = ALLOWED.iter().zip(used).filter(|(_, used)| !used);
    wrong.extend(unused.map(|(allowed, _)| {
        format!("{}: no circle is left among {}", allowed.member, allowed.modules.join(", "))
    }));
    if !wrong.is_empty() {
        bail!("{}\nhint: the circles that may stay are in xtask/src/circles.rs", wrong.join("\n"));
    }
    Ok(())
}

impl Allowed {
    fn holds(&self, member: &str, circle: &[String]) -> bool {
        let named = |module: &String| {
            self.modules.iter().any(|name| match name.strip_suffix("::*") {
                Some(stem) => module
                    .strip_prefix(stem)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with("::")),
                None => module == name,
            })
        };
        self.member == member && circle.iter().all(named)
    }
}
