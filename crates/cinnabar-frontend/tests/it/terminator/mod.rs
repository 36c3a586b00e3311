//! NBD over TLS: the server of `cinnabar-frontend`, the terminator, clients of rustls and of bytes.

mod authority;
mod nbd;
mod reload;
mod sessions;
