//! The names of the formats.

/// A format of traces that can be read. Each format's module describes its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Our own text: [`crate::canonical`].
    Canonical,
    /// MSR Cambridge, CSV.
    Msr,
    /// SPC and `UMass`, CSV.
    Spc,
    /// `VMware` vscsi version 1, binary.
    Vscsi1,
    /// `VMware` vscsi version 2, binary.
    Vscsi2,
    /// libCacheSim's oracleGeneral, binary.
    OracleGeneral,
    /// Alibaba block traces of 2020, CSV.
    Alibaba,
    /// Tencent CBS, CSV.
    Tencent,
    /// Systor '17, CSV.
    Systor,
    /// FIU, text.
    Fiu,
    /// Output of `blkparse`, text.
    BlkParse,
    /// Recording of `blktrace`, binary.
    BlkTrace,
    /// tracefs with `block_rq_issue`, text.
    TraceFs,
    /// fio's iolog, version 2, text.
    Fio2,
    /// fio's iolog, version 3, text.
    Fio3,
    /// `SSDsim` and `MQSim`, text.
    SsdSim,
    /// `DiskSim`'s ASCII form, text.
    DiskSim,
    /// Page references of the ARC paper, text.
    Arc,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 18] = [
        Self::Canonical,
        Self::Msr,
        Self::Spc,
        Self::Vscsi1,
        Self::Vscsi2,
        Self::OracleGeneral,
        Self::Alibaba,
        Self::Tencent,
        Self::Systor,
        Self::Fiu,
        Self::BlkParse,
        Self::BlkTrace,
        Self::TraceFs,
        Self::Fio2,
        Self::Fio3,
        Self::SsdSim,
        Self::DiskSim,
        Self::Arc,
    ];

    /// Its short name, for command lines and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Canonical => "canonical",
            Self::Msr => "msr",
            Self::Spc => "spc",
            Self::Vscsi1 => "vscsi1",
            Self::Vscsi2 => "vscsi2",
            Self::OracleGeneral => "oracle-general",
            Self::Alibaba => "alibaba",
            Self::Tencent => "tencent",
            Self::Systor => "systor",
            Self::Fiu => "fiu",
            Self::BlkParse => "blkparse",
            Self::BlkTrace => "blktrace",
            Self::TraceFs => "tracefs",
            Self::Fio2 => "fio2",
            Self::Fio3 => "fio3",
            Self::SsdSim => "ssdsim",
            Self::DiskSim => "disksim",
            Self::Arc => "arc",
        }
    }

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
