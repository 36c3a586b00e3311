//! mClock: which volume's request goes to a shared back end next.
//!
//! Volumes on one server or device form a group. Each has a reservation, a limit and a weight, in
//! I/Os a second ([`Settings`]); one [`Scheduler`] a group says which of the waiting requests begins
//! next. The algorithm is that of A. Gulati, A. Merchant, P. J. Varman: *mClock: Handling Throughput
//! Variability for Hypervisor IO Scheduling*, OSDI 2010, sections 3.1 and 3.2; `docs/design/qos.md`
//! says where this one departs from it, and why.
//!
//! The crate is pure: the time is an argument, requests stay with the caller, who gives a token for
//! each and gets it back when the request shall begin. Everything is bounded ([`limits`]), and no tag
//! is a floating-point number.
//!
//! * [`Scheduler`]: a group; [`Request`] goes in, [`Dispatch`] comes out.
//! * [`Cost`]: what a request counts: `1 + length / 64 KiB`.
//! * [`GuestLimit`]: a limit of what a guest asks for, wherever it is answered.
//! * [`GroupReport`], [`ClientReport`]: counters, measured capacity, oversold reservations.
//!
//! ```
//! use cinnabar_driver::qos::{Client, Config, Op, Request, Scheduler, Settings, Work};
//!
//! let mut group = Scheduler::new(Config { depth: 1, ..Config::default() })?;
//! let settings = Settings { reservation_iops: 100, ..Settings::default() };
//! let volume = group.add(0, Client { volume: 7, work: Work::Guest }, settings)?;
//! group.submit(0, Request { client: volume, op: Op::Read { length: 4096 }, token: 42 })?;
//! let mut begin = Vec::new();
//! group.take(0, &mut begin);
//! assert_eq!(begin[0].token, 42);
//! group.complete(1_000_000, &[begin[0].ticket]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]

mod capacity;
mod cost;
mod guest_limit;
mod heap;
pub mod limits;
pub mod mutant;
mod queue;
mod report;
mod scheduler;
mod settings;
mod tags;

pub use capacity::Reservations;
pub use cost::{Cost, Op};
pub use guest_limit::GuestLimit;
pub use queue::Ticket;
pub use report::{ClientReport, GroupReport};
pub use scheduler::{
    Admitted, Client, ClientId, Dispatch, Phase, Refusal, Request, Scheduler, Work,
};
pub use settings::{Config, ConfigError, Settings, SettingsError};
