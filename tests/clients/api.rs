//! The control API for programs: its description is checked, and made into a client, by tools that are
//! not of this project; the client talks to a daemon.

use crate::Case;
use anyhow::{Context, Result, ensure};
use e2e::python::API_CLIENT;
use e2e::{Config, MIB, Site, Volume, daemon, output, tools};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const CASES: [Case; 2] = [
    Case::new("api_generated_client", &[], generated_client).ci(),
    Case::new("api_alert_rules", &[tools::PROMTOOL], alert_rules).ci(),
];

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The description is valid, a generator makes a client of it without a complaint, and the client
/// reads, is refused, and changes things.
fn generated_client() -> Result<()> {
    let Some(programs) = API_CLIENT.find() else {
        eprintln!(
            "skipped: api_generated_client needs {} (cargo xtask ci tools)",
            API_CLIENT.purpose
        );
        return Ok(());
    };
    let site = Site::new()?;
    site.filled("vm1.raw", 8 * MIB, 1)?;
    site.filled("vm2.raw", MIB, 2)?;
    let mut token = OpenOptions::new();
    let mut token = token.write(true).create_new(true).mode(0o600).open(site.path("token"))?;
    token.write_all(TOKEN.as_bytes())?;
    let port = daemon::free_port()?;
    let config = Config::new(64 * MIB)
        .http(port)
        .control_key("api = true")
        .control_key("token_file = \"token\"")
        .control_key("[manager]")
        .volume(Volume::new("vm1", "file:vm1.raw"));
    let daemon = site.serve(&config)?;

    let description = site.path("openapi.json");
    fs::write(
        &description,
        output(Command::new(e2e::binary::cinnabar()?).args(["api", "describe"]))?,
    )?;
    output(Command::new(programs.join("openapi-spec-validator")).arg(&description))?;
    let client = site.path("control_api");
    // It calls the formatter that is installed beside it.
    let path = std::env::join_paths(
        std::iter::once(programs.clone())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )?;
    let mut generate = Command::new(programs.join("openapi-python-client"));
    generate.args(["generate", "--meta", "none", "--fail-on-warning", "--path"]).arg(&description);
    generate.arg("--output-path").arg(&client).env("PATH", path);
    output(&mut generate).context("making a client of the description")?;

    let mut run = Command::new(programs.join("python3"));
    run.arg(source("clients/api/client.py")).arg(format!("http://127.0.0.1:{port}")).arg(TOKEN);
    run.env("PYTHONPATH", client.parent().context("a folder")?).env("NO_PROXY", "*");
    run.env("PYTHONDONTWRITEBYTECODE", "1");
    output(&mut run).context("the generated client")?;
    let status = daemon.glance()?;
    ensure!(status.volume("vm1")?["mode"] == "write-around", "{}", status.0);
    daemon.stop()
}

/// Prometheus reads the rules that come with the daemon.
fn alert_rules() -> Result<()> {
    let rules = source("../packaging/prometheus-rules.yml");
    let promtool = tools::PROMTOOL.unpacked().context("it was looked for before")?;
    output(Command::new(promtool).args(["check", "rules"]).arg(rules)).map(drop)
}
