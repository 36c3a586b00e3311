//! Which settings make sense.
//!
//! A plan is checked before anything is started: an error names the key, so that the line of a plan
//! can be shown.

use super::config::{Architecture, Config, Placement, Restart, Service, WritePolicy};
use super::config_error::ConfigError;

/// Hosts at most.
pub const HOSTS_MAX: u32 = 64;
/// Threads of a host at most.
pub const THREADS_MAX: u32 = 1024;
/// Blocks of a cache, scaled, at most: 1 TiB.
pub const CACHE_BLOCKS_MAX: u64 = 1 << 28;
/// Blocks on the file server, scaled, at most: 4 TiB.
pub const TOTAL_BLOCKS_MAX: u64 = 1 << 30;
/// Memory for the tables of all hosts at most.
pub const TABLE_BYTES_MAX: u64 = 64 << 30;
/// Any time at most, in nanoseconds: a quarter of an hour.
pub const TIME_NS_MAX: u64 = 900_000_000_000;
/// Requests at a time that a device or the file server can serve, if it doesn't serve all.
pub const SERVERS_MAX: u32 = 1024;
/// Blocks read ahead, or of one operation, at most.
pub const RUN_BLOCKS_MAX: u32 = 1024;
/// Writes under way of a syncer at most.
pub const DEPTH_MAX: u32 = 1 << 16;
/// Writes of a host under way in the background at most.
pub const ASYNC_DEPTH_MAX: u32 = 1 << 22;

fn wrong(key: &'static str, message: String, hint: &str) -> Result<(), ConfigError> {
    Err(ConfigError { key, message, hint: hint.to_owned() })
}

fn within(key: &'static str, value: u64, least: u64, most: u64) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    wrong(key, format!("{value} is not from {least} to {most}"), "choose a value in this range")
}

fn share(key: &'static str, value: f64) -> Result<(), ConfigError> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    wrong(key, format!("{value} is not a share from 0 to 1"), "30 % is written 0.3")
}

fn factor(key: &'static str, value: f64, least: f64, most: f64) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    wrong(key, format!("{value} is not from {least} to {most}"), "choose a value in this range")
}

