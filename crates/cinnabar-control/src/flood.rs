//! Clients that ask for the status and leave: over HTTP every account of the host may.

use super::{Control, Phase, STATUSES_MAX};
use cinnabar_messages::{Message, Waker, channel};
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
