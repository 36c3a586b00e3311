//! A file that is read again: what reaches the data plane, what is named, what stays.

use super::ReloadListener;
use super::carry::ADDS_MAX;
use super::report::{ChangeReport, ReloadInput, ReloadReport};
use crate::api;
use crate::fake::Site;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use cinnabar_config::messages::{CommandError, State, WriteBackStatus};
use cinnabar_config::settings::{Share, VolumeMode};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const VM1: &str = "[[volume]]\nname = \"vm1\"\nbackend = \"file:vm1.raw\"\n";
const VM2: &str = "[[volume]]\nname = \"vm2\"\nbackend = \"file:vm2.raw\"\n";
const REMOVING: ReloadInput = ReloadInput { dry_run: false, remove_volumes: true };
const DRY: ReloadInput = ReloadInput { dry_run: true, remove_volumes: false };

async fn reload(site: &Site, input: ReloadInput) -> Result<ReloadReport, CommandError> {
    site.control.reload(input).await
}

/// It must go well; what is said of it, a line for each difference.
async fn lines(site: &Site, input: ReloadInput) -> Vec<String> {
    let report = reload(site, input).await.expect("it is right");
    let changes = report.changes.iter().map(super::ChangeReport::line);
    let restart = report.restart.iter().map(super::report::RestartReport::line);
    let kept = report.kept.iter().map(super::report::KeptReport::line);
    changes.chain(restart).chain(kept).collect()
}

/// A request to the control socket.
async fn ask(site: &Site, method: &str, uri: &str, body: &str) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(uri);
    let request = request.body(Body::from(body.to_owned())).expect("a request");
    let router = api::router(Arc::clone(&site.control));
    let answer = TowerToHyperService::new(router).call(request).await.expect("infallible");
    let code = answer.status();
    let body = http_body_util::BodyExt::collect(answer.into_body()).await.expect("a body");
    (code, String::from_utf8_lossy(&body.to_bytes()).into_owned())
}

/// Written, and read again.
async fn again(site: &Site, more: &str) -> Vec<String> {
    site.write(more);
    lines(site, ReloadInput::default()).await
}

#[tokio::test]
async fn what_can_change_is_changed_and_once() {
    let site = Site::new(&format!("{VM1}share_min = \"10%\"\n"));
    let more = format!(
        "[control]\nstop_wait_s = 5\n{VM1}mode = \"write-around\"\nshare_max = \"50%\"\niops_limit = 70\n\
         {VM2}share_min = \"75%\"\n"
    );
    site.write(&more);
    let expected = [
        "control: stop_wait_s changed",
        "volume vm1: mode, share_min, share_max, iops_limit changed",
        "volume vm2: added",
    ];
    let would =
        |line: &str| line.replace("changed", "would change").replace("added", "would be added");
    assert_eq!(lines(&site, DRY).await, expected.map(would));
    assert!(site.told().is_empty(), "nothing is changed");
    assert_eq!(lines(&site, ReloadInput::default()).await, expected);
    assert_eq!(site.told(), ["set vm1", "add vm2"]);
    let vm1 = site.volume("vm1");
    assert_eq!((vm1.mode, vm1.share_max), (VolumeMode::WriteAround, Share::Percent(50.0)));
    assert_eq!((vm1.share_min, vm1.qos.limit_iops), (Share::Bytes(0), Some(70)));
    assert_eq!(site.control.stop_wait_max().map(|wait| wait.as_secs()), Some(5));
    assert!(lines(&site, ReloadInput::default()).await.is_empty());
    assert!(site.told().is_empty());
}

