//! From vectors of windows to what the head reads of each sample, all timeframes side by side, and back.

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Device, Scope, arguments};

use super::deliver::{Delivery, Mail};
use super::operand::Operand;
use super::work_list::WorkList;
use crate::error::Result;

const PTX: &str = include_str!("join.ptx");

/// Which window each sample of a batch reads in every sequence of a work list. Several may read the same.
#[derive(Debug)]
pub struct WindowReads {
    samples: usize,
    sequences: usize,
    /// H.
    hidden: usize,
    numbers: Numbers<Vec<u32>>,
    on_device: Numbers<Buffer<u32>>,
}

/// Of all samples, on the host, and on the device, where there may be room for more behind them.
#[derive(Debug, Default)]
struct Numbers<Of> {
    /// `[samples, N]`, counted over the windows of all N sequences.
    reads: Of,
    /// `[Σ B + 1]`: where the readers of each window begin.
    starts: Of,
    /// `[samples · N]`: places in `reads`, window by window in ascending order.
    readers: Of,
}

impl WindowReads {
    /// `of_samples` has for each sequence the number among its own windows that each sample reads.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory).
    ///
    /// # Panics
    /// If there is not a window for every sample in every sequence of the list, or a number is not one of a window.
    pub fn new(scope: &Scope, list: &WorkList, of_samples: &[&[u32]]) -> Result<Self> {
        let mut reads = WindowReads::empty(scope)?;
        reads.set(list, of_samples);
        let mut delivery = Delivery::new(scope)?;
        let mut mail = delivery.mail();
        reads.post(&mut mail)?;
        mail.send()?;
        Ok(reads)
    }

    /// Reads of no sample.
    ///
    /// # Errors
    /// As [`WindowReads::new`].
    pub fn empty(scope: &Scope) -> Result<Self> {
        let none = || Buffer::zeros(scope, 0);
        let on_device = Numbers { reads: none()?, starts: none()?, readers: none()? };
        Ok(WindowReads { samples: 0, sequences: 0, hidden: 0, numbers: Numbers::default(), on_device })
    }

    /// Takes other reads, of which the device learns by [`WindowReads::post`].
    ///
    /// # Panics
    /// As [`WindowReads::new`].
    pub fn set(&mut self, list: &WorkList, of_samples: &[&[u32]]) {
        let (sequences, samples) = (list.places().len(), of_samples.first().map_or(0, |of| of.len()));
        assert_eq!(of_samples.len(), sequences, "windows in each sequence");
        (self.samples, self.sequences, self.hidden) = (samples, sequences, list.hidden());
        let Numbers { reads, starts, readers } = &mut self.numbers;
        reads.clear();
        reads.resize(samples * sequences, 0);
        for (s, (windows, of)) in of_samples.iter().zip(list.places()).enumerate() {
            assert_eq!(windows.len(), samples, "a window for each sample in sequence {s}");
            for (sample, &window) in windows.iter().enumerate() {
                assert!(window < of.windows, "window {window} of the {} of sequence {s}", of.windows);
                reads[sample * sequences + s] = of.window + window;
            }
        }
        readers.clear();
        readers.extend(0..reads.len() as u32);
        readers.sort_by_key(|&reader| reads[reader as usize]);
        let start = |window: u32| readers.partition_point(|&reader| reads[reader as usize] < window) as u32;
        starts.clear();
        starts.extend((0..=list.windows() as u32).map(start));
    }

