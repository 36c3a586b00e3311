//! What the daemon, its configuration, its device and its journal say.

use super::bundle::{Bundle, Content};
use super::host;
use crate::cli::client::Daemon;
use cinnabar_config::Config;
use cinnabar_control::api::VersionBody;
use cinnabar_control::path::escape;
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest wait for a daemon that does not answer.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Events come at once; after so long there are no more.
const SILENCE: Duration = Duration::from_millis(300);
/// Longest answer that is kept.
const ANSWER_BYTES_MAX: u64 = 32 << 20;
const JOURNAL_LINES: &str = "2000";

/// Collects everything.
pub(super) fn all(bundle: &mut Bundle, daemon: &Daemon, config: &Path, device: Option<&Path>) {
    let own = serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "format_version": cinnabar_engine::metadata::superblock::FORMAT_VERSION,
    });
    bundle.add("version.json", Ok(Content::Json(own)));
    let config = configuration(bundle, config);
    let other = config.as_ref().map(|config| daemon.elsewhere(config.control.socket.clone()));
    let daemon = match other {
        Some(other) if !daemon.is_there() && other.is_there() => other,
        _ => daemon.clone(),
    };
    let version = daemon.get::<VersionBody>("/v1/version").map_err(|failure| failure.message);
    let pid = version.as_ref().ok().map(|version| version.pid);
    let version = version.and_then(|body| serde_json::to_value(body).map_err(|e| e.to_string()));
    let answers = version.is_ok();
    bundle.add("daemon/version.json", version.map(Content::Json));
    if answers {
        said(bundle, &daemon);
    } else {
        let reason = "the daemon does not answer".to_owned();
        bundle.add("daemon/status.json, history, plans and events", Err(reason));
    }
    bundle.add("daemon/metrics.txt", metrics(config.as_ref()).map(Content::Text));
    host::facts(bundle, pid);
    journal(bundle);
    if let Some(device) = device {
        bundle.add("superblock.json", superblock(device).map(Content::Json));
    }
}

/// The file as it is, and what the check of it says.
fn configuration(bundle: &mut Bundle, path: &Path) -> Option<Config> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| format!("{}: {error}", path.display()));
    let is_read = text.is_ok();
    bundle.add("config.toml", text.map(Content::Text));
    if !is_read {
        return None;
    }
    match cinnabar_config::load(path) {
        Ok(config) => {
            let warnings: Vec<String> =
                config.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
            let text = format!("{}: fine\n{}", path.display(), warnings.concat());
            bundle.add("config-check.txt", Ok(Content::Text(text)));
            Some(config)
        }
        Err(error) => {
            let text = format!("error: {error}\n");
            bundle.add("config-check.txt", Ok(Content::Text(text)));
            None
        }
    }
}

/// Status, history, plans and events.
fn said(bundle: &mut Bundle, daemon: &Daemon) {
    let get = |path: &str| daemon.get::<Value>(path).map_err(|failure| failure.message);
    bundle.add("daemon/status.json", get("/v1/status").map(Content::Json));
    let history = get("/v1/history?step=300");
    let kept = history.iter().filter_map(|history| history["volumes"].as_array()).flatten();
    let kept: Vec<String> = kept.filter_map(|name| name.as_str().map(str::to_owned)).collect();
    bundle.add("daemon/history-day.json", history.map(Content::Json));
    bundle.add("daemon/history-hour.json", get("/v1/history?step=10").map(Content::Json));
    // By number: a volume's name may be no name of a file.
    for (number, name) in (1..).zip(&kept) {
        let path = format!("/v1/history?step=300&volume={}", escape(name));
        bundle.add(&format!("daemon/history/{number}.json"), get(&path).map(Content::Json));
    }
    bundle.add("daemon/plan.json", get("/v1/policy/plan").map(Content::Json));
    bundle.add("daemon/plans.json", get("/v1/policy/history").map(Content::Json));
    bundle.add("daemon/events.jsonl", events(daemon.socket()).map(Content::Text));
}

/// The events that the daemon keeps, a line each.
fn events(socket: &Path) -> Result<String, String> {
    let asked = UnixStream::connect(socket).and_then(|stream| {
        stream.set_read_timeout(Some(SILENCE))?;
        ask(stream, "/v1/events", "Last-Event-ID: oldest\r\n")
    });
    let body = asked.map_err(|error| error.to_string())?;
    let lines = body.lines().filter_map(|line| line.strip_prefix("data: "));
    Ok(lines.flat_map(|line| [line, "\n"]).collect())
}

fn metrics(config: Option<&Config>) -> Result<String, String> {
    let config = config.ok_or("the configuration that says where they are can't be read")?;
    let address = config.control.http.ok_or("[control] http is not set")?;
    let asked = TcpStream::connect_timeout(&address, WAIT_MAX).and_then(|stream| {
        stream.set_read_timeout(Some(WAIT_MAX))?;
        ask(stream, "/metrics", "")
    });
    asked.map_err(|error| format!("{address}: {error}"))
}

/// The body of an answer, as far as it comes without a pause.
fn ask(mut stream: impl Read + Write, path: &str, header: &str) -> std::io::Result<String> {
    // Version 1.0: the answer comes in one piece, and its end is that of the connection.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n{header}\r\n")?;
    let begun = Instant::now();
    let (mut answer, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    while begun.elapsed() < WAIT_MAX && (answer.len() as u64) < ANSWER_BYTES_MAX {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => answer.extend(&piece[..length]),
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
                break;
            }
            Err(error) => return Err(error),
        }
    }
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if head.split_whitespace().nth(1) == Some("200") {
        return Ok(body.to_owned());
    }
    let first = head.lines().next().unwrap_or_default();
    Err(std::io::Error::other(format!("it answers {first:?}")))
}

fn journal(bundle: &mut Bundle) {
    let unit = ["--unit", "cinnabar.service", "--lines", JOURNAL_LINES, "--no-pager"];
    let lines = host::said(Command::new("journalctl").args(unit).args(["--output", "short-iso"]));
    bundle.add("journal.txt", lines.map(Content::Text));
    let unit =
        host::said(Command::new("systemctl").args(["--no-pager", "cat", "cinnabar.service"]));
    bundle.add("unit.txt", unit.map(Content::Text));
}

/// Of a device that no daemon uses: the command refuses others.
fn superblock(device: &Path) -> Result<Value, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["cache", "dump", "--what", "superblock", "--json"]).arg(device);
    let text = host::said(&mut command)?;
    // A line for each part.
    let lines = text.lines().map(|line| serde_json::from_str(line).map_err(|e| e.to_string()));
    lines.collect::<Result<Vec<Value>, _>>().map(Value::Array)
}
