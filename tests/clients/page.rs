//! The page in a browser: what people see, and what they do with it. The scripts in `page/` lead a headless Chromium.

use crate::Case;
use anyhow::{Context, Result, ensure};
use e2e::control::get;
use e2e::nbd::Client;
use e2e::tools::{CHROMIUM, PYTHON3};
use e2e::{Config, Daemon, MIB, Site, Volume, daemon, output, page};
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const NEEDS: &[e2e::tools::Tool] = &[PYTHON3, CHROMIUM];

pub(crate) const CASES: [Case; 7] = [
    Case::new("page_views", NEEDS, views).ci(),
    Case::new("page_acts", NEEDS, acts),
    Case::new("page_restart", NEEDS, restart),
    Case::new("page_hostile", NEEDS, hostile).ci(),
    Case::new("page_large", NEEDS, large),
    Case::new("page_loaded", NEEDS, loaded).alone(),
    Case::new("page_shots", NEEDS, shots),
];

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// A name that would run a script wherever it is not escaped.
const ODD: &str = "<img src=x onerror=odd()>&lt;";
const SIZE: u64 = 8 * MIB;
const LIMIT: Duration = Duration::from_mins(2);

/// A site whose daemon serves the page.
struct Stage {
    site: Site,
    config: Config,
    address: String,
}

impl Stage {
    fn new() -> Result<Self> {
        let site = Site::new()?;
        let mut token = OpenOptions::new();
        let mut token = token.write(true).create_new(true).mode(0o600).open(site.path("token"))?;
        token.write_all(TOKEN.as_bytes())?;
        let port = daemon::free_port()?;
        let config = Config::new(64 * MIB)
            .http(port)
            .control_key("api = true")
            .control_key("token_file = \"token\"");
        Ok(Self { site, config, address: format!("http://127.0.0.1:{port}") })
    }

    /// One with a volume `vm1` that has been read, and plans.
    fn usual() -> Result<(Self, Daemon)> {
        let mut stage = Self::new()?;
        stage.site.filled("vm1.raw", SIZE, 1)?;
        stage.site.sparse("odd.raw", SIZE)?;
        stage.config = stage
            .config
            .control_key("[manager]\ninterval_s = 1")
            .volume(Volume::new("vm1", "file:vm1.raw"))
            .volume(Volume::new(ODD, "file:odd.raw").at("unix:odd.sock"));
        let daemon = stage.site.serve(&stage.config)?;
        // Reuse at several distances, so that there is a curve.
        let mut client = Client::connect(&stage.site.path("vm1.sock"), "vm1")?;
        for round in 1..=4 {
            for block in (0..SIZE / 4096).step_by(round) {
                client.read(block * 4096, 4096)?;
            }
        }
        client.write(0, &[7; 4096])?;
        let start = Instant::now();
        while !daemon.command(&["policy", "history", "--json"])?.contains("\"vm1\"") {
            ensure!(start.elapsed() < LIMIT, "no plan was made");
            // A plan is made behind an interval in which something was asked for.
            client.read(0, 4096)?;
            thread::sleep(Duration::from_millis(100));
        }
        Ok((stage, daemon))
    }

    /// Runs a script at this page, and shows what it prints.
    fn run(&self, script: &str, args: &[&str]) -> Result<()> {
        let args = [&[self.address.as_str()], args].concat();
        println!("{}", page::run(&self.site, script, &args)?.trim_end());
        Ok(())
    }

    /// The binary and the control socket, as arguments.
    fn command_line(&self) -> Result<[String; 2]> {
        let text = |path: &Path| path.to_str().map(str::to_owned).context("a path in plain text");
        Ok([text(&e2e::binary::cinnabar()?)?, text(&self.site.path("control.sock"))?])
    }
}

/// All views, their numbers, and whether all can be read by all.
fn views() -> Result<()> {
    if page::axe().is_none() {
        let purpose = e2e::python::AXE.purpose;
        eprintln!(
            "skipped: page_views looks at accessibility with {purpose} (cargo xtask ci tools)"
        );
    }
    let (stage, daemon) = Stage::usual()?;
    let [binary, socket] = stage.command_line()?;
    stage.run("views", &[&binary, &socket, "vm1", ODD])?;
    daemon.stop()
}