    /// Gives `mail` what the device has to know of the reads. Memory is taken only where there is less than that needs.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory).
    pub fn post<'a>(&'a mut self, mail: &mut Mail<'a>) -> Result<()> {
        let (Numbers { reads, starts, readers }, numbers) = (&mut self.on_device, &self.numbers);
        mail.put(reads, &numbers.reads)?;
        mail.put(starts, &numbers.starts)?;
        mail.put(readers, &numbers.readers)
    }

    /// Bytes of what the device has of the reads of so many samples of `sequences`, which have so many windows in all at most.
    pub(crate) fn mail_bytes(samples: usize, sequences: usize, windows: usize) -> [usize; 3] {
        [samples * sequences, windows + 1, samples * sequences].map(|numbers| numbers * size_of::<u32>())
    }

    fn windows(&self) -> usize {
        self.numbers.starts.len().saturating_sub(1)
    }

    /// Numbers in `[samples, N · H]`.
    fn joined_len(&self) -> usize {
        self.numbers.reads.len() * self.hidden
    }

    /// Panics if what is joined is shorter.
    fn assert_has_joined(&self, len: usize) {
        let WindowReads { samples, sequences, hidden, .. } = self;
        assert!(self.joined_len() <= len, "vectors [{hidden}] of {samples} samples from {sequences} sequences");
    }
}

/// The states after the last step of each window, `hidden` `[Σ (T + 1)·B, H]` of the list, side by side for each sample: `joined` `[samples, N · H]`, of their type or of f32. Behind
/// it there may be room for more.
///
/// # Errors
/// [`Error::Memory`](crate::Error::Memory): what the device says of the launch.
///
/// # Panics
/// If anything has not the shape of the list or of the reads, and if arrays are on several devices.
pub fn join_last<From: Operand, T: Operand>(
    list: &WorkList,
    reads: &WindowReads,
    hidden: &Buffer<From>,
    joined: &mut Buffer<T>,
) -> Result<()> {
    assert!(hidden.len() >= (list.rows() + list.windows()) * list.hidden(), "states of the list");
    assert_eq!((reads.windows(), reads.sequences), (list.windows(), list.places().len()), "reads of the list");
    list.device().assert_beside(hidden.scope().device());
    join((Some(list), reads), hidden, joined)
}

/// Vectors of windows, `vectors` `[Σ B, H]`, side by side for each sample and rounded to `T`: `joined` `[samples, N · H]`. One of the
/// types is f32, or both are the same. Behind either there may be room for more.
///
/// # Errors
/// As [`join_last`].
///
/// # Panics
/// If anything has not the shape of the reads, and if arrays are on several devices.
pub fn join_vectors<From: Operand, T: Operand>(
    reads: &WindowReads,
    vectors: &Buffer<From>,
    joined: &mut Buffer<T>,
) -> Result<()> {
    assert!(vectors.len() >= reads.windows() * reads.hidden, "vectors of every window");
    join((None, reads), vectors, joined)
}

fn join<From: Operand, T: Operand>(
    (list, reads): (Option<&WorkList>, &WindowReads),
    from: &Buffer<From>,
    joined: &mut Buffer<T>,
) -> Result<()> {
    assert!(From::SUFFIX == T::SUFFIX || !(From::IS_NARROW && T::IS_NARROW), "one is of f32, or both are of one type");
    let (device, width, len) = (joined.scope().device().clone(), reads.hidden, reads.joined_len());
    reads.assert_has_joined(joined.len());
    [from.scope(), reads.on_device.reads.scope()].into_iter().for_each(|scope| device.assert_beside(scope.device()));
    match &device {
        Device::Cuda(device) => {
            let name = kernel::<From, T>();
            let kernel = Kernel { module: "trainer/join", ptx: PTX, name: &name };
            let places = list.map_or(0, |list| list.on_device.places.address());
            let (sequences, of_samples) = (reads.sequences as u32, reads.on_device.reads.address());
            let (from, to) = (from.address(), joined.address());
            let arguments = arguments![places, sequences, of_samples, from, to, len as u64, width as u32];
            // SAFETY: the reads were made of windows that the list has, whose states or vectors `from` was seen to have; a thread writes one element. What is submitted to the
            // default stream later runs after it.
            Ok(unsafe { kernel.submit(device, Launch::over(len), &arguments) }?)
        }
        _ => {
            let rows = joined.as_mut_slice().chunks_exact_mut(width.max(1)).zip(&reads.numbers.reads).enumerate();
            for (k, (row, &window)) in rows {
                let after_last = list.map_or(0, |list| {
                    let of = &list.places()[k % reads.sequences];
                    of.states(of.steps as usize) - of.window as usize
                });
                let vector = &from.as_slice()[(after_last + window as usize) * width..][..width];
                row.iter_mut().zip(vector).for_each(|(to, from)| *to = T::narrow(from.widen()));
            }
            Ok(())
        }
    }
}

