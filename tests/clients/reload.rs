//! The configuration read again under load, and changes by command that are written into it.

use crate::Case;
use crate::nbd_backend::real::start_nbdkit_over_tcp;
use crate::unit::{connect_as, is_root};
use anyhow::{Context, Result, ensure};
use e2e::daemon::Daemon;
use e2e::process::Running;
use e2e::tools::{FIO, NBDKIT};
use e2e::{Config, Fio, MIB, Site, Volume, nbd::Client};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

pub(crate) const CASES: [Case; 7] = [
    Case::new("reload_under_fio", &[FIO], under_fio).ci(),
    Case::new("reload_by_hangup", &[], by_hangup),
    Case::new("reload_removes_only_what_is_unused", &[], removes),
    Case::new("reload_two_at_once", &[], two_at_once).quick(),
    Case::new("reload_adds_an_export_once", &[NBDKIT], one_export_under_two_names),
    Case::new("reload_commands_leave_the_file_alone", &[], leaves_the_file),
    Case::new("control_socket_group", &[], socket_group),
];

const DISK: u64 = 32 * MIB;
const PATIENCE: Duration = Duration::from_secs(30);
const VM2: &str = "\n# The web server.\n[[volume]]\nname = \"vm2\"\nbackend = \"file:vm2.raw\"\n";

/// Two disks, a daemon that serves the first one.
fn site() -> Result<(Site, Daemon)> {
    let site = Site::new()?;
    for disk in ["vm1.raw", "vm2.raw"] {
        site.sparse(disk, DISK)?;
    }
    let config = Config::new(64 * MIB).volume(Volume::new("vm1", "file:vm1.raw"));
    let daemon = site.serve(&config)?;
    Ok((site, daemon))
}

fn file(site: &Site) -> Result<String> {
    Ok(std::fs::read_to_string(site.path("cinnabar.toml"))?)
}

fn write(site: &Site, text: &str) -> Result<()> {
    Ok(std::fs::write(site.path("cinnabar.toml"), text)?)
}

/// What a command does: code and output.
fn run(site: &Site, args: &[&str]) -> Result<Output> {
    let mut command = Command::new(e2e::binary::cinnabar()?);
    Ok(command.args(args).arg("--socket").arg(site.path("control.sock")).output()?)
}

/// A command that is refused with this code; what it says.
fn refused(site: &Site, args: &[&str], code: i32) -> Result<String> {
    let output = run(site, args)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(code), "{args:?}: {:?}: {said}", output.status);
    ensure!(said.contains("\nhint: "), "{args:?}: no hint: {said}");
    Ok(said)
}

fn report(text: &str) -> Result<Value> {
    serde_json::from_str(text).with_context(|| text.to_owned())
}

fn names(daemon: &Daemon) -> Result<Vec<String>> {
    let status = daemon.status()?;
    let volumes = status.0["volumes"].as_array().context("volumes")?;
    Ok(volumes.iter().filter_map(|volume| Some(volume["name"].as_str()?.to_owned())).collect())
}

