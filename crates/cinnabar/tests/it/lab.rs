//! Commands of the laboratory: it is found beside the program or on PATH, and gets all arguments as
//! they are; without it there is a hint. A script stands in for it.

use super::rig::{Ended, Site, finish};
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Prints its arguments, a line each, and its input; ends with 7.
const ECHO: &str = "#!/bin/sh\nprintf '<%s>\\n' \"$@\"\ncat\necho talk >&2\nexit 7\n";

/// The program in a folder of the site where nothing else is, whatever was built beside it.
pub(crate) fn installed(site: &Site) -> PathBuf {
    let folder = site.path("bin");
    fs::create_dir_all(&folder).expect("a folder");
    let program = folder.join("cinnabar");
    // A link costs nothing, but not everything lies on one file system.
    if fs::hard_link(super::binary(), &program).is_err() {
        fs::copy(super::binary(), &program).expect("there is room");
    }
    program
}

/// Puts a script in a folder, as the laboratory.
pub(crate) fn stand_in(folder: &Path, script: &str) {
    fs::create_dir_all(folder).expect("a folder");
    let path = folder.join("cinnabar-lab");
    fs::write(&path, script).expect("a script");
    fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("it is ours");
}

/// The program with these arguments, and a PATH of the system's tools and one more folder.
pub(crate) fn command(program: &Path, more: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    let path = format!("{}:/usr/bin:/bin", more.display());
    command.args(args).env("PATH", path).stdin(Stdio::null());
    command
}

fn run(site: &Site, program: &Path, args: &[&str]) -> Ended {
    finish(&mut command(program, &site.path("path"), args))
}

#[test]
fn the_laboratory_gets_arguments_and_input_and_its_exit_code_is_ours() {
    let site = Site::new();
    let program = installed(&site);
    stand_in(&site.path("bin"), ECHO);
    // Not this one: the other is beside the program.
    stand_in(&site.path("path"), "#!/bin/sh\nexit 9\n");
    for (args, printed) in [
        (&["analyze", "--json", "t.csv"][..], "<analyze>\n<--json>\n<t.csv>\n"),
        (&["analyze", "--help"], "<analyze>\n<--help>\n"),
        (&["analyze", "-h", "--version"], "<analyze>\n<-h>\n<--version>\n"),
        (&["analyze", "--", "-t", "--", "a b"], "<analyze>\n<-->\n<-t>\n<-->\n<a b>\n"),
        (&["simulate"], "<simulate>\n"),
        (&["simulate", "hits", ""], "<simulate>\n<hits>\n<>\n"),
        (&["bench", "spc1", "-x"], "<bench>\n<spc1>\n<-x>\n"),
        (&["trace", "info", "a"], "<trace>\n<info>\n<a>\n"),
        (&["trace", "head", "-n1"], "<trace>\n<head>\n<-n1>\n"),
        (&["trace", "convert", "--help"], "<trace>\n<convert>\n<--help>\n"),
        (&["trace", "generate", "zipf"], "<trace>\n<generate>\n<zipf>\n"),
    ] {
        let ended = run(&site, &program, args);
        assert_eq!(ended.code, Some(7), "{args:?}: {ended:?}");
        assert_eq!((&*ended.stdout, &*ended.stderr), (printed, "talk\n"), "{args:?}");
    }
    let mut child = command(&program, &site.path("path"), &["analyze", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("a pipe").write_all(b"a trace\n").expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "<analyze>\n<->\na trace\n");
}

#[test]
fn the_laboratory_is_found_on_path() {
    let site = Site::new();
    let program = installed(&site);
    stand_in(&site.path("path"), ECHO);
    let ended = run(&site, &program, &["bench", "spc1"]);
    assert_eq!((ended.code, &*ended.stdout), (Some(7), "<bench>\n<spc1>\n"), "{ended:?}");
}

#[test]
fn without_the_laboratory_there_is_a_line_and_a_hint() {
    let site = Site::new();
    let program = installed(&site);
    for (args, what) in [
        (&["analyze", "--help"][..], "cinnabar analyze"),
        (&["simulate", "faults"], "cinnabar simulate"),
        (&["bench"], "cinnabar bench"),
        (&["trace", "info", "a.csv"], "cinnabar trace info"),
    ] {
        let ended = run(&site, &program, args);
        assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{args:?}: {ended:?}");
        let told: Vec<&str> = ended.stderr.lines().collect();
        let [line, hint] = told[..] else { panic!("{args:?}: {ended:?}") };
        assert!(line.starts_with(&format!("error: {what} needs the laboratory")), "{line}");
        assert!(hint.starts_with("hint: ") && hint.contains("crates/cinnabar-lab"), "{hint}");
    }
    // What records needs it not.
    let ended = run(&site, &program, &["trace", "record", "--help"]);
    assert!(ended.code == Some(0) && ended.stdout.contains("--max-size"), "{ended:?}");
}

#[test]
fn help_tells_which_commands_are_the_laboratorys() {
    let site = Site::new();
    let help = site.ask(&["help"]);
    for command in ["analyze", "simulate", "bench"] {
        let mut lines = help.lines().skip_while(|line| !line.trim().starts_with(command));
        let entry: String = lines.by_ref().take(2).collect();
        assert!(entry.contains("[cinnabar-lab]"), "{command}: {help}");
    }
    let one = site.ask(&["help", "analyze"]);
    assert!(one.contains("cinnabar-lab analyze"), "{one}");
}
