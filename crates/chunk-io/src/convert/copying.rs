//! Copies of all other objects: groups, small or unusual datasets, attributes and links.

use std::collections::{BTreeMap, BTreeSet};

use hdf5::types::TypeDescriptor;
use hdf5::{Dataset, File, Group, IndexType, IterationOrder, LinkType, Location, LocationInfo, LocationType};

use super::raw;
use crate::error::Result;
use crate::file::InputFile;
use crate::heap_references::{HeapCheck, check_attributes, check_heaps};
use crate::series::MARK_GROUP;

/// Most levels of groups.
const DEPTH_MAX: usize = 128;

/// Reasons for which an object is not copied.
const WITHIN: &str = "values of variable length within others";
const REFERENCES: &str = "references to objects, which mean something in their own file only";

/// Copies the objects of a file.
#[derive(Debug, Default)]
pub(super) struct Copier {
    /// Objects that do not come along, each with all below it.
    pub(super) skipped: BTreeSet<String>,
    /// Attributes of the root that do not come along.
    pub(super) skipped_attributes: BTreeSet<String>,
    /// Datasets that are in the new file already, values and all; only their attributes are copied.
    pub(super) written: BTreeSet<String>,
    /// Objects that could not be copied, in words.
    pub(super) left_out: Vec<String>,
    seen: BTreeMap<ObjectKey, String>,
}

/// Identity of an object in a file.
type ObjectKey = (u64, String);

impl Copier {
    /// Copies what `input` holds into `to`.
    pub(super) fn copy(&mut self, input: &InputFile, to: &File) -> Result<()> {
        for path in &self.written {
            let info = input.root.loc_info_by_name(path).map_err(input.failed(path, "look at the object"))?;
            self.seen.insert(key(&info), path.clone());
        }
        // The mark of verification is of the old file; the new one gets its own.
        self.skipped.insert(MARK_GROUP.to_owned());
        self.copy_group(&input.root, to, "", input)?;
        let skipped = std::mem::take(&mut self.skipped_attributes);
        self.copy_attributes(&input.root, to, "/", &skipped, input)
    }

    fn copy_group(&mut self, from: &Group, to: &Group, path: &str, input: &InputFile) -> Result<()> {
        check_depth(path, input)?;
        let links = from.links(IndexType::Name, IterationOrder::Increasing);
        for (name, link) in links.map_err(input.failed(path, "list the group"))? {
            let inner = format!("{path}/{name}");
            if self.skipped.contains(&inner) {
                continue;
            }
            if link.link_type == LinkType::Hard {
                self.copy_object(from, to, &name, &inner, input)?;
            } else {
                raw::copy_link(from, to, &name).map_err(input.failed(&inner, "copy the link"))?;
            }
        }
        Ok(())
    }

    fn copy_object(&mut self, from: &Group, to: &Group, name: &str, path: &str, input: &InputFile) -> Result<()> {
        let failed = |action| input.failed(path, action);
        let info = from.loc_info_by_name(name).map_err(failed("look at the object"))?;
        // An object may have several names, and a group may be within itself.
        let first = self.seen.entry(key(&info)).or_insert_with(|| path.to_owned());
        if first != path {
            return to.link_hard(first, name).map_err(failed("link the object"));
        }
        match info.loc_type {
            LocationType::Group => {
                let old = from.group(name).map_err(failed("open the group"))?;
                let exists = to.link_exists(name);
                let new = if exists { to.group(name) } else { raw::create_group(to, name) };
                let new = new.map_err(failed("create the group"))?;
                self.copy_group(&old, &new, path, input)?;
                self.copy_attributes(&old, &new, path, &BTreeSet::new(), input)
            }
            LocationType::Dataset if self.written.contains(path) => {
                let old = from.dataset(name).map_err(failed("open the dataset"))?;
                let new = to.dataset(name).map_err(failed("open the dataset"))?;
                self.copy_attributes(&old, &new, path, &BTreeSet::new(), input)
            }
            LocationType::Dataset => self.copy_dataset(from, to, name, path, input),
            LocationType::NamedDatatype => {
                let old = from.committed_datatype(name).map_err(failed("open the type"))?;
                if check_attributes(&old).map_err(failed("check the attributes"))? == HeapCheck::Unchecked {
                    self.left_out.push(format!("{path}: {WITHIN}"));
                    return Ok(());
                }
                drop(old);
                raw::copy_object(from, to, name).map_err(failed("copy the type"))
            }
            _ => {
                self.left_out.push(format!("{path}: an object of a kind that is not known here"));
                Ok(())
            }
        }
    }

