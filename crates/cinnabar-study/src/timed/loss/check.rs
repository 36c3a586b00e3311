//! Which losses make sense.

use super::super::config::{Config, Placement, Restart};
use super::super::config_error::ConfigError;

/// I/Os a second at most, as a limit.
const IOPS_MAX: u32 = 1_000_000;

/// Whether the host that these settings want to lose its cache can do so.
pub(in super::super) fn check(config: &Config) -> Result<(), ConfigError> {
    let wrong =
        |key, message: String, hint: &str| Err(ConfigError { key, message, hint: hint.to_owned() });
    let loss = &config.loss;
    if loss.iops > IOPS_MAX {
        let message = format!("{} is not from 0 to {IOPS_MAX}", loss.iops);
        return wrong("iops", message, "choose a value in this range; 0 is no limit");
    }
    if loss.host >= config.hosts {
        let message = format!("there is no host {} among {}", loss.host, config.hosts);
        return wrong("host", message, "the first host is 0; choose one that there is");
    }
    if !loss.is_set() {
        let named = [("ram_too", loss.ram_too), ("iops", loss.iops > 0), ("hurry", loss.hurry)];
        return match named.iter().find(|(_, set)| *set) {
            Some(&(key, _)) => {
                let message = "no host loses its cache".to_owned();
                wrong(key, message, "say when with at_ns, or leave this out")
            }
            None => Ok(()),
        };
    }
    if loss.at_ns < u64::from(config.scale) {
        let message = "divided by the scale, that is no time at all".to_owned();
        return wrong("at_ns", message, "choose a later instant, or a smaller scale");
    }
    if config.placement == Placement::Server {
        let message = "the flash of the file server is no host's to lose".to_owned();
        return wrong("placement", message, "choose placement = \"client\"");
    }
    if matches!(config.restart, Restart::Crash | Restart::Stop) {
        let message = "a run has either a restart or a loss".to_owned();
        return wrong("restart", message, "choose warm or cold, or leave out at_ns");
    }
    Ok(())
}
