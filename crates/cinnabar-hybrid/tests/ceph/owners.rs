//! One owner: a second one is refused; the next one of a dead or frozen one keeps its late writes out.

use crate::driver::Driver;
use crate::moves::{Model, agree};
use crate::{EXTENT, made, on_cluster, says, spec};
use anyhow::{Context, Result, bail, ensure};
use cinnabar_hybrid::pools::{OpenError, Place, Wait};
use cinnabar_hybrid::rados::RadosPlace;
use cinnabar_placement::Pool;
use e2e::daemon::noise;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Names the configuration, for a process that is an owner.
const CONF: &str = "CINNABAR_HYBRID_TEST_CONF";
const VOLUME: &str = "CINNABAR_HYBRID_TEST_VOLUME";

/// Not a test: what the other process does. It writes, in the first and last extent by turns, until it can't.
#[test]
fn another_process() {
    let (Ok(conf), Ok(name)) = (std::env::var(CONF), std::env::var(VOLUME)) else { return };
    let mut place = RadosPlace::new(spec(conf.as_ref(), &name));
    let mut driver = Driver::open(&mut place).expect("it is free");
    let mut number = 0;
    loop {
        let offset = number % 2 * 5 * EXTENT + number * 13 % 1024 * 4096;
        let written = driver.write(offset, &noise(4096, 500 + number));
        let line = match &written {
            Ok(()) => format!("wrote {offset} {}", 500 + number),
            Err(error) => format!("refused: {error:#}"),
        };
        println!("\nowner {line}");
        std::io::stdout().flush().expect("the test reads");
        if written.is_err() {
            return;
        }
        number += 1;
    }
}

/// The other process.
struct Other {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Other {
    fn start(conf: &std::path::Path, name: &str) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["owners::another_process", "--exact", "--nocapture"])
            .env(CONF, conf)
            .env(VOLUME, name)
            .stdout(Stdio::piped())
            .spawn()?;
        let said = BufReader::new(child.stdout.take().context("it has one")?);
        Ok(Self { child, said })
    }

    /// The next thing that it has done.
    fn next(&mut self) -> Result<String> {
        loop {
            let mut line = String::new();
            ensure!(self.said.read_line(&mut line)? > 0, "it has ended");
            if let Some(said) = line.trim().strip_prefix("owner ") {
                return Ok(said.to_owned());
            }
        }
    }

    /// How it is refused; it may have told of a few writes before.
    fn refusal(&mut self) -> Result<String> {
        for _ in 0..50 {
            let said = self.next()?;
            if said.starts_with("refused") {
                return Ok(said);
            }
        }
        bail!("a former owner goes on writing")
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// Notes a write that was acknowledged.
fn note(model: &mut Model, said: &str) -> Result<()> {
    let mut words = said.strip_prefix("wrote ").context(said.to_owned())?.split(' ');
    let offset: usize = words.next().context("an offset")?.parse()?;
    let seed = words.next().context("a seed")?.parse()?;
    model.0[offset..][..4096].copy_from_slice(&noise(4096, seed));
    Ok(())
}

#[test]
fn a_second_owner_is_refused() {
    on_cluster(|cluster| {
        let mut place = made(cluster, "owned", 11)?;
        let first = Driver::open(&mut place)?;
        let mut asked = 0;
        let refused = place.take_over(&mut |wait| {
            let Wait::Holder(holder) = wait else { panic!("its owner lives") };
            assert!(holder.contains("Cinnabar, process"), "{holder}");
            asked += 1;
            asked < 3
        });
        let Err(error) = refused else { anyhow::bail!("two owners") };
        ensure!(matches!(error, OpenError::InUse(_)) && asked == 3, "{error:?}");
        says(&error, "in use by Cinnabar, process")?;
        says(&error, " at 127.0.0.1:0/")?;
        // Looking is free.
        ensure!(place.look()?.header == *first.volume.header());
        drop(first);
        Driver::open(&mut place).map(drop)
    });
}

#[test]
fn a_killed_owner_is_taken_over_at_once() {
    on_cluster(|cluster| {
        let mut place = made(cluster, "killed", 12)?;
        let (mut other, mut model) = (Other::start(&cluster.conf(), "killed")?, Model::new());
        for _ in 0..20 {
            note(&mut model, &other.next()?)?;
        }
        other.child.kill()?;
        other.child.wait()?;
        // What it did until then.
        while let Ok(said) = other.next() {
            note(&mut model, &said)?;
        }
        let begun = Instant::now();
        let mut driver = Driver::open(&mut place)?;
        println!("taken over after {:?}", begun.elapsed());
        ensure!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        driver.settle()?;
        driver.move_to(Pool::Fast, &[0, 5])?;
        // Its last write may have been made without being acknowledged: of what it acknowledged nothing is lost.
        for (at, expected) in model.0.chunks(4096).enumerate().filter(|(_, b)| b[0..8] != [0; 8]) {
            let found = driver.read(at as u64 * 4096, 4096)?;
            ensure!(found == expected, "block {at}");
        }
        agree(&mut driver)
    });
}

#[test]
fn a_frozen_owner_writes_nothing_later() {
    on_cluster(|cluster| {
        let mut place = made(cluster, "frozen", 13)?;
        let mut other = Other::start(&cluster.conf(), "frozen")?;
        for _ in 0..20 {
            other.next()?;
        }
        other.signal(Signal::STOP)?;
        let refused = place.take_over(&mut |wait| wait == Wait::Lease).map(drop);
        ensure!(matches!(refused, Err(OpenError::InUse(_))), "{refused:?}");
        let mut forced = spec(&cluster.conf(), "frozen");
        forced.by_force = true;
        let mut driver = Driver::open(&mut RadosPlace::new(forced))?;
        driver.settle()?;
        let mut model = Model::new();
        for extent in [0, 5] {
            model.write(&mut driver, extent * EXTENT, &noise(EXTENT, 90 + extent))?;
        }
        driver.volume.set_moves([(0, Pool::Fast)]);
        other.signal(Signal::CONT)?;
        let refusal = other.refusal()?;
        ensure!(refusal.contains("another host owns the volume"), "{refusal}");
        driver.settle()?;
        driver.move_to(Pool::Fast, &[5])?;
        model.check(&mut driver)?;
        agree(&mut driver)
    });
}

/// Without a process that can be seen to be gone the lock's lease tells.
#[test]
fn a_lock_that_is_not_renewed_ends() {
    on_cluster(|cluster| {
        let mut place = made(cluster, "lapsed", 14)?;
        let mut other = Other::start(&cluster.conf(), "lapsed")?;
        other.next()?;
        other.signal(Signal::STOP)?;
        let begun = Instant::now();
        let mut held = None;
        let (contents, pools) = place.take_over(&mut |wait| {
            if matches!(wait, Wait::Holder(_)) {
                held = Some(Instant::now());
                std::thread::sleep(Duration::from_millis(500));
            }
            begun.elapsed() < Duration::from_secs(200)
        })?;
        let held = held.context("the lock held at first")?;
        println!("taken over after {:?}, {:?} of it free", begun.elapsed(), held.elapsed());
        // How long ago the last renewal was, on a busy machine, nobody knows.
        ensure!(held - begun > Duration::from_secs(10), "a lease of {:?}", held - begun);
        // What owners that live have to renew it once more.
        ensure!(held.elapsed() > Duration::from_secs(12), "free for {:?}", held.elapsed());
        let mut driver = Driver::new(contents, pools)?;
        other.signal(Signal::CONT)?;
        other.refusal()?;
        driver.settle()?;
        agree(&mut driver)
    });
}
