//! The four machines of the demonstration: their disks, and what each is about.
//!
//! Their characters differ so that their shares of the cache do. What they ask for is made by
//! `generate::demo`.

const MIB: u64 = 1 << 20;

/// A simulated machine.
#[derive(Clone, Copy, Debug)]
pub struct Guest {
    /// Name of its volume.
    pub name: &'static str,
    /// What a reader should know of it, in one line.
    pub about: &'static str,
    /// Size of its disk in bytes.
    pub disk_bytes: u64,
    /// Lines of its `[[volume]]` beside name and back end.
    pub keys: &'static str,
    /// What it does.
    pub work: Work,
}

/// What a machine does all day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Orders all the time, and a wide query now and then.
    Database,
    /// Boot storms, and what people do on a desktop.
    Desktops,
    /// Its disk read from end to end.
    Backup,
    /// Records written one behind the other.
    Log,
}

/// All of them.
pub const GUESTS: [Guest; 4] = [
    Guest {
        name: "database",
        about: "random reads, some blocks far more often than others; a wide query from second 35 to 65 of each 90",
        disk_bytes: 256 * MIB,
        keys: "",
        work: Work::Database,
    },
    Guest {
        name: "desktops",
        about: "machines of one image: a boot storm every 30 s, little in between",
        disk_bytes: 256 * MIB,
        keys: "",
        work: Work::Desktops,
    },
    Guest {
        name: "backup",
        about: "reads its disk from end to end: caching it would be a waste",
        disk_bytes: 1024 * MIB,
        keys: "",
        work: Work::Backup,
    },
    Guest {
        name: "log",
        about: "writes, and hardly ever reads: its writes are not worth any room",
        disk_bytes: 64 * MIB,
        keys: "auto_mode = true\n",
        work: Work::Log,
    },
];
