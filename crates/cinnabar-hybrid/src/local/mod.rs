//! Local pools: two folders with a file an object, and the table in a file.
//!
//! * `folder`: a pool's folder, and the mark by which it is known. `open_files`: its open files.
//! * `objects`: what is done with objects. `transfer`: the system calls.
//! * `table`: the table's file, and its thread. `crew`: the threads. `check`: pools and table compared.
//!
//! All I/O is done by calls that return when it is done, in threads of this process. So the lock on the table's
//! file, which the kernel holds until the last thread of a killed process is gone, is let go of after
//! its last write has landed: no former owner's writes come late.

mod check;
mod crew;
mod folder;
mod objects;
mod open_files;
mod place;
mod table;
mod transfer;

pub use place::{LocalPlace, TABLE_NAME};
