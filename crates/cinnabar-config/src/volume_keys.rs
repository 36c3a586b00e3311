//! The settings of a volume, each written once: a row here is a key of `[[volume]]`, a flag of `volume add`, a
//! field of `POST /v1/volumes`; a live one is a flag of `volume set` and a field of `PATCH`, too.
//!
//! What a value may be is checked in [`super::volume`].

use crate::settings::{Ack, VolumeMode};
use crate::tls::read_allow;
use cinnabar_text::ConfigError;
use cinnabar_text::toml_reader::{Located, Section, Source};
use clap::ValueEnum;
use clap::builder::{EnumValueParser, TypedValueParser};

/// Rows are `DOC ATTRIBUTES kind key: type = "[default: VALUE]", "MORE";`, the kind being how the configuration
/// file has it. DOC is the short help; MORE, which may be absent, is added in the long one, in the API's description
/// and in the guide.
macro_rules! volume_keys {
    (@read names, $source:ident, $section:ident, $key:ident) => {
        read_allow($source, $section.scalars(stringify!($key))?)?
    };
    (@read $kind:ident, $source:ident, $section:ident, $key:ident) => {
        $section.$kind(stringify!($key))?
    };
    (
        live { $(
            $(#[$live_attr:meta])*
            $live_kind:ident $live:ident: $live_type:ty = $live_default:tt $(, $live_more:literal)?;
        )+ }
        others { $($(#[$attr:meta])* $kind:ident $key:ident: $type:ty = $default:tt $(, $more:literal)?;)+ }
    ) => {
        /// A volume as configured. Also the body of `POST /v1/volumes`.
        #[derive(
            Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
            clap::Args,
        )]
        #[serde(deny_unknown_fields)]
        pub struct VolumeInput {
            /// Its name, also that of its NBD export: 1 to 64 bytes, no slashes, no control characters
            pub name: String,
            /// Where its data are: `file:PATH`, `nbd:unix:PATH[:EXPORT]`, `nbd:tcp:HOST:PORT[:EXPORT]`,
            /// `rbd:POOL/IMAGE`, or `sim:PRESET[,key=value...]:` before one of these
            #[arg(long)]
            pub backend: String,
            $(
                $(#[$live_attr])*
                #[doc = $live_default]
                $(#[doc = ""] #[doc = $live_more])?
                #[serde(default, skip_serializing_if = "is_default")]
                #[arg(long)]
                pub $live: $live_type,
            )+
            $(
                $(#[$attr])*
                #[doc = $default]
                $(#[doc = ""] #[doc = $more])?
                #[serde(default, skip_serializing_if = "is_default")]
                #[arg(long)]
                pub $key: $type,
            )+
        }

        /// Body of `PATCH /v1/volumes/{name}`: what is absent stays.
        #[derive(
            Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
            clap::Args,
        )]
        #[serde(deny_unknown_fields)]
        pub struct ChangeInput {
            $(
                $(#[$live_attr])*
                #[doc = "[default: as it is]"]
                $(#[doc = ""] #[doc = $live_more])?
                #[serde(default, skip_serializing_if = "is_default")]
                #[arg(long)]
                pub $live: $live_type,
            )+
        }

        /// Keys of a volume that can be changed while it is served.
        pub const LIVE_VOLUME_KEYS: &[&str] = &[$(stringify!($live)),+];

        /// Reads a `[[volume]]`, name and back end apart; tells `note` the line of each key.
        pub(super) fn read_keys(
            source: Source<'_>,
            section: &mut Section<'_>,
            note: &mut dyn FnMut(&'static str, usize),
        ) -> Result<VolumeInput, ConfigError> {
            let mut input = VolumeInput::default();
            $(
                if let Some(Located { value, line }) = volume_keys!(@read $live_kind, source, section, $live) {
                    note(stringify!($live), line);
                    input.$live = value.into();
                }
            )+
            $(
                if let Some(Located { value, line }) = volume_keys!(@read $kind, source, section, $key) {
                    note(stringify!($key), line);
                    input.$key = value.into();
                }
            )+
            Ok(input)
        }
    };
}

volume_keys! {
    live {
        /// What its requests do with the cache
        #[arg(value_parser = words::<VolumeMode>())]
        string mode: Option<String> = "[default: write-through]", "See docs/guide/write-back.md.";
        /// When its writes are acknowledged in mode write-back
        #[arg(value_parser = words::<Ack>())]
        string ack: Option<String> = "[default: durable]",
            "Memory is refused with NBD on TCP beyond loopback. See \
            docs/guide/write-back.md#acknowledged-from-memory.";
        /// What it keeps whatever others do: a size or percent of the cache
        #[arg(value_name = "SHARE")]
        quantity share_min: Option<String> = "[default: 0]", "The minimums of all volumes sum to at most 80 %.";
        /// What it may hold at most: a size or percent of the cache
        #[arg(value_name = "SHARE")]
        quantity share_max: Option<String> = "[default: 100%]";
        /// Bytes of its blocks that may go to the cache device a second, a size; 0 = no limit
        #[arg(value_name = "SIZE")]
        quantity fill_limit: Option<String> = "[default: 0]", "See docs/guide/qos.md#a-limit-of-fills.";
        /// I/Os a second at its backend that it gets whatever others ask; 0 = nothing reserved
        #[arg(value_name = "IOPS")]
        number iops_reservation: Option<u64> = "[default: 0]", "See docs/guide/qos.md.";
        /// I/Os a second at its backend that it gets at most; 0 = no limit
        #[arg(value_name = "IOPS")]
        number iops_limit: Option<u64> = "[default: 0]";
        /// Its part of what is left of its backend, relative to others, 1 to 10000
        #[arg(value_name = "WEIGHT")]
        number iops_weight: Option<u64> = "[default: 100]";
        /// Requests of its guests a second, hits included; 0 = no limit
        #[arg(value_name = "IOPS")]
        number guest_iops_limit: Option<u64> = "[default: 0]", "See docs/guide/qos.md#a-guests-own-limit.";
        /// Bytes that these read and write a second, a size; 0 = no limit
        #[arg(value_name = "SIZE")]
        quantity guest_bytes_limit: Option<String> = "[default: 0]", "1 MiB at least.";
    }
    others {
        /// Let the manager's plans change its mode
        flag auto_mode: bool = "[default: it stays]", "See docs/guide/shares.md#write-policies.";
        /// How much it counts for the manager, 1 to 1000
        #[arg(value_name = "N")]
        number weight: Option<u64> = "[default: 1]";
        /// Where clients find it: unix:PATH or tcp:IP:PORT
        #[arg(value_name = "ADDRESS")]
        string nbd: Option<String> = "[default: unix:NAME.sock in the daemon's folder, or nothing with vhost-user]",
            "TCP is neither encrypted nor authenticated without `nbd_tls`; beyond loopback there is a warning \
            then. A path has at most 107 bytes. Requests may begin and end at any byte: a part of a sector is \
            changed at once as far as the volume's NBD clients see. They may have any length: reads and writes \
            of more than 32 MiB are carried out in pieces of 8 MiB, three at a time; without structured replies \
            such a read has its connection to itself, and ends it if a later piece fails.";
        /// `require`: clients over TCP must use TLS and have a certificate of `client_ca` in `[tls]`
        #[arg(value_name = "MODE")]
        string nbd_tls: Option<String> = "[default: none]", "See docs/guide/tls.md.";
        /// Names of which their certificate must have one, as a DNS name
        #[arg(value_name = "NAME")]
        names tls_allow: Option<Vec<String>> = "[default: any]";
        /// Serve it as a vhost-user-blk device at this socket
        #[arg(value_name = "PATH")]
        string vhost_user: Option<String> = "[default: NBD only]",
            "For one virtual machine: the quickest way (docs/guide/qemu.md). There is then no NBD export unless \
            `nbd` asks for one, which needs `read_only` or `shared`.";
        /// Mode of its unix sockets, octal
        #[arg(value_name = "MODE")]
        string socket_mode: Option<String> = "[default: 0660]";
        /// Group of its unix sockets, name or number
        #[arg(value_name = "GROUP")]
        string socket_group: Option<String> = "[default: the daemon's]",
            "The one that QEMU runs in, `kvm` or `libvirt-qemu`. The daemon must be root with `CAP_CHOWN`, or a \
            member of it.";
        /// Where its claim is kept in mode write-back
        #[arg(value_name = "PATH")]
        string claim: Option<String> = "[default: beside a file; with exclusive in the daemon's state folder]",
            "A back end that is neither a file nor an RBD image needs it, on storage that every host of it sees, \
            or `exclusive`. See docs/guide/write-back.md#the-claim.";
        /// `raw`: serve the bytes of a file or device also if they look like those of an image in another format
        #[arg(value_name = "FORMAT")]
        string format: Option<String> = "[default: refuse qcow2, VMDK, VDI, VHDX, VHD, QED and Parallels images]",
            "A guest would see the image's own bytes, and its first write destroys it. See docs/guide/nbd-backends.md \
            for how to serve one.";
        /// Refuse writes; many clients may attach
        flag read_only: bool = "[default: writable]",
            "Over NBD all read-only volumes together have at most 3072 connections, 2048 of them of one user \
            (unix sockets) or one address (TCP), 64 of one process. For a golden image under many overlays: \
            docs/guide/golden-image.md.";
        /// Let several clients write it
        flag shared: bool = "[default: one client]", "Only for cluster file systems.";
        /// Assert that no other process or host ever writes its backend
        flag exclusive: bool = "[default: believe the backend's proof only]",
            "Cached blocks are then kept over a restart, also after a crash, where the back end can't prove that it \
            was not changed: block devices, NBD servers, files written long after the last heartbeat, RBD images whose \
            lock another client had. A proof that it was changed wins: another file or size, a change time that went \
            back, after a clean stop any change.";
        /// Leave a snapshot of its RBD image at each clean end: only what others write until it is served
        /// again is dropped then
        flag return_snapshot: bool = "[default: leave none]", "See docs/guide/ceph.md#changed-by-another-client.";
        /// Sequential runs of at least this size bypass the cache; 0 = never
        #[arg(value_name = "SIZE")]
        quantity bypass_sequential: Option<String> = "[default: 16MiB]",
            "A backup does, starting a guest or reading a file does not.";
        /// Single requests of at least this size bypass the cache; 0 = never
        #[arg(value_name = "SIZE")]
        quantity bypass_large: Option<String> = "[default: 0]";
        /// Most memory of a guest that is connected by vhost-user
        #[arg(value_name = "SIZE")]
        quantity memory_max: Option<String> = "[default: 2TiB]",
            "A front end with more is disconnected. Set it to what the guest has where QEMU is not trusted with \
            the host's memory.";
        /// A backend operation that takes this many seconds fails for its guest; 0 = never
        #[arg(value_name = "SECONDS")]
        number backend_timeout_s: Option<u64> = "[default: 0]",
            "The time is from the arrival of a request to its reply, whatever it waits for. Then the guest gets \
            an error (EIO), `backend_overdue` counts it, and the volume is degraded. The operation goes on, \
            because its write may land at any time; further requests to the same blocks wait for it, each at \
            most for its own time. With 0 guests wait as long as it takes. Read \
            docs/guide/recovery.md#what-a-bound-does-to-a-guest first.";
        /// Volumes of the same group share a backend's I/Os
        #[arg(value_name = "GROUP")]
        string qos_group: Option<String> = "[default: those on one server, device or file system]";
        /// Volumes of one guest of which each flush counts for all, in mode write-back
        #[arg(value_name = "GROUP")]
        string write_group: Option<String> = "[default: none, flushes of each disk order its own writes only]",
            "After the loss of the write log their back ends are as of one moment between two flushes. See \
            docs/guide/write-back.md#write-groups.";
        /// The read-only volume whose cached blocks it reads, of an RBD clone of that
        #[arg(value_name = "VOLUME")]
        string parent: Option<String> = "[default: none]",
            "What the clone does not have itself is read from there. See docs/guide/golden-image.md#rbd-clones.";
        /// The daemon of the other host of a volume that may move, http://HOST:PORT: it begins as a standby
        #[arg(value_name = "URL", requires = "migrate_token_file")]
        string migrate_peer: Option<String> = "[default: none, it stays here]",
            "The first write takes the volume. Not in mode write-back. See docs/guide/moving.md.";
        /// The file with that daemon's token for `peers`
        #[arg(value_name = "PATH", requires = "migrate_peer")]
        string migrate_token_file: Option<String> = "[default: none]";
        /// Bytes a second at most that are fetched from that daemon's cache after the volume was taken from
        /// it, a size; 0 = none
        #[arg(value_name = "SIZE", requires = "migrate_peer")]
        quantity migrate_warm_rate: Option<String> = "[default: 100MB]", "See docs/guide/moving.md#what-stays-warm.";
        /// Seconds for which they are, at most 86400; 0 = not at all
        #[arg(value_name = "SECONDS", requires = "migrate_peer")]
        number migrate_warm_for_s: Option<u64> = "[default: 300]";
    }
}

/// Absent from a request, so that an older daemon takes it.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// One of the words of a fixed set, as the API has it: a word.
fn words<T: ValueEnum + Clone + Send + Sync + 'static>() -> impl TypedValueParser<Value = String> {
    let name = |value: T| value.to_possible_value().map(|value| value.get_name().to_owned());
    EnumValueParser::<T>::new().map(move |value| name(value).unwrap_or_default())
}
