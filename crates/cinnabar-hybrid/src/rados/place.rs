//! A volume on a cluster that is not open: made, looked at, taken over.

use super::names::{self, Prefix};
use super::{RadosSpec, curves};
use crate::librados::error::RadosError;
use crate::librados::{Cluster, ENTRIES_MAX, Pool, ReadOp, WriteOp};
use crate::pools::{Contents, OpenError, Place, Pools, Wait};
use cinnabar_placement::{Device, Header, HeaderError, Record};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A hybrid volume on a Ceph cluster that is not open. Each call makes a connection of its own.
#[derive(Clone, Debug)]
pub struct RadosPlace {
    spec: RadosSpec,
}

impl RadosPlace {
    /// Of what an operator wrote. Nothing is asked of the cluster yet.
    pub fn new(spec: RadosSpec) -> Self {
        Self { spec }
    }

    pub(super) fn spec(&self) -> &RadosSpec {
        &self.spec
    }

    /// What the probe measured last: the slow and the fast pool.
    ///
    /// # Errors
    /// [`OpenError`]; above all if what is stored is newer or damaged.
    pub fn curves(&self) -> Result<Option<[Device; 2]>, OpenError> {
        let connected = Connected::to(&self.spec)?;
        let heads = connected.heads()?;
        let found = heads.0.get(names::CURVES).map(|bytes| curves::decode_curves(bytes));
        found.transpose().map_err(|error| OpenError::Table(error.to_string()))
    }
}

impl Place for RadosPlace {
    fn name(&self) -> String {
        format!("hybrid:{}", self.spec)
    }

    fn create(&mut self, header: &Header) -> Result<(), OpenError> {
        let connected = Connected::to(&self.spec)?;
        let op = WriteOp::new()
            .create(true)
            .set_entry(names::HEADER, &header.encode())
            .set_entry(names::EPOCH, &header.epoch.to_le_bytes())
            .set_entry(names::POOLS, connected.pools_text()?.as_bytes());
        connected.table.write(&connected.object, op).map(drop).map_err(|errno| match errno {
            Errno::EXIST => OpenError::Exists(format!("the hybrid volume {:?}", self.spec.name)),
            Errno::OPNOTSUPP => OpenError::Other(format!(
                "the pool {:?} is erasure-coded and can't hold the table; name a replicated one: table=POOL",
                connected.table_name
            )),
            errno => connected.failed("make the table", errno),
        })
    }

    fn look(&mut self) -> Result<Contents, OpenError> {
        let connected = Connected::to(&self.spec)?;
        let header = connected.heads()?.header()?;
        Ok(Contents { header, records: connected.records(&header)? })
    }

    fn take_over(
        &mut self,
        wait: &mut dyn FnMut(Wait<'_>) -> bool,
    ) -> Result<(Contents, Box<dyn Pools>), OpenError> {
        let connected = Connected::to(&self.spec)?;
        connected.take_over(self.spec.by_force, wait)
    }
}

/// A volume's pools, of one connection.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) slow: Arc<Pool>,
    pub(super) fast: Arc<Pool>,
    pub(super) table: Arc<Pool>,
    table_name: String,
    /// The object with the table.
    pub(super) object: String,
    volume: String,
    pub(super) cluster: Arc<Cluster>,
}

impl Connected {
    pub(super) fn to(spec: &RadosSpec) -> Result<Self, OpenError> {
        let cluster = Arc::new(Cluster::connect(&spec.target).map_err(|error| told(&error))?);
        let enter = |pool: &str| {
            let pool = Pool::enter(&cluster, pool, &spec.namespace);
            pool.map(Arc::new).map_err(|error| told(&error))
        };
        let (slow, fast) = (enter(&spec.slow)?, enter(&spec.fast)?);
        if slow.id() == fast.id() {
            return Err(OpenError::Other("the fast and the slow pool are the same".into()));
        }
        let table = spec.table.as_deref().map_or(Ok(Arc::clone(&slow)), enter)?;
        let table_name = spec.table.clone().unwrap_or_else(|| spec.slow.clone());
        let (object, volume) = (names::table(&spec.name), spec.name.clone());
        Ok(Self { slow, fast, table, table_name, object, volume, cluster })
    }

