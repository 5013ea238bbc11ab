//! Checkpoints: folders `step-NNNNNNNN` that appear whole or not at all.
//!
//! A folder holds `model.safetensors`, `optimizer.safetensors` (`exp_avg.<name>` and
//! `exp_avg_sq.<name>`, for an optimizer with moments; `scaled.head.weight` and `scaled.head.bias`
//! as they are trained, where targets are scaled), `carried.safetensors` for a run
//! that carries states (see [`Carried`](megabatch_nn_cpu::Carried)), `state.json` ([`State`]), the
//! caller's `config.yaml`, and the checksums of them all. It is written under another name beside
//! its place, every file and the folder are flushed to the disk, and then it is renamed: what has
//! the right name is complete, and what was damaged later is found out when it is read.

mod arithmetic;
mod checksums;
mod run_settings;
mod state;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub use arithmetic::Arithmetic;
pub use run_settings::{ChangedSetting, RunSettings};
pub use state::{Best, State};

use megabatch_atomic_file::folder_of as parent_folder;
use megabatch_nn::model::{Layout, Moments, TensorFile, TensorSet, encode};

use crate::data::target_scales::{TargetScales, tensors_in_target_units};
use crate::error::{Error, Result};
use crate::train::optimizer::Optimizer;

const PREFIX: &str = "step-";
/// Before the name of a checkpoint that is being written or removed. What a run that was killed
/// leaves of it is removed.
const UNFINISHED: &str = ".unfinished-";
/// Before the name of a checkpoint that could not be read when a run went on from an older one. It
/// is kept for whoever wants to look into it.
const UNREADABLE: &str = "unreadable-";
/// Before the name of a checkpoint that makes way for another one of the same step. It goes back to
/// its place if the run was killed before the other one came.
const REPLACED: &str = ".replaced-";

const MODEL: &str = "model.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const CARRIED: &str = "carried.safetensors";
const STATE: &str = "state.json";
const CONFIG: &str = "config.yaml";
const EXP_AVG: &str = "exp_avg.";
const EXP_AVG_SQ: &str = "exp_avg_sq.";
/// Before the name of a tensor as it is trained, for scaled targets.
const SCALED: &str = "scaled.";

/// Folder of checkpoints, and which of them are kept.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    /// The folder that holds them, made when the first one is saved.
    pub folder: PathBuf,
    /// Number of newest checkpoints kept, at least one.
    pub keep_last: usize,
    /// True if the one with the best validation loss is kept beside them.
    pub keep_best: bool,
    /// Optimizer steps between checkpoints, beside those at each epoch's end and at the end of
    /// training.
    pub every_steps: Option<u64>,
    /// Text saved as `config.yaml` in each.
    pub config_text: String,
}

/// Result of resuming.
#[derive(Debug)]
pub struct Resumed {
    /// The checkpoint that was loaded.
    pub path: PathBuf,
    /// Its state.
    pub state: State,
    /// Newer checkpoints that could not be read or are damaged, the newest first, and why.
    pub skipped: Vec<Error>,
    /// Their folders. [`Trainer::train`](crate::Trainer::train) renames them to
    /// `unreadable-step-NNNNNNNN`.
    pub skipped_paths: Vec<PathBuf>,
    /// Settings that are not the checkpoint's and may differ, see [`RunSettings`]. With any, the
    /// run goes on in another way than the uninterrupted one would have.
    pub changed: Vec<ChangedSetting>,
    /// Arithmetic of the run from now on, where it is not the checkpoint's (`state.arithmetic`).
    /// With one, the run goes on as the uninterrupted one would have up to rounding only.
    pub other_arithmetic: Option<Arithmetic>,
}

