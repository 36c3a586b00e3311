//! Clients that ask for the status and leave: over HTTP every account of the host may.

use super::{Control, PLANS_MAX, Phase, STATUSES_MAX};
use cinnabar_config::messages::{Message, Waker, channel};
use cinnabar_manager::{Handle, Query};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
struct Nobody;

impl Waker for Nobody {
    fn wake(&self) {}
}

/// The data thread is busy. They filled its queue, and commands of the operator were refused.
#[tokio::test]
async fn they_leave_room_for_commands() {
    let (commands, queue) = channel(Arc::new(Nobody));
    let control = Control::new("/".into(), "/control.sock".into(), Duration::from_secs(1));
    control.enter(Phase::Serving(commands.clone()));
    for _ in 0..300 {
        let status = tokio::time::timeout(Duration::from_millis(1), control.status());
        assert!(status.await.is_err(), "nobody answers");
    }
    let waiting =
        queue.try_iter().inspect(|message| assert!(matches!(message, Message::Status(_))));
    assert_eq!(waiting.count(), STATUSES_MAX);
    // They were not answered: each place is free again.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let asks = tokio::spawn({
        let control = Arc::clone(&control);
        async move { control.status().await }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    let Ok(Message::Status(answer)) = queue.try_recv() else { panic!("the next one is asked") };
    drop(answer);
    assert!(asks.await.expect("it does not panic").is_err());
}

/// The manager is busy. Questions about plans filled its queue, and pins were refused.
#[tokio::test]
async fn they_leave_room_for_pins() {
    let (commands, _queue) = channel(Arc::new(Nobody));
    let control = Control::new("/".into(), "/control.sock".into(), Duration::from_secs(1));
    control.enter(Phase::Serving(commands));
    let (manager, asked) = Handle::channel();
    control.set_manager(manager.clone());
    for _ in 0..100 {
        let plan = control.ask_manager(|answer| Query::Plan(None, answer));
        let plan = tokio::time::timeout(Duration::from_millis(1), plan);
        assert!(plan.await.is_err(), "nobody answers");
    }
    let mut waiting: Vec<Query> = asked.try_iter().collect();
    assert_eq!(waiting.len(), PLANS_MAX);
    let unpin = manager.ask(|answer| Query::Unpin("vm1".into(), answer));
    assert!(tokio::time::timeout(Duration::from_millis(1), unpin).await.is_err());
    assert!(matches!(asked.try_recv(), Ok(Query::Unpin(..))), "there is room for it");
    // One of them is answered, or given up: its place is free.
    drop(waiting.pop());
    let plan = control.ask_manager(|answer| Query::Plan(None, answer));
    assert!(tokio::time::timeout(Duration::from_millis(50), plan).await.is_err());
    assert!(matches!(asked.try_recv(), Ok(Query::Plan(..))), "the next one is asked");
}
