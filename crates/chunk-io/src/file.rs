use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hdf5::{Group, LocationType};

use crate::error::{Error, LayoutFault, Result, innermost};
use crate::read::{FileIdentity, FileReadOptions, ReadContext};
use crate::text::{AttributeValue, is_text, read_attribute, read_texts};

/// Groups deeper than this and objects beyond this many are not listed: links in a damaged file may
/// form a cycle.
const DEPTH_MAX: usize = 8;
const LISTED_MAX: usize = 1_000;

/// An HDF5 file open for reading.
#[derive(Clone, Debug)]
pub(crate) struct InputFile {
    pub(crate) path: PathBuf,
    pub(crate) root: hdf5::File,
    /// The file as it was when it was opened.
    pub(crate) opened: FileIdentity,
    pub(crate) reading: Arc<ReadContext>,
}

impl InputFile {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, FileReadOptions::default())
    }

    pub(crate) fn open_with(path: &Path, options: FileReadOptions) -> Result<Self> {
        let metadata = fs::metadata(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::NotFound { path: path.to_owned() },
            _ => Error::Io { path: path.to_owned(), action: "look at the file", source },
        })?;
        if !metadata.is_file() {
            return Err(Error::NotAFile { path: path.to_owned() });
        }
        check_signature(path, metadata.len())?;
        let root = hdf5::File::open(path).map_err(|error| classify(path, metadata.len(), &error))?;
        let (opened, reading) = (FileIdentity::from_metadata(&metadata), Arc::new(ReadContext::new(options)));
        Ok(InputFile { path: path.to_owned(), root, opened, reading })
    }

    pub(crate) fn has_group(&self, object: &str) -> bool {
        matches!(self.kind(object), Some(LocationType::Group))
    }

    pub(crate) fn has_dataset(&self, object: &str) -> bool {
        matches!(self.kind(object), Some(LocationType::Dataset))
    }

    fn kind(&self, object: &str) -> Option<LocationType> {
        self.root.loc_type_by_name(object).ok()
    }

    /// Names of the datasets directly below the group `object`, in the order of the bytes of their
    /// names.
    pub(crate) fn datasets_in(&self, object: &str) -> Result<Vec<String>> {
        self.members(object, LocationType::Dataset)
    }

    /// Names of the groups directly below the group `object`, in the order of the bytes of their
    /// names.
    pub(crate) fn groups_in(&self, object: &str) -> Result<Vec<String>> {
        self.members(object, LocationType::Group)
    }

    fn members(&self, object: &str, kind: LocationType) -> Result<Vec<String>> {
        let group = self.root.group(object).map_err(self.failed(object, "open the group"))?;
        let mut names = group.member_names().map_err(self.failed(object, "list the group"))?;
        names.retain(|name| group.loc_type_by_name(name).is_ok_and(|found| found == kind));
        names.sort_unstable();
        Ok(names)
    }

    /// The attribute `name` of the object, `None` if there is none.
    pub(crate) fn attribute(&self, object: &str, name: &str) -> Result<Option<AttributeValue>> {
        let failed = |error| self.failed(object, "read the attributes")(error);
        match self.kind(object) {
            Some(LocationType::Dataset) => {
                read_attribute(&*self.root.dataset(object).map_err(failed)?, name).map_err(failed)
            }
            Some(LocationType::Group) => {
                read_attribute(&*self.root.group(object).map_err(failed)?, name).map_err(failed)
            }
            _ => Ok(None),
        }
    }

    /// The strings of the dataset `object`, which must have `count` of them where a count is given.
    pub(crate) fn texts(&self, object: &str, count: Option<usize>) -> Result<Vec<String>> {
        let expected = count.map_or("a list of strings".to_owned(), |count| format!("a list of {count} strings"));
        if !self.has_dataset(object) {
            return Err(self.missing(object, &expected));
        }
        let dataset = self.root.dataset(object).map_err(self.failed(object, "open the dataset"))?;
        let shape = dataset.shape();
        let text = dataset.dtype().and_then(|dtype| dtype.to_descriptor()).is_ok_and(|kind| is_text(&kind));
        if shape.len() != 1 || !text || count.is_some_and(|count| count != shape[0]) {
            let kind = if text { "strings" } else { "other values" };
            return Err(self.broken(object, &expected, &format!("{kind} of shape {shape:?}")));
        }
        read_texts(&dataset).map_err(self.failed(object, "read the strings"))
    }

    /// Every dataset of the file by its path, in the order of the paths.
    pub(crate) fn all_datasets(&self) -> Vec<(String, hdf5::Dataset)> {
        let mut found = Vec::new();
        collect_datasets(&self.root, "", DEPTH_MAX, &mut found);
        found
    }

    pub(crate) fn failed(&self, object: &str, action: &'static str) -> impl Fn(hdf5::Error) -> Error + use<> {
        let (path, object) = (self.path.clone(), object.to_owned());
        move |error| Error::hdf5(&path, &object, action)(error)
    }

    /// Error for an object that is missing, which lists the existing ones, or that cannot be
    /// opened.
    pub(crate) fn missing(&self, object: &str, expected: &str) -> Error {
        if let Err(error) = self.root.loc_type_by_name(object)
            && self.root.link_exists(object)
        {
            return self.failed(object, "open the object")(error);
        }
        let listed = |(path, dataset): &(String, hdf5::Dataset)| format!("{path} {:?}", dataset.shape());
        let datasets = self.all_datasets();
        let mut contents: Vec<String> = datasets.iter().take(20).map(listed).collect();
        if datasets.len() > contents.len() {
            contents.push(format!("and {} more", datasets.len() - contents.len()));
        }
        let contents = if contents.is_empty() { "no datasets".to_owned() } else { contents.join(", ") };
        self.broken(object, expected, &format!("no such object; the file contains {contents}"))
    }

    pub(crate) fn broken(&self, object: &str, expected: &str, found: &str) -> Error {
        Error::invalid(
            &self.path,
            LayoutFault {
                object: object.to_owned(),
                index: None,
                expected: expected.to_owned(),
                found: found.to_owned(),
                fix: "see docs/reference/formats.md for both layouts".to_owned(),
            },
        )
    }
}

