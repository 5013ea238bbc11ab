//! Upload of a batch: numbers for many arrays of a device, in one copy that nobody waits for.

#![allow(unsafe_code, reason = "kernels are launched")]

use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Device, Scope, Staging, arguments};
use megabatch_nn::Result;

use super::capacity::ensure_capacity;

/// Threads of a block: that of deliver.cu.
const THREADS: u32 = 256;

/// Words of a copy command at most: sixteen of each thread.
const COMMAND_WORDS: usize = 16 * THREADS as usize;

/// Uploads batches to a device.
#[derive(Debug)]
pub struct BatchUploader {
    staging: Staging,
    /// Commands of all copies; then the data, from an even number of words on.
    words: Vec<u32>,
    commands: Vec<CopyCommand>,
    on_device: Buffer<u32>,
}

/// `Parcel` of deliver.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct CopyCommand {
    to: u64,
    from: u32,
    words: u32,
}

/// An upload by its lengths alone: it takes the memory of an [`UploadBatch`], and copies nothing.
#[derive(Debug, Default)]
pub(crate) struct PlannedUpload {
    words: usize,
    commands: usize,
}

/// Numbers that are on their way to arrays, which are borrowed until they have been sent.
#[derive(Debug)]
pub struct UploadBatch<'a> {
    uploader: &'a mut BatchUploader,
    arrays: PhantomData<&'a mut ()>,
}

impl BatchUploader {
    /// An uploader to the device of `scope`, with its memory there.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn new(scope: &Scope) -> Result<Self> {
        let on_device = Buffer::zeros(scope, 0)?;
        Ok(BatchUploader { staging: Staging::default(), words: Vec::new(), commands: Vec::new(), on_device })
    }

    /// Takes the memory that `upload` passes through on its way to the arrays, where there is not
    /// as much.
    pub(crate) fn reserve(&mut self, upload: &PlannedUpload) -> Result<()> {
        let commands = upload.commands * size_of::<CopyCommand>() / size_of::<u32>();
        ensure_capacity(&mut self.on_device, upload.words.next_multiple_of(2) + commands)
    }

    /// An upload of nothing so far.
    pub fn upload(&mut self) -> UploadBatch<'_> {
        self.words.clear();
        self.commands.clear();
        UploadBatch { uploader: self, arrays: PhantomData }
    }
}

impl PlannedUpload {
    /// `len` values for the first elements of `to`, which grows where it has to.
    pub(crate) fn put<T: Pod>(&mut self, to: &mut Buffer<T>, len: usize) -> Result<()> {
        ensure_capacity(to, len)?;
        let words = len * size_of::<T>() / size_of::<u32>();
        self.words += words;
        self.commands += words.div_ceil(COMMAND_WORDS);
        Ok(())
    }
}

impl<'a> UploadBatch<'a> {
    /// `values` for the first elements of `to`, which grows where it has to. An array is given
    /// once, as are all of its values: the device writes them in no order.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    ///
    /// # Panics
    /// If an element is not of whole words of 32 bits, if there are 2³² of them, and if `to` is on
    /// another device.
    pub fn put<T: Pod>(&mut self, to: &'a mut Buffer<T>, values: &[T]) -> Result<()> {
        const { assert!(size_of::<T>().is_multiple_of(size_of::<u32>()) && align_of::<T>() >= align_of::<u32>()) };
        ensure_capacity(to, values.len())?;
        let BatchUploader { words, commands, on_device, .. } = &mut *self.uploader;
        to.scope().device().assert_beside(on_device.scope().device());
        if let Device::Cpu(_) = to.scope().device() {
            return cpu_arm!(to.as_mut_slice()[..values.len()].copy_from_slice(values));
        }
        let (mut address, mut from) = (to.address(), words.len());
        words.extend_from_slice(bytemuck::cast_slice(values));
        assert!(u32::try_from(words.len()).is_ok(), "numbers of words have 32 bits");
        while from < words.len() {
            let len = COMMAND_WORDS.min(words.len() - from);
            commands.push(CopyCommand { to: address, from: from as u32, words: len as u32 });
            address += (len * size_of::<u32>()) as u64;
            from += len;
        }
        Ok(())
    }

    /// Sends everything off. Work submitted to the device later finds it there. The host waits only
    /// for the upload before the last one.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says.
    pub fn send(self) -> Result<()> {
        let BatchUploader { staging, words, commands, on_device } = self.uploader;
        let Device::Cuda(device) = on_device.scope().device().clone() else { return Ok(()) };
        if commands.is_empty() {
            return Ok(());
        }
        words.resize(words.len().next_multiple_of(2), 0);
        let table = words.len() * size_of::<u32>();
        words.extend_from_slice(bytemuck::cast_slice(commands));
        ensure_capacity(on_device, words.len())?;
        staging.send(words, on_device)?;
        let kernel = Kernel { module: "nn/deliver", ptx: megabatch_gpu_core::ptx!("deliver"), name: "deliver" };
        let arguments = arguments![on_device.address(), on_device.address() + table as u64];
        // SAFETY: a command's words are among those that were sent before, and it goes to an array
        // that had room for it and is borrowed until here, so that it has not moved. What is
        // submitted to the default stream later, the next upload and the next use of the memory of
        // an array included, runs after it.
        Ok(unsafe { kernel.submit(&device, launch(commands), &arguments) }?)
    }
}

fn launch(commands: &[CopyCommand]) -> Option<Launch> {
    Launch::for_blocks(commands.len()).map(|launch| launch.with_threads(THREADS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_on_the_processor_have_their_mail_at_once() {
        let scope = Device::cpu().scope("test");
        let (mut uploader, mut numbers) =
            (BatchUploader::new(&scope).unwrap(), Buffer::<f32>::zeros(&scope, 0).unwrap());
        let mut upload = uploader.upload();
        upload.put(&mut numbers, &[1.5, 2.5]).unwrap();
        upload.send().unwrap();
        assert_eq!(numbers.as_slice(), [1.5, 2.5]);
    }

    #[test]
    fn a_planned_upload_takes_the_arrays_and_their_way() {
        let scope = Device::planning().scope("plan");
        let (mut uploader, mut upload) = (BatchUploader::new(&scope).unwrap(), PlannedUpload::default());
        let (mut short, mut long) =
            (Buffer::<u64>::zeros(&scope, 0).unwrap(), Buffer::<f32>::zeros(&scope, 0).unwrap());
        upload.put(&mut short, 3).unwrap();
        upload.put(&mut long, COMMAND_WORDS + 1).unwrap();
        uploader.reserve(&upload).unwrap();
        assert_eq!((short.len(), long.len()), (3, COMMAND_WORDS + 1));
        // Six words and those of `long`, an even number; then three commands of four words.
        assert_eq!(uploader.on_device.len(), 6 + COMMAND_WORDS + 2 + 3 * 4);
    }
}
