//! Hybrid volumes as they are written: `hybrid:fast=/ssd/vm1,slow=/hdd/vm1`, `hybrid:ceph,fast=ssd,slow=hdd,name=vm1`.

use super::error::{HybridSpecError, once};
use super::place::HybridPlace;
use cinnabar_hybrid::settings::{PlannerKind, Settings};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The longest round and horizon: a week.
const SECONDS_MAX: f64 = 604_800.0;
/// The shortest round.
const ROUND_MIN_S: f64 = 0.1;
/// The highest rate and budget, in MiB.
const MIB_MAX: u64 = 1 << 40;

/// A hybrid volume, not yet opened.
#[derive(Clone, Debug, PartialEq)]
pub struct HybridSpec {
    /// Where it is.
    pub place: HybridPlace,
    /// How it moves extents.
    pub settings: Settings,
}

// What is compared are places and numbers that were read from text: none of them is NaN.
impl Eq for HybridSpec {}

impl HybridSpec {
    /// Parses what follows `hybrid`: `[,key=value...]:` and a place (`HybridPlace::parse`). Relative paths are
    /// taken from `base`; they hold no comma.
    ///
    /// # Errors
    /// [`HybridSpecError`].
    pub fn parse(text: &str, base: &Path) -> Result<Self, HybridSpecError> {
        let wrong = || HybridSpecError::Part(text.into());
        let (options, place) = text.split_once(':').ok_or_else(wrong)?;
        let mut settings = Settings::default();
        let mut seen = Vec::new();
        for option in options.split(',').skip(1) {
            let (key, value) =
                option.split_once('=').ok_or_else(|| HybridSpecError::Option(option.into()))?;
            once(&mut seen, key)?;
            set(&mut settings, option, key, value)?;
        }
        let place = HybridPlace::parse(place, base)?;
        Ok(Self { place, settings })
    }

    /// What it is, however the rest is written: equal for two texts that name one table.
    pub fn place(&self) -> String {
        self.place.name()
    }

    /// Paths of the place, for those who make them absolute.
    pub fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        self.place.paths_mut()
    }
}

fn set(
    settings: &mut Settings,
    option: &str,
    key: &str,
    value: &str,
) -> Result<(), HybridSpecError> {
    let wrong = || HybridSpecError::Option(option.into());
    let seconds = |key, min: f64| {
        let seconds: f64 = number(value).ok_or_else(wrong)?;
        let fits = (min..=SECONDS_MAX).contains(&seconds);
        let wrong = range(key, min, SECONDS_MAX);
        if fits { Ok(seconds) } else { Err(wrong) }
    };
    let bytes = |key| {
        let mib: u64 = number(value).ok_or_else(wrong)?;
        let wrong = range(key, 0, MIB_MAX);
        if mib <= MIB_MAX { Ok(mib << 20) } else { Err(wrong) }
    };
    match key {
        "planner" if value == "benefit" => settings.planner = PlannerKind::Benefit,
        "planner" if value == "mobbs" => settings.planner = PlannerKind::Mobbs,
        "round_s" => settings.round_s = Some(seconds("round_s", ROUND_MIN_S)?),
        "horizon_s" => settings.horizon_s = seconds("horizon_s", 1.0)?,
        "copy_mib_s" => settings.copy_bytes_per_s = bytes("copy_mib_s")?,
        "budget_mib" => settings.budget_bytes = Some(bytes("budget_mib")?),
        _ => return Err(wrong()),
    }
    Ok(())
}

fn range<N: Copy + ToString>(key: &'static str, min: N, max: N) -> HybridSpecError {
    HybridSpecError::Range { key, min: min.to_string(), max: max.to_string() }
}

/// A number of digits, and perhaps a point: no sign, no exponent, nothing that is no number.
fn number<N: FromStr>(text: &str) -> Option<N> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    plain.then(|| text.parse().ok()).flatten()
}

/// As a configuration holds it.
impl fmt::Display for HybridSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, settings } = self;
        let usual = Settings::default();
        f.write_str("hybrid")?;
        if settings.planner != usual.planner {
            write!(f, ",planner={}", settings.planner.name())?;
        }
        if let Some(round_s) = settings.round_s {
            write!(f, ",round_s={round_s}")?;
        }
        if settings.horizon_s.total_cmp(&usual.horizon_s).is_ne() {
            write!(f, ",horizon_s={}", settings.horizon_s)?;
        }
        if settings.copy_bytes_per_s != usual.copy_bytes_per_s {
            write!(f, ",copy_mib_s={}", settings.copy_bytes_per_s >> 20)?;
        }
        if let Some(bytes) = settings.budget_bytes {
            write!(f, ",budget_mib={}", bytes >> 20)?;
        }
        write!(f, ":{place}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<HybridSpec, HybridSpecError> {
        HybridSpec::parse(text, Path::new("/etc/cinnabar"))
    }

    #[test]
    fn what_is_written_is_shown_again() {
        for text in [
            ":fast=/ssd/vm1,slow=/hdd/vm1",
            ":fast=/ssd/a:b,slow=/hdd/vm1,table=/var/lib/vm1.table",
            ",copy_mib_s=8:ceph,fast=ssd,slow=hdd,name=vm1,namespace=n,conf=/etc/ceph/b.conf",
            ",planner=mobbs,round_s=0.5,horizon_s=60,copy_mib_s=100,budget_mib=0:fast=/s,slow=/h",
        ] {
            let spec = parse(text).expect(text);
            assert_eq!(spec.to_string(), format!("hybrid{text}"));
            assert_eq!(parse(&spec.to_string()["hybrid".len()..]), Ok(spec));
        }
        let spec = parse(":slow=h,fast=s,table=s/table").expect("well-formed");
        assert_eq!(spec.to_string(), "hybrid:fast=/etc/cinnabar/s,slow=/etc/cinnabar/h");
        assert_eq!(spec.place(), "hybrid:/etc/cinnabar/s/table");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("", "no part of a place"),
            (":", "no part of a place"),
            (":vm1", "\"vm1\" is no part"),
            (":fast=/a", "slow=FOLDER is missing"),
            (":slow=/a", "fast=FOLDER is missing"),
            (":fast=/a,slow=/a", "one folder"),
            (":fast=/a,slow=/b,fast=/c", "fast is given twice"),
            (":fast=,slow=/b", "\"fast=\" is no part"),
            (":fast=/a,slow=/b,size=3", "\"size=3\" is no part"),
            (":ceph", "fast=... is missing"),
            (":ceph,fast=a,slow=b,name=c,size=3", "\"size=3\" is no part"),
            (",planner=lru:fast=/a,slow=/b", "\"planner=lru\" is no option"),
            (",round_s=0:fast=/a,slow=/b", "round_s is from 0.1 to 604800"),
            (",round_s=NaN:fast=/a,slow=/b", "no option"),
            (",round_s=1e9:fast=/a,slow=/b", "no option"),
            (",horizon_s=0.5:fast=/a,slow=/b", "horizon_s is from 1 to"),
            (",copy_mib_s=-1:fast=/a,slow=/b", "no option"),
            (",budget_mib=18446744073709551615:fast=/a,slow=/b", "budget_mib is from 0 to"),
            (",budget_mib:fast=/a,slow=/b", "\"budget_mib\" is no option"),
            (",round_s=1,round_s=2:fast=/a,slow=/b", "round_s is given twice"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
