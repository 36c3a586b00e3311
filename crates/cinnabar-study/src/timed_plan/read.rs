//! From the text of a plan to a [`Plan`].

use super::at::At;
use super::axes::{Axis, POINTS_MAX};
use super::keys::{self, KEYS, MADE_UP};
use super::value::Literal;
use super::{Origin, Plan, TraceInput};
use crate::timed::{Config, Pace};
use cinnabar_text::toml_reader::{Located, Section, Source};
use cinnabar_text::{ConfigError, suggest};
use std::io::Read;
use std::path::Path;
use toml::de::DeTable;

const FILE_BYTES_MAX: u64 = 1 << 20;
const SECTIONS: &[(&str, &str)] = &[
    ("hosts", "[hosts]"),
    ("ram", "[ram]"),
    ("flash", "[flash]"),
    ("link", "[link]"),
    ("filer", "[filer]"),
    ("workload", "[workload]"),
];
const TRACE: &str = "workload.trace";
const PACE: &str = "workload.pace";
const PACES: &[&str] = &["threads", "recorded"];

/// `--set key=value`.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    key: String,
    value: Literal,
}

impl std::str::FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) =
            text.split_once('=').ok_or("write key=value, such as flash.size=64GiB")?;
        let (key, value) = (key.trim().to_owned(), value.trim());
        let all: Vec<&str> = KEYS.iter().map(|key| key.name).chain([TRACE, PACE]).collect();
        if !all.contains(&key.as_str()) {
            return Err(format!("unknown key {key:?}; {}", suggest(&key, &all)));
        }
        let value = Literal::of_flag(value);
        if let Some(known) = keys::find(&key) {
            // Into a configuration that is thrown away: a mistake is told with the flag.
            let tried = known.set(&mut Config::default(), &value);
            tried.map_err(|(message, hint)| format!("{message}; {hint}"))?;
        }
        Ok(Self { key, value })
    }
}

/// Reads a plan; `settings` come on top of it, and take the place of an axis with the same key.
///
/// # Errors
/// The first thing that is wrong, with its line and a hint. Whether settings make sense together is
/// not looked at.
pub fn load(path: &Path, settings: &[Setting]) -> Result<Plan, ConfigError> {
    let whole = |message: String, hint: &str| ConfigError {
        file: path.to_owned(),
        line: None,
        message,
        hint: hint.to_owned(),
    };
    let text = read(path).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::NotFound => "check the path; plans/ has some to begin with",
            std::io::ErrorKind::PermissionDenied => "check the file's owner and mode",
            _ => "a plan is a TOML file in UTF-8",
        };
        whole(format!("can't be read: {error}"), hint)
    })?;
    let text = text.ok_or_else(|| whole("more than 1 MiB".to_owned(), "is this a plan?"))?;
    parse(Source { file: path, text: &text }, settings)
}

/// `None` if it is too long.
fn read(path: &Path) -> std::io::Result<Option<String>> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    Ok((text.len() as u64 <= FILE_BYTES_MAX).then_some(text))
}

pub(super) fn parse(source: Source<'_>, settings: &[Setting]) -> Result<Plan, ConfigError> {
    let table = DeTable::parse(source.text).map_err(|error| {
        let line = error.span().map(|span| source.line(span.start));
        let message = error.message().lines().collect::<Vec<_>>().join(", ");
        source.error(line, message, "a plan is TOML; see https://toml.io")
    })?;
    let at = At(source);
    let mut plan = Plan {
        file: source.file.to_owned(),
        title: None,
        base: Config::default(),
        origins: vec![Origin::Default; KEYS.len()],
        trace: None,
        axes: Vec::new(),
    };
    let mut top = Section::new(source, "", 0, table.get_ref());
    plan.title = top.string("title")?.map(|title| title.value);
    read_keys(at, &mut top, "", &mut plan)?;
    let mut trace = None;
    for &(name, title) in SECTIONS {
        let Some(mut section) = top.table(name, title)? else { continue };
        read_keys(at, &mut section, name, &mut plan)?;
        if name == "workload" {
            trace = Some((section.string("trace")?, section.string("pace")?));
        }
        section.finish()?;
    }
    let axes = top.tables("axis", "[[axis]]")?;
    top.finish()?;
    let (file, pace) = trace.unwrap_or_default();
    read_trace(at, &mut plan, file, pace, settings)?;
    for section in axes {
        let line = section.line;
        let axis = Axis::read(at, section, &plan.base)?;
        if let Some(key) = axis.keys.iter().enumerate().find_map(|(place, key)| {
            let before = plan.varied().into_iter().chain(axis.keys[..place].iter().copied());
            before.map(|key| key.name).any(|name| name == key.name).then_some(key)
        }) {
            let message = format!("{} is varied twice", key.name);
            return Err(at.error(Some(line), message, "leave one of the two out"));
        }
        plan.axes.push(axis);
    }
    for Setting { key, value } in settings {
        let Some(key) = keys::find(key) else { continue };
        key.set(&mut plan.base, value).expect("it was tried when the flag was read");
        plan.origins[keys::place(key)] = Origin::Flag;
        plan.axes.retain_mut(|axis| axis.pin(key.name));
    }
    check_trace(at, &plan)?;
    count(at, &plan)?;
    Ok(plan)
}

