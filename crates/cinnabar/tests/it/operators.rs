//! What an operator meets in the first hour: waiting for the daemon, mistakes in the configuration,
//! accounts without rights, narrow terminals.

use super::daemon::VM1;
use super::rig::{Ended, MIB, Running, Site, finish, pattern};
use super::terminal::on_terminal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

fn site(volume: &str) -> Site {
    let site = Site::new();
    site.disk("vm1.raw", 8 * MIB);
    site.config(&format!("{VM1}{volume}"));
    site
}

/// Starts a daemon and does not wait for it.
fn begin(site: &Site) -> Running {
    site.start(&mut site.command(&["serve", "--config", "c.toml"]))
}

/// A command that fails with one line and a hint.
fn refused(ended: &Ended, code: i32, error: &str, hint: &str) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    let told: Vec<&str> = ended.stderr.lines().filter(|line| !line.contains(" WARN ")).collect();
    let [.., line, last] = told.as_slice() else { panic!("{ended:?}") };
    assert!(line.starts_with("error: ") && line.contains(error), "{error:?}: {ended:?}");
    assert!(last.starts_with("hint: ") && last.contains(hint), "{hint:?}: {ended:?}");
}

#[test]
fn a_status_waits_for_a_daemon_that_was_just_started() {
    let site = site("");
    let daemon = begin(&site);
    let status = site.ask(&["status", "--wait", "--json"]);
    assert!(status.contains("\"vm1\""), "{status}");
    daemon.stop();
}

