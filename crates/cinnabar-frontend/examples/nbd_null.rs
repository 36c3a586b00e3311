//! The server's ceiling: a null disk behind `poll(2)`, to be driven by fio.
//!
//! ```text
//! cargo run --release -p cinnabar-frontend --example nbd_null -- unix:/tmp/null.sock &
//! fio --ioengine=nbd --uri='nbd+unix:///null?socket=/tmp/null.sock' --name=x --rw=randread \
//!     --bs=4k --iodepth=32 --time_based --runtime=10
//! ```

#[path = "../tests/it/host.rs"]
mod host;
#[path = "../tests/it/memory.rs"]
mod memory;

use cinnabar_frontend::nbd::{Address, Export, ExportId, Limits};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address: Address = std::env::args().nth(1).ok_or("usage: nbd_null ADDRESS")?.parse()?;
    let mut host = host::Host::new(Limits::default());
    let id = ExportId(1);
    let export = Export {
        id,
        name: "null".into(),
        size_bytes: 1 << 30,
        read_only: false,
        min_block_bytes: 512,
        shared: true,
        description: "nothing at all".into(),
    };
    let in_memory = std::env::args().any(|arg| arg == "--memory");
    let disk = if in_memory { host::Disk::Memory(vec![0; 1 << 30]) } else { host::Disk::Null };
    host.add(export, disk);
    let address = host.server.listen(&address, &[id])?;
    eprintln!("listening at {address}");
    loop {
        host.turn(1000 / 2);
    }
}
