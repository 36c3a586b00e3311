//! A process that is stopped for longer than its time-outs, and goes on.

use super::rig::Rig;
use crate::dataplane::clock::{Clock, after};
use crate::dataplane::data_thread::{DataThread, ThreadEvent};
use crate::dataplane::io_table::IoTable;
use crate::dataplane::io_table::tests::Silent;
use crate::dataplane::qos::{Groups, VolumeQos};
use crate::dataplane::volume::VolumeIo;
use cinnabar_backend::disk::OpenOptions;
use cinnabar_backend::{BackendSpec, Disk, Done, Memory};
use cinnabar_config::messages::IoMode;
use cinnabar_driver::{ShardPool, VolumeLife};
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, VolumeId};
use cinnabar_engine::volume::VolumeSpec;
use cinnabar_engine::{Command, Config, Engine, Event, Op, Payload, Request, RequestId};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Its guests have the answers that came meanwhile, although their time is over.
#[test]
fn what_was_done_meanwhile_is_answered() {
    let rig = Rig::new(IoMode::Threads, &[]);
    let config = rig.volume("vm");
    let spec = BackendSpec::parse(&config.backend, Path::new("/")).expect("a file");
    let disk = Disk::open_backend(&spec, &OpenOptions::default()).expect("it is there");
    let life = VolumeLife::new("vm".into(), 1, Mutants::default());
    let group = Groups::default().of(&config, &disk);
    let qos = VolumeQos::join(group, 1, config.qos);
    let io = Arc::new(VolumeIo::new(&config, disk, Vec::new(), &life, qos));
    let (clock, port) = (Clock::start(), Box::new(Silent::default()));
    let mut data_thread =
        DataThread::new(0, clock, IoTable::new(port, Duration::ZERO), Duration::ZERO);
    data_thread.io_table.install(0, io).expect("there is room");
    let engine = Engine::without_device(Config::default());
    data_thread.seat(Arc::new(ShardPool::new(vec![engine], 1, Mutants::default())));

    let (now, mut said) = (clock.now(), Vec::new());
    let attach = Command::Attach(VolumeSpec::new("vm".into(), 8 * BLOCK_BYTES));
    data_thread.give(0, Event::Control(RequestId(1), attach));
    data_thread.apply(now, &mut said);
    data_thread.bind(0, VolumeId(0), 0);
    let op = Op::Read { span: ByteSpan::new(0, BLOCK_BYTES), data: Memory::alloc(1) };
    let request = Request { id: RequestId(2), volume: VolumeId(0), op };
    data_thread.give(0, Event::Submit(request));
    data_thread.apply(now, &mut said);
    said.clear();

    // A turn of the loop, a minute later.
    let now = after(now, Duration::from_mins(1));
    let done = Done { token: 0, result: Ok(()), pages: Vec::new(), extents: Vec::new() };
    data_thread.io_table.io_done(now, done);
    data_thread.look_at_time(now);
    data_thread.give(0, Event::Late(RequestId(2)));
    data_thread.apply(now, &mut said);
    let [ThreadEvent::Reply(0, reply)] = &said[..] else { panic!("it is answered, once") };
    assert!(reply.id == RequestId(2) && reply.result.is_ok(), "{reply:?}");
}