    /// How an operation on the table failed.
    pub(super) fn failed(&self, doing: &str, errno: Errno) -> OpenError {
        match errno {
            Errno::NOENT => {
                OpenError::NoVolume(format!("object {} in pool {:?}", self.object, self.table_name))
            }
            Errno::NOSPC | Errno::DQUOT => OpenError::Other(format!(
                "{doing}: the pool {:?} is full; see ceph df and ceph osd pool get-quota {}",
                self.table_name, self.table_name
            )),
            errno => told(&RadosError::of(
                self.cluster.id(),
                &format!("{doing} of the hybrid volume {:?}", self.volume),
                errno,
            )),
        }
    }

    /// What identifies the pools, whatever they are called.
    pub(super) fn pools_text(&self) -> Result<String, OpenError> {
        let fsid =
            self.cluster.fsid().map_err(|errno| self.failed("ask for the cluster", errno))?;
        let fsid = u128::from_be_bytes(fsid);
        Ok(format!("fsid={fsid:032x} slow={} fast={}", self.slow.id(), self.fast.id()))
    }

    /// All entries but the records.
    pub(super) fn heads(&self) -> Result<Heads, OpenError> {
        let failed = |errno| self.failed("read the table", errno);
        let op = ReadOp::new().stat().entries("", names::HEADS, ENTRIES_MAX).map_err(failed)?;
        let (mut op, _) = self.table.read(&self.object, op).map_err(failed)?;
        let heads = Heads(op.omap().map_err(failed)?.entries.into_iter().collect());
        heads.header()?;
        let (here, there) = (self.pools_text()?, heads.text(names::POOLS));
        if there != here {
            return Err(OpenError::Foreign(format!(
                "the hybrid volume {:?} lies in other pools than these: {} (these are {here})",
                self.volume,
                there.escape_debug()
            )));
        }
        Ok(heads)
    }

    /// The records, page by page.
    pub(super) fn records(&self, header: &Header) -> Result<Vec<(u32, Record)>, OpenError> {
        let failed = |errno| self.failed("read the table", errno);
        let (mut records, mut after) = (Vec::new(), String::new());
        loop {
            let op = ReadOp::new().entries(&after, names::RECORDS, ENTRIES_MAX).map_err(failed)?;
            let (mut op, _) = self.table.read(&self.object, op).map_err(failed)?;
            let page = op.omap().map_err(failed)?;
            for (key, value) in &page.entries {
                let extent = names::extent_of(key).filter(|extent| *extent < header.records());
                let extent = extent.ok_or_else(|| {
                    OpenError::Table(format!("the table has an entry {key:?}, which can't be"))
                })?;
                records.push((extent, Record::decode(extent, value)?));
            }
            match page.entries.into_iter().next_back() {
                Some((last, _)) if page.more => after = last,
                _ => return Ok(records),
            }
        }
    }

    /// Name of the volume's data.
    pub(super) fn prefix(header: &Header) -> Prefix {
        Prefix::of(header.identity)
    }
}

/// Entries of the table that are no records.
#[derive(Debug)]
pub(super) struct Heads(pub(super) BTreeMap<String, Vec<u8>>);

impl Heads {
    pub(super) fn header(&self) -> Result<Header, HeaderError> {
        Header::decode(self.bytes(names::HEADER))
    }

    /// An entry's bytes; none if it is missing.
    pub(super) fn bytes(&self, key: &str) -> &[u8] {
        self.0.get(key).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn text(&self, key: &str) -> String {
        String::from_utf8_lossy(self.bytes(key)).into_owned()
    }

    /// The number of the last taking; 0: there was none, or by an earlier version.
    pub(super) fn taking(&self) -> u64 {
        self.bytes(names::TAKING).try_into().map_or(0, u64::from_le_bytes)
    }

    /// What the probe measured last. What can't be read is as good as none: moves are planned by what is assumed.
    pub(super) fn devices(&self) -> Option<[Device; 2]> {
        match curves::decode_curves(self.0.get(names::CURVES)?) {
            Ok(devices) => Some(devices),
            Err(error) => {
                tracing::warn!(%error, "what the probe measured of the pools can't be read");
                None
            }
        }
    }
}

/// With its hint, in one line.
pub(super) fn told(error: &RadosError) -> OpenError {
    OpenError::Other(format!("{error}; {}", error.hint()))
}
