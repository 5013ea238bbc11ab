//! Named tensors in one piece of memory.
//!
//! A model's parameters, its gradients and each of the optimizer's moments are the same list of
//! tensors: one [`Layout`] shared by several [`TensorSet`]s. One piece of memory makes the norm,
//! the sum over shards and the update one loop each.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use megabatch_amp::first_non_finite;
use megabatch_gpu_core::{Buffer, Scope};

use crate::error::Result;

/// The place of one tensor in a [`Layout`]: its position in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(usize);

/// The names and shapes of a list of tensors, in the order in which they lie in memory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Layout {
    entries: Vec<Entry>,
    len: usize,
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    name: String,
    shape: Vec<usize>,
    range: Range<usize>,
}

impl Layout {
    /// Appends a tensor.
    pub fn push(&mut self, name: String, shape: &[usize]) -> Slot {
        let range = self.len..self.len + shape.iter().product::<usize>();
        self.len = range.end;
        self.entries.push(Entry { name, shape: shape.to_vec(), range });
        Slot(self.entries.len() - 1)
    }

    /// Number of elements of all tensors together.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Name and shape of each tensor, in order.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.entries.iter().map(|entry| (entry.name.as_str(), entry.shape.as_slice()))
    }

    /// The tensor that element `index` of all belongs to, and the element's index there.
    ///
    /// # Panics
    /// If there is no such element.
    pub fn element(&self, index: usize) -> (&str, usize) {
        let entry = self.entries.iter().find(|entry| entry.range.contains(&index)).expect("an element of a tensor");
        (&entry.name, index - entry.range.start)
    }

    /// The range of a tensor's elements among all elements.
    pub fn range(&self, slot: Slot) -> Range<usize> {
        self.entries[slot.0].range.clone()
    }

    /// Element ranges of the matrices, tensors of two or more dimensions, from element `start` on.
    pub fn matrices(&self, start: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        let matrices = self.entries.iter().filter(move |entry| entry.shape.len() > 1 && entry.range.start >= start);
        matrices.map(|entry| entry.range.clone())
    }

    /// Name of a tensor.
    pub fn name(&self, slot: Slot) -> &str {
        &self.entries[slot.0].name
    }

    fn range_named(&self, name: &str) -> Option<Range<usize>> {
        self.entries.iter().find(|entry| entry.name == name).map(|entry| entry.range.clone())
    }
}

/// A tensor of a file: its name, its shape and its values, row-major.
pub type NamedTensor<'a> = (String, &'a [usize], Cow<'a, [f32]>);

/// The values of a [`Layout`]'s tensors, each row-major, one after another in one buffer.
#[derive(Debug)]
pub struct TensorSet {
    layout: Arc<Layout>,
    values: Buffer<f32>,
}

impl TensorSet {
    /// Zeros of every tensor of `layout`, booked on `scope`.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) when the device has no room.
    pub fn zeros(scope: &Scope, layout: &Arc<Layout>) -> Result<Self> {
        Ok(TensorSet { layout: Arc::clone(layout), values: Buffer::zeros(scope, layout.len())? })
    }

    /// Names and shapes.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Every element of every tensor.
    pub fn values(&self) -> &[f32] {
        self.values.as_slice()
    }

    /// Every element of every tensor, for writing.
    pub fn values_mut(&mut self) -> &mut [f32] {
        self.values.as_mut_slice()
    }

    /// The tensor `name`, row-major.
    pub fn get(&self, name: &str) -> Option<&[f32]> {
        self.layout.range_named(name).map(|range| &self.values.as_slice()[range])
    }

    /// The tensor `name` for writing.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut [f32]> {
        self.layout.range_named(name).map(|range| &mut self.values.as_mut_slice()[range])
    }

    /// Name, shape and values of each tensor, in order.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &[usize], &[f32])> {
        let values = self.values.as_slice();
        self.layout
            .entries
            .iter()
            .map(move |entry| (entry.name.as_str(), entry.shape.as_slice(), &values[entry.range.clone()]))
    }

    /// Each tensor as a file has it, its name after `prefix`.
    pub fn named<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = NamedTensor<'a>> {
        self.tensors().map(move |(name, shape, values)| (format!("{prefix}{name}"), shape, values.into()))
    }

    /// Name, shape and values of each tensor, in order, for writing.
    pub fn tensors_mut(&mut self) -> impl Iterator<Item = (&str, &[usize], &mut [f32])> {
        let mut rest = self.values.as_mut_slice();
        self.layout.entries.iter().map(move |entry| {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(entry.range.len());
            rest = others;
            (entry.name.as_str(), entry.shape.as_slice(), own)
        })
    }

    /// Sets every element to zero.
    pub fn clear(&mut self) {
        self.values_mut().fill(0.0);
    }

    /// Values of a tensor.
    pub fn slot(&self, slot: Slot) -> &[f32] {
        &self.values.as_slice()[self.layout.entries[slot.0].range.clone()]
    }

    /// Values of a tensor for writing.
    pub fn slot_mut(&mut self, slot: Slot) -> &mut [f32] {
        &mut self.values.as_mut_slice()[self.layout.entries[slot.0].range.clone()]
    }

    /// Adds another set of the same layout, element by element.
    pub fn add(&mut self, other: &TensorSet) {
        assert_eq!(self.layout, other.layout, "sets of different tensors");
        for (sum, term) in self.values_mut().iter_mut().zip(other.values()) {
            *sum += *term;
        }
    }

    /// The first tensor with an infinite or NaN element, and that element's index.
    pub fn first_non_finite(&self) -> Option<(&str, usize)> {
        self.tensors().find_map(|(name, _, values)| Some((name, first_non_finite(values)?)))
    }
}

/// Running means of the gradients and of their squares.
#[derive(Debug)]
pub struct Moments {
    /// First moment, PyTorch's `exp_avg`.
    pub exp_avg: TensorSet,
    /// Second moment, PyTorch's `exp_avg_sq`.
    pub exp_avg_sq: TensorSet,
}

#[cfg(test)]
mod tests {
    use megabatch_gpu_core::Device;

    use super::*;

    #[test]
    fn tensors_lie_one_after_another_under_their_names() {
        let mut layout = Layout::default();
        let a = layout.push("a".to_owned(), &[2, 3]);
        let b = layout.push("b".to_owned(), &[1]);
        let device = Device::cpu();
        let mut set = TensorSet::zeros(&device.scope("set"), &Arc::new(layout)).unwrap();

        set.slot_mut(b)[0] = 7.0;
        set.get_mut("a").unwrap()[5] = 6.0;
        assert_eq!(set.values(), [0.0, 0.0, 0.0, 0.0, 0.0, 6.0, 7.0]);
        assert_eq!((set.slot(a).len(), set.get("b"), set.get("c")), (6, Some(&[7.0][..]), None));
        assert_eq!(device.scope("set").usage().allocated_bytes, 28);
        assert_eq!(set.first_non_finite(), None);
        set.slot_mut(a)[2] = f32::NAN;
        assert_eq!(set.first_non_finite(), Some(("a", 2)));
    }
}
