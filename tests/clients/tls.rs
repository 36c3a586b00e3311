//! TLS with the clients that people use, and certificates that are right, wrong, and another host's.

use crate::Case;
use anyhow::{Result, bail, ensure};
use e2e::daemon::free_port;
use e2e::tls::{Authority, For};
use e2e::tools::{CURL, NBDCOPY, NBDINFO, OPENSSL, QEMU_IMG};
use e2e::{Config, Daemon, MIB, Site, Volume, output};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) const CASES: [Case; 3] = [
    Case::new("tls_qemu_img", &[OPENSSL, QEMU_IMG], with_qemu).ci(),
    Case::new("tls_libnbd", &[OPENSSL, NBDINFO, NBDCOPY], with_libnbd),
    Case::new("tls_api", &[OPENSSL, CURL], over_http),
];

const DISK: u64 = 24 * MIB;
/// Until the log has what the client has seen.
const LOG_LIMIT: Duration = Duration::from_secs(10);

/// Folders with certificates: of the host that may, of one that may not, of a stranger, and none at all.
struct Clients {
    right: PathBuf,
    other: PathBuf,
    strange: PathBuf,
    none: PathBuf,
}

/// A site with an authority: its clients, and `[tls]` for the daemon.
fn site() -> Result<(Site, Clients, String)> {
    let site = Site::new()?;
    let ours = Authority::new(&site, "ours")?;
    let theirs = Authority::new(&site, "theirs")?;
    let server = ours.sign("cache.example", For::Server, &ours)?;
    let none = site.path("none");
    std::fs::create_dir(&none)?;
    std::fs::copy(ours.certificate(), none.join("ca-cert.pem"))?;
    let clients = Clients {
        right: ours.sign("host-a", For::Client, &ours)?,
        other: ours.sign("host-b", For::Client, &ours)?,
        strange: theirs.sign("host-a", For::Client, &ours)?,
        none,
    };
    Ok((site, clients, ours.section(&server)))
}

/// A daemon with a volume for `host-a` at a port.
fn serve(site: &Site, tls: &str) -> Result<(Daemon, u16)> {
    site.sparse("disk.raw", DISK)?;
    let port = free_port()?;
    let volume = Volume::new("vm1", "file:disk.raw")
        .at(&format!("tcp:127.0.0.1:{port}"))
        .key("nbd_tls = \"require\"\ntls_allow = [\"host-a\"]");
    let daemon = site.serve(&Config::new(24 * MIB).section(tls).volume(volume))?;
    Ok((daemon, port))
}

/// What a client says that must fail.
fn refused(command: &mut Command) -> Result<String> {
    match output(command) {
        Ok(text) => bail!("{command:?} got in: {text}"),
        Err(error) => Ok(format!("{error:#}")),
    }
}

