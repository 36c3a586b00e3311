//! `cinnabar serve --demo`: what it says, leaves and starts. A script stands in for the laboratory, which
//! plays its machines.

use super::lab::{command, installed, stand_in};
use super::rig::{PATIENCE, Site};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Notes how it is called, and that its input ended.
const MACHINES: &str = "#!/bin/sh\necho \"$@\" > \"$2/new\"\nmv \"$2/new\" \"$2/called\"\ncat > /dev/null\nmv \"$2/called\" \"$2/ended\"\n";

/// Starts a demonstration in the folder `demo`, and returns what it says once it serves.
fn demonstrate(site: &Site, program: &Path, folder: Option<&Path>) -> (Child, String) {
    fs::create_dir_all(site.path("tmp")).expect("a folder");
    let mut command = command(program, &site.path("path"), &["serve", "--demo"]);
    if let Some(folder) = folder {
        command.arg("--dir").arg(folder);
    }
    command.env("TMPDIR", site.path("tmp")).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    let stdout = child.stdout.as_mut().expect("a pipe");
    let mut text = String::new();
    while !text.contains("end     Ctrl-C") {
        let mut bytes = [0; 1024];
        let len = stdout.read(&mut bytes).expect("it speaks");
        assert_ne!(len, 0, "it ended: {text}");
        text += &String::from_utf8_lossy(&bytes[..len]);
    }
    (child, text)
}

fn end(child: &mut Child) {
    kill_process(Pid::from_child(child), Signal::INT).expect("it is our child");
    assert_eq!(child.wait().expect("it is our child").code(), Some(0));
}

fn wait_for(path: &Path) {
    let begun = Instant::now();
    while !path.exists() {
        assert!(begun.elapsed() < PATIENCE, "{} does not come", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_demonstration_without_the_laboratory_says_so_and_leaves_nothing() {
    let site = Site::new();
    let program = installed(&site);
    let (mut child, text) = demonstrate(&site, &program, None);
    let still: Vec<&str> = text.lines().filter(|line| line.contains("stand still")).collect();
    assert!(still.len() == 1 && still[0].contains("cinnabar-lab"), "{text}");
    let word = |before: &str| {
        let at = text.find(before).unwrap_or_else(|| panic!("{before}: {text}")) + before.len();
        text[at..].split([' ', '\n', '\'']).next().expect("a word").to_owned()
    };
    let token = fs::metadata(word("token   ").trim_end_matches(':')).expect("a token");
    assert_eq!(token.permissions().mode() & 0o777, 0o600);
    assert!(word("page    ").starts_with("http://127.0.0.1:"), "{text}");
    let socket = word("--socket ");
    let status: serde_json::Value =
        serde_json::from_str(&site.ask(&["status", "--json", "--socket", &socket])).expect("JSON");
    let volumes = status["volumes"].as_array().expect("volumes");
    let names: Vec<&str> = volumes.iter().filter_map(|volume| volume["name"].as_str()).collect();
    assert_eq!(names, ["database", "desktops", "backup", "log"]);
    end(&mut child);
    assert_eq!(fs::read_dir(site.path("tmp")).expect("a folder").count(), 0, "all is gone");
}

#[test]
fn the_machines_end_with_the_demonstration_however_it_ends() {
    let site = Site::new();
    let program = installed(&site);
    stand_in(&site.path("bin"), MACHINES);
    for how in ["asked", "killed"] {
        let folder = site.path(how);
        let (mut child, text) = demonstrate(&site, &program, Some(&folder));
        assert!(!text.contains("stand still"), "{text}");
        wait_for(&folder.join("called"));
        let called = fs::read_to_string(folder.join("called")).expect("its arguments");
        assert_eq!(called.trim_end(), format!("demo-load {}", folder.display()));
        if how == "asked" {
            end(&mut child);
            assert!(folder.join("ended").exists(), "they are waited for");
        } else {
            child.kill().expect("it is our child");
            child.wait().expect("it is our child");
            wait_for(&folder.join("ended"));
        }
    }
}