#[tokio::test]
async fn an_error_changes_nothing_and_names_its_line() {
    let site = Site::new(VM1);
    for (more, line, message) in [
        (format!("{VM1}{VM2}mode = \"write\"\n"), Some(11), "unknown mode"),
        (format!("{VM2}sise = 3\n"), Some(8), "unknown key \"sise\""),
        (format!("{VM1}{VM2}share_min = \"81%\"\n"), Some(11), "at most 80 %"),
        // Fine by itself, and not beside what is served.
        (format!("{VM2}nbd = \"unix:vm1.sock\"\n"), None, "the address of volume \"vm1\" already"),
        (
            format!("{VM1}[control]\nsocket = \"x\"\n{VM2}nbd = \"unix:control.sock\"\n"),
            None,
            "the control socket",
        ),
    ] {
        site.write(&more);
        for input in [DRY, ReloadInput::default()] {
            let error = reload(&site, input).await.expect_err(&more);
            assert!(error.message.contains(message), "{error}");
            assert!(!error.hint.is_empty(), "{error}");
            let place = line.map(|line| format!("/c.toml:{line}: "));
            assert!(place.is_none_or(|place| error.message.contains(&place)), "{error}");
            assert!(site.told().is_empty(), "{more}");
        }
    }
    // What was wrong was not taken as read.
    assert_eq!(again(&site, &format!("{VM1}{VM2}")).await, ["volume vm2: added"]);
    std::fs::remove_file(site.path()).expect("it is ours");
    let error = reload(&site, ReloadInput::default()).await.expect_err("there is none");
    assert!(error.message.contains("can't be read"), "{error}");
}

#[tokio::test]
async fn what_needs_a_restart_is_named_until_the_file_says_otherwise() {
    let site = Site::new(&format!("[manager]\n{VM1}"));
    let other = "[control]\nhttp = \"127.0.0.1:9320\"\n[[qos_group]]\nname = \"nas\"\ndepth = 4\n\
        [[volume]]\nname = \"vm1\"\nbackend = \"file:other.raw\"\nweight = 3\n";
    let expected = [
        "control.http: needs a restart",
        "manager: needs a restart",
        "qos_group nas: needs a restart",
        "volume vm1: backend: needs a restart",
        "volume vm1: weight: needs a restart",
    ];
    for _ in 0..2 {
        assert_eq!(again(&site, other).await, expected);
    }
    let text = site.file().replace("cache.img", "other.img").replace("1GiB", "2GiB");
    std::fs::write(site.path(), text).expect("it is ours");
    let named = lines(&site, ReloadInput::default()).await;
    // The size is that of the other device.
    for line in ["cache.device: needs a restart", "cache.size: needs a restart"] {
        assert!(named.contains(&line.to_owned()), "{named:?}");
    }
    assert!(site.told().is_empty());
    assert!(again(&site, &format!("[manager]\n{VM1}")).await.is_empty());
}

#[tokio::test]
async fn a_change_by_command_stays_until_its_key_changes_in_the_file() {
    let site = Site::new(&format!("{VM1}mode = \"write-around\"\nshare_max = \"50%\"\n"));
    site.by_command("vm1", |volume| {
        volume.config.mode = VolumeMode::PassThrough;
        volume.config.share_max = Share::Percent(20.0);
    });
    // Another key of the same volume.
    let more = format!("{VM1}mode = \"write-around\"\nshare_max = \"50%\"\niops_weight = 7\n");
    assert_eq!(again(&site, &more).await, ["volume vm1: iops_weight changed"]);
    let vm1 = site.volume("vm1");
    assert_eq!((vm1.mode, vm1.share_max), (VolumeMode::PassThrough, Share::Percent(20.0)));
    // The key itself.
    let more = more.replace("50%", "60%");
    assert_eq!(again(&site, &more).await, ["volume vm1: share_max changed"]);
    assert_eq!(site.volume("vm1").share_max, Share::Percent(60.0));
    // To what it is already.
    let more = more.replace("write-around", "pass-through");
    assert!(again(&site, &more).await.is_empty());
    assert_eq!(site.told(), ["set vm1", "set vm1"]);
}

#[tokio::test]
async fn volumes_that_came_or_went_by_command_are_not_confused() {
    let site = Site::new(&format!("{VM1}{VM2}"));
    site.has().volumes.retain(|volume| volume.config.name != "vm2");
    let removed = "volume vm2: is in the file and was removed by command \
        (cinnabar volume add, or a restart)";
    assert_eq!(again(&site, &format!("{VM1}{VM2}share_max = \"9%\"\n")).await, [removed]);
    assert!(site.told().is_empty());
    // Added by command, and then in the file, otherwise.
    let site = Site::new(&format!("{VM1}{VM2}"));
    site.control.note(|configured| {
        configured.reads("vm2", None);
        configured.has_removed("vm2");
    });
    let more = format!("{VM1}{VM2}read_only = true\niops_limit = 5\n");
    let expected = ["volume vm2: iops_limit changed", "volume vm2: read_only: needs a restart"];
    assert_eq!(again(&site, &more).await, expected);
    assert_eq!(again(&site, &more).await, expected[1..]);
}

