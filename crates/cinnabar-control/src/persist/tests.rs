//! Changes that go into the file, and what happens when they can't.

use crate::api;
use crate::fake::Site;
use crate::reload::report::{ChangeReport, ReloadInput, RestartReport};
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use std::path::Path;

const VM1: &str = "# The data base.\n[[volume]]\nname = \"vm1\"\nbackend = \"file:vm1.raw\"\n";
const VM2: &str = r#"{"name":"vm2","backend":"file:/srv/vm2.raw","mode":"write-through"}"#;
const ADDED: &str = "\n[[volume]]\nname = \"vm2\"\nbackend = \"file:/srv/vm2.raw\"\n";

async fn ask(site: &Site, method: &str, uri: &str, body: &str) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(uri);
    let request = request.body(Body::from(body.to_owned())).expect("a request");
    let router = api::router(std::sync::Arc::clone(&site.control));
    let answer = TowerToHyperService::new(router).call(request).await.expect("infallible");
    let code = answer.status();
    let body = http_body_util::BodyExt::collect(answer.into_body()).await.expect("a body");
    (code, String::from_utf8_lossy(&body.to_bytes()).into_owned())
}

/// Nothing differs between the file and what is served.
async fn is_settled(site: &Site) {
    let report = site.control.reload(ReloadInput::default()).await.expect("the file is right");
    let differs = report.changes.len() + report.restart.len() + report.kept.len();
    assert_eq!(differs, 0, "{report:?}");
}

#[tokio::test]
async fn changes_go_into_the_file_and_nothing_else_of_it_changes() {
    let site = Site::new(VM1);
    let before = site.file();
    let (code, body) = ask(&site, "POST", "/v1/volumes?persist=true", VM2).await;
    assert_eq!(code, StatusCode::CREATED, "{body}");
    assert_eq!(site.file(), format!("{before}{ADDED}"));
    is_settled(&site).await;
    let change = r#"{"mode":"write-around","iops_limit":500}"#;
    let (code, body) = ask(&site, "PATCH", "/v1/volumes/vm2?persist=true", change).await;
    assert_eq!(code, StatusCode::OK, "{body}");
    let keys = "mode = \"write-around\"\niops_limit = 500\n";
    assert_eq!(site.file(), format!("{before}{ADDED}{keys}"));
    is_settled(&site).await;
    let (code, body) = ask(&site, "DELETE", "/v1/volumes/vm2?persist=true", "").await;
    assert_eq!(code, StatusCode::NO_CONTENT, "{body}");
    assert_eq!(site.file(), before);
    is_settled(&site).await;
    assert_eq!(site.told(), ["add vm2", "set vm2", "remove vm2"]);
    // Without the word the file stays as it is.
    let (code, _) = ask(&site, "POST", "/v1/volumes", VM2).await;
    assert_eq!((code, site.file()), (StatusCode::CREATED, before));
}

