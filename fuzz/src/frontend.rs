//! Clients, guests and hosts of the front ends' own tests.

#[path = "../../crates/cinnabar-frontend/tests/it/life.rs"]
pub(crate) mod life;
#[path = "../../crates/cinnabar-frontend/tests/it/memory.rs"]
mod memory;
#[path = "../../crates/cinnabar-frontend/tests/it/sample.rs"]
pub(crate) mod sample;
#[path = "../../crates/cinnabar-frontend/tests/it/vhost_guest.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod vhost_guest;
#[path = "../../crates/cinnabar-frontend/tests/it/vhost_host.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod vhost_host;
#[path = "../../crates/cinnabar-frontend/tests/it/vhost_pair.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod vhost_pair;
#[path = "../../crates/cinnabar-frontend/tests/it/vhost_script.rs"]
pub(crate) mod vhost_script;
