//! The table of bad input: one clear line with a hint, the exit code, nothing lost.

use super::binary;
use super::rig::{Ended, MIB, Site, pattern};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

/// One kind of bad input to `serve`.
struct Case {
    name: &'static str,
    /// Text of the configuration.
    config: &'static str,
    /// Exit code.
    code: i32,
    /// Part of the line.
    message: &'static str,
    /// Part of the hint.
    hint: &'static str,
}

const GOOD_CACHE: &str = "[cache]\ndevice = \"cache.img\"\nsize = \"64MiB\"\nlock_wait_s = 0\n";

/// In a folder with `vm1.raw` (good), `foreign.img` (64 MiB of somebody's data) and `notes.txt`.
const CASES: &[Case] = &[
    Case {
        name: "unknown key",
        config: "[cache]\ndevice = \"cache.img\"\nsise = \"64MiB\"\n",
        code: 2,
        message: "c.toml:3: unknown key \"sise\"",
        hint: "did you mean \"size\"?",
    },
    Case { name: "no TOML", config: "[cache\n", code: 2, message: "c.toml:1: ", hint: "TOML" },
    Case {
        name: "impossible size",
        config: "[cache]\ndevice = \"cache.img\"\nsize = \"1KiB\"\n",
        code: 2,
        message: "c.toml:3: size: a cache of 1.0 KiB is impossible",
        hint: "choose 20.0 MiB to",
    },
    Case {
        name: "size beyond the disk",
        config: "[cache]\ndevice = \"cache.img\"\nsize = \"900GiB\"\n",
        code: 2,
        message: "c.toml:1: ",
        hint: "room",
    },
    Case {
        name: "no size",
        config: "[cache]\ndevice = \"cache.img\"\n",
        code: 2,
        message: "c.toml:1: ",
        hint: "size",
    },
    Case {
        name: "cache in a folder that does not exist",
        config: "[cache]\ndevice = \"no/cache.img\"\nsize = \"64MiB\"\n",
        code: 2,
        message: "c.toml:1: ",
        hint: "folder",
    },
    Case {
        name: "two volumes on one backend",
        config: "[[volume]]\nname = \"a\"\nbackend = \"file:vm1.raw\"\n\
                 [[volume]]\nname = \"b\"\nbackend = \"file:./vm1.raw\"\n",
        code: 2,
        message: "backend of volume \"a\"",
        hint: "serve it once",
    },
    Case {
        name: "control socket in use",
        config: "[control]\nsocket = \"taken.sock\"\n",
        code: 2,
        message: "c.toml:5: another daemon listens on",
        hint: "another socket",
    },
    Case {
        name: "control socket is a file of somebody's",
        config: "[control]\nsocket = \"notes.txt\"\n",
        code: 2,
        message: "not a socket",
        hint: "move the file",
    },
    Case {
        name: "control socket nowhere",
        config: "[control]\nsocket = \"no/c.sock\"\n",
        code: 2,
        message: "can't listen on",
        hint: "folder",
    },
    Case {
        name: "foreign data on the device",
        config: "[cache]\ndevice = \"foreign.img\"\nsize = \"64MiB\"\n",
        code: 2,
        message: "foreign.img",
        hint: "--force",
    },
    Case {
        name: "the cache is the backend",
        config: "[[volume]]\nname = \"a\"\nbackend = \"file:cache.img\"\n",
        code: 2,
        message: "cache device itself",
        hint: "another file",
    },
    Case {
        name: "minimums above 80 %",
        config: "[[volume]]\nname = \"a\"\nbackend = \"file:vm1.raw\"\nshare_min = \"90%\"\n",
        code: 2,
        message: "c.toml:8: ",
        hint: "lower",
    },
];