    /// Copies a dataset that is no table, and compares the copy with it.
    fn copy_dataset(&mut self, from: &Group, to: &Group, name: &str, path: &str, input: &InputFile) -> Result<()> {
        let failed = |action| input.failed(path, action);
        let open = |group: &Group| group.dataset(name).map_err(failed("open the dataset"));
        if let Some(reason) = uncopied(&open(from)?).map_err(failed("check the values"))? {
            self.left_out.push(format!("{path}: {reason}"));
            return Ok(());
        }
        raw::copy_object(from, to, name).map_err(failed("copy the dataset"))?;
        match raw::has_same_values(&open(from)?, &open(to)?).map_err(failed("compare the copy"))? {
            true => Ok(()),
            false => Err(input.broken(path, "a copy with the same values", "others; the new file was not kept")),
        }
    }

    /// Copies the attributes of an object but those in `skipped`, and those that are there already.
    pub(super) fn copy_attributes(
        &mut self,
        from: &Location,
        to: &Location,
        path: &str,
        skipped: &BTreeSet<String>,
        input: &InputFile,
    ) -> Result<()> {
        let failed = || input.failed(path, "copy the attributes");
        let present = to.attr_names().map_err(failed())?;
        for name in from.attr_names().map_err(failed())? {
            if skipped.contains(&name) || present.contains(&name) {
                continue;
            }
            let reason = match raw::copy_attribute(from, to, &name).map_err(failed())? {
                raw::Copied::Done => continue,
                raw::Copied::References => REFERENCES,
                raw::Copied::Unchecked => WITHIN,
            };
            self.left_out.push(format!("{path}@{name}: {reason}"));
        }
        Ok(())
    }
}

/// Reason for which a dataset is not copied.
fn uncopied(dataset: &Dataset) -> hdf5::Result<Option<&'static str>> {
    if raw::has_references(&dataset.dtype()?) {
        return Ok(Some(REFERENCES));
    }
    let is_unchecked = [check_heaps(dataset)?, check_attributes(dataset)?].contains(&HeapCheck::Unchecked);
    Ok(is_unchecked.then_some(WITHIN))
}

fn key(info: &LocationInfo) -> ObjectKey {
    (info.fileno, format!("{:?}", info.token))
}

/// True if a dataset's elements are of one size and hold no pointers, so that its bytes can be
/// stored anew.
pub(super) fn is_plain(dataset: &Dataset) -> bool {
    use TypeDescriptor as Type;
    let kind = dataset.dtype().and_then(|dtype| dtype.to_descriptor());
    let plain = matches!(
        kind,
        Ok(Type::Integer(_)
            | Type::Unsigned(_)
            | Type::Float(_)
            | Type::Boolean
            | Type::FixedAscii(_)
            | Type::FixedUnicode(_))
    );
    let bytes = dataset.shape().iter().try_fold(8_usize, |bytes, &axis| bytes.checked_mul(axis));
    plain && dataset.ndim() > 0 && bytes.is_some_and(|bytes| (1..=isize::MAX as usize).contains(&bytes))
}

/// Refuses groups within groups without end, which only a damaged file has.
fn check_depth(path: &str, input: &InputFile) -> Result<()> {
    if path.matches('/').count() <= DEPTH_MAX {
        return Ok(());
    }
    let begins: String = path.chars().take(64).collect();
    Err(input.broken(&begins, &format!("groups at most {DEPTH_MAX} deep"), "deeper ones"))
}

/// The datasets of a file that can be stored anew, by path, but those of its mark of verification
/// and those in `skipped`, each with all below it; each once, under the first of its names.
pub(super) fn plain_datasets(input: &InputFile, skipped: &BTreeSet<String>) -> Result<Vec<(String, Dataset)>> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let mut groups = vec![(String::new(), (*input.root).clone())];
    while let Some((path, group)) = groups.pop() {
        check_depth(&path, input)?;
        let links = group.links(IndexType::Name, IterationOrder::Increasing);
        for (name, link) in links.map_err(input.failed(&path, "list the group"))? {
            let inner = format!("{path}/{name}");
            if link.link_type != LinkType::Hard || inner == MARK_GROUP || skipped.contains(&inner) {
                continue;
            }
            let info = group.loc_info_by_name(&name).map_err(input.failed(&inner, "look at the object"))?;
            if !seen.insert(key(&info)) {
                continue;
            }
            match info.loc_type {
                LocationType::Group => {
                    groups.push((inner.clone(), group.group(&name).map_err(input.failed(&inner, "open the group"))?));
                }
                LocationType::Dataset => {
                    let dataset = group.dataset(&name).map_err(input.failed(&inner, "open the dataset"))?;
                    found.extend(is_plain(&dataset).then_some((inner, dataset)));
                }
                _ => {}
            }
        }
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found)
}