#[test]
fn a_wait_has_a_bound_and_says_what_it_waited_for() {
    let site = site("");
    let ended = site.run(&["status", "--wait=0.3"]);
    refused(&ended, 1, "does not serve after 0.3 s: no daemon at control.sock", "--wait=SECONDS");

    // The other one has its disk, so this one starts until that lets go.
    let config = "[cache]\ndevice = \"cache.img\"\nsize = \"64MiB\"\nlock_wait_s = 60\n";
    site.write("c.toml", &format!("{config}{VM1}"));
    let holder = site.serve();
    let other = Site::new();
    let disk = site.path("vm1.raw");
    let volume = format!("[[volume]]\nname = \"vm1\"\nbackend = \"file:{}\"\n", disk.display());
    other.write("c.toml", &format!("{config}{volume}"));
    let mut waiting = begin(&other);
    waiting.wait_until("there", || other.path("control.sock").exists());
    let ended = other.run(&["status", "--wait=0.3"]);
    refused(&ended, 1, "does not serve after 0.3 s: it is starting", "the log");
    // Who has it is said at once, not after the wait.
    let holder_is = format!("in use by process {}", holder.pid().as_raw_nonzero());
    waiting.wait_until("told", || waiting_log(&other).contains(&holder_is));
    assert!(waiting_log(&other).contains("s at most"), "{}", waiting_log(&other));
    holder.stop();
    other.ask(&["status", "--wait"]);
    waiting.stop();
    let ended = other.run(&["status", "--wait=fast"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
}

fn waiting_log(site: &Site) -> String {
    let folder = fs::read_dir(site.path("")).expect("a folder");
    let logs = folder.filter_map(Result::ok).map(|entry| entry.path());
    let logs = logs.filter(|path| path.to_string_lossy().contains("/log-"));
    logs.map(|path| fs::read_to_string(path).unwrap_or_default()).collect()
}

#[test]
fn mistakes_in_numbers_are_named() {
    let site = site("");
    for (cache, volume, error, hint) in [
        ("lock_wait_s = -1", "", "lock_wait_s in [cache] must not be negative: -1", "0 or more"),
        ("threads = 99999999999999999999", "", "is too large", "smaller"),
        ("threads = 1.5", "", "must be a whole number, not float", "without quotes"),
        ("", "share_min = 10", "share_min: \"10\" has no unit", "\"10%\""),
        ("", "share_max = \"64\"", "share_max: \"64\" has no unit", "\"64%\""),
        ("", "bypass_large = 16", "bypass_large: \"16\" has no unit", "MiB"),
        ("probation = 64", "", "probation: \"64\" has no unit", "MiB"),
        ("probation = 1.5", "", "probation in [cache] has no unit: 1.5", "GiB"),
    ] {
        let text =
            format!("[cache]\ndevice = \"c.img\"\nsize = \"64MiB\"\n{cache}\n{VM1}{volume}\n");
        site.write("wrong.toml", &text);
        refused(&site.run(&["config", "check", "wrong.toml"]), 2, error, hint);
    }
}

#[test]
fn a_start_that_fails_leaves_no_cache_file() {
    let site = site("socket_group = \"no such group\"\n");
    let ended = site.run(&["serve", "--config", "c.toml"]);
    refused(&ended, 2, "there is no group 'no such group'", "socket_group names a group");
    assert!(!site.path("cache.img").exists(), "a file for nothing");
    // One that was used is kept, whatever comes.
    site.config(VM1);
    site.serve().stop();
    site.config(&format!("{VM1}socket_group = \"no such group\"\n"));
    assert_eq!(site.run(&["serve", "--config", "c.toml"]).code, Some(2));
    assert!(site.path("cache.img").exists(), "a warm cache is gone");
}

#[test]
fn the_log_says_in_words_what_became_of_the_last_run() {
    let site = site("");
    let daemon = site.serve();
    let socket = site.path("vm1.sock");
    let mut client = super::nbd::Client::attach(&socket, "vm1").expect("it is let in");
    assert_eq!(client.read(0, MIB as u32).expect("it reads"), pattern(0, MIB));
    drop(client);
    daemon.stop();
    fs::write(site.path("vm1.raw"), pattern(MIB, 8 * MIB)).expect("the disk");
    let log = site.serve().stop();
    assert!(log.contains("the backend was changed, replaced or resized"), "{log}");
    assert!(!log.contains("BackendChanged") && !log.contains("Dropped {"), "{log}");
}

#[test]
fn another_size_is_not_what_force_is_for() {
    let site = site("");
    site.serve().stop();
    let old = fs::metadata(site.path("cache.img")).expect("it is there").len();
    site.write("c.toml", &format!("[cache]\ndevice = \"cache.img\"\nsize = \"96MiB\"\n{VM1}"));
    let log = site.serve().stop();
    assert!(log.contains("remove the file") && !log.contains("--force"), "{log}");
    // And what it says is so.
    fs::remove_file(site.path("cache.img")).expect("it is there");
    site.serve().stop();
    let new = fs::metadata(site.path("cache.img")).expect("it is made").len();
    assert!(new > old, "{old}, {new}");
}

/// A relative path counts from where the command runs, and the message says so.
#[test]
fn a_volume_is_added_by_a_path_from_here() {
    let site = site("");
    let daemon = site.serve();
    fs::create_dir(site.path("here")).expect("a folder");
    let socket = site.path("control.sock");
    let add = |backend: &str| {
        let mut command = site.command(&["volume", "add", "vm2", "--backend", backend]);
        finish(
            command
                .args(["--nbd", "unix:vm2.sock", "--socket"])
                .arg(&socket)
                .current_dir(site.path("here")),
        )
    };
    refused(&add("file:vm2.raw"), 2, "here/vm2.raw", "from where the command runs");
    fs::write(site.path("here/vm2.raw"), pattern(0, MIB)).expect("a disk");
    let ended = add("file:vm2.raw");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(site.path("here/vm2.sock").exists());
    daemon.stop();
}

/// Another account is told so, not that there is no daemon, nor that one is in the way.
#[test]
fn another_account_is_told_that_it_may_not() {
    let nobody = "65534";
    let site = site("");
    let daemon = site.serve();
    fs::set_permissions(site.path(""), fs::Permissions::from_mode(0o777)).expect("it is ours");
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid", nobody, "--regid", nobody, "--clear-groups", "--"]);
        command.arg(super::binary()).args(args).current_dir(site.path(""));
        finish(&mut command)
    };
    let probe = std::process::Command::new("setpriv")
        .args(["--reuid", nobody, "--regid", nobody, "--clear-groups", "--"])
        .arg(super::binary())
        .arg("version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !probe.is_ok_and(|status| status.success()) {
        println!("skipped: nobody else can run the binary here");
        return;
    }
    for args in [&["status"][..], &["status", "--wait"], &["volume", "list"]] {
        refused(&run(args), 1, "not allowed to use the control socket", "or root");
    }
    let cache = "[cache]\ndevice = \"cache.img\"\nsize = \"64MiB\"\nlock_wait_s = 0\n";
    site.write("theirs.toml", &format!("{cache}{VM1}"));
    fs::set_permissions(site.path("theirs.toml"), fs::Permissions::from_mode(0o644)).expect("ours");
    let ended = run(&["serve", "--config", "theirs.toml"]);
    refused(&ended, 2, "is a socket of another account", "the account that made the socket");
    daemon.stop();
    // The cache is the other account's, too.
    let ended = run(&["serve", "--config", "theirs.toml"]);
    refused(&ended, 2, "cache.img: permission denied to user 65534", "check owner and mode");
}

#[test]
fn tables_fit_the_terminal_and_pipes_get_all() {
    let site = site("");
    let daemon = site.serve();
    let piped = site.ask(&["status"]);
    assert!(piped.contains("SHARE") && piped.contains("CLIENTS"), "{piped}");
    let shown = on_terminal(&site, 80, &["status"]);
    assert!(shown.contains("vm1") && shown.contains("HITS") && shown.contains("wider"), "{shown}");
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max();
    assert!(widest(&shown) <= Some(80), "{shown}");
    assert!(widest(&piped) > Some(80), "else this proves nothing: {piped}");
    assert_eq!(on_terminal(&site, 200, &["status"]).matches("SHARE").count(), 1);
    daemon.stop();
}
