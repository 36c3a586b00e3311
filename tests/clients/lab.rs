//! Both programs together: plans of a running manager and those that the laboratory makes of a
//! recording, its benchmarks on our own exports, the machines of the demonstration.

use crate::Case;
use anyhow::{Context, Result, ensure};
use e2e::nbd::Client;
use e2e::process::CLIENT_LIMIT;
use e2e::{Config, Daemon, GIB, MIB, Running, Site, Volume, output};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const CASES: [Case; 4] = [
    Case::new("lab_live_plans_are_those_of_a_recording", &[], four_workloads).ci(),
    Case::new("lab_live_plans_of_sixteen_volumes_are_those_of_a_recording", &[], sixteen_servers),
    Case::new("lab_spc1_on_a_read_only_export", &[], read_only),
    Case::new("lab_plays_the_machines_of_the_demonstration", &[], demonstration).ci(),
];

/// Requests of the trace that are played, in a few seconds.
const REQUESTS: usize = 15_000;
/// After so many there is a pause, so that it takes some intervals.
const PAUSE_AFTER: usize = 3000;
const PAUSE: Duration = Duration::from_millis(600);
/// Longest wait for plans that are due, and for machines that work.
const WAIT_MAX: Duration = Duration::from_mins(1);
/// Recorded from four workloads.
const RECORDED: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../crates/cinnabar-trace/data/self_loop4_first100k.canon.csv.zst"
);

/// What the laboratory prints, run in the site's folder.
fn lab(site: &Site, args: &[&str]) -> Result<String> {
    output(Command::new(e2e::binary::lab()?).args(args).current_dir(site.path("")))
}

fn json(text: &str) -> Result<Value> {
    serde_json::from_str(text).with_context(|| format!("no JSON: {text}"))
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    value[key].as_array().with_context(|| format!("no {key}: {value}"))
}

