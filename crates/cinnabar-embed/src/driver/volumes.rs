//! Volumes come and go.

use super::{Asked, Driver, Origin, PendingCommand};
use crate::error::Error;
use crate::options::VolumeOptions;
use crate::request::Volume;
use cinnabar_backend::disk::{DiskError, Identity, OpenOptions};
use cinnabar_backend::model::SimModel;
use cinnabar_backend::spec::Place;
use cinnabar_backend::{BackendSpec, Disk, FileId, Proof, entropy};
use cinnabar_driver::lost_ranges::AGAIN_AFTER_NS;
use cinnabar_driver::{EndError, EndStep, Phase, VolumeLife};
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, VolumeId};
use cinnabar_engine::volume::{Belief, ProofToken, VolumeSpec, Warmth};
use cinnabar_engine::{Command, Failure};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Of the next volume attached, in whatever cache of the process.
static SERIAL: AtomicU64 = AtomicU64::new(1);

/// A volume, from its opening to the end of its last I/O.
pub(super) struct Attached {
    pub(super) name: String,
    pub(super) disk: Arc<Disk>,
    /// What is served of it, in bytes: all of it, but for what the engine does not know of yet.
    pub(super) size_bytes: u64,
    /// Its phase, its name in the engine, its I/O under way, what its server lost.
    pub(super) life: VolumeLife,
    pub(super) file: FileId,
    /// Models in front of the disk, outermost first.
    pub(super) models: Vec<SimModel>,
    pub(super) timeout: Duration,
    serial: u64,
    read_only: bool,
}

/// What a backend's opening gives.
type Opened = (Arc<Disk>, Option<ProofToken>, Vec<SimModel>);

impl Attached {
    /// Nothing but I/O that hangs is left of it.
    fn is_gone(&self) -> bool {
        self.life.phase() == Phase::Gone
    }
}

impl Driver {
    /// Opens and locks a volume's backend, and makes the engine know it.
    pub(crate) fn attach(&mut self, options: &VolumeOptions) -> Result<Volume, Error> {
        if self.volumes.iter().any(|(_, volume)| !volume.is_gone() && volume.name == options.name) {
            return Err(Error::Exists(options.name.clone()));
        }
        let (disk, proof, models) = self.open_backend(options)?;
        let attachment = u64::from_le_bytes(entropy::bytes().map_err(Error::Random)?);
        let file = self.port.register(Arc::clone(&disk)).map_err(Error::Files)?;
        let serial = SERIAL.fetch_add(1, Relaxed);
        let key = self.volumes.insert(Attached {
            name: options.name.clone(),
            size_bytes: disk.size_bytes(),
            disk,
            life: VolumeLife::new(options.name.clone(), attachment, Mutants::default()),
            file,
            models,
            timeout: options.backend_timeout,
            serial,
            read_only: options.read_only,
        });
        let attached = self.make_known(key, options, proof);
        if attached.is_err() {
            self.volumes[key].life.refused();
            self.forget_if_quiet(key);
        }
        attached.map(|()| Volume { key, serial })
    }

    fn make_known(
        &mut self,
        key: usize,
        options: &VolumeOptions,
        proof: Option<ProofToken>,
    ) -> Result<(), Error> {
        let name = &options.name;
        let device = self.device.id().map(|id| (id, self.device.path.clone()));
        let (ledger, names) = (self.ledger.clone(), [name.clone()]);
        let look_up = move || {
            let device = device.as_ref().map(|(id, path)| (*id, path.as_path()));
            ledger.with(|state| state.attach(&names, device))
        };
        let known = self.beside(look_up)?;
        let generation = known.map_err(Error::State)?[0];
        let Attached { disk, life, .. } = &self.volumes[key];
        let recorded = self.engine.recorded(name);
        let spec = VolumeSpec {
            name: name.clone(),
            size_bytes: disk.size_bytes(),
            align_bytes: disk.align_bytes(),
            read_only: options.read_only,
            mode: options.mode,
            share_min_blocks: options.share_min_bytes / BLOCK_BYTES,
            share_max_blocks: options.share_max_bytes.div_ceil(BLOCK_BYTES),
            fill_limit_bytes: options.fill_limit_bytes,
            bypass_sequential_bytes: options.bypass_sequential_bytes,
            bypass_large_bytes: options.bypass_large_bytes,
            belief: Belief::Unknown,
            generation,
            proof,
            exclusive: options.exclusive,
        };
        let attach = life.attach(spec, &recorded, |record, now| disk.judge(record, now));
        let failed = |failure| Error::Attach { volume: name.clone(), failure };
        let warmth = self.make_attached(key, attach)?.map_err(failed)?;
        self.settle_warmth(&[key]);
        self.drop_lost_ranges();
        tracing::info!(volume = name, ?warmth, "attached");
        Ok(())
    }

