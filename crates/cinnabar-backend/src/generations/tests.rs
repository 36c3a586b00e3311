//! What is remembered, and what becomes of it.

use super::file::{NAME, parse};
use super::*;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use tempfile::TempDir;

const FIRST: DeviceId = [1; 16];
const SECOND: DeviceId = [2; 16];

fn at_once() -> OpenOptions {
    OpenOptions { lock_wait: Duration::from_secs(5), ..OpenOptions::default() }
}

fn open(folder: &Path) -> Generations {
    Generations::open(folder, &at_once()).expect("it opens")
}

fn folder() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let folder = dir.path().join("state");
    (dir, folder)
}

fn attach(state: &mut Generations, device: Option<DeviceId>) -> u64 {
    let device = device.map(|id| (id, Path::new("/ssd/cache.img")));
    state.attach(&["vm1".into()], device).expect("it is kept")[0]
}

#[test]
fn a_generation_stays_as_long_as_nothing_happens() {
    let (_dir, folder) = folder();
    let first = attach(&mut open(&folder), Some(FIRST));
    let mut again = open(&folder);
    assert_eq!(attach(&mut again, Some(FIRST)), first);
    assert!(again.knows_cache(Path::new("/ssd/cache.img")));
    assert!(!again.knows_cache(Path::new("/ssd/other.img")));
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode();
    assert_eq!(mode(&folder) & 0o777, 0o700);
    assert_eq!(mode(&folder.join(NAME)) & 0o777, 0o600);
}