#[tokio::test]
async fn a_volume_that_was_added_otherwise_by_command_is_compared_with_that() {
    let site = Site::new(VM1);
    assert_eq!(ask(&site, "DELETE", "/v1/volumes/vm1", "").await.0, StatusCode::NO_CONTENT);
    let other = r#"{"name":"vm1","backend":"file:/srv/vm1.raw"}"#;
    assert_eq!(ask(&site, "POST", "/v1/volumes", other).await.0, StatusCode::CREATED);
    let lines = lines(&site, ReloadInput::default()).await;
    assert_eq!(lines, ["volume vm1: backend: needs a restart"]);
}

/// A removal whose server was given up: the answer says so, and the volume is gone.
#[tokio::test]
async fn what_a_removal_costs_is_told_and_the_removal_is_noted_all_the_same() {
    let site = Site::new(&format!("{VM1}{VM2}"));
    site.has().given_up = vec!["vm2".into()];
    let (code, answer) = ask(&site, "DELETE", "/v1/volumes/vm2", "").await;
    assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
    assert!(answer.contains("the back end is away"), "{answer}");
    let runs = site.control.configured().expect("it has one").running;
    assert!(runs.volumes.iter().all(|volume| volume.name != "vm2"), "it is noted");
}

#[tokio::test]
async fn volumes_that_leave_the_file_go_only_if_asked_for_and_unused() {
    let site = Site::new(&format!("{VM1}{VM2}"));
    let kept = "volume vm2: is not in the file any more and is served on \
        (cinnabar reload --remove-volumes)";
    for _ in 0..2 {
        assert_eq!(again(&site, VM1).await, [kept]);
    }
    let dirty = WriteBackStatus {
        dirty_bytes: 4096,
        dirty_age: std::time::Duration::ZERO,
        epochs: 1,
        destaged_bytes: 0,
        destaged_writes: 0,
        pace: cinnabar_config::messages::PaceStatus::default(),
        damaged: false,
        leaving: false,
        ack: cinnabar_config::settings::Ack::Durable,
        claim: String::new(),
        group: String::new(),
        waits_for: None,
    };
    site.by_command("vm2", |volume| volume.connections = 2);
    // Nothing else is changed either.
    site.write(&format!("{VM1}iops_limit = 5\n"));
    let error = reload(&site, REMOVING).await.expect_err("it has clients");
    assert!(error.message.contains("\"vm2\" has 2 clients connected"), "{error}");
    site.by_command("vm2", |volume| {
        (volume.connections, volume.write_back) = (0, Some(dirty));
    });
    let error = reload(&site, REMOVING).await.expect_err("it has writes");
    assert!(error.message.contains("\"vm2\" has 4096 bytes that its back end"), "{error}");
    assert!(site.told().is_empty());
    site.by_command("vm2", |volume| {
        let damaged = WriteBackStatus {
            dirty_bytes: 0,
            damaged: true,
            ..volume.write_back.take().expect("it")
        };
        volume.write_back = Some(damaged);
    });
    let error = reload(&site, REMOVING).await.expect_err("it has damaged writes");
    assert!(error.message.contains("\"vm2\" has damaged writes"), "{error}");
    site.by_command("vm2", |volume| {
        (volume.write_back, volume.config.mode) = (None, VolumeMode::WriteBack);
        volume.state = State::Waiting;
    });
    let error = reload(&site, REMOVING).await.expect_err("it may have writes");
    assert!(error.message.contains("\"vm2\" waits for its back end"), "{error}");
    site.by_command("vm2", |volume| volume.state = State::Serving);
    let error = reload(&site, REMOVING).await.expect_err("the log is not there");
    assert!(error.message.contains("\"vm2\" may have writes in the write log"), "{error}");
    assert!(site.told().is_empty());
    site.by_command("vm2", |volume| volume.config.mode = VolumeMode::WriteThrough);
    let gone = ["volume vm2: removed", "volume vm1: iops_limit changed"];
    assert_eq!(lines(&site, REMOVING).await, gone);
    assert!(lines(&site, REMOVING).await.is_empty());
    assert_eq!(site.told(), ["remove vm2", "set vm1"]);
}

