//! NBD over TLS: the server of `cinnabar-frontend`, the terminator, clients of rustls and of bytes.

mod authority;
#[allow(dead_code, reason = "shared with the tests of cinnabar-frontend")]
#[path = "../../../cinnabar-frontend/tests/it/host.rs"]
mod host;
#[allow(dead_code, reason = "shared with the tests of cinnabar-frontend")]
#[path = "../../../cinnabar-frontend/tests/it/memory.rs"]
mod memory;
mod nbd;
mod reload;
#[allow(dead_code, reason = "shared with the tests of cinnabar-frontend")]
#[path = "../../../cinnabar-frontend/tests/it/running.rs"]
mod running;
#[allow(dead_code, reason = "shared with the tests of cinnabar-frontend")]
#[path = "../../../cinnabar-frontend/tests/it/sample.rs"]
mod sample;
mod sessions;