/// The gradients of what was joined, `d_joined` `[samples, N · H]`, rounded to `T`, back to the vectors: `d_vectors` `[Σ B, H]` becomes for each window the sum over its
/// readers, in the order of the samples, and zero where there is none. [`Gradients::hidden`](super::Gradients::hidden) has room for them.
///
/// # Errors
/// As [`join_last`].
///
/// # Panics
/// If anything has not the shape of the reads, and if arrays are on several devices.
pub fn separate<T: Operand>(reads: &WindowReads, d_joined: &Buffer<f32>, d_vectors: &mut Buffer<f32>) -> Result<()> {
    let (device, width) = (d_vectors.scope().device().clone(), reads.hidden);
    let len = reads.windows() * width;
    reads.assert_has_joined(d_joined.len());
    assert!(d_vectors.len() >= len, "vectors of every window");
    [d_joined.scope(), reads.on_device.starts.scope()]
        .into_iter()
        .for_each(|scope| device.assert_beside(scope.device()));
    match &device {
        Device::Cuda(device) => {
            let name = format!("separate_{}", T::SUFFIX);
            let kernel = Kernel { module: "trainer/join", ptx: PTX, name: &name };
            let (starts, readers) = (reads.on_device.starts.address(), reads.on_device.readers.address());
            let arguments =
                arguments![starts, readers, d_joined.address(), d_vectors.address(), len as u64, width as u32];
            // SAFETY: readers are rows of `d_joined`, and a thread writes one element of `d_vectors`. What is submitted to the default stream later runs after it.
            Ok(unsafe { kernel.submit(device, Launch::over(len), &arguments) }?)
        }
        _ => {
            d_vectors.as_mut_slice()[..len].fill(0.0);
            let rows = d_joined.as_slice().chunks_exact(width.max(1));
            for (row, &window) in rows.zip(&reads.numbers.reads) {
                let sums = &mut d_vectors.as_mut_slice()[window as usize * width..][..width];
                sums.iter_mut().zip(row).for_each(|(sum, &term)| *sum += T::narrow(term).widen());
            }
            Ok(())
        }
    }
}