/// Lines of the log with all these words.
fn said(daemon: &Daemon, words: &[&str]) -> Result<()> {
    let begun = Instant::now();
    // The client may know before the daemon.
    loop {
        let log = daemon.running.log();
        if log.lines().any(|line| words.iter().all(|word| line.contains(word))) {
            return Ok(());
        }
        ensure!(begun.elapsed() < LOG_LIMIT, "no line of the log has {words:?}:\n{log}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn qemu(folder: &Path, args: &[&str]) -> Command {
    // Without QEMU's own check, which would keep a wrong certificate from us.
    let object =
        format!("tls-creds-x509,id=tls0,endpoint=client,sanity-check=off,dir={}", folder.display());
    let mut command = Command::new("qemu-img");
    let (verb, rest) = args.split_first().expect("a verb");
    command.arg(verb).args(["--object", &object]).args(rest);
    command
}

fn with_qemu() -> Result<()> {
    let (site, clients, tls) = site()?;
    let (daemon, port) = serve(&site, &tls)?;
    let source = site.filled("source.raw", DISK, 1)?.display().to_string();
    let disk = format!(
        "driver=raw,file.driver=nbd,file.host=127.0.0.1,file.port={port},file.export=vm1,\
         file.tls-creds=tls0"
    );
    let file = format!("driver=raw,file.driver=file,file.filename={source}");
    let write = ["convert", "-n", "--image-opts", "--target-image-opts", "-W", "-m", "8"];
    output(&mut qemu(&clients.right, &[&write[..], &[&file, &disk]].concat()))?;
    output(&mut qemu(&clients.right, &["compare", "--image-opts", &file, &disk]))?;

    let info = ["info", "--image-opts", &disk];
    let told = refused(&mut qemu(&clients.other, &info))?;
    ensure!(told.contains("tls_allow"), "{told}");
    said(&daemon, &["NBD client refused", "host-b", "tls_allow"])?;
    let told = refused(&mut qemu(&clients.strange, &info))?;
    ensure!(told.to_lowercase().contains("tls"), "{told}");
    // GnuTLS keeps a certificate to itself that the server's authorities have not signed.
    said(&daemon, &["the TLS handshake failed", "peer sent no certificates"])?;
    refused(&mut qemu(&clients.none, &info))?;
    said(&daemon, &["the TLS handshake failed", "peer sent no certificates"])?;
    let told = refused(Command::new("qemu-img").args(["info", "-f", "raw"]).arg(plain(port)))?;
    ensure!(told.contains("TLS"), "{told}");
    daemon.stop()?;
    let same = ["compare", "-f", "raw", "-F", "raw", &source];
    output(Command::new("qemu-img").args(same).arg(site.path("disk.raw"))).map(|_| ())
}

fn plain(port: u16) -> String {
    format!("nbd://127.0.0.1:{port}/vm1")
}

fn with_libnbd() -> Result<()> {
    let (site, clients, tls) = site()?;
    let (daemon, port) = serve(&site, &tls)?;
    let uri = |folder: &Path| {
        format!("nbds://127.0.0.1:{port}/vm1?tls-certificates={}", folder.display())
    };
    let info = output(Command::new("nbdinfo").arg("--json").arg(uri(&clients.right)))?;
    let info: serde_json::Value = serde_json::from_str(&info)?;
    ensure!(info["TLS"] == true && info["exports"][0]["export-size"] == DISK, "{info}");
    let source = site.filled("source.raw", DISK, 2)?;
    output(Command::new("nbdcopy").arg(&source).arg(uri(&clients.right)))?;
    let back = site.path("back.raw");
    output(Command::new("nbdcopy").arg(uri(&clients.right)).arg(&back))?;
    ensure!(std::fs::read(&source)? == std::fs::read(&back)?, "it comes back as it went");

    let told = refused(Command::new("nbdinfo").arg(uri(&clients.other)))?;
    // libnbd keeps the server's words to itself.
    ensure!(
        ["tls_allow", "policy", "not supported"].iter().any(|word| told.contains(word)),
        "{told}"
    );
    said(&daemon, &["NBD client refused", "host-b", "tls_allow"])?;
    refused(Command::new("nbdinfo").arg(uri(&clients.strange)))?;
    said(&daemon, &["the TLS handshake failed", "peer sent no certificates"])?;
    let told = refused(Command::new("nbdinfo").arg(plain(port)))?;
    ensure!(told.contains("TLS") || told.contains("not supported"), "{told}");
    daemon.stop()?;
    ensure!(std::fs::read(&source)? == std::fs::read(site.path("disk.raw"))?, "it is on the disk");
    Ok(())
}

fn over_http() -> Result<()> {
    let (site, clients, tls) = site()?;
    site.sparse("disk.raw", DISK)?;
    let port = free_port()?;
    let config = Config::new(24 * MIB)
        .http(port)
        .control_key("api = true\nhttp_tls = \"require\"\nhttp_tls_allow = [\"host-a\"]")
        .section(&tls)
        .volume(Volume::new("vm1", "file:disk.raw"));
    let daemon = site.serve(&config)?;
    let curl = |folder: &Path, path: &str| {
        let mut command = Command::new("curl");
        command.args(["-sS", "--fail", "--max-time", "20", "--cacert"]);
        command.arg(folder.join("ca-cert.pem"));
        if folder.join("client-cert.pem").exists() {
            command.arg("--cert").arg(folder.join("client-cert.pem"));
            command.arg("--key").arg(folder.join("client-key.pem"));
        }
        command.arg(format!("https://127.0.0.1:{port}{path}"));
        command
    };
    let status = output(&mut curl(&clients.right, "/v1/status"))?;
    ensure!(status.contains("\"vm1\""), "{status}");
    let metrics = output(&mut curl(&clients.right, "/metrics"))?;
    ensure!(metrics.contains("cinnabar_"), "{metrics}");
    // As without TLS: a name that may be another host's is refused, an address is not.
    let mut rebound = curl(&clients.right, "/v1/status");
    let told = refused(rebound.args(["-H", "Host: evil.example"]))?;
    ensure!(told.contains("403") || told.contains("421"), "{told}");

    refused(&mut curl(&clients.other, "/v1/status"))?;
    said(&daemon, &["HTTP address refused", "host-b", "http_tls_allow"])?;
    std::thread::sleep(Duration::from_millis(1100));
    refused(&mut curl(&clients.none, "/metrics"))?;
    said(&daemon, &["HTTP address refused", "peer sent no certificates"])?;
    // The log has one such line a second.
    std::thread::sleep(Duration::from_millis(1100));
    refused(&mut curl(&clients.strange, "/metrics"))?;
    said(&daemon, &["HTTP address refused", "invalid peer certificate"])?;
    let plain = format!("http://127.0.0.1:{port}/metrics");
    refused(Command::new("curl").args(["-sS", "--fail", "--max-time", "20", &plain]))?;
    daemon.stop()
}
