//! The tables of a configuration file that may be there several times: `[[volume]]` and `[[qos_group]]`.

use super::checks::{check_beside, check_control, check_minimums, check_order_in, check_write_log};
use super::error::SettingError;
use super::looks::Looks;
use super::qos::check_qos_group;
use super::values::up_to;
use super::volume::VolumeInput;
use super::{ControlConfig, Lines, TlsConfig};
use crate::parent::check_parent;
use crate::settings::{CacheConfig, QosGroupConfig, VolumeConfig};
use crate::tls::{check_files, read_allow};
use cinnabar_engine::limits::VOLUMES_MAX;
use cinnabar_qos::limits::DEPTH_MAX;
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
    let name = note(&mut at, "name", section.string("name")?);
    let backend = note(&mut at, "backend", section.string("backend")?);
    let guest_bytes_limit = section.quantity("guest_bytes_limit")?;
    let input = VolumeInput {
        mode: note(&mut at, "mode", section.string("mode")?),
        ack: note(&mut at, "ack", section.string("ack")?),
        share_min: note(&mut at, "share_min", section.quantity("share_min")?),
        share_max: note(&mut at, "share_max", section.quantity("share_max")?),
        auto_mode: note(&mut at, "auto_mode", section.flag("auto_mode")?).unwrap_or(false),
        weight: note(&mut at, "weight", section.number("weight")?),
        claim: note(&mut at, "claim", section.string("claim")?),
        nbd: note(&mut at, "nbd", section.string("nbd")?),
        nbd_tls: note(&mut at, "nbd_tls", section.string("nbd_tls")?),
        tls_allow: note(&mut at, "tls_allow", read_allow(source, section.scalars("tls_allow")?)?),
        vhost_user: note(&mut at, "vhost_user", section.string("vhost_user")?),
        socket_mode: note(&mut at, "socket_mode", section.string("socket_mode")?),
        socket_group: note(&mut at, "socket_group", section.string("socket_group")?),
        read_only: note(&mut at, "read_only", section.flag("read_only")?).unwrap_or(false),
        shared: note(&mut at, "shared", section.flag("shared")?).unwrap_or(false),
        exclusive: note(&mut at, "exclusive", section.flag("exclusive")?).unwrap_or(false),
        return_snapshot: note(&mut at, "return_snapshot", section.flag("return_snapshot")?)
            .unwrap_or(false),
        bypass_sequential: note(
            &mut at,
            "bypass_sequential",
            section.quantity("bypass_sequential")?,
        ),
        bypass_large: note(&mut at, "bypass_large", section.quantity("bypass_large")?),
        memory_max: note(&mut at, "memory_max", section.quantity("memory_max")?),
        fill_limit: note(&mut at, "fill_limit", section.quantity("fill_limit")?),
        backend_timeout_s: note(&mut at, "backend_timeout_s", section.number("backend_timeout_s")?),
        iops_reservation: note(&mut at, "iops_reservation", section.number("iops_reservation")?),
        iops_limit: note(&mut at, "iops_limit", section.number("iops_limit")?),
        iops_weight: note(&mut at, "iops_weight", section.number("iops_weight")?),
        guest_iops_limit: note(&mut at, "guest_iops_limit", section.number("guest_iops_limit")?),
        guest_bytes_limit: note(&mut at, "guest_bytes_limit", guest_bytes_limit),
        qos_group: note(&mut at, "qos_group", section.string("qos_group")?),
        parent: note(&mut at, "parent", section.string("parent")?),
        migrate_peer: note(&mut at, "migrate_peer", section.string("migrate_peer")?),
        migrate_token_file: note(
            &mut at,
            "migrate_token_file",
            section.string("migrate_token_file")?,
        ),
        migrate_warm_rate: note(
            &mut at,
            "migrate_warm_rate",
            section.quantity("migrate_warm_rate")?,
        ),
        migrate_warm_for_s: note(
            &mut at,
            "migrate_warm_for_s",
            section.number("migrate_warm_for_s")?,
        ),
        ..VolumeInput::default()
    };
    section.finish()?;
    let missing = |key: &str, hint: &str| {
        source.error(Some(section.line), format!("this [[volume]] has no {key}"), hint)
    };
    let name = name.ok_or_else(|| missing("name", "add name = \"vm1\""))?;
    let backend = backend.ok_or_else(|| missing("backend", "add backend = \"file:vm1.raw\""))?;
    Ok((VolumeInput { name, backend, ..input }, at))
}

pub(super) fn read_groups(
    source: Source<'_>,
    sections: Vec<Section<'_>>,
) -> Result<Vec<QosGroupConfig>, ConfigError> {
    let mut groups: Vec<QosGroupConfig> = Vec::new();
    for mut section in sections {
        let (name, depth) = (section.string("name")?, section.number("depth")?);
        section.finish()?;
        let missing = |key: &str, hint: &str| {
            source.error(Some(section.line), format!("this [[qos_group]] has no {key}"), hint)
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

/// Remembers the line of a key.
fn note<T>(at: &mut VolumeLines, key: &'static str, value: Option<Located<T>>) -> Option<T> {
    let Located { value, line } = value?;
    at.keys.push((key, line));
    Some(value)
}