fn kernel<From: Operand, T: Operand>() -> String {
    format!("join_{}_{}", From::SUFFIX, T::SUFFIX)
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use megabatch_simt::Arg;

    use super::super::harness::{HARNESS, noise};
    use super::super::work_list::{Sequence, TileWindows};
    use super::*;

    const HIDDEN: usize = 5;

    /// Windows of two sequences and of one that has none; samples of which two share a window, and a window without a reader.
    fn example(scope: &Scope) -> (WorkList, WindowReads) {
        let of = |steps, first| Sequence { steps, first, row_step: 1, projected_rows: 20 };
        let list = WorkList::new(scope, HIDDEN, TileWindows::Eight, &[of(3, &[0, 4, 9][..]), of(1, &[2, 3])]).unwrap();
        let reads = WindowReads::new(scope, &list, &[&[2, 0, 2, 2], &[1, 1, 0, 1]]).unwrap();
        (list, reads)
    }

    fn check_join<From: Operand, T: Operand>(list: Option<&WorkList>, reads: &WindowReads, rows: usize) -> Vec<f32> {
        let scope = Device::cpu().scope("test");
        let from: Vec<From> = noise("from", rows * HIDDEN, 3.0).into_iter().map(From::narrow).collect();
        let from = Buffer::from_slice(&scope, &from).unwrap();
        let mut expected = Buffer::<T>::zeros(&scope, reads.numbers.reads.len() * HIDDEN).unwrap();
        join((list, reads), &from, &mut expected).unwrap();
        let mut found = vec![T::narrow(9.0); expected.len()];
        let len = found.len();
        let mut arguments = [
            list.map_or(Arg::null(), |list| Arg::from(list.on_device.places.as_slice())),
            Arg::from(reads.sequences as u32),
            Arg::from(reads.on_device.reads.as_slice()),
            Arg::from(from.as_slice()),
            Arg::from(&mut found[..]),
            Arg::from(len as u64),
            Arg::from(HIDDEN as u32),
        ];
        HARNESS.run(&kernel::<From, T>(), Launch::over(len), &mut arguments);
        let wide = |of: &[T]| of.iter().map(|x| x.widen()).collect::<Vec<f32>>();
        assert_eq!(wide(&found), wide(expected.as_slice()), "{}", kernel::<From, T>());
        // Sample 1 reads window 0 of the first sequence, whose last state is the tenth row of the states.
        let row = if list.is_some() { 9 } else { 0 };
        let own: Vec<f32> =
            from.as_slice()[row * HIDDEN..][..HIDDEN].iter().map(|x| T::narrow(x.widen()).widen()).collect();
        assert_eq!(wide(&found)[2 * HIDDEN..3 * HIDDEN], own);
        wide(&found)
    }

    fn check_separate<T: Operand>(reads: &WindowReads) {
        let scope = Device::cpu().scope("test");
        let d_joined = Buffer::from_slice(&scope, &noise("d", reads.numbers.reads.len() * HIDDEN, 3.0)).unwrap();
        let mut expected = Buffer::from_slice(&scope, &[7.0f32; 5 * HIDDEN]).unwrap();
        separate::<T>(reads, &d_joined, &mut expected).unwrap();
        let mut found = vec![9.0f32; 5 * HIDDEN];
        let mut arguments = [
            Arg::from(reads.on_device.starts.as_slice()),
            Arg::from(reads.on_device.readers.as_slice()),
            Arg::from(d_joined.as_slice()),
            Arg::from(&mut found[..]),
            Arg::from(5 * HIDDEN as u64),
            Arg::from(HIDDEN as u32),
        ];
        HARNESS.run(&format!("separate_{}", T::SUFFIX), Launch::over(5 * HIDDEN), &mut arguments);
        assert_eq!(found, expected.as_slice(), "{}", T::SUFFIX);
        assert_eq!(found[HIDDEN..2 * HIDDEN], [0.0; HIDDEN], "a window that nobody reads");
    }

    #[test]
    fn the_kernels_have_the_cpus_bits() {
        let (list, reads) = example(&Device::cpu().scope("test"));
        let states = list.rows() + list.windows();
        check_join::<f32, f32>(Some(&list), &reads, states);
        check_join::<f16, f16>(Some(&list), &reads, states);
        check_join::<bf16, bf16>(Some(&list), &reads, states);
        check_join::<f16, f32>(Some(&list), &reads, states);
        check_join::<bf16, f32>(Some(&list), &reads, states);
        check_join::<f32, f32>(None, &reads, list.windows());
        check_join::<f32, f16>(None, &reads, list.windows());
        check_join::<f32, bf16>(None, &reads, list.windows());
        check_separate::<f32>(&reads);
        check_separate::<f16>(&reads);
        check_separate::<bf16>(&reads);
    }

    #[test]
    #[should_panic(expected = "window 2 of the 2 of sequence 1")]
    fn a_window_that_is_not_there_is_refused() {
        let scope = Device::cpu().scope("test");
        let (list, _) = example(&scope);
        let _ = WindowReads::new(&scope, &list, &[&[0], &[2]]);
    }
}