impl Config {
    /// Whether these settings make sense together.
    ///
    /// # Errors
    /// The first that does not, by the name of its field.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_ranges()?;
        self.check_times()?;
        self.check_sizes()?;
        self.check_combination()
    }

    fn check_ranges(&self) -> Result<(), ConfigError> {
        let of = u64::from;
        within("scale", of(self.scale), 1, 1 << 20)?;
        within("hosts", of(self.hosts), 1, of(HOSTS_MAX))?;
        within("threads", of(self.threads), 1, of(THREADS_MAX))?;
        within("syncer_depth", of(self.syncer_depth), 1, of(DEPTH_MAX))?;
        within("async_depth", of(self.async_depth), 1, of(ASYNC_DEPTH_MAX))?;
        within("prefetch_blocks", of(self.prefetch_blocks), 0, of(RUN_BLOCKS_MAX))?;
        within("operation_blocks", of(self.operation_blocks), 1, of(RUN_BLOCKS_MAX))?;
        within("operation_depth", of(self.operation_depth), 1, of(RUN_BLOCKS_MAX))?;
        within("popularity_power", of(self.popularity_power), 1, 64)?;
        share("outside_share", self.outside_share)?;
        share("write_share", self.write_share)?;
        share("fast_read_share", self.fast_read_share)?;
        factor("warm_up_share", self.warm_up_share, 0.0, 0.99)?;
        factor("volume_multiple", self.volume_multiple, 0.001, 10_000.0)?;
        factor("flash_write_factor", self.flash_write_factor, 1.0, 1_000.0)?;
        for (key, service) in
            [("flash_service", self.flash_service), ("filer_service", self.filer_service)]
        {
            if let Service::Servers(servers) = service {
                within(key, of(servers), 1, of(SERVERS_MAX))?;
            }
        }
        for (key, policy) in
            [("ram_policy", self.ram_policy), ("flash_policy", self.flash_policy())]
        {
            if let WritePolicy::Periodic(seconds) = policy {
                within(key, of(seconds), 1, 3600)?;
            }
        }
        Ok(())
    }

    fn check_times(&self) -> Result<(), ConfigError> {
        let times = &self.timings;
        for (key, ns) in [
            ("pause_ns", self.pause_ns),
            ("ram_read_ns", times.ram_read_ns),
            ("ram_write_ns", times.ram_write_ns),
            ("flash_read_ns", times.flash_read_ns),
            ("flash_write_ns", times.flash_write_ns),
            ("packet_ns", times.packet_ns),
            ("block_transfer_ns", times.block_transfer_ns),
            ("filer_fast_read_ns", times.filer_fast_read_ns),
            ("filer_slow_read_ns", times.filer_slow_read_ns),
            ("filer_write_ns", times.filer_write_ns),
        ] {
            within(key, ns, 0, TIME_NS_MAX)?;
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<(), ConfigError> {
        within("ram_blocks", self.scaled(self.ram_blocks), 0, CACHE_BLOCKS_MAX)?;
        within("flash_blocks", self.scaled(self.flash_blocks), 0, CACHE_BLOCKS_MAX)?;
        within("total_blocks", self.scaled(self.total_blocks), 1, TOTAL_BLOCKS_MAX)?;
        let (set, total) = (self.working_set_blocks, self.total_blocks);
        let sets = if self.shared_set { 1 } else { u64::from(self.hosts) };
        if set == 0 || set.saturating_mul(sets) > total {
            return wrong(
                "working_set_blocks",
                format!("{sets} working sets of {set} blocks on a file server of {total} blocks"),
                "make the working set at least a block, and total_blocks large enough for all",
            );
        }
        let operation = u64::from(self.operation_blocks);
        if operation > self.scaled(set) {
            return wrong(
                "operation_blocks",
                format!(
                    "an operation of {operation} blocks is longer than the working set, scaled"
                ),
                "choose shorter operations, a larger working set, or a smaller scale",
            );
        }
        let bytes = 8 * self.scaled(total) * u64::from(self.hosts + 1);
        if bytes > TABLE_BYTES_MAX {
            return wrong(
                "hosts",
                format!("the tables of {} hosts would take {} GiB of RAM", self.hosts, bytes >> 30),
                "choose fewer hosts, or a larger scale",
            );
        }
        Ok(())
    }

    fn check_combination(&self) -> Result<(), ConfigError> {
        match self.architecture {
            Architecture::Lookaside if self.flash_policy.is_some() => wrong(
                "flash_policy",
                "the lookaside architecture keeps nothing dirty in flash".to_owned(),
                "leave flash_policy out, or choose architecture = \"naive\"",
            ),
            Architecture::Lookaside | Architecture::Unified
                if self.placement == Placement::Server =>
            {
                wrong(
                    "placement",
                    format!("the {} architecture has its flash in the host", self.architecture),
                    "choose placement = \"client\", or architecture = \"naive\"",
                )
            }
            Architecture::Cinnabar => super::cinnabar::check(self),
            _ if matches!(self.restart, Restart::Crash | Restart::Stop) => wrong(
                "restart",
                format!("the {} architecture has nothing to recover from", self.architecture),
                "choose warm or cold, or architecture = \"cinnabar\"",
            ),
            _ if self.flash_blocks == 0 && self.flash_policy.is_some() => wrong(
                "flash_policy",
                "there is no flash that could have a policy".to_owned(),
                "leave flash_policy out, or give flash_blocks a size",
            ),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(change: impl FnOnce(&mut Config)) -> Option<&'static str> {
        let mut config = Config::default();
        change(&mut config);
        let error = config.check().err()?;
        assert!(!error.hint.is_empty() && !error.message.is_empty());
        Some(error.key)
    }

    #[test]
    fn the_default_is_fine_and_each_mistake_is_named() {
        assert_eq!(key_of(|_| ()), None);
        assert_eq!(key_of(|config| config.scale = 0), Some("scale"));
        assert_eq!(key_of(|config| config.write_share = 30.0), Some("write_share"));
        assert_eq!(key_of(|config| config.outside_share = f64::NAN), Some("outside_share"));
        assert_eq!(key_of(|config| config.threads = 0), Some("threads"));
        assert_eq!(key_of(|config| config.working_set_blocks = 0), Some("working_set_blocks"));
        assert_eq!(
            key_of(|config| config.working_set_blocks = u64::MAX),
            Some("working_set_blocks")
        );
        assert_eq!(key_of(|config| config.total_blocks = u64::MAX), Some("total_blocks"));
        assert_eq!(key_of(|config| config.timings.packet_ns = u64::MAX), Some("packet_ns"));
        let no_servers = Service::Servers(0);
        assert_eq!(key_of(|config| config.filer_service = no_servers), Some("filer_service"));
        assert_eq!(
            key_of(|config| config.ram_policy = WritePolicy::Periodic(0)),
            Some("ram_policy")
        );
    }

    #[test]
    fn impossible_combinations_are_refused() {
        let lookaside = |config: &mut Config| config.architecture = Architecture::Lookaside;
        assert_eq!(key_of(lookaside), None);
        let with_policy = |config: &mut Config| {
            lookaside(config);
            config.flash_policy = Some(WritePolicy::Sync);
        };
        assert_eq!(key_of(with_policy), Some("flash_policy"));
        let at_the_server = |config: &mut Config| {
            config.architecture = Architecture::Unified;
            config.placement = Placement::Server;
        };
        assert_eq!(key_of(at_the_server), Some("placement"));
        let without_flash = |config: &mut Config| {
            config.flash_blocks = 0;
            config.flash_policy = Some(WritePolicy::Never);
        };
        assert_eq!(key_of(without_flash), Some("flash_policy"));
    }
}