/// What an operator does from the page is done, and by the command that it shows as well.
fn acts() -> Result<()> {
    let (stage, daemon) = Stage::usual()?;
    let [binary, socket] = stage.command_line()?;
    stage.run("acts", &[&binary, &socket, "vm1", TOKEN])?;
    daemon.stop()
}

/// The daemon is restarted under a page that is open.
fn restart() -> Result<()> {
    let (stage, daemon) = Stage::usual()?;
    let folder = stage.site.path("browser-restart");
    thread::scope(|scope| {
        let browser = scope.spawn(|| stage.run("restart", &["vm1"]));
        let start = Instant::now();
        while !folder.join("opened").exists() && !browser.is_finished() {
            ensure!(start.elapsed() < LIMIT, "the page is not opened");
            thread::sleep(Duration::from_millis(20));
        }
        daemon.stop()?;
        let daemon = stage.site.serve(&stage.config)?;
        Client::connect(&stage.site.path("vm1.sock"), "vm1")?.read(0, 4096)?;
        std::fs::write(folder.join("restarted"), "")?;
        browser.join().ok().context("the script's thread ended early")??;
        daemon.stop()
    })
}

/// A page of another site in the operator's browser.
fn hostile() -> Result<()> {
    let (stage, daemon) = Stage::usual()?;
    let [binary, socket] = stage.command_line()?;
    stage.run("hostile", &["vm1", &binary, &socket, TOKEN])?;
    daemon.stop()
}

/// 200 volumes, with a history of a day each.
fn large() -> Result<()> {
    const VOLUMES: usize = 200;
    let mut stage = Stage::new()?;
    let state = stage.site.path("cinnabar-state");
    DirBuilder::new().mode(0o700).create(&state)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/page/history.py");
    let mut make = Command::new("python3");
    make.arg("-B").arg(script).arg(state.join("history.bin")).arg(VOLUMES.to_string());
    output(&mut make)?;
    for index in 0..VOLUMES {
        let name = format!("vm{index:03}");
        stage.site.sparse(&format!("{name}.raw"), MIB)?;
        stage.config = stage.config.volume(Volume::new(&name, &format!("file:{name}.raw")));
    }
    stage.config = stage.config.control_key("[manager]");
    let daemon = stage.site.serve(&stage.config)?;
    let start = Instant::now();
    let control = stage.site.path("control.sock");
    loop {
        let (_, body) = get(&control, "/v1/history?volume=vm007&step=300")?;
        let history: serde_json::Value = serde_json::from_str(&body)?;
        if history["samples"].as_array().is_some_and(|samples| samples.len() > 280) {
            break;
        }
        ensure!(start.elapsed() < LIMIT, "the history was not taken: {body}");
        thread::sleep(Duration::from_millis(50));
    }
    stage.run("large", &["vm007"])?;
    stage.run("charts", &["vm007"])?;
    daemon.stop()
}

/// The demonstration's machines work while pages are open.
fn loaded() -> Result<()> {
    let site = Site::in_memory()?;
    let daemon = site.serve_demo()?;
    let address = page::demo_address(&daemon)?;
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a path in plain text");
    let (binary, socket) = (text(&e2e::binary::cinnabar()?)?, text(&site.path("control.sock"))?);
    let args = [&address, &binary, &socket, "database"];
    println!("{}", page::run(&site, "loaded", &args)?.trim_end());
    daemon.stop()
}

/// Pictures of the demonstration's page, if they are asked for.
fn shots() -> Result<()> {
    if std::env::var_os(page::SHOTS).is_none() {
        return Ok(());
    }
    let site = Site::in_memory()?;
    let daemon = site.serve_demo()?;
    let address = page::demo_address(&daemon)?;
    thread::sleep(Duration::from_secs(75));
    println!("pictures: {}", page::shots(&site, &address, "database")?.display());
    daemon.stop()
}