fn collect_datasets(group: &Group, prefix: &str, depth: usize, found: &mut Vec<(String, hdf5::Dataset)>) {
    let mut names = group.member_names().unwrap_or_default();
    names.sort_unstable();
    for name in names {
        if found.len() >= LISTED_MAX {
            return;
        }
        let path = format!("{prefix}/{name}");
        match group.loc_type_by_name(&name) {
            Ok(LocationType::Dataset) => found.extend(group.dataset(&name).ok().map(|dataset| (path, dataset))),
            Ok(LocationType::Group) if depth > 0 => {
                if let Ok(inner) = group.group(&name) {
                    collect_datasets(&inner, &path, depth - 1, found);
                }
            }
            _ => {}
        }
    }
}

/// HDF5 signature: at offset 0, or at 512 and its doublings behind a user block (HDF5 File Format
/// Specification, II.A).
const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";

fn check_signature(path: &Path, bytes: u64) -> Result<()> {
    let io = |source| Error::Io { path: path.to_owned(), action: "read the file", source };
    let mut file = fs::File::open(path).map_err(io)?;
    let mut offset = 0;
    while offset + 8 <= bytes {
        let mut start = [0; 8];
        file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(&mut start)).map_err(io)?;
        if start == SIGNATURE {
            return Ok(());
        }
        offset = if offset == 0 { 512 } else { offset * 2 };
    }
    let mut start = Vec::new();
    file.rewind().and_then(|()| file.take(64).read_to_end(&mut start)).map_err(io)?;
    Err(Error::NotHdf5 { path: path.to_owned(), found: describe_start(&start) })
}

fn describe_start(start: &[u8]) -> String {
    let known: [(&[u8], &str); 5] = [
        (b"\x1f\x8b", "a gzip file"),
        (b"PK\x03\x04", "a zip or .npz file"),
        (b"\x93NUMPY", "a .npy file"),
        (b"PAR1", "a Parquet file"),
        (b"\x0e\x03\x13\x01", "an HDF4 file"),
    ];
    if start.is_empty() {
        return "an empty file".to_owned();
    }
    if let Some((_, name)) = known.iter().find(|(magic, _)| start.starts_with(magic)) {
        return (*name).to_owned();
    }
    match std::str::from_utf8(start) {
        Ok(text) => format!("text that starts with {:?}", text.lines().next().unwrap_or_default()),
        Err(_) => "other binary data".to_owned(),
    }
}

fn classify(path: &Path, bytes: u64, error: &hdf5::Error) -> Error {
    let frames = error.stack().map(|stack| stack.iter().map(|frame| frame.desc().to_owned()).collect::<Vec<_>>());
    let frames = frames.unwrap_or_default();
    let find = |words: &str| frames.iter().find(|frame| frame.contains(words)).cloned();
    if find("unable to lock file").is_some() {
        Error::Locked { path: path.to_owned() }
    } else if let Some(detail) = find("truncated file") {
        Error::Truncated { path: path.to_owned(), bytes, detail }
    } else {
        Error::Hdf5 {
            path: path.to_owned(),
            object: "/".to_owned(),
            action: "open the file",
            detail: innermost(error),
            fix: "the file may be damaged or cut short; copy or write it again".to_owned(),
        }
    }
}
