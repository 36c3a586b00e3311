//! Sockets, wake-ups and time-outs.

use crate::rig::{PATIENCE, Rig, dirty, everywhere, file, slices};
use cinnabar_backend::port::{self, Interest, IoMode, JobOp, Port, PortEvent};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

fn both(test: impl Fn(Box<dyn Port>)) {
    for mode in [IoMode::Uring, IoMode::Threads] {
        eprintln!("{mode:?}");
        test(port::open(mode).expect("a port"));
    }
}

/// Waits once; what happened: the token, and what of read, write and hang-up (`r`, `w`, `h`).
fn ready(port: &mut Box<dyn Port>, timeout: Duration) -> Vec<(u64, String)> {
    let mut events = Vec::new();
    port.wait(Some(timeout), &mut events).expect("the port works");
    events
        .into_iter()
        .map(|event| match event {
            PortEvent::Ready { token, readable, writable, hangup } => {
                let flags = [(readable, "r"), (writable, "w"), (hangup, "h")];
                (token, flags.into_iter().filter(|flag| flag.0).map(|flag| flag.1).collect())
            }
            other => panic!("unexpected: {other:?}"),
        })
        .collect()
}

fn is(token: u64, flags: &str) -> Vec<(u64, String)> {
    vec![(token, flags.to_owned())]
}

const SOON: Duration = Duration::from_millis(30);

#[test]
fn readable_sockets_are_told_until_they_are_read() {
    both(|mut port| {
        let (mut ours, mut theirs) = UnixStream::pair().expect("a pair");
        port.watch(ours.as_raw_fd(), 5, Interest::READ);
        assert_eq!(ready(&mut port, SOON), []);
        theirs.write_all(b"abc").expect("it is sent");
        for _ in 0..3 {
            assert_eq!(ready(&mut port, PATIENCE), is(5, "r"), "level-triggered");
        }
        ours.read_exact(&mut [0; 3]).expect("three bytes");
        // The poll that was armed before the bytes were read may still tell of them once.
        let late = ready(&mut port, SOON);
        assert!(late.is_empty() || ready(&mut port, SOON).is_empty(), "{late:?}");
        drop(theirs);
        assert_eq!(ready(&mut port, PATIENCE), is(5, "rh"), "the end, and a hang-up");
    });
}

#[test]
fn interest_changes_and_ends() {
    both(|mut port| {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        port.watch(ours.as_raw_fd(), 9, Interest::READ);
        assert_eq!(ready(&mut port, SOON), []);
        port.watch(ours.as_raw_fd(), 9, Interest::BOTH);
        assert_eq!(ready(&mut port, PATIENCE), is(9, "w"));
        port.watch(ours.as_raw_fd(), 9, Interest::NONE);
        theirs.write_all(b"x").expect("it is sent");
        assert_eq!(ready(&mut port, SOON), [], "only hang-ups");
        port.watch(ours.as_raw_fd(), 9, Interest::READ);
        assert_eq!(ready(&mut port, PATIENCE), is(9, "r"));
        port.watch(ours.as_raw_fd(), 9, Interest::NONE);
        drop(theirs);
        assert_eq!(ready(&mut port, PATIENCE), is(9, "h"));
        port.unwatch(9);
        assert_eq!(ready(&mut port, SOON), []);
        port.unwatch(9);
        port.unwatch(1234);
    });
}

#[test]
fn an_unwatched_socket_closes_for_its_peer() {
    both(|mut port| {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        port.watch(ours.as_raw_fd(), 1, Interest::READ);
        assert_eq!(ready(&mut port, Duration::from_millis(1)), []);
        port.unwatch(1);
        drop(ours);
        assert_eq!(ready(&mut port, Duration::from_millis(1)), []);
        theirs.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        assert_eq!(theirs.read(&mut [0; 1]).expect("the end, not a time-out"), 0);
    });
}

