//! A sink that is slow, stuck, full, or gone, and comes back.

use super::*;
use std::sync::mpsc;

const PATIENCE: Duration = Duration::from_secs(20);

fn told(lines: u64, why: &str) -> String {
    format!("{lines} lost: {why}\n")
}

/// What the thread writes to; the test says how it does.
#[derive(Clone, Default)]
struct Sink(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    text: Vec<u8>,
    /// Writes wait.
    stuck: bool,
    /// Writes fail once there is this much more room left.
    room: Option<usize>,
}

impl Sink {
    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.0.lock().expect("no panic"));
        self.0.1.notify_all();
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.0.lock().expect("no panic").text.clone()).expect("text")
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let state = self.0.0.lock().expect("no panic");
        let mut state = self.0.1.wait_while(state, |state| state.stuck).expect("no panic");
        // In pieces, as a pipe may take them.
        let len = bytes.len().min(7).min(state.room.unwrap_or(usize::MAX));
        if len == 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        state.text.extend_from_slice(&bytes[..len]);
        state.room = state.room.map(|room| room - len);
        Ok(len)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn queue() -> (LogQueue, Sink) {
    let sink = Sink::default();
    (LogQueue::start(sink.clone(), told).expect("a thread"), sink)
}

#[test]
fn lines_are_written_in_order() {
    let (mut queue, sink) = queue();
    let mut all = String::new();
    for number in 0..1000 {
        let line = format!("line {number}\n");
        queue.write_all(line.as_bytes()).expect("it never fails");
        all += &line;
    }
    assert!(queue.flush(PATIENCE));
    assert_eq!(sink.text(), all);
}

/// The last lines of a log say why the process ended: where other threads still wrote, they did not.
#[test]
fn nothing_comes_after_the_last_line() {
    let (queue, sink) = queue();
    sink.set(|state| state.stuck = true);
    queue.push(b"first\n");
    queue.push_last(b"last\n");
    queue.push(b"too late\n");
    sink.set(|state| state.stuck = false);
    assert!(queue.flush(PATIENCE));
    assert_eq!(sink.text(), "first\nlast\n");
}

#[test]
fn a_stuck_sink_holds_nobody_up_and_memory_has_a_bound() {
    let (queue, sink) = queue();
    sink.set(|state| state.stuck = true);
    let line = [b'x'; 199].iter().chain(b"\n").copied().collect::<Vec<_>>();
    let lines = 3 * QUEUED_BYTES_MAX / line.len();
    let (done, ended) = mpsc::channel();
    let pusher = queue.clone();
    std::thread::spawn(move || {
        (0..lines).for_each(|_| pusher.push(&line));
        done.send(()).expect("it is waited for");
    });
    ended.recv_timeout(PATIENCE).expect("a line that is queued waits for nobody");
    let begun = Instant::now();
    assert!(!queue.flush(Duration::from_millis(50)), "the wait for a stuck sink has a bound");
    assert!(begun.elapsed() < PATIENCE);
    let kept = {
        let waiting = queue.0.waiting();
        assert!(waiting.bytes <= QUEUED_BYTES_MAX);
        // One of them is with the thread, if that has begun.
        waiting.lines.len() + usize::from(waiting.busy)
    };
    sink.set(|state| state.stuck = false);
    assert!(queue.flush(PATIENCE));
    queue.push(b"after\n");
    assert!(queue.flush(PATIENCE));
    let text = sink.text();
    assert_eq!(text.matches('x').count(), 199 * kept, "what had room is there");
    // The thread may have taken its first line, and so made room for another, after some were lost.
    let why = "they came faster than they were written";
    let is_count = |line: &&str| line.ends_with(why);
    let lost = |line: &str| line.split(' ').next().and_then(|count| count.parse::<usize>().ok());
    let counts = text.lines().filter(is_count).map(|line| lost(line).expect("a count"));
    assert_eq!(counts.sum::<usize>(), lines - kept);
    let mut end = text.lines().rev();
    assert_eq!(end.next(), Some("after"));
    assert!(end.next().is_some_and(|line| line.ends_with(why)), "{}", &text[text.len() - 200..]);
}

#[test]
fn lost_lines_are_told_where_they_were() {
    let (queue, sink) = queue();
    sink.set(|state| state.stuck = true);
    queue.push(b"first\n");
    queue.push(&vec![b'x'; QUEUED_BYTES_MAX]);
    queue.push(b"second\n");
    sink.set(|state| state.stuck = false);
    assert!(queue.flush(PATIENCE));
    let lost = told(1, "they came faster than they were written");
    assert_eq!(sink.text(), format!("first\n{lost}second\n"));
}

#[test]
fn a_full_disk_loses_lines_and_tells_when_it_has_room() {
    let (queue, sink) = queue();
    sink.set(|state| state.room = Some(3));
    for _ in 0..5 {
        queue.push(b"a line\n");
    }
    assert!(queue.flush(PATIENCE), "what can't be written is not waited for");
    assert_eq!(sink.text(), "a l");
    // No other line comes.
    sink.set(|state| state.room = None);
    let begun = Instant::now();
    let lost = told(5, &std::io::Error::from(ErrorKind::StorageFull).to_string());
    while sink.text() != format!("a l\n{lost}") {
        assert!(begun.elapsed() < PATIENCE, "{}", sink.text());
        std::thread::sleep(Duration::from_millis(5));
    }
    queue.push(b"it goes on\n");
    assert!(queue.flush(PATIENCE));
    assert_eq!(sink.text(), format!("a l\n{lost}it goes on\n"));
}
