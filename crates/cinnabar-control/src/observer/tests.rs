//! What an observer tells those who listen.

use super::*;
use cinnabar_config::history::EventKind;

#[tokio::test]
async fn places_are_bounded_and_news_wake_those_who_wait() {
    let observer = Observer::default();
    let listen = || observer.listen(Peer::Operator);
    let mut listeners: Vec<_> = (0..LISTENERS_MAX).map(|_| listen()).collect();
    assert!(listeners.iter().all(Option::is_some));
    assert!(listen().is_none(), "one too many");
    let (place, mut news) = listeners.pop().flatten().expect("it has a place");
    observer.tell(EventReport::new(EventKind::PlanMade, 7));
    let woken = tokio::time::timeout(Duration::from_secs(10), news.wait_for(|next| *next > 0));
    assert_eq!(*woken.await.expect("it is woken").expect("the observer lives"), 1);
    listeners.clear();
    drop(place);
    assert!(!observer.is_heard());
}

/// Sixteen readers over HTTP, of any account, kept the operator from listening.
#[test]
fn those_who_listen_over_http_leave_room_for_operators_and_for_each_other() {
    let observer = Observer::default();
    let mut listeners = Vec::new();
    for account in 0..4 {
        let of_one = std::iter::from_fn(|| observer.listen(Peer::Account(account)));
        let before = listeners.len();
        listeners.extend(of_one);
        assert!(listeners.len() > before, "account {account}");
    }
    let operators: Vec<_> =
        (0..LISTENERS_MAX).map_while(|_| observer.listen(Peer::Operator)).collect();
    assert_eq!(operators.len(), LISTENERS_MAX);
    drop((listeners, operators));
    assert!(!observer.is_heard());
}

#[tokio::test]
async fn a_listener_gets_a_look_soon_and_without_one_there_is_none() {
    let observer = Observer::default();
    observer.look_soon();
    let waits = tokio::time::timeout(Duration::from_millis(100), pause(&observer)).await;
    // The next multiple of ten seconds may be that close.
    assert!(waits.is_err() || now_ms() % 10_000 < 500, "no client listens");
    let _listener = observer.listen(Peer::Account(1));
    let looks = tokio::time::timeout(Duration::from_millis(500), pause(&observer)).await;
    assert!(looks.is_ok(), "a client has come");
}

#[tokio::test]
async fn a_stop_before_the_file_was_read_leaves_it_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, path) = (HistoryFile::new(folder.path()), folder.path().join("history.bin"));
    let observer = Observer::default();
    save(&observer, &file).await;
    assert!(!path.exists(), "nothing was read");
    load(&observer, &file).await;
    save(&observer, &file).await;
    assert!(path.exists(), "there was none, and that is known");
}