/// Checks how a command failed: one line, a hint as the last one, nothing on stdout.
fn check_failure(name: &str, ended: &Ended, code: i32, message: &str, hint: &str) {
    assert_eq!(ended.code, Some(code), "{name}: {ended:?}");
    assert_eq!(ended.stdout, "", "{name}");
    let lines: Vec<&str> = ended.stderr.lines().collect();
    let [.., error, last] = lines[..] else { panic!("{name}: {ended:?}") };
    assert!(error.starts_with("error: ") && error.contains(message), "{name}: {ended:?}");
    assert!(last.starts_with("hint: ") && last.contains(hint), "{name}: {ended:?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("error: ")).count(), 1, "{name}");
}

#[test]
fn bad_configurations_end_with_a_line_and_a_hint() {
    let site = Site::new();
    let good = site.disk("vm1.raw", MIB);
    let foreign = site.disk("foreign.img", 64 * MIB);
    let notes = site.write("notes.txt", "precious");
    let _taken = UnixListener::bind(site.path("taken.sock")).expect("a socket");
    for case in CASES {
        let text = if case.config.starts_with("[cache") {
            case.config.to_owned()
        } else {
            format!("{GOOD_CACHE}{}", case.config)
        };
        site.write("c.toml", &text);
        let ended = site.run(&["serve", "--config", "c.toml"]);
        check_failure(case.name, &ended, case.code, case.message, case.hint);
        assert_eq!(fs::read(&good).expect("the disk"), pattern(0, MIB), "{}", case.name);
        assert_eq!(fs::read_to_string(&notes).expect("it"), "precious", "{}", case.name);
        assert!(!site.path("control.sock").exists(), "{}: the socket stays", case.name);
    }
    assert!(fs::read(&foreign).expect("the file") == pattern(0, 64 * MIB), "untouched");
}

/// What keeps a volume from being opened may pass: the others are served, and the status says what is
/// waited for.
#[test]
fn a_volume_that_can_not_be_opened_keeps_nobody_waiting_and_says_why() {
    let site = Site::new();
    site.disk("vm1.raw", MIB);
    site.write("empty.raw", "");
    site.disk("odd.raw", 700);
    let volume = |name: &str, file: &str| {
        format!("[[volume]]\nname = \"{name}\"\nbackend = \"file:{file}\"\n")
    };
    let mut config = volume("vm1", "vm1.raw");
    let wrong = [
        ("missing", "none.raw", "no such file"),
        ("folder", ".", "directory"),
        ("empty", "empty.raw", "empty"),
        ("odd", "odd.raw", "700 bytes"),
    ];
    for (name, file, _) in wrong {
        config += &volume(name, file);
    }
    site.config(&config);
    let mut daemon = site.start(&mut site.command(&["serve", "--config", "c.toml"]));
    daemon.wait_until("the others to be served", || {
        let ended = site.run(&["status", "--json"]);
        let status = serde_json::from_str::<serde_json::Value>(&ended.stdout);
        status.is_ok_and(|status| status["volumes"][0]["state"] == "serving")
    });
    let status = site.status();
    for (at, (name, _, reason)) in (1..).zip(wrong) {
        let volume = &status["volumes"][at];
        assert_eq!((&volume["name"], &volume["state"]), (&name.into(), &"waiting".into()));
        let text = volume["reason"].as_str().expect("a reason");
        assert!(text.contains(reason), "{name}: {text}");
    }
    daemon.stop();
}

#[test]
fn force_formats_what_is_not_ours() {
    let site = Site::new();
    let foreign = site.disk("foreign.img", 64 * MIB);
    site.write("c.toml", "[cache]\ndevice = \"foreign.img\"\n");
    let mut command = site.command(&["serve", "--config", "c.toml", "--force"]);
    let mut daemon = site.start(&mut command);
    daemon.wait_until("serving", || site.run(&["status"]).code == Some(0));
    daemon.stop();
    assert_ne!(fs::read(&foreign).expect("the file")[..8192], pattern(0, 8192));
    // It is ours now.
    drop(site.serve());
}

#[test]
fn what_another_daemon_holds_is_left_alone() {
    let site = Site::new();
    site.disk("vm1.raw", MIB);
    site.config("[[volume]]\nname = \"vm1\"\nbackend = \"file:vm1.raw\"\n");
    let mut first = site.serve();
    let second = "[control]\nsocket = \"b.sock\"\n";
    for (name, text, message) in [
        ("cache in use", format!("{GOOD_CACHE}{second}"), "c.toml:1: "),
        (
            "backend in use",
            format!(
                "[cache]\ndevice = \"b.img\"\nsize = \"64MiB\"\nlock_wait_s = 0\n{second}\
                 [[volume]]\nname = \"b\"\nbackend = \"file:vm1.raw\"\n"
            ),
            "c.toml:7: ",
        ),
        ("control socket in use", GOOD_CACHE.to_owned(), "another daemon listens on"),
    ] {
        site.write("second.toml", &text);
        let ended = site.run(&["serve", "--config", "second.toml"]);
        let message = message.replace("c.toml", "second.toml");
        check_failure(name, &ended, 2, &message, "");
        assert!(first.is_running(), "{name}");
        assert_eq!(site.status()["volumes"][0]["state"], "serving", "{name}");
    }
    first.stop();
}

/// Any account may take a port, and a tenant owns the folder of its socket: with exit code 2 no guest had a disk
/// until an operator came.
#[test]
fn an_address_that_something_else_has_ends_nothing() {
    let site = Site::new();
    site.disk("vm1.raw", MIB);
    site.disk("vm2.raw", MIB);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("it is bound").port();
    site.write("vm2.sock", "in the way");
    site.config(&format!(
        "[control]\nhttp = \"127.0.0.1:{port}\"\n\
         [[volume]]\nname = \"vm1\"\nbackend = \"file:vm1.raw\"\n\
         [[volume]]\nname = \"vm2\"\nbackend = \"file:vm2.raw\"\n"
    ));
    let mut daemon = site.serve();
    let states = || {
        let volumes = site.status()["volumes"].clone();
        let volumes = volumes.as_array().expect("a list").clone();
        volumes.iter().map(|volume| volume["state"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(states(), ["\"serving\"", "\"waiting\""]);
    drop(taken);
    fs::remove_file(site.path("vm2.sock")).expect("it was in the way");
    daemon.wait_until("serving both", || states().iter().all(|state| state == "\"serving\""));
    daemon.wait_until("metrics", || {
        super::http::get_tcp(port, "/metrics").is_ok_and(|answer| answer.code == 200)
    });
    let log = daemon.stop();
    assert!(log.contains("not a socket") && log.contains("can't listen at"), "{log}");
}

#[test]
fn the_wait_for_a_lock_is_bounded_and_can_be_given_up() {
    let site = Site::new();
    site.config("");
    let first = site.serve();
    let waiting = GOOD_CACHE.replace("lock_wait_s = 0", "lock_wait_s = 1");
    site.write("second.toml", &format!("{waiting}[control]\nsocket = \"b.sock\"\n"));
    let start = Instant::now();
    let ended = site.run(&["serve", "--config", "second.toml"]);
    check_failure("bounded", &ended, 2, "in use", "");
    assert!(start.elapsed().as_secs_f64() > 0.9, "it waited");
    assert!(ended.stderr.lines().count() > 2, "the wait is shown: {ended:?}");

    let waiting = GOOD_CACHE.replace("lock_wait_s = 0", "lock_wait_s = 600");
    site.write("second.toml", &format!("{waiting}[control]\nsocket = \"b.sock\"\n"));
    let mut second = site.start(&mut site.command(&["serve", "--config", "second.toml"]));
    second.wait_until("listening", || site.path("b.sock").exists());
    let ready = super::http::get(&site.path("b.sock"), "/v1/ready").expect("it answers");
    assert_eq!((ready.code, ready.json()["state"].as_str()), (503, Some("starting")));
    second.terminate();
    assert_eq!(second.wait().code(), Some(0), "{}", second.log());
    assert!(!site.path("b.sock").exists());
    first.stop();
}

#[test]
fn a_read_only_file_is_no_writable_volume() {
    let site = Site::new();
    let disk = site.disk("golden.raw", MIB);
    let write_protected = fs::Permissions::from_mode(0o444);
    fs::set_permissions(&disk, write_protected).expect("it is ours");
    let volume = "[[volume]]\nname = \"golden\"\nbackend = \"file:golden.raw\"\n";
    site.config(volume);
    let mut daemon = site.start(&mut unprivileged(&site, &["serve", "--config", "c.toml"]));
    daemon.wait_until("it waits", || {
        let ended = site.run(&["status"]);
        ended.stdout.contains("golden: waiting") && ended.stdout.contains("golden.raw")
    });
    daemon.stop();
    site.config(&format!("{volume}read_only = true\n"));
    let mut daemon = site.start(&mut unprivileged(&site, &["serve", "--config", "c.toml"]));
    daemon.wait_until("serving", || {
        super::http::get(&site.path("control.sock"), "/v1/ready")
            .is_ok_and(|answer| answer.code == 200)
    });
    daemon.stop();
    assert_eq!(fs::read(&disk).expect("the disk"), pattern(0, MIB));
}

/// The binary without root's rights, for root may write what is write-protected.
fn unprivileged(site: &Site, args: &[&str]) -> Command {
    let mut command = site.command(args);
    if rustix::process::geteuid().is_root() {
        // Where nobody may look into the build folder, a copy is run.
        let copy = site.path("cinnabar");
        if !copy.exists() {
            // Not by us: a test that starts something meanwhile would inherit the open copy, and
            // what is open for writing can't be run.
            let mut install = Command::new("install");
            let done = install.args(["-m", "755"]).arg(binary()).arg(&copy).status();
            assert!(done.expect("install is everywhere").success());
            let folder = copy.parent().expect("a folder");
            fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).expect("it is ours");
        }
        let mut other = Command::new(&copy);
        other.args(args).current_dir(site.path("")).uid(65_534).gid(65_534);
        command = other;
    }
    command
}

#[test]
fn a_missing_configuration_is_said_so() {
    let site = Site::new();
    let ended = site.run(&["serve", "--config", "none.toml"]);
    check_failure("missing", &ended, 2, "none.toml: can't be read", "check the path");
}
