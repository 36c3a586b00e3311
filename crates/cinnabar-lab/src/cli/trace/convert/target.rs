//! The formats that are written, behind one face.

use cinnabar_trace::write::{Output, Writer};
use cinnabar_trace::write_fio::{self, Version};
use cinnabar_trace::{Format, Record, write_oracle};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetFormat {
    Canonical,
    OracleGeneral,
    Fio(Version),
}

impl TargetFormat {
    pub(super) const ALL: [Self; 4] =
        [Self::Canonical, Self::OracleGeneral, Self::Fio(Version::V2), Self::Fio(Version::V3)];

    /// As it is called among the formats that are read.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Canonical => Format::Canonical,
            Self::OracleGeneral => Format::OracleGeneral,
            Self::Fio(Version::V2) => Format::Fio2,
            Self::Fio(Version::V3) => Format::Fio3,
        }
        .name()
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The format that a file's name ends like.
    pub(super) fn of_name(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
        let name = name.strip_suffix(".zst").unwrap_or(&name);
        match name.rsplit_once('.')?.1 {
            "csv" => Some(Self::Canonical),
            "oraclegeneral" => Some(Self::OracleGeneral),
            "iolog" => Some(Self::Fio(Version::V3)),
            _ => None,
        }
    }

    pub(super) const fn is_fio(self) -> bool {
        matches!(self, Self::Fio(_))
    }

    /// Does it tell reads, writes, flushes and discards apart?
    pub(super) const fn has_operations(self) -> bool {
        !matches!(self, Self::OracleGeneral)
    }
}

/// A trace being written; dropped before [`Target::finish`], it leaves nothing.
#[derive(Debug)]
pub(super) struct Target {
    format: TargetFormat,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Canonical { writer: Writer<Output>, named: BTreeSet<u32> },
    Oracle { writer: write_oracle::Writer, output: Output },
    Fio { writer: write_fio::Writer<Output>, pattern: String, origin_us: Option<u64> },
}

impl Target {
    /// Begins a trace; `pattern` is the file of a volume that fio is to use, with {} for its name.
    pub(super) fn create(path: &Path, format: TargetFormat, pattern: &str) -> io::Result<Self> {
        let output = Output::create(path)?;
        let form = match format {
            TargetFormat::Canonical => {
                Form::Canonical { writer: Writer::new(output), named: BTreeSet::new() }
            }
            TargetFormat::OracleGeneral => {
                Form::Oracle { writer: write_oracle::Writer::new(spool(path)?), output }
            }
            TargetFormat::Fio(version) => {
                let writer = write_fio::Writer::new(output, version)?;
                Form::Fio { writer, pattern: pattern.to_owned(), origin_us: None }
            }
        };
        Ok(Self { format, form })
    }

    pub(super) fn format(&self) -> TargetFormat {
        self.format
    }

    /// Writes one request of the volume of that name.
    pub(super) fn write(&mut self, record: &Record, volume: &str) -> io::Result<()> {
        match &mut self.form {
            Form::Canonical { writer, named } => {
                if named.insert(record.volume) {
                    writer.name(record.volume, volume)?;
                }
                writer.write(record)
            }
            Form::Oracle { writer, .. } => writer.write(record),
            Form::Fio { writer, pattern, origin_us } => {
                let origin = *origin_us.get_or_insert(record.ts_us);
                let Some(ts_us) = record.ts_us.checked_sub(origin) else {
                    let what = "it is earlier than the first request";
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
                };
                writer.write(&Record { ts_us, ..*record }, &pattern.replace("{}", volume))
            }
        }
    }

    /// Ends it and gives it its name; its size in bytes.
    pub(super) fn finish(self) -> io::Result<u64> {
        match self.form {
            Form::Canonical { writer, .. } => writer.into_inner().finish(),
            Form::Oracle { writer, mut output } => {
                writer.finish(&mut output)?;
                output.finish()
            }
            Form::Fio { writer, .. } => writer.finish()?.finish(),
        }
    }
}

/// An unnamed file beside the trace: where that has room, this has, too. What is written to a device
/// has its spool among the temporary files.
fn spool(path: &Path) -> io::Result<std::fs::File> {
    let is_file = std::fs::metadata(path).map_or(true, |found| found.is_file());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if is_file {
        tempfile::tempfile_in(folder.unwrap_or(Path::new(".")))
    } else {
        tempfile::tempfile()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_go_by_name() {
        for (name, format) in [
            ("a.csv", Some("canonical")),
            ("d.e/a.CSV.zst", Some("canonical")),
            ("a.oracleGeneral", Some("oracle-general")),
            ("a.oracleGeneral.zst", Some("oracle-general")),
            ("a.iolog", Some("fio3")),
            ("a.txt", None),
            ("csv", None),
            ("a.csv.gz", None),
            ("..", None),
        ] {
            assert_eq!(
                TargetFormat::of_name(Path::new(name)).map(TargetFormat::name),
                format,
                "{name}"
            );
        }
        for format in TargetFormat::ALL {
            assert_eq!(TargetFormat::named(format.name()), Some(format));
        }
        assert_eq!(TargetFormat::named("msr"), None);
    }
}