    /// The attach command: its I/O may come with the answer, so the volume is known before the
    /// caller hears of it.
    fn make_attached(
        &mut self,
        key: usize,
        attach: Command,
    ) -> Result<Result<Warmth, Failure>, Error> {
        let answer = self.command(attach)?;
        let attached = self.volumes[key].life.attached(&answer);
        if let Ok((volume, _)) = attached {
            let place = usize::from(volume.0);
            if self.by_id.len() <= place {
                self.by_id.resize(place + 1, None);
            }
            self.by_id[place] = Some(key);
            self.start_early(volume);
        }
        Ok(attached.map(|(_, warmth)| warmth))
    }

    /// Once the index is loaded it is known how many blocks of these volumes are believed.
    pub(super) fn settle_warmth(&mut self, keys: &[usize]) {
        if self.loaded.is_none() {
            return;
        }
        for key in keys {
            let life = &mut self.volumes[*key].life;
            if let Some(counters) = life.id().and_then(|id| self.engine.volume_counters(id)) {
                life.settle(&counters);
            }
        }
    }

    /// Opens and locks it and reads its proof, while requests to other volumes go on.
    fn open_backend(&mut self, options: &VolumeOptions) -> Result<Opened, Error> {
        let volume = || options.name.clone();
        let base = std::env::current_dir().unwrap_or_default();
        let spec = BackendSpec::of_user(&options.backend, &base).map_err(|error| {
            Error::Backend { volume: volume(), text: options.backend.clone(), error }
        })?;
        let failed = |error: DiskError| Error::Disk { volume: volume(), error };
        // What is not there is found out, and explained, when it is opened.
        let identity = match &spec.place {
            Place::File(path) => std::fs::metadata(path)
                .ok()
                .map(|metadata| Identity::Inode(metadata.dev(), metadata.ino())),
            Place::Nbd(server) => Some(Identity::Server(server.place())),
            Place::Rbd(image) => Some(Identity::Server(image.place())),
            Place::Hybrid(volume) => Some(Identity::Server(volume.place())),
        };
        identity.map_or(Ok(()), |identity| self.check_taken(options, &identity))?;
        let wait = OpenOptions {
            read_only: options.read_only,
            lock_wait: self.lock_wait,
            ..OpenOptions::default()
        };
        let place = spec.clone();
        let open = move || -> Result<_, DiskError> {
            let disk = Disk::open_backend(&place, &wait)?;
            let proof = disk.read_proof();
            Ok((disk, proof))
        };
        let opened = self.beside(open)?;
        let (disk, proof) = opened.map_err(failed)?;
        // A server may be known by several names, which its own address tells.
        self.check_taken(options, &disk.identity())?;
        let size = disk.size_bytes();
        let models = spec.layers.into_iter().map(|layer| SimModel::new(layer, size)).collect();
        let proof = proof.unwrap_or_else(|error| {
            let volume = &options.name;
            tracing::warn!(volume, reason = %error, "nothing proves who wrote it last");
            None
        });
        Ok((Arc::new(disk), proof, models))
    }

    /// What is open here is refused at once: its lock would never come free.
    fn check_taken(&self, options: &VolumeOptions, identity: &Identity) -> Result<(), Error> {
        let what = self.device.is_taken(identity).map(str::to_owned).or_else(|| {
            let mut all = self.volumes.iter().map(|(_, volume)| volume);
            all.find(|other| {
                other.disk.identity() == *identity && !(other.read_only && options.read_only)
            })
            .map(|other| format!("the backend of volume {:?}", other.name))
        });
        what.map_or(Ok(()), |what| {
            let (volume, backend) = (options.name.clone(), options.backend.clone());
            Err(Error::Taken { volume, backend, what })
        })
    }