#[tokio::test]
async fn a_file_that_is_not_as_it_was_read_is_left_alone_and_nothing_is_changed() {
    let site = Site::new(VM1);
    let edited = site.file() + "# An edit.\n";
    std::fs::write(site.path(), &edited).expect("it is ours");
    for (method, path, body) in [
        ("POST", "/v1/volumes?persist=true", VM2),
        ("PATCH", "/v1/volumes/vm1?persist=true", r#"{"mode":"write-around"}"#),
        ("DELETE", "/v1/volumes/vm1?persist=true", ""),
    ] {
        let (code, answer) = ask(&site, method, path, body).await;
        assert_eq!(code, StatusCode::CONFLICT, "{answer}");
        assert!(
            answer.contains("nothing is changed") && answer.contains("since it was read"),
            "{answer}"
        );
        assert!(answer.contains("cinnabar reload"), "{answer}");
        assert_eq!(site.file(), edited);
    }
    assert!(site.told().is_empty());
    // Once it is read it can be written.
    is_settled(&site).await;
    let (code, answer) = ask(&site, "POST", "/v1/volumes?persist=true", VM2).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    assert!(site.file().contains("# An edit.") && site.file().contains("vm2"));
}

#[tokio::test]
async fn what_fails_behind_the_change_says_that_it_is_live() {
    let site = Site::new(VM1);
    site.has().amid = Some(|file: &Path| std::fs::write(file, "# Taken.\n").expect("it is ours"));
    let (code, answer) = ask(&site, "POST", "/v1/volumes?persist=true", VM2).await;
    assert_eq!(code, StatusCode::CONFLICT, "{answer}");
    assert!(answer.contains(r#"volume \"vm2\" is served, but not persisted"#), "{answer}");
    assert!(answer.contains("edit the file"), "{answer}");
    assert_eq!((site.told(), site.file()), (vec!["add vm2".to_owned()], "# Taken.\n".to_owned()));
    let left = std::fs::read_dir(site.dir.path()).expect("a folder").count();
    assert_eq!(left, 1, "nothing is left beside the file");
}

#[tokio::test]
async fn what_the_data_plane_refuses_is_not_in_the_file() {
    let site = Site::new(VM1);
    site.has().refuses = vec!["vm2".into()];
    let before = site.file();
    let (code, _) = ask(&site, "POST", "/v1/volumes?persist=true", VM2).await;
    assert_eq!((code, site.file()), (StatusCode::INTERNAL_SERVER_ERROR, before));
    assert_eq!(std::fs::read_dir(site.dir.path()).expect("a folder").count(), 1);
}

/// After a command without the word, or one that was not brought to its end, the same with it.
#[tokio::test]
async fn what_is_done_already_goes_into_the_file() {
    let site = Site::new(VM1);
    let before = site.file();
    assert_eq!(ask(&site, "POST", "/v1/volumes", VM2).await.0, StatusCode::CREATED);
    let other = VM2.replace("vm2.raw", "other.raw");
    let (code, answer) = ask(&site, "POST", "/v1/volumes?persist=true", &other).await;
    assert_eq!((code, site.file()), (StatusCode::CONFLICT, before.clone()));
    assert!(answer.contains("; the configuration file is not changed"), "{answer}");
    let (code, answer) = ask(&site, "POST", "/v1/volumes?persist=true", VM2).await;
    assert_eq!((code, site.file()), (StatusCode::CREATED, format!("{before}{ADDED}")), "{answer}");
    is_settled(&site).await;
    assert_eq!(ask(&site, "DELETE", "/v1/volumes/vm2", "").await.0, StatusCode::NO_CONTENT);
    let (code, answer) = ask(&site, "DELETE", "/v1/volumes/vm2?persist=true", "").await;
    assert_eq!((code, site.file()), (StatusCode::NO_CONTENT, before), "{answer}");
    is_settled(&site).await;
    let (code, _) = ask(&site, "DELETE", "/v1/volumes/vm2?persist=true", "").await;
    assert_eq!(code, StatusCode::NOT_FOUND);
}

/// A removal whose server was given up: what that costs is said, with `--persist`, too.
#[tokio::test]
async fn what_a_removal_costs_is_told_and_the_removal_is_noted_all_the_same() {
    for persist in ["", "?persist=true"] {
        let site = Site::new(VM1);
        assert_eq!(
            ask(&site, "POST", "/v1/volumes?persist=true", VM2).await.0,
            StatusCode::CREATED
        );
        site.has().given_up = vec!["vm2".into()];
        let (code, answer) = ask(&site, "DELETE", &format!("/v1/volumes/vm2{persist}"), "").await;
        assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
        assert!(answer.contains("the back end is away"), "{answer}");
        let is_out = !persist.is_empty();
        assert_eq!(answer.contains("it is out of the configuration file, too"), is_out, "{answer}");
        assert_eq!(!site.file().contains("vm2"), is_out);
        let runs = site.control.configured().expect("it has one").running;
        assert!(runs.volumes.iter().all(|volume| volume.name != "vm2"), "it is noted");
        if is_out {
            is_settled(&site).await;
        }
    }
}

#[tokio::test]
async fn keys_that_could_not_be_changed_are_tried_again_after_others_were() {
    let site = Site::new(VM1);
    site.has().refuses = vec!["vm1".into()];
    site.write(&format!("{VM1}iops_limit = 5\n"));
    let report = site.control.reload(ReloadInput::default()).await.expect("the file is right");
    assert_eq!(report.failures().count(), 1);
    site.has().refuses.clear();
    let change = r#"{"mode":"write-around"}"#;
    let (code, answer) = ask(&site, "PATCH", "/v1/volumes/vm1?persist=true", change).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    let report = site.control.reload(ReloadInput::default()).await.expect("the file is right");
    let lines: Vec<_> = report.changes.iter().map(ChangeReport::line).collect();
    assert_eq!(lines, ["volume vm1: iops_limit changed"]);
    is_settled(&site).await;
}

/// What was added again by command is what runs.
#[tokio::test]
async fn a_volume_that_was_added_otherwise_by_command_is_compared_with_that() {
    let site = Site::new(VM1);
    assert_eq!(ask(&site, "DELETE", "/v1/volumes/vm1", "").await.0, StatusCode::NO_CONTENT);
    let other = VM2.replace("vm2", "vm1");
    assert_eq!(ask(&site, "POST", "/v1/volumes", &other).await.0, StatusCode::CREATED);
    let report = site.control.reload(ReloadInput::default()).await.expect("the file is right");
    let lines: Vec<_> = report.restart.iter().map(RestartReport::line).collect();
    assert_eq!(lines, ["volume vm1: backend: needs a restart"]);
}

#[tokio::test]
async fn what_would_not_be_right_or_is_not_meant_is_refused() {
    let other = "[[volume]]\nname = \"vm2\"\nbackend = \"file:2\"\nshare_min = \"70%\"\n";
    let site = Site::new(&format!("{VM1}{other}"));
    let before = site.file();
    site.has().volumes.retain(|volume| volume.config.name != "vm2");
    // Another one of that name is in the file.
    let (code, answer) = ask(&site, "POST", "/v1/volumes?persist=true", VM2).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    assert!(answer.contains("another volume"), "{answer}");
    // The same one is there already.
    let disk = site.dir.path().join("2");
    let same = format!(r#"{{"name":"vm2","backend":"file:{}","share_min":"70%"}}"#, disk.display());
    let (code, answer) = ask(&site, "POST", "/v1/volumes?persist=true", &same).await;
    assert_eq!((code, site.file()), (StatusCode::CREATED, before.clone()), "{answer}");
    // Served, and not in the file.
    let other = r#"{"name":"vm3","backend":"file:/srv/vm3.raw"}"#;
    assert_eq!(ask(&site, "POST", "/v1/volumes", other).await.0, StatusCode::CREATED);
    let change = r#"{"mode":"write-around"}"#;
    let (code, answer) = ask(&site, "PATCH", "/v1/volumes/vm3?persist=true", change).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    assert!(answer.contains("no [[volume]]"), "{answer}");
    let (code, _) = ask(&site, "DELETE", "/v1/volumes/vm3?persist=true", "").await;
    assert_eq!((code, site.file()), (StatusCode::NO_CONTENT, before.clone()));
    // The minimums of the file, not only those that are served.
    site.has().volumes.retain(|volume| volume.config.name != "vm2");
    let greedy = r#"{"name":"vm4","backend":"file:/srv/vm4.raw","share_min":"20%"}"#;
    let (code, answer) = ask(&site, "POST", "/v1/volumes?persist=true", greedy).await;
    assert_eq!((code, site.file()), (StatusCode::UNPROCESSABLE_ENTITY, before), "{answer}");
    assert!(answer.contains("at most 80 %") && answer.contains("nothing is changed"), "{answer}");
}

#[tokio::test]
async fn without_a_file_nothing_is_changed() {
    let site = Site::new(VM1);
    let mut config = site.control.configured().expect("it has one").running;
    config.text = None;
    site.control.set_config(&config);
    let (code, answer) = ask(&site, "POST", "/v1/volumes?persist=true", VM2).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    assert!(answer.contains("no configuration file") && site.told().is_empty(), "{answer}");
    for uri in ["/v1/volumes?persist=perhaps", "/v1/volumes?colour=red"] {
        assert_eq!(ask(&site, "POST", uri, VM2).await.0, StatusCode::BAD_REQUEST);
    }
}
