//! Chores of the workspace: checks, demonstration, benchmarks, long searches.
//!
//! Started as `cargo xtask NAME` (see `.cargo/config.toml`).

fn main() -> anyhow::Result<()> {
    anyhow::bail!("not yet")
}