/// The plans there are once one of this interval or of a later one is among them.
fn plans_up_to(daemon: &Daemon, interval: u64) -> Result<Vec<Value>> {
    let begun = Instant::now();
    loop {
        let history = json(&daemon.command(&["policy", "history", "--last", "256", "--json"])?)?;
        let plans = list(&history, "plans")?;
        let last = plans.last().and_then(|plan| plan["interval"].as_u64());
        if last.is_some_and(|last| last >= interval) {
            return Ok(plans.clone());
        }
        ensure!(begun.elapsed() < WAIT_MAX, "no plan of interval {interval}: {history}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Plays a line `ts_us,vol,op,offset_bytes,length_bytes`.
fn play(clients: &mut [Client], line: &str) -> Result<()> {
    let fields: Vec<&str> = line.split(',').collect();
    let [_, volume, op, offset, len] = fields[..] else { anyhow::bail!("{line:?}") };
    let client = clients.get_mut(volume.parse::<usize>()?).context("a volume too many")?;
    let (offset, len): (u64, u64) = (offset.parse()?, len.parse()?);
    match op {
        "R" => client.read(offset, len as usize).map(drop),
        "W" => client.write(offset, &vec![1; len as usize]),
        "F" => client.flush(),
        _ => client.trim(offset, len),
    }
}

/// The beginning of a recording of four real workloads.
fn four_workloads() -> Result<()> {
    live_equals_offline(4, |site| {
        lab(site, &["trace", "convert", RECORDED, "--out", "t.csv"]).map(drop)
    })
}

/// The beginning of the generated day of sixteen servers.
fn sixteen_servers() -> Result<()> {
    let day = ["trace", "generate", "sixteen", "--scale", "0.002", "--out", "t.csv"];
    live_equals_offline(16, |site| lab(site, &day).map(drop))
}

/// Plays a trace, `t.csv`, as fast as it goes, and analyses a recording of it.
fn live_equals_offline(volumes: usize, make: impl Fn(&Site) -> Result<()>) -> Result<()> {
    let site = Site::new()?;
    let manager = "[manager]\ninterval_s = 1\nprices = \"told\"\nsample_blocks = 2048\n";
    let mut config = Config::new(64 * MIB).section(manager);
    let names: Vec<String> = (0..volumes).map(|volume| format!("vm{volume}")).collect();
    for name in &names {
        // Empty disks: what is not written takes no room.
        site.sparse(&format!("{name}.raw"), 2 * GIB)?;
        let volume = Volume::new(name, &format!("file:{name}.raw"));
        config = config.volume(volume.key("bypass_sequential = \"0\""));
    }
    let daemon = site.serve(&config)?;
    make(&site)?;
    let attach = |name: &String| Client::connect(&site.path(&format!("{name}.sock")), name);
    let mut clients = names.iter().map(attach).collect::<Result<Vec<Client>>>()?;
    let mut recorder = recorder(&site)?;
    let trace = std::fs::read_to_string(site.path("t.csv"))?;
    let requests = trace.lines().filter(|line| !line.starts_with('#')).take(REQUESTS);
    for (at, line) in requests.enumerate() {
        if at % PAUSE_AFTER == PAUSE_AFTER - 1 {
            thread::sleep(PAUSE);
        }
        play(&mut clients, line)?;
    }
    // Ends the interval that is open, by a request in the next one.
    thread::sleep(Duration::from_millis(1100));
    clients[0].flush()?;
    thread::sleep(Duration::from_millis(200));
    daemon.command(&["policy", "plan"])?;
    recorder.ask_to_end()?;
    let status = recorder.wait(CLIENT_LIMIT)?;
    let log = recorder.log();
    ensure!(status.success(), "{status}: {log}");
    let report = json(log.lines().find(|line| line.starts_with('{')).context("no report")?)?;
    ensure!(report["dropped"] == 0, "equality holds where nothing is missing: {report}");

    let expected = planned_offline(&site, &report)?;
    let (last, _) = expected.last().context("there are intervals")?;
    let live = plans_up_to(&daemon, *last)?;
    let lost: u64 = live.iter().filter_map(|plan| plan["lost"].as_u64()).sum();
    ensure!(lost == 0, "equality holds where nothing was dropped");
    let live = numbered(&live, "interval", 0)?;
    ensure!(live == expected, "interval by interval: {live:?}, {expected:?}");
    drop(clients);
    daemon.stop()
}

/// A recording of all volumes to `r.csv`, begun.
fn recorder(site: &Site) -> Result<Running> {
    let mut command = Command::new(e2e::binary::cinnabar()?);
    command.args(["trace", "record", "--all", "--json", "--out"]).arg(site.path("r.csv"));
    command.arg("--socket").arg(site.path("control.sock"));
    let log = site.path("record.log");
    let mut recorder = Running::start(&mut command, &log)?;
    let records = || std::fs::read_to_string(&log).is_ok_and(|text| text.contains("recording "));
    recorder.wait_until(CLIENT_LIMIT, records)?;
    Ok(recorder)
}

/// Numbers of the daemon's intervals, and digests of the plans that the laboratory makes of `r.csv`
/// for them; without the last one, which is open in the daemon.
fn planned_offline(site: &Site, report: &Value) -> Result<Vec<(u64, Value)>> {
    let first = report["intervals"]["first"].as_u64().context("where the recording begins")?;
    let cache = report["cache_bytes"].as_u64().context("the size of the cache")?.to_string();
    let asked = ["analyze", "r.csv", "--json", "--interval", "1s", "--cache", &cache];
    let prices =
        ["--ssd-read=88us", "--ssd-write=21us", "--backend-read=927us", "--backend-write=141us"];
    let offline = json(&lab(site, &[&asked[..], &prices, &["--sample-blocks=2048"]].concat())?)?;
    let mut all = numbered(list(&offline, "intervals")?, "number", first)?;
    all.pop();
    ensure!(all.len() >= 3, "{} intervals", all.len());
    Ok(all)
}

fn numbered(plans: &[Value], key: &str, from: u64) -> Result<Vec<(u64, Value)>> {
    let one = |plan: &Value| {
        let number = plan[key].as_u64().with_context(|| format!("no {key}: {plan}"))?;
        Ok((number + from, plan["digest"].clone()))
    };
    plans.iter().map(one).collect()
}

/// A volume of a size, in a file that a daemon has.
fn served(keys: &str) -> Result<(Site, Daemon)> {
    let site = Site::new()?;
    site.filled("vm1.raw", 9 * MIB, 3)?;
    let volume = Volume::new("vm1", "file:vm1.raw").key(keys);
    let daemon = site.serve(&Config::new(64 * MIB).volume(volume))?;
    Ok((site, daemon))
}

fn read_only() -> Result<()> {
    let (site, daemon) = served("read_only = true")?;
    site.filled("a2", 9 * MIB, 1)?;
    site.filled("a3", 2 * MIB, 1)?;
    let asus = ["--asu1", "nbd:unix:vm1.sock:vm1", "--asu2", "a2", "--asu3", "a3"];
    let load = ["--bsu", "10", "--runlen", "1", "--overwrite"];
    let said = refused(&site, &[&["bench", "spc1"], &asus[..], &load].concat())?;
    ensure!(said.contains("it can only be read") && said.contains("may write"), "{said}");
    daemon.stop()
}

/// What the laboratory says to what it does not do.
fn refused(site: &Site, args: &[&str]) -> Result<String> {
    let mut command = Command::new(e2e::binary::lab()?);
    let output = command.args(args).current_dir(site.path("")).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(2), "{:?}: {said}", output.status);
    Ok(said)
}

/// All four machines work, the manager gives some of them shares of their own, and they end with the
/// demonstration.
fn demonstration() -> Result<()> {
    let site = Site::in_memory()?;
    let daemon = site.serve_demo()?;
    let at_work = |volume: &Value| {
        volume["blocks_read"].as_u64() > Some(0) || volume["writes"].as_u64() > Some(0)
    };
    let begun = Instant::now();
    loop {
        let status = json(&daemon.command(&["status", "--json"])?)?;
        let volumes = list(&status, "volumes")?;
        ensure!(volumes.len() == 4, "{status}");
        let plans = daemon.command(&["policy", "history", "--json"])?;
        if volumes.iter().all(at_work) && plans.contains("\"database\"") {
            break;
        }
        ensure!(begun.elapsed() < WAIT_MAX, "{status} {plans}");
        thread::sleep(Duration::from_millis(100));
    }
    let machines = children(daemon.running.pid())?;
    ensure!(!machines.is_empty(), "they are a process of their own");
    daemon.stop()?;
    for process in machines {
        ensure!(!Path::new(&format!("/proc/{process}")).exists(), "{process} is still there");
    }
    Ok(())
}

/// Processes that a process has started.
fn children(parent: u32) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{parent}/task"))? {
        let text = std::fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        found.extend(text.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    }
    Ok(found)
}
