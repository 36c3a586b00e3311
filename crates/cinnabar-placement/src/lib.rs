//! Hybrid volumes: a disk whose extents lie in an SSD pool or an HDD pool, by what they are worth.

#![deny(unsafe_code)]

mod device;
mod geometry;
mod header;
mod heat;
pub mod limits;
pub mod log;
pub mod mutant;
pub mod planner;
mod record;
mod sequential;
mod table;
mod throttle;
pub mod volume;

pub use device::{Curve, Device, DeviceError, Devices, Direction, Point};
pub use geometry::{Geometry, GeometryError, NotAPool, NotAnObject, Object, Pool};
pub use header::{HEADER_BYTES, HEADER_VERSION, Header, HeaderError};
pub use heat::{Cell, Heat};
pub use record::{RECORD_BYTES, RECORD_VERSION, Record, RecordError, State};
pub use sequential::Sequential;
pub use table::Table;
pub use throttle::Throttle;