/// The files of a checkpoint: name and bytes.
type Files = Vec<(&'static str, Vec<u8>)>;

impl Checkpoints {
    /// Checkpoints in `folder`: the last three and the best, at epochs' ends.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Checkpoints {
            folder: folder.into(),
            keep_last: 3,
            keep_best: true,
            every_steps: None,
            config_text: String::new(),
        }
    }

    /// Saves a checkpoint, then removes those that are no longer kept. After a failure at any
    /// point, those before it are there.
    pub(crate) fn save(
        &self,
        state: &State,
        parameters: &TensorSet,
        optimizer: &Optimizer,
        carried: Option<&TensorSet>,
    ) -> Result<PathBuf> {
        self.save_on(&Disk, state, self.encode(state, parameters, optimizer, carried)?)
    }

    fn encode(
        &self,
        state: &State,
        parameters: &TensorSet,
        optimizer: &Optimizer,
        carried: Option<&TensorSet>,
    ) -> Result<Files> {
        let scales = state.target_scales.as_ref();
        let moments = optimizer.moments().into_iter();
        let moments = moments
            .flat_map(|Moments { exp_avg, exp_avg_sq }| exp_avg.named(EXP_AVG).chain(exp_avg_sq.named(EXP_AVG_SQ)));
        let scaled = scales.into_iter().flat_map(|_| scaled_tensors(parameters.layout()));
        let scaled = scaled.map(|(name, shape)| {
            let values = parameters.get(name).expect("a tensor of the layout");
            (format!("{SCALED}{name}"), shape, values.into())
        });
        let mut files = vec![
            (MODEL, encode(&self.folder, tensors_in_target_units(parameters, scales))?),
            (OPTIMIZER, encode(&self.folder, moments.chain(scaled))?),
            (STATE, state.to_json()),
            (CONFIG, self.config_text.clone().into_bytes()),
        ];
        if let Some(carried) = carried {
            files.push((CARRIED, encode(&self.folder, carried.named(""))?));
        }
        Ok(files)
    }

    fn save_on(&self, storage: &dyn Storage, state: &State, files: Files) -> Result<PathBuf> {
        if !self.folder.exists() {
            storage.create_folder(&self.folder).map_err(Error::file(&self.folder, "make the folder"))?;
            sync_folder(storage, parent_folder(&self.folder))?;
        }
        let name = format!("{PREFIX}{:08}", state.step);
        let unfinished = self.folder.join(format!("{UNFINISHED}{name}"));
        let path = self.folder.join(&name);
        let saved = write(storage, &unfinished, files).and_then(|()| self.put(storage, &unfinished, &path));
        if saved.is_err() && unfinished.exists() {
            // Gives back the room on a full disk. Why it failed is what the caller must know; this
            // may fail for the same reason.
            let _ = storage.remove_folder(&unfinished);
        }
        saved?;
        self.prune(storage, state)?;
        Ok(path)
    }

    /// Renames a folder that is complete to `path`. A checkpoint that is there already, damaged or
    /// of the same run, makes way.
    fn put(&self, storage: &dyn Storage, unfinished: &Path, path: &Path) -> Result<()> {
        let replaced = self.folder.join(format!("{REPLACED}{}", file_name(path)));
        if path.exists() {
            remove(storage, &replaced)?;
        }
        let moved = exchange(storage, unfinished, path, &replaced);
        if moved.is_err() && replaced.exists() && !path.exists() {
            // Where this fails too, it is done when the run is resumed.
            let _ = storage.rename(&replaced, path);
        }
        moved?;
        sync_folder(storage, &self.folder)?;
        remove(storage, &replaced)
    }

    /// Removes all but the last `keep_last` and, where it is kept, the best. Those of more steps
    /// than `state` has are no part of the run as it stands: they count for nothing, and what
    /// becomes of them is not decided here.
    fn prune(&self, storage: &dyn Storage, state: &State) -> Result<()> {
        let best = state.best.filter(|_| self.keep_best).map(|best| best.step);
        let mut all = self.list()?;
        all.retain(|(step, _)| *step <= state.step);
        let older = &all[..all.len().saturating_sub(self.keep_last.max(1))];
        older.iter().filter(|(step, _)| Some(*step) != best).try_for_each(|(_, path)| self.drop_one(storage, path))
    }

    /// Gives checkpoints that cannot be read a name that tells so, and that no run goes on from.
    pub(crate) fn set_aside(&self, unreadable: &[PathBuf]) -> Result<()> {
        for path in unreadable.iter().filter(|path| path.exists()) {
            let aside = self.folder.join(format!("{UNREADABLE}{}", file_name(path)));
            remove(&Disk, &aside)?;
            fs::rename(path, &aside).map_err(Error::file(path, "set aside"))?;
        }
        Ok(())
    }

    /// Removes those of more than `step` steps, the newest first.
    pub(crate) fn remove_after(&self, step: u64) -> Result<()> {
        let all = self.list()?;
        all.iter().rev().filter(|(saved, _)| *saved > step).try_for_each(|(_, path)| self.drop_one(&Disk, path))
    }

    fn drop_one(&self, storage: &dyn Storage, path: &Path) -> Result<()> {
        // Renamed first, so that a removal that is interrupted leaves no half checkpoint under a
        // good name.
        let aside = self.folder.join(format!("{UNFINISHED}{}", file_name(path)));
        remove(storage, &aside)?;
        storage.rename(path, &aside).map_err(Error::file(path, "rename before its removal"))?;
        remove(storage, &aside)
    }

    /// The complete checkpoints, oldest first: number of steps and folder. None where the folder
    /// does not exist.
    ///
    /// # Errors
    /// [`Error::File`] when the folder cannot be read.
    pub fn list(&self) -> Result<Vec<(u64, PathBuf)>> {
        let mut found = Vec::new();
        for path in self.entries()? {
            let step = file_name(&path).strip_prefix(PREFIX).and_then(|digits| digits.parse().ok());
            found.extend(step.map(|step| (step, path)));
        }
        found.sort();
        Ok(found)
    }

    /// Removes what a killed run left unfinished, and puts back what it had moved aside.
    pub(crate) fn clean(&self) -> Result<()> {
        for path in self.entries()? {
            let back = file_name(&path).strip_prefix(REPLACED).map(|name| self.folder.join(name));
            match back {
                Some(back) if !back.exists() => fs::rename(&path, &back).map_err(Error::file(&back, "put back"))?,
                Some(_) => remove(&Disk, &path)?,
                None if file_name(&path).starts_with(UNFINISHED) => remove(&Disk, &path)?,
                None => {}
            }
        }
        Ok(())
    }

    fn entries(&self) -> Result<Vec<PathBuf>> {
        if !self.folder.exists() {
            return Ok(Vec::new());
        }
        let failed = || Error::file(&self.folder, "list the folder");
        let entries = fs::read_dir(&self.folder).map_err(failed())?;
        entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed())).collect()
    }

    /// Loads the latest checkpoint of less than `before` steps that can be read, for a run with
    /// these settings that is computed so; `None` when there is no such checkpoint at all.
    pub(crate) fn load_latest(
        &self,
        before: u64,
        run: &RunSettings,
        arithmetic: &Arithmetic,
        parameters: &mut TensorSet,
        optimizer: &mut Optimizer,
        mut carried: Option<&mut TensorSet>,
    ) -> Result<Option<Resumed>> {
        self.clean()?;
        let (mut skipped, mut skipped_paths) = (Vec::new(), Vec::new());
        for (_, path) in self.list()?.into_iter().rev().filter(|(step, _)| *step < before) {
            match load(&path, run, parameters, optimizer, carried.as_deref_mut()) {
                Ok((state, changed)) => {
                    let other_arithmetic = (state.arithmetic != *arithmetic).then(|| arithmetic.clone());
                    return Ok(Some(Resumed { path, state, skipped, skipped_paths, changed, other_arithmetic }));
                }
                // The settings are at fault and not the checkpoint: an older one would be no
                // better.
                Err(error @ Error::OtherRun { .. }) => return Err(error),
                Err(error) => {
                    skipped.push(error);
                    skipped_paths.push(path);
                }
            }
        }
        match skipped.into_iter().next() {
            Some(newest) => Err(newest),
            None => Ok(None),
        }
    }
}