/// A guest verifies what it reads while volumes come, modes change, and broken files are refused.
fn under_fio() -> Result<()> {
    let (site, daemon) = site()?;
    let job = Fio::nbd(&site.uri("vm1"))
        .arg("rw", "randwrite")
        .arg("size", DISK)
        .arg("iodepth", 16)
        // Long enough for all that happens meanwhile.
        .arg("rate_iops", 700)
        .arg("verify", "crc32c")
        .arg("verify_fatal", 1);
    let mut guest = Running::start(&mut job.command(), &site.path("fio.log"))?;
    let begun = Instant::now();
    while daemon.glance()?.count("vm1", "writes")? == 0 {
        ensure!(begun.elapsed() < PATIENCE, "fio does not write: {}", guest.log());
    }
    let first = file(&site)?;
    // Each way once, with a file that is broken in between.
    for (mode, broken) in [
        ("write-around", "[[volume]]\nname = \"vm3\"\n"),
        ("pass-through", "sise = 3\n"),
        ("write-through", "[[volume]]\nname = \"vm3\"\nbackend = \"file:vm1.raw\"\n"),
    ] {
        let new = format!("{first}mode = \"{mode}\"\n");
        write(&site, &format!("{new}{VM2}{broken}"))?;
        let said = refused(&site, &["reload"], 2)?;
        ensure!(said.contains("cinnabar.toml:"), "no line: {said}");
        ensure!(names(&daemon)? == ["vm1"], "a broken file changed something");
        write(&site, &format!("{new}{VM2}"))?;
        let dry = report(&daemon.command(&["reload", "--dry-run", "--json"])?)?;
        ensure!(names(&daemon)? == ["vm1"], "a look changed something: {dry}");
        let done = report(&daemon.command(&["reload", "--json"])?)?;
        let actions = done["changes"].as_array().context("changes")?;
        ensure!(actions.len() == dry["changes"].as_array().map_or(0, Vec::len), "{dry} {done}");
        ensure!(actions.iter().all(|change| change["state"] == "done"), "{done}");
        let status = daemon.status()?;
        ensure!(status.volume("vm1")?["mode"] == mode, "{mode}: {}", status.0);
        let client = Client::connect(&site.path("vm2.sock"), "vm2")?;
        ensure!(client.size() == DISK, "size {}", client.size());
        drop(client);
        write(&site, &new)?;
        let gone = daemon.command(&["reload", "--remove-volumes"]);
        ensure!(gone?.contains("volume vm2: removed"), "it is there still");
    }
    ensure!(guest.wait(Duration::ZERO).is_err(), "fio has ended: {}", guest.log());
    let ended = guest.wait(Duration::from_mins(2))?;
    ensure!(ended.success(), "fio: {}", guest.log());
    daemon.stop()
}

/// SIGHUP does the same, the log says what, and the daemon goes on.
fn by_hangup() -> Result<()> {
    let (site, mut daemon) = site()?;
    let pid = Pid::from_raw(i32::try_from(daemon.running.pid())?).context("a process")?;
    let first = file(&site)?;
    write(&site, &format!("{first}sise = 1\n"))?;
    kill_process(pid, Signal::HUP)?;
    let log = site.path("cinnabar.log");
    let says = |text: &str| std::fs::read_to_string(&log).is_ok_and(|log| log.contains(text));
    daemon.running.wait_until(PATIENCE, || says("unknown key \"sise\" in [[volume]]"))?;
    ensure!(names(&daemon)? == ["vm1"], "a broken file changed something");
    let device = first.replace("cache.img", "other.img");
    write(&site, &format!("{device}{VM2}"))?;
    // Several at once are one, or some; what they find done is not done again.
    for _ in 0..5 {
        kill_process(pid, Signal::HUP)?;
    }
    daemon.running.wait_until(PATIENCE, || says("volume vm2: added"))?;
    ensure!(says("cache.device: needs a restart"), "{}", daemon.running.log());
    drop(Client::connect(&site.path("vm2.sock"), "vm2")?);
    ensure!(!says("Exists") && !says("not added"), "{}", daemon.running.log());
    daemon.stop()
}

fn removes() -> Result<()> {
    let (site, daemon) = site()?;
    let first = file(&site)?;
    write(&site, &format!("{first}{VM2}"))?;
    daemon.command(&["reload"])?;
    let client = Client::connect(&site.path("vm2.sock"), "vm2")?;
    write(&site, &first)?;
    let said = daemon.command(&["reload"])?;
    ensure!(said.contains("volume vm2: is not in the file any more and is served on"), "{said}");
    let said = refused(&site, &["reload", "--remove-volumes"], 1)?;
    ensure!(said.contains("\"vm2\" has 1 clients connected"), "{said}");
    ensure!(names(&daemon)? == ["vm1", "vm2"], "it was removed");
    drop(client);
    let begun = Instant::now();
    while daemon.glance()?.count("vm2", "connections")? > 0 {
        ensure!(begun.elapsed() < PATIENCE, "the client has left");
    }
    daemon.command(&["reload", "--remove-volumes"])?;
    ensure!(names(&daemon)? == ["vm1"], "it is there still");
    daemon.stop()
}