fn read_keys(
    at: At<'_>,
    section: &mut Section<'_>,
    name: &str,
    plan: &mut Plan,
) -> Result<(), ConfigError> {
    for (place, key) in KEYS.iter().enumerate().filter(|(_, key)| key.parts().0 == name) {
        let Some(Located { value, line }) = section.scalar(key.parts().1)? else { continue };
        at.set(key, &mut plan.base, &Literal(value), line)?;
        plan.origins[place] = Origin::Line(line);
    }
    Ok(())
}

fn read_trace(
    at: At<'_>,
    plan: &mut Plan,
    file: Option<Located<String>>,
    pace: Option<Located<String>>,
    settings: &[Setting],
) -> Result<(), ConfigError> {
    let flag = |name: &str| {
        let setting = settings.iter().rev().find(|setting| setting.key == name);
        let text = setting.map(|setting| match setting.value.text() {
            Ok(text) => text.to_owned(),
            Err(_) => setting.value.to_string(),
        });
        text.map(|text| (text, Origin::Flag))
    };
    // A path in the plan begins where the plan is, one of the command line where that was typed.
    let folder = plan.file.parent().unwrap_or(Path::new(""));
    let written = file.map(|file| (folder.join(file.value), Origin::Line(file.line)));
    let file = flag(TRACE).map(|(text, origin)| (text.into(), origin)).or(written);
    let pace = flag(PACE).or(pace.map(|pace| (pace.value, Origin::Line(pace.line))));
    let pace_of = |(text, origin): (String, Origin)| match text.as_str() {
        "threads" => Ok((Pace::Threads, origin)),
        "recorded" => Ok((Pace::Recorded, origin)),
        _ => {
            let message = format!("{PACE}: unknown value {text:?}");
            Err(at.error(origin.line(), message, suggest(&text, PACES)))
        }
    };
    let pace = pace.map(pace_of).transpose()?;
    match (file, pace) {
        (Some((path, origin)), pace) => {
            let pace = pace.map_or(Pace::Threads, |(pace, _)| pace);
            // The simulator looks at these even so: nothing of them may stand in the way.
            (plan.base.total_blocks, plan.base.working_set_blocks) = (1, 1);
            plan.base.shared_set = true;
            plan.trace = Some(TraceInput { path, pace, origin });
            Ok(())
        }
        (None, Some((_, origin))) => {
            let message = format!("{PACE} means nothing without a trace");
            Err(at.error(origin.line(), message, "add trace = \"vm.csv.zst\" to [workload]"))
        }
        (None, None) => Ok(()),
    }
}

/// What a trace says can't be said otherwise, too.
fn check_trace(at: At<'_>, plan: &Plan) -> Result<(), ConfigError> {
    if plan.trace.is_none() {
        return Ok(());
    }
    for name in MADE_UP {
        let key = keys::find(name).expect("these are keys");
        let varied = plan.axes.iter().find(|axis| axis.keys.iter().any(|one| one.name == *name));
        let line = varied.and_then(|axis| axis.rows.first()).map(|(line, _)| *line);
        let origin = plan.origins[keys::place(key)];
        if line.is_some() || origin != Origin::Default {
            let message = format!("{name} means nothing with a trace");
            return Err(at.error(line.or(origin.line()), message, "leave it out, or the trace"));
        }
    }
    Ok(())
}

fn count(at: At<'_>, plan: &Plan) -> Result<(), ConfigError> {
    match plan.count() {
        Some(count) if count <= POINTS_MAX => Ok(()),
        count => {
            let count = count.map_or("more points than can be counted".to_owned(), |count| {
                format!("{count} points")
            });
            let message = format!("the axes make {count}, at most {POINTS_MAX} are possible");
            let line = plan.axes.last().and_then(|axis| axis.rows.first()).map(|(line, _)| *line);
            Err(at.error(line, message, "vary fewer things at a time, or with fewer values"))
        }
    }
}

impl Origin {
    /// The line of the plan, if it was one.
    pub fn line(self) -> Option<usize> {
        match self {
            Self::Line(line) => Some(line),
            Self::Default | Self::Flag => None,
        }
    }
}