/// Writes a checkpoint's files and their checksums into a new folder and brings them to disk.
fn write(storage: &dyn Storage, folder: &Path, mut files: Files) -> Result<()> {
    remove(storage, folder)?;
    storage.create_folder(folder).map_err(Error::file(folder, "make the folder"))?;
    files.push((checksums::FILE, checksums::list(&files).into_bytes()));
    for (name, bytes) in files {
        let path = folder.join(name);
        storage.write(&path, &bytes).map_err(Error::file(&path, "write"))?;
    }
    sync_folder(storage, folder)
}

/// Moves what is at `path` to `aside`, if anything is, and `new` to `path`.
fn exchange(storage: &dyn Storage, new: &Path, path: &Path, aside: &Path) -> Result<()> {
    if path.exists() {
        storage.rename(path, aside).map_err(Error::file(path, "move aside"))?;
    }
    storage.rename(new, path).map_err(Error::file(path, "rename into place"))
}

/// Loads one checkpoint. Everything is read and checked before anything is changed.
fn load(
    path: &Path,
    run: &RunSettings,
    parameters: &mut TensorSet,
    optimizer: &mut Optimizer,
    carried: Option<&mut TensorSet>,
) -> Result<(State, Vec<ChangedSetting>)> {
    let (state, files) = State::read(path)?;
    let changed = state.run.compare(path, run)?;
    files.read(CONFIG)?;
    let model = TensorFile::new(&path.join(MODEL), files.read(MODEL)?)?;
    model.check(&[("", parameters.layout())])?;
    let moments = TensorFile::new(&path.join(OPTIMIZER), files.read(OPTIMIZER)?)?;
    let layout = parameters.layout().clone();
    let mut expected = Vec::new();
    if optimizer.moments().is_some() {
        expected.extend([(EXP_AVG, layout.as_ref()), (EXP_AVG_SQ, layout.as_ref())]);
    }
    let mut scaled = Layout::default();
    if state.target_scales.is_some() {
        for (name, shape) in scaled_tensors(&layout) {
            scaled.push(name.to_owned(), shape);
        }
        expected.push((SCALED, &scaled));
    }
    moments.check(&expected)?;
    let states = carried.map(|carried| -> Result<_> {
        let states = TensorFile::new(&path.join(CARRIED), files.read(CARRIED)?)?;
        states.check(&[("", carried.layout())])?;
        Ok((states, carried))
    });
    let states = states.transpose()?;

    model.copy("", parameters);
    for (name, _) in scaled.tensors() {
        moments.read(&format!("{SCALED}{name}"), parameters.get_mut(name).expect("a tensor of the layout"));
    }
    if let Some((states, carried)) = states {
        states.copy("", carried);
    }
    let (own_moments, steps) = optimizer.state_mut();
    *steps = state.updates;
    if let Some(own_moments) = own_moments {
        moments.copy(EXP_AVG, &mut own_moments.exp_avg);
        moments.copy(EXP_AVG_SQ, &mut own_moments.exp_avg_sq);
    }
    Ok((state, changed))
}

/// Name and shape of the tensors that depend on the unit of the targets.
fn scaled_tensors(layout: &Layout) -> impl Iterator<Item = (&str, &[usize])> {
    layout.tensors().filter(|(name, _)| TargetScales::is_in_head(name))
}

/// Removes a folder, if it is there.
fn remove(storage: &dyn Storage, folder: &Path) -> Result<()> {
    if folder.exists() { storage.remove_folder(folder).map_err(Error::file(folder, "remove")) } else { Ok(()) }
}

fn sync_folder(storage: &dyn Storage, folder: &Path) -> Result<()> {
    storage.sync_folder(folder).map_err(Error::file(folder, "flush the folder to the disk"))
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Storage of checkpoints: the seam between saving and the file system. Each operation may fail
/// before, within or after its effect; only a rename is never half done.
trait Storage {
    /// Makes a folder and those that it lies in.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;

    /// Writes a file anew and brings its bytes to disk.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Brings a folder's list of files to disk.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Gives a folder another name beside its own, which no other has.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a folder and all that is in it.
    fn remove_folder(&self, folder: &Path) -> io::Result<()>;
}

/// The file system.
struct Disk;

impl Storage for Disk {
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        fs::remove_dir_all(folder)
    }
}