    /// A server was away: what it may have lost is dropped from the cache before anything that it
    /// says from now on is believed.
    pub(super) fn server_restarted(&mut self, file: FileId, ranges: &[ByteSpan]) {
        let mut all = self.volumes.iter();
        let Some((key, volume)) = all.find(|(_, volume)| volume.file == file) else { return };
        tracing::warn!(
            volume = volume.name,
            ranges = ranges.len(),
            "its server may have restarted; what is cached of writes that were not flushed is dropped"
        );
        let drops = |asked: &Asked| matches!(asked.asker, Origin::Lost(of) if of == key);
        let under_way = self.requests.iter().filter(|(_, asked)| drops(asked)).count();
        self.volumes[key].life.lost(ranges, under_way);
        self.drop_lost_ranges();
        self.discard_lost(key);
    }

    /// These bytes could not be dropped yet. A volume that leaves takes all of its blocks along.
    pub(super) fn put_back_lost(&mut self, key: usize, span: ByteSpan) {
        if let Some(volume) = self.volumes.get_mut(key) {
            volume.life.put_back(span);
            self.lost_at = Some(self.now().plus_ns(AGAIN_AFTER_NS));
            self.discard_lost(key);
        }
    }

    /// Has the engine keep nothing of a volume that leaves, if its server may have lost some of it:
    /// before the last flush ends, which would seem to cover that.
    fn discard_lost(&mut self, key: usize) {
        if let Some(command) = self.volumes[key].life.discard() {
            self.order(PendingCommand::Unheard, command);
        }
    }

    /// Drops what volumes that serve may have lost, once more what could not be dropped before.
    pub(super) fn drop_lost_ranges(&mut self) {
        let all = self.volumes.iter_mut();
        let all = all.filter_map(|(key, volume)| {
            Some((key, volume.life.serving()?, volume.life.invalidations()))
        });
        let all: Vec<_> = all.filter(|(.., spans)| !spans.is_empty()).collect();
        for (key, id, spans) in all {
            for span in spans {
                self.drop_lost(key, id, span);
            }
        }
    }

    /// Finishes and flushes what is under way, takes the proof that nobody wrote since, and lets
    /// go of the backend.
    pub(crate) fn detach(&mut self, volume: Volume) -> Result<(), Error> {
        let id = self.attached(volume)?.life.serving().ok_or(Error::NoVolume)?;
        let key = volume.key;
        let mut command = self.volumes[key].life.leave().ok_or(Error::NoVolume)?;
        self.discard_lost(key);
        loop {
            let answer = self.command(command)?.map(drop);
            command = match self.volumes[key].life.answered(answer) {
                EndStep::Ask(next) => next,
                EndStep::TakeProof => {
                    let Attached { disk, timeout, .. } = &self.volumes[key];
                    let (disk, timeout) = (Arc::clone(disk), *timeout);
                    // One that takes too long is none.
                    let taken = self.beside_for(timeout, move || take_proof(&disk))?;
                    self.volumes[key].life.proved(taken.flatten())
                }
                EndStep::Gone(result) => {
                    self.by_id[usize::from(id.0)] = None;
                    self.forget_if_quiet(key);
                    return result
                        .map_err(|EndError { what, failure }| Error::Failed { what, failure });
                }
            };
        }
    }

    /// Lets go of the disk of a volume of which nothing is left, lock included.
    pub(super) fn forget_if_quiet(&mut self, key: usize) {
        let volume = &self.volumes[key];
        if volume.life.is_over() {
            self.port.unregister(volume.file);
            self.volumes.remove(key);
        }
    }

    /// A volume that is attached.
    pub(super) fn attached(&self, volume: Volume) -> Result<&Attached, Error> {
        let found = self.volumes.get(volume.key);
        found
            .filter(|known| known.serial == volume.serial && !known.is_gone())
            .ok_or(Error::NoVolume)
    }

    pub(super) fn attached_volumes(&self) -> Vec<Volume> {
        let serving = self.volumes.iter().filter(|(_, volume)| !volume.is_gone());
        serving.map(|(key, volume)| Volume { key, serial: volume.serial }).collect()
    }

    /// The engine's name for it, and what became of its blocks of an earlier run.
    pub(crate) fn look_up(&self, volume: Volume) -> Result<(VolumeId, Warmth, u64), Error> {
        let attached = self.attached(volume)?;
        let id = attached.life.id().ok_or(Error::NoVolume)?;
        Ok((id, attached.life.warmth(), attached.size_bytes))
    }
}

/// The proof of a backend that is let go of.
fn take_proof(disk: &Disk) -> Option<ProofToken> {
    disk.take_proof().unwrap_or_else(|error| {
        tracing::warn!(
            path = %disk.path().display(), reason = %error,
            "nothing proves that nobody will write the volume; its blocks are dropped"
        );
        None
    })
}