#[test]
fn a_half_closed_peer_costs_nothing_while_nothing_reads() {
    both(|mut port| {
        for interest in [Interest::NONE, Interest::WRITE] {
            let (mut ours, theirs) = UnixStream::pair().expect("a pair");
            ours.set_nonblocking(true).expect("it can be set");
            while ours.write(&[0; 4096]).is_ok() {}
            theirs.shutdown(std::net::Shutdown::Write).expect("it is half closed");
            port.watch(ours.as_raw_fd(), 3, interest);
            let busy = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            let before = busy();
            assert_eq!(ready(&mut port, Duration::from_millis(200)), []);
            let spent = (busy().tv_sec - before.tv_sec) * 1000
                + (busy().tv_nsec - before.tv_nsec) / 1_000_000;
            assert!(spent < 50, "{spent} ms of CPU for waiting");
            drop(theirs);
            assert!(ready(&mut port, PATIENCE)[0].1.contains('h'), "{interest:?}");
            port.watch(ours.as_raw_fd(), 3, Interest::READ);
            assert_eq!(ready(&mut port, PATIENCE), is(3, "rh"));
            port.unwatch(3);
        }
    });
}

#[test]
fn many_sockets_are_told_apart() {
    both(|mut port| {
        let pairs: Vec<_> = (0..300).map(|_| UnixStream::pair().expect("a pair")).collect();
        for (token, (ours, _)) in (0..).zip(&pairs) {
            port.watch(ours.as_raw_fd(), token, Interest::READ);
        }
        let mut expected = Vec::new();
        for (token, (_, theirs)) in (0..).zip(&pairs).step_by(7) {
            (&*theirs).write_all(b"x").expect("it is sent");
            expected.push((token, "r".to_owned()));
        }
        let mut told = ready(&mut port, PATIENCE);
        told.sort_unstable();
        assert_eq!(told, expected);
    });
}

#[test]
fn another_thread_ends_the_wait() {
    both(|mut port| {
        for round in 0..50 {
            let waker = port.waker();
            let thread = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_micros(round * 40));
                waker.wake();
                waker.wake();
            });
            let mut events = Vec::new();
            port.wait(Some(PATIENCE), &mut events).expect("the port works");
            thread.join().expect("the thread ends");
            assert!(matches!(events[..], [PortEvent::Woken]), "{events:?}");
            // Two wakes are one or two, never none and never more.
            events.clear();
            port.wait(Some(Duration::from_millis(2)), &mut events).expect("the port works");
            assert!(matches!(events[..], [] | [PortEvent::Woken]), "{events:?}");
        }
    });
}

#[test]
fn a_wake_before_the_wait_counts() {
    both(|mut port| {
        port.waker().wake();
        let mut events = Vec::new();
        port.wait(None, &mut events).expect("the port works");
        assert!(matches!(events[..], [PortEvent::Woken]), "{events:?}");
    });
}

#[test]
fn waits_end_in_time() {
    both(|mut port| {
        for timeout in [Duration::ZERO, Duration::from_micros(300), Duration::from_millis(40)] {
            let start = Instant::now();
            assert_eq!(ready(&mut port, timeout), []);
            let took = start.elapsed();
            assert!(took >= timeout, "{took:?} for {timeout:?}");
            assert!(took < timeout + Duration::from_secs(2), "{took:?} for {timeout:?}");
        }
    });
}

#[test]
fn files_and_sockets_are_waited_for_together() {
    everywhere(|mode, folder| {
        let mut rig = Rig::new(mode, &file(folder, &vec![3; 65_536]));
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        rig.port.watch(ours.as_raw_fd(), 40, Interest::READ);
        theirs.write_all(b"x").expect("it is sent");
        let data = dirty(4096);
        let op = JobOp::Read { offset: 0, pages: Vec::new(), data: slices(&data, 4096) };
        rig.submit(41, op);
        let (mut done, mut told) = (false, false);
        let mut events = Vec::new();
        while !(done && told) {
            rig.port.wait(Some(PATIENCE), &mut events).expect("the port works");
            assert!(!events.is_empty());
            for event in events.drain(..) {
                match event {
                    PortEvent::Done(one) => done = one.token == 41 && one.result == Ok(()),
                    PortEvent::Ready { token, readable, .. } => told = token == 40 && readable,
                    PortEvent::Woken => panic!("it was not woken"),
                    PortEvent::Restarted { .. } => panic!("there is no server"),
                }
            }
        }
    });
}