#[test]
fn an_old_name_of_the_cache_is_known_after_a_replacement() {
    let (_dir, folder) = folder();
    let path = |n: usize| PathBuf::from(format!("/ssd{n}/cache.img"));
    let names = ["vm1".to_owned()];
    let mut state = open(&folder);
    assert_eq!(state.cache_elsewhere(&path(0)), None, "there was none yet");
    state.attach(&names, Some((FIRST, &path(0)))).expect("it is kept");
    state.entrust(&names, SECOND, &path(1)).expect("it is kept");
    drop(state);
    let mut state = open(&folder);
    assert!(state.knows_cache(&path(0)) && state.knows_cache(&path(1)));
    assert!(!state.knows_cache(&path(2)));
    assert_eq!(state.cache_elsewhere(&path(0)), Some(path(1)));
    assert_eq!(state.cache_elsewhere(&path(1)), None);
    // Back again, and on: each once, and the oldest are forgotten.
    for n in [0, 1, 0].into_iter().chain(2..=9) {
        state.entrust(&names, SECOND, &path(n)).expect("it is kept");
    }
    drop(state);
    let state = open(&folder);
    let known: Vec<_> = (0..=10).filter(|n| state.knows_cache(&path(*n))).collect();
    assert_eq!(known, [0, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn another_device_means_another_generation_each_time() {
    let (_dir, folder) = folder();
    let mut state = open(&folder);
    let first = attach(&mut state, Some(FIRST));
    let second = attach(&mut state, Some(SECOND));
    let third = attach(&mut state, Some(FIRST));
    assert!(first != second && second != third && first != third, "what it left is old by now");
    drop(state);
    assert_eq!(attach(&mut open(&folder), Some(FIRST)), third);
}

#[test]
fn without_a_device_only_a_bump_changes_a_generation() {
    let (_dir, folder) = folder();
    let mut state = open(&folder);
    let first = attach(&mut state, Some(FIRST));
    assert_eq!(attach(&mut state, None), first, "nothing was written yet");
    let changed = state.bump_generation(&[("vm1".into(), first)]).expect("it is kept")[0];
    assert_ne!(changed, first);
    let again = state.bump_generation(&[("vm1".into(), first)]).expect("it is kept")[0];
    assert_eq!(again, changed, "another shard asks for the same");
    drop(state);
    let mut state = open(&folder);
    assert_eq!(attach(&mut state, Some(FIRST)), changed, "the device's blocks are not believed");
}

#[test]
fn a_volume_first_seen_without_a_device_keeps_its_generation_on_one() {
    let (_dir, folder) = folder();
    let mut state = open(&folder);
    let first = attach(&mut state, None);
    assert_eq!(attach(&mut state, Some(FIRST)), first);
}

#[test]
fn a_replaced_device_is_not_believed_when_it_comes_back() {
    let (_dir, folder) = folder();
    let mut state = open(&folder);
    let first = attach(&mut state, Some(FIRST));
    state.entrust(&["vm1".into()], SECOND, Path::new("/ssd/new")).expect("it is kept");
    drop(state);
    let mut state = open(&folder);
    assert_eq!(attach(&mut state, Some(SECOND)), first, "the new one is warm");
    assert_ne!(attach(&mut state, Some(FIRST)), first, "the old one is not");
}

#[test]
fn volumes_do_not_share() {
    let (_dir, folder) = folder();
    let mut state = open(&folder);
    let names: Vec<String> = (0..10).map(|i| format!("vm{i}")).collect();
    let all = state.attach(&names, None).expect("they are kept");
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 10);
    let held: Vec<_> = names.iter().cloned().zip(all.iter().copied()).take(5).collect();
    state.bump_generation(&held).expect("it is kept");
    let now = state.attach(&names, None).expect("they are kept");
    assert!(now[..5].iter().zip(&all).all(|(now, then)| now != then));
    assert_eq!(now[5..], all[5..]);
}

#[test]
fn the_file_stays_small() {
    let (_dir, folder) = folder();
    let mut state = open(&folder);
    let names: Vec<String> = (0..ENTRIES_MAX).map(|i| format!("{i:064}")).collect();
    let device = Some((FIRST, Path::new("/ssd")));
    state.attach(&names, device).expect("as many as fit");
    drop(state);
    let mut state = open(&folder);
    let first = attach(&mut state, Some(FIRST));
    drop(state);
    let mut state = open(&folder);
    assert_eq!(state.kept.volumes.len(), ENTRIES_MAX, "one had to go");
    assert_eq!(attach(&mut state, Some(FIRST)), first, "but not the one in use");
}

#[test]
fn what_can_not_be_believed_is_renamed_and_starts_again() {
    let good = br#"{"version":1,"volumes":{"a":{"generation":"00000000000000ff"}}}"#;
    assert_eq!(parse(good).expect("it is whole").volumes["a"].generation, 255);
    let long = format!(r#"{{"version":1,"volumes":{{"{}":{{}}}}}}"#, "n".repeat(65));
    for bad in [
        "",
        "{",
        "[]",
        "\0\0\0\0",
        r#"{"version":2,"volumes":{}}"#,
        r#"{"version":1,"volumes":{},"more":1}"#,
        r#"{"version":1,"volumes":{"":{"generation":"0000000000000000"}}}"#,
        r#"{"version":1,"volumes":{"a":{"generation":"+000000000000000"}}}"#,
        r#"{"version":1,"volumes":{"a":{"generation":"ff"}}}"#,
        r#"{"version":1,"volumes":{"a":{"generation":5}}}"#,
        r#"{"version":1,"volumes":{"a":{"generation":"0000000000000000","device":"x"}}}"#,
        &long,
        &" ".repeat(5 << 20),
    ] {
        let (_dir, folder) = folder();
        let first = attach(&mut open(&folder), Some(FIRST));
        std::fs::write(folder.join(NAME), bad).expect("a file");
        let mut state = open(&folder);
        assert_ne!(attach(&mut state, Some(FIRST)), first, "{bad:.80}");
        assert!(folder.join("generations.json.bad").exists(), "{bad:.80}");
    }
}

#[test]
fn a_folder_has_one_daemon() {
    let (_dir, folder) = folder();
    let first = open(&folder);
    let hasty = OpenOptions { lock_wait: Duration::from_millis(50), ..OpenOptions::default() };
    let error = Generations::open(&folder, &hasty).expect_err("another process has it");
    assert!(error.to_string().contains("in use"), "{error}");
    assert!(error.hint().contains("state_dir"));
    drop(first);
    open(&folder);
}

#[test]
fn what_can_not_be_written_changes_nothing() {
    let (_dir, folder) = folder();
    let mut state = open(&folder);
    let first = attach(&mut state, Some(FIRST));
    // A folder of that name can't be opened for writing.
    std::fs::create_dir(folder.join("generations.json.new")).expect("a folder");
    state.bump_generation(&[("vm1".into(), first)]).expect_err("it can't be kept");
    assert_eq!(attach(&mut state, Some(FIRST)), first);
    std::fs::remove_dir(folder.join("generations.json.new")).expect("it is empty");
    assert_ne!(state.bump_generation(&[("vm1".into(), first)]).expect("it is kept")[0], first);
    let file = folder.join("file");
    std::fs::write(&file, "").expect("a file");
    Generations::open(&file, &at_once()).expect_err("not a folder");
}
