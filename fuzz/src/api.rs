//! A connection to the HTTP address, the page included: no panic, no answer that is not HTTP, nothing that changes
//! anything without the token, and no task that goes on once the client has left.

use crate::served;
use axum::Router;
use cinnabar_config::ApiConfig;
use cinnabar_config::messages::{DataStatus, Message, Waker, channel};
use cinnabar_control::peer::Peer;
use cinnabar_control::server::{Listen, serve};
use cinnabar_control::{Control, Phase, http};
use std::cell::Cell;
use std::future::pending;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::Runtime;

/// In an input it stands for the token, which chance does not find.
const MARK: u8 = 0xFF;
const TOKEN: &[u8] = b"mqPZ3wTq9nB1xYv7KfRt0sLc5Hd8Ju2E";
/// Longer inputs have more requests, and nothing else.
const LEN_MAX: usize = 16 << 10;
/// A connection is over after that: some answers have no end.
const LIFE_MAX: Duration = Duration::from_millis(200);
/// What a connection has begun ends within this time. Where more was sent behind a request, the server
/// learns that the client of an answer without end has left when it sends the next heartbeat.
const END_MAX: Duration = Duration::from_secs(30);

/// A data plane that says its status, and of what would change something only counts how often it was told.
#[derive(Debug)]
struct DataPlane {
    status: DataStatus,
    queue: Mutex<Option<Receiver<Message>>>,
    changes: AtomicUsize,
}

impl Waker for DataPlane {
    fn wake(&self) {
        let queue = self.queue.lock().expect("nothing panics with it");
        for message in queue.iter().flat_map(Receiver::try_iter) {
            if let Message::Status(answer) = message {
                let _gone = answer.send(Ok(self.status.clone()));
            } else {
                self.changes.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// One connection, then none.
struct Once(Cell<Option<DuplexStream>>);

impl Listen for Once {
    type Stream = DuplexStream;
    type Opening = std::future::Ready<std::io::Result<(Peer, DuplexStream)>>;
    async fn next(&self) -> std::io::Result<Self::Opening> {
        match self.0.take() {
            Some(stream) => Ok(std::future::ready(Ok((Peer::Unknown, stream)))),
            None => pending().await,
        }
    }
}

struct Site {
    runtime: Runtime,
    routes: Router,
    plane: Arc<DataPlane>,
    _dir: TempDir,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let token = dir.path().join("token");
        std::fs::write(&token, TOKEN).expect("it is ours");
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&token, private).expect("it is ours");
        let api = ApiConfig { token_file: Some(token), page: true };
        let plane = Arc::new(DataPlane {
            status: served::status(),
            queue: Mutex::default(),
            changes: AtomicUsize::default(),
        });
        let (commands, queue) = channel(Arc::clone(&plane) as _);
        *plane.queue.lock().expect("nothing panics with it") = Some(queue);
        let control = Control::new("/none".into(), "/none/control.sock".into(), LIFE_MAX);
        control.enter(Phase::Serving(commands));
        let routes = http::router(&control, &["cache.example".into()], Some(&api));
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        // Time passes when nothing else happens.
        let runtime = runtime
            .enable_all()
            .start_paused(true)
            .max_blocking_threads(1)
            .build()
            .expect("a runtime");
        Self { runtime, routes, plane, _dir: dir }
    }

    /// Whether the answer to the first request is what was asked for.
    fn ask(&self, input: &[u8]) -> bool {
        let input = &input[..input.len().min(LEN_MAX)];
        let has_token = input.contains(&MARK);
        let mut request = Vec::with_capacity(input.len());
        for byte in input {
            match *byte {
                MARK => request.extend_from_slice(TOKEN),
                byte => request.push(byte),
            }
        }
        let before = self.plane.changes.load(Ordering::Relaxed);
        let answer = self.runtime.block_on(async {
            let (mut client, server) = duplex(64 << 10);
            let served = serve(Once(Cell::new(Some(server))), self.routes.clone(), LIFE_MAX);
            let asked = async {
                // What is refused early may break the pipe.
                let _refused = client.write_all(&request).await;
                let _gone = client.shutdown().await;
                let mut answer = Vec::new();
                let _over = tokio::time::timeout(LIFE_MAX, client.read_to_end(&mut answer)).await;
                answer
            };
            tokio::select! {
                () = served => Vec::new(),
                answer = asked => answer,
            }
        });
        self.runtime.block_on(async {
            let ends = async {
                // Also because a task's buffers may look leaked: `bytes` keeps an emptied one by its end.
                while self.runtime.metrics().num_alive_tasks() > 0 {
                    tokio::time::sleep(Duration::from_micros(100)).await;
                }
            };
            let ended = tokio::time::timeout(END_MAX, ends).await;
            assert!(ended.is_ok(), "a task goes on though its client has left");
        });
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{answer:?}");
        // The name of a volume has it, which JSON and metrics show as it is.
        let count = |word: &[u8]| answer.windows(word.len()).filter(|found| *found == word).count();
        let is_page = count(b"content-type: text/html") == count(b"content-type: ");
        let is_odd = count(served::MARKUP) > 0;
        assert!(!(is_page && is_odd), "a name is not escaped");
        let changes = self.plane.changes.load(Ordering::Relaxed) - before;
        assert!(has_token || changes == 0, "changed without the token");
        answer.starts_with(b"HTTP/1.1 200")
    }
}

thread_local! {
    static SITE: Site = Site::new();
}

/// What a client sends; whether the answer to its first request is what was asked for.
pub fn run(input: &[u8]) -> bool {
    SITE.with(|site| site.ask(input))
}