#[tokio::test]
async fn a_volume_takes_the_place_of_one_that_goes() {
    let site = Site::new(&format!("{VM1}share_min = \"60%\"\n{VM2}share_min = \"20%\"\n"));
    // Its address, its disk, its minimum; and one gives what another one takes.
    site.write(
        "[[volume]]\nname = \"new\"\nbackend = \"file:vm1.raw\"\nnbd = \"unix:vm1.sock\"\nshare_min = \"70%\"\n\
         [[volume]]\nname = \"vm2\"\nbackend = \"file:vm2.raw\"\nshare_min = \"10%\"\n",
    );
    let error = reload(&site, ReloadInput::default()).await.expect_err("it is there");
    assert!(error.message.contains("of volume \"vm1\" already"), "{error}");
    lines(&site, REMOVING).await;
    assert_eq!(site.told(), ["remove vm1", "set vm2", "add new"]);
}

#[tokio::test]
async fn minimums_are_given_up_before_they_are_taken() {
    let site = Site::new(&format!("{VM1}share_min = \"10%\"\n{VM2}share_min = \"70%\"\n"));
    again(&site, &format!("{VM1}share_min = \"70%\"\n{VM2}share_min = \"10%\"\n")).await;
    assert_eq!(site.told(), ["set vm2", "set vm1"]);
    // And before the cache shrinks.
    let more = format!("{VM1}share_min = \"10%\"\n{VM2}share_min = \"10%\"\n");
    site.write(&more);
    let text = site.file().replace("size = \"1GiB\"", "size = \"512MiB\"");
    std::fs::write(site.path(), text).expect("it is ours");
    lines(&site, ReloadInput::default()).await;
    assert_eq!(site.told(), ["set vm1", "resize 0"]);
}

#[tokio::test]
async fn what_fails_is_tried_again_and_holds_up_nothing() {
    let site = Site::new(VM1);
    site.has().refuses = vec!["vm2".into(), "vm1".into()];
    site.write(&format!(
        "{VM1}iops_limit = 5\n{VM2}[[volume]]\nname = \"vm3\"\nbackend = \"file:3\"\n"
    ));
    let expected = [
        "volume vm1: iops_limit not changed: the back end is away",
        "volume vm2: not added: the back end is away",
        "volume vm3: added",
    ];
    assert_eq!(lines(&site, ReloadInput::default()).await, expected);
    site.has().refuses.clear();
    let expected = ["volume vm1: iops_limit changed", "volume vm2: added"];
    assert_eq!(lines(&site, ReloadInput::default()).await, expected);
    assert!(lines(&site, ReloadInput::default()).await.is_empty());
}

#[tokio::test]
async fn back_ends_that_hang_are_waited_for_together_and_not_for_long() {
    let site = Site::with_wait(VM1, Duration::from_millis(1500));
    site.has().hangs = Some("hangs");
    let all = ADDS_MAX * 3;
    let volume = |name: &str| format!("[[volume]]\nname = \"{name}\"\nbackend = \"file:{name}\"\n");
    let hang: String = (0..all).map(|number| volume(&format!("hangs{number}"))).collect();
    site.write(&format!("{VM1}{}{hang}", volume("first")));
    let begun = Instant::now();
    let report = reload(&site, ReloadInput::default()).await.expect("it is right");
    // One after another they take 36 s.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(report.changes[0].line(), "volume first: added");
    let not_tried = |change: &&ChangeReport| change.error.starts_with("not tried");
    assert_eq!(report.failures().count(), all);
    assert!(report.failures().filter(not_tried).count() >= ADDS_MAX - 1, "{report:?}");
    assert!(site.told().len() < all);
}

#[tokio::test]
async fn the_cache_gets_the_size_that_it_was_made_for_and_no_more() {
    let site = Site::new(VM1);
    let size = |size: &str| {
        let text = site.file();
        let line = text.lines().find(|line| line.starts_with("size =")).expect("it is there");
        std::fs::write(site.path(), text.replace(line, &format!("size = \"{size}\""))).expect("it");
    };
    size("2GiB");
    assert_eq!(lines(&site, ReloadInput::default()).await, ["cache.size: resizing"]);
    assert_eq!(site.told(), ["resize 2"]);
    assert!(lines(&site, ReloadInput::default()).await.is_empty());
    // It began, and failed later.
    site.has().resize_failed = "no room".into();
    assert_eq!(lines(&site, ReloadInput::default()).await, ["cache.size: resizing"]);
    assert!(lines(&site, ReloadInput::default()).await.is_empty());
    assert_eq!(site.told(), ["resize 2"]);
    // All that it was made for.
    size("4GiB");
    assert_eq!(lines(&site, ReloadInput::default()).await, ["cache.size: resizing"]);
    assert_eq!(site.told(), ["resize 4"]);
    let text = site.file().replace("4GiB", "8GiB");
    std::fs::write(site.path(), text).expect("it is ours");
    size("6GiB");
    let expected = [
        "cache.size: needs a restart (the device was made for less: see size_max)",
        "cache.size_max: needs a restart",
    ];
    assert_eq!(lines(&site, ReloadInput::default()).await, expected);
    assert!(site.told().is_empty());
}

