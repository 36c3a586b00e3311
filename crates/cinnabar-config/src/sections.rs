//! The tables of a configuration file that may be there several times: `[[volume]]` and `[[qos_group]]`.

use super::checks::{check_beside, check_control, check_minimums, check_order_in, check_write_log};
use super::error::SettingError;
use super::looks::Looks;
use super::qos::check_qos_group;
use super::section_keys::GroupKeys;
use super::values::up_to;
use super::volume_keys::{VolumeInput, read_keys};
use super::{ControlConfig, Lines, TlsConfig};
use crate::parent::check_parent;
use crate::settings::{CacheConfig, QosGroupConfig, VolumeConfig};
use crate::tls::check_files;
use cinnabar_driver::qos::limits::DEPTH_MAX;
use cinnabar_engine::limits::VOLUMES_MAX;
use cinnabar_text::ConfigError;
use cinnabar_text::toml_reader::{Located, Section, Source};
use std::path::Path;

/// Lines of one volume's keys, to turn a [`SettingError`] into a [`ConfigError`].
struct VolumeLines {
    section: usize,
    keys: Vec<(&'static str, usize)>,
}

impl VolumeLines {
    fn error(&self, source: Source<'_>, name: &str, error: SettingError) -> ConfigError {
        let written = self.keys.iter().find(|(key, _)| *key == error.key).map(|(_, line)| *line);
        let place = if name.is_empty() { String::new() } else { format!("volume {name:?}: ") };
        let line = Some(written.unwrap_or(self.section));
        source.error(line, format!("{place}{}", error.message), error.hint)
    }
}

pub(super) fn read_volumes(
    source: Source<'_>,
    sections: Vec<Section<'_>>,
    base: &Path,
    (cache, control, tls): (&CacheConfig, &ControlConfig, Option<&TlsConfig>),
    (lines, looks): (&mut Lines, &mut Looks),
) -> Result<Vec<VolumeConfig>, ConfigError> {
    if sections.len() > usize::from(VOLUMES_MAX) {
        let message = format!("{} volumes, at most {VOLUMES_MAX} are possible", sections.len());
        return Err(source.error(None, message, "start a second daemon with a cache of its own"));
    }
    let mut volumes: Vec<VolumeConfig> = Vec::with_capacity(sections.len());
    let mut places = Vec::with_capacity(sections.len());
    for section in sections {
        let (input, at) = read_volume(source, section)?;
        let mut check = || -> Result<VolumeConfig, SettingError> {
            let volume = input.check(base)?;
            check_beside(&volume, &volumes, &cache.device, looks)?;
            check_control(&volume, &control.socket)?;
            check_write_log(&volume, cache, looks)?;
            if volume.socket.tls.is_some() {
                check_files("nbd_tls", tls, true)?;
            }
            if let Some(bytes) = cache.size_bytes {
                check_order_in(volume.share_min, volume.share_max, bytes)?;
            }
            let minimums = volumes.iter().chain([&volume]).map(|volume| volume.share_min);
            check_minimums(minimums, cache.size_bytes)?;
            Ok(volume)
        };
        let volume = check().map_err(|error| at.error(source, &input.name, error))?;
        lines.volumes.push((volume.name.clone(), at.section));
        volumes.push(volume);
        places.push(at);
    }
    // A parent may stand behind its clones.
    for (volume, at) in volumes.iter().zip(&places) {
        check_parent(volume, &volumes).map_err(|error| at.error(source, &volume.name, error))?;
    }
    Ok(volumes)
}

fn read_volume(
    source: Source<'_>,
    mut section: Section<'_>,
) -> Result<(VolumeInput, VolumeLines), ConfigError> {
    let mut at = VolumeLines { section: section.line, keys: Vec::new() };
    let (name, backend) = (section.string("name")?, section.string("backend")?);
    let mut input = read_keys(source, &mut section, &mut |key, line| at.keys.push((key, line)))?;
    section.finish()?;
    let missing = |key: &str, hint: &str| {
        source.error(Some(section.line), format!("this [[volume]] has no {key}"), hint)
    };
    let name = name.ok_or_else(|| missing("name", "add name = \"vm1\""))?;
    let backend = backend.ok_or_else(|| missing("backend", "add backend = \"file:vm1.raw\""))?;
    at.keys.extend([("name", name.line), ("backend", backend.line)]);
    (input.name, input.backend) = (name.value, backend.value);
    Ok((input, at))
}

pub(super) fn read_groups(
    source: Source<'_>,
    sections: Vec<Section<'_>>,
) -> Result<Vec<QosGroupConfig>, ConfigError> {
    let mut groups: Vec<QosGroupConfig> = Vec::new();
    for section in sections {
        let GroupKeys { line, name, depth } = GroupKeys::read(section)?;
        let missing = |key: &str, hint: &str| {
            source.error(Some(line), format!("this [[qos_group]] has no {key}"), hint)
        };
        let name = name.ok_or_else(|| missing("name", "add name = \"nas1\""))?;
        let depth = depth.ok_or_else(|| missing("depth", "add depth = 32"))?;
        let depth = up_to(source, "depth", &depth, 1, DEPTH_MAX as u64)? as usize;
        let Located { value, line } = name;
        let name = check_qos_group(value)
            .map_err(|error| source.error(Some(line), error.message, error.hint))?;
        if groups.iter().any(|group| group.name == name) {
            let message = format!("there is a [[qos_group]] {name:?} already");
            return Err(source.error(Some(line), message, "say it once"));
        }
        groups.push(QosGroupConfig { name, depth });
    }
    Ok(groups)
}