fn two_at_once() -> Result<()> {
    let (site, daemon) = site()?;
    write(&site, &format!("{}{VM2}", file(&site)?))?;
    let one = || daemon.command(&["reload", "--json"]);
    let said = std::thread::scope(|scope| {
        let both = [scope.spawn(one), scope.spawn(one)];
        both.map(|one| one.join().expect("it does not panic"))
    });
    let mut changes = 0;
    for said in said {
        let said = report(&said?)?;
        changes += said["changes"].as_array().map_or(0, Vec::len);
    }
    ensure!(changes == 1, "{changes} changes for one volume");
    ensure!(names(&daemon)? == ["vm1", "vm2"], "{:?}", names(&daemon)?);
    daemon.stop()
}

/// A server that is known by two names: when both are opened side by side, only then is seen that they are one.
///
/// Were both served, each would cache what the other one writes.
fn one_export_under_two_names() -> Result<()> {
    let (site, daemon) = site()?;
    let image = site.sparse("export.raw", DISK)?;
    let image = image.to_str().context("plain text")?;
    let slow = ["--filter=delay", "file", image, "delay-open=1"];
    let (_server, port) = start_nbdkit_over_tcp(&site, &slow)?;
    let volume = |name: &str, host: &str| {
        format!("\n[[volume]]\nname = \"{name}\"\nbackend = \"nbd:tcp:{host}:{port}:any\"\n")
    };
    let first = file(&site)?;
    write(&site, &format!("{first}{}{}", volume("one", "127.0.0.1"), volume("two", "localhost")))?;
    let begun = Instant::now();
    let done = run(&site, &["reload"])?;
    let said = String::from_utf8_lossy(&done.stdout);
    println!("after {:?}: {said}", begun.elapsed());
    ensure!(done.status.code() == Some(1), "{:?}: {said}", done.status);
    ensure!(said.contains("it is the backend of volume "), "it does not say why: {said}");
    let served = names(&daemon)?;
    ensure!(served == ["vm1", "one"] || served == ["vm1", "two"], "{served:?}: {said}");
    // And so each time: the reason has not gone.
    refused(&site, &["reload"], 1)?;
    ensure!(names(&daemon)? == served, "{:?}, not {served:?}", names(&daemon)?);
    daemon.stop()
}

fn leaves_the_file() -> Result<()> {
    let (site, daemon) = site()?;
    let text = file(&site)?;
    let backend = format!("file:{}", site.path("vm2.raw").display());
    daemon.command(&["volume", "add", "vm2", "--backend", &backend])?;
    daemon.command(&["volume", "set", "vm1", "--mode", "write-around"])?;
    ensure!(names(&daemon)? == ["vm1", "vm2"], "{:?}", names(&daemon)?);
    ensure!(file(&site)? == text, "{}", file(&site)?);
    daemon.stop()?;
    let daemon = site.serve_again()?;
    ensure!(names(&daemon)? == ["vm1"], "{:?}", names(&daemon)?);
    let status = daemon.status()?;
    ensure!(status.volume("vm1")?["mode"] == "write-through", "{}", status.0);
    daemon.stop()
}

/// Members of the group may do everything, others may not even connect.
fn socket_group() -> Result<()> {
    // A group that no account has.
    const GROUP: u32 = 48_212;
    if !is_root("control_socket_group") {
        return Ok(());
    }
    let site = Site::new()?;
    // Others may enter the folder: it is the socket that keeps them out.
    std::fs::set_permissions(site.path(""), Permissions::from_mode(0o755))?;
    let config = Config::new(32 * MIB).control_key(&format!("socket_group = \"{GROUP}\""));
    let daemon = site.serve(&config)?;
    let socket = site.path("control.sock");
    connect_as(&socket, &[GROUP]).context("a member of the group")?;
    let stranger = connect_as(&socket, &[]).expect_err("it is not in the group");
    ensure!(stranger.kind() == ErrorKind::PermissionDenied, "{stranger}");
    daemon.stop()
}