#[tokio::test]
async fn what_waits_for_a_write_log_says_so() {
    let site = Site::new(VM1);
    let log = "write_log = \"log.img\"\nwrite_log_size = \"64MiB\"\n";
    let more =
        format!("{log}{VM1}mode = \"write-back\"\niops_limit = 5\n{VM2}mode = \"write-back\"\n");
    let waits = "needs a restart (the write log is there from the next start on)";
    let named = [
        "cache.write_log: needs a restart".to_owned(),
        format!("volume vm1: mode: {waits}"),
        format!("volume vm2: {waits}"),
    ];
    let mut first = vec!["volume vm1: iops_limit changed".to_owned()];
    first.extend(named.clone());
    assert_eq!(again(&site, &more).await, first);
    assert_eq!(lines(&site, ReloadInput::default()).await, named);
    assert_eq!(site.told(), ["set vm1"]);
    assert_eq!(site.volume("vm1").mode, VolumeMode::WriteThrough);
}

#[tokio::test]
async fn two_at_once_take_turns_and_one_whose_client_leaves_is_finished() {
    let site = Site::new(VM1);
    site.write(&format!("{VM1}{VM2}"));
    let both = tokio::join!(
        site.control.reload(ReloadInput::default()),
        site.control.reload(ReloadInput::default())
    );
    let changes = [both.0, both.1].map(|report| report.expect("it is right").changes.len());
    assert_eq!(changes, [1, 0]);
    assert_eq!(site.told(), ["add vm2"]);

    site.write(VM1);
    let control = Arc::clone(&site.control);
    let mut left = Box::pin(control.reload(REMOVING));
    // It has its turn, and goes on when nobody asks any more.
    assert!(
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(left.as_mut().poll(context).is_pending())
        })
        .await
    );
    drop(left);
    assert!(lines(&site, REMOVING).await.is_empty(), "it came behind the one before");
    assert_eq!(site.told(), ["remove vm2"]);
}

#[tokio::test]
async fn without_a_file_there_is_nothing_to_read() {
    let site = Site::new(VM1);
    let mut config = site.control.configured().expect("it has one").running;
    config.path = None;
    site.control.set_config(&config);
    let error = reload(&site, ReloadInput::default()).await.expect_err("there is none");
    assert!(error.message.contains("has no configuration file"), "{error}");
}

#[derive(Debug, Default)]
struct Listener(Mutex<Vec<String>>);

impl ReloadListener for Arc<Listener> {
    fn reloaded(&self, result: Result<&ReloadReport, &CommandError>) {
        let line = result.map_or_else(
            |error| error.message.clone(),
            |report| format!("{} failed", report.failures().count()),
        );
        self.0.lock().expect("it does not panic").push(line);
    }
}

/// The service manager is told of each, also behind one that failed, and not over the last words.
#[tokio::test]
async fn each_reload_is_told_until_the_daemon_stops() {
    let site = Site::new(VM1);
    let listener = Arc::new(Listener::default());
    site.control.set_reload_listener(Box::new(Arc::clone(&listener)));
    site.has().refuses = vec!["vm1".into()];
    site.write(&format!("{VM1}iops_limit = 5\n"));
    reload(&site, DRY).await.expect("it is right");
    reload(&site, ReloadInput::default()).await.expect("it is right");
    site.has().refuses.clear();
    reload(&site, ReloadInput::default()).await.expect("it is right");
    site.control.enter(crate::Phase::Stopping);
    reload(&site, ReloadInput::default()).await.expect_err("it stops");
    assert_eq!(*listener.0.lock().expect("it does not panic"), ["1 failed", "0 failed"]);
}
