//! The names of the formats.

/// Declares the formats, each with its short name.
macro_rules! formats {
    ($(#[$meta:meta])* pub enum Format { $($(#[$of:meta])* $format:ident = $name:literal,)+ }) => {
        $(#[$meta])*
        pub enum Format { $($(#[$of])* $format,)+ }

        impl Format {
            /// Every format.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$format),+];

            /// Its short name, for command lines and reports.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$format => $name),+ }
            }
        }
    };
}

formats! {
    /// A format of traces that can be read. Each format's module describes its layout.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Format {
        /// Our own text: [`crate::canonical`].
        Canonical = "canonical",
        /// MSR Cambridge, CSV.
        Msr = "msr",
        /// SPC and `UMass`, CSV.
        Spc = "spc",
        /// `VMware` vscsi version 1, binary.
        Vscsi1 = "vscsi1",
        /// `VMware` vscsi version 2, binary.
        Vscsi2 = "vscsi2",
        /// libCacheSim's oracleGeneral, binary.
        OracleGeneral = "oracle-general",
        /// Alibaba block traces of 2020, CSV.
        Alibaba = "alibaba",
        /// Tencent CBS, CSV.
        Tencent = "tencent",
        /// Systor '17, CSV.
        Systor = "systor",
        /// FIU, text.
        Fiu = "fiu",
        /// Output of `blkparse`, text.
        BlkParse = "blkparse",
        /// Recording of `blktrace`, binary.
        BlkTrace = "blktrace",
        /// tracefs with `block_rq_issue`, text.
        TraceFs = "tracefs",
        /// fio's iolog, version 2, text.
        Fio2 = "fio2",
        /// fio's iolog, version 3, text.
        Fio3 = "fio3",
        /// `SSDsim` and `MQSim`, text.
        SsdSim = "ssdsim",
        /// `DiskSim`'s ASCII form, text.
        DiskSim = "disksim",
        /// Page references of the ARC paper, text.
        Arc = "arc",
    }
}

impl Format {
    /// The format of that short name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Does it tell reads from writes? Without, every record is a read.
    pub const fn has_operations(self) -> bool {
        !matches!(self, Self::OracleGeneral | Self::Arc)
    }

    /// Does it tell times? Without, all of them are 0.
    pub const fn has_times(self) -> bool {
        !matches!(self, Self::Arc)
    }

    /// Are requests put in order of time? The order of the others' records is what they are about.
    pub const fn is_sorted_here(self) -> bool {
        !matches!(self, Self::Canonical | Self::OracleGeneral | Self::Arc)
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
