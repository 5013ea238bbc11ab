//! Choices on disk: a file each, so that processes that choose at the same time have nothing to
//! agree on. docs/design/gpu.md describes it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use megabatch_nn::{Error, Result};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// Version of the files' form.
const FORMAT: u32 = 1;

/// File of the choices for one GPU and driver.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) folder: PathBuf,
    /// [`Cuda::identity`](megabatch_gpu_core::Cuda::identity).
    pub(super) gpu: String,
}

/// Result of a measurement.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) choice: String,
    /// Medians by candidate, for whoever looks at the file.
    pub(super) times_us: BTreeMap<String, f64>,
}

#[derive(Serialize, Deserialize)]
struct StoredAnswer {
    format: u32,
    gpu: String,
    /// Digest of the candidates' PTX.
    kernels: String,
    question: String,
    choice: String,
    times_us: BTreeMap<String, f64>,
}

impl Store {
    /// The choice for a question; none where no file of it can be read, or one of another question
    /// has its name by chance. An error is a note on what else is in its place.
    pub(super) fn read(&self, question: &str, ptx: &[&str]) -> Option<std::result::Result<String, String>> {
        let (path, kernels) = self.entry(question, ptx);
        match serde_json::from_slice::<StoredAnswer>(&std::fs::read(&path).ok()?) {
            Ok(stored) => {
                let is_ours = (stored.format, &*stored.gpu, &stored.kernels, &*stored.question)
                    == (FORMAT, &*self.gpu, &kernels, question);
                is_ours.then_some(Ok(stored.choice))
            }
            Err(reason) => Some(Err(format!(
                "{} does not tell which kernel is the fastest ({reason}): it is measured anew",
                path.display()
            ))),
        }
    }

    /// # Errors
    /// [`Error::File`] when the file system refuses.
    pub(super) fn write(&self, answer: &Answer, question: &str, ptx: &[&str]) -> Result<()> {
        let (path, kernels) = self.entry(question, ptx);
        let stored = StoredAnswer {
            format: FORMAT,
            gpu: self.gpu.clone(),
            kernels,
            question: question.to_owned(),
            choice: answer.choice.clone(),
            times_us: answer.times_us.clone(),
        };
        let bytes = serde_json::to_vec_pretty(&stored).expect("names and numbers");
        std::fs::create_dir_all(&self.folder).map_err(Error::file(&self.folder, "make the folder"))?;
        Ok(megabatch_atomic_file::write(&path, &bytes)?)
    }

    /// The file of a question, and the digest of the PTX.
    fn entry(&self, question: &str, ptx: &[&str]) -> (PathBuf, String) {
        let kernels = digest(ptx.iter().copied());
        let name = digest([&*self.gpu, &kernels, question].into_iter());
        (self.folder.join(format!("{name}.json")), kernels)
    }
}

/// Digest of texts, each with its length.
fn digest<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut hash = Xxh3::new();
    texts.for_each(|text| {
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    });
    format!("{:016x}", hash.digest())
}
