//! Stands in for a GPU in a build without the feature `cuda`: nothing. There is no value of this
//! type, so that code for it is checked and never runs.

use std::convert::Infallible;
use std::path::PathBuf;
use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::matrix_product::{MatrixAddresses, MatrixProduct};

/// A GPU, of which this build has none.
#[derive(Clone, Debug)]
pub(crate) struct Gpu {
    never: Infallible,
}

impl Gpu {
    /// Refuses: this build drives the CPU only.
    pub(crate) fn open(ordinal: u32) -> Result<Self> {
        Err(Error::CudaNotBuilt { name: format!("cuda:{ordinal}") })
    }

    /// Stands for any use of the GPU.
    pub(crate) fn never<T>(&self) -> T {
        match self.never {}
    }

    pub(crate) fn source(&self) -> Result<Box<dyn crate::source::Source>> {
        match self.never {}
    }

    pub(crate) fn free_bytes(&self) -> Option<usize> {
        match self.never {}
    }

    pub(crate) fn allocate_apart(&self, _bytes: usize) -> std::result::Result<u64, crate::source::Refusal> {
        match self.never {}
    }

    pub(crate) fn free_apart(&self, _address: u64) {
        match self.never {}
    }

    pub(crate) fn zero_block(&self, _address: u64, _bytes: usize) -> Result<()> {
        match self.never {}
    }

    pub(crate) fn write_block(&self, _address: u64, _from: &[u8]) -> Result<()> {
        match self.never {}
    }

    pub(crate) fn read_block(&self, _address: u64, _to: &mut [u8]) -> Result<()> {
        match self.never {}
    }

    pub(crate) fn hold_back<R>(&self, _captures: &mut Captures, _work: impl FnOnce() -> R) -> (R, Result<()>) {
        match self.never {}
    }

    pub(crate) fn submit_held_back(&self) -> Result<()> {
        match self.never {}
    }

    pub(crate) fn elapsed_ms<R>(&self, _work: impl FnOnce() -> R) -> Result<(R, f32)> {
        match self.never {}
    }

    pub(crate) fn identity(&self) -> String {
        match self.never {}
    }

    pub(crate) fn set_kernel_folder(&self, _folder: Option<PathBuf>) {
        match self.never {}
    }

    pub(crate) fn time_work(&self, _captures: &mut Captures) -> Result<()> {
        match self.never {}
    }

    pub(crate) fn take_busy_s(&self, _captures: &mut Captures) -> Result<f64> {
        match self.never {}
    }

    pub(crate) fn copy_block(&self, _from: u64, _to: u64, _bytes: usize) -> Result<()> {
        match self.never {}
    }
}

impl std::fmt::Display for Gpu {
    fn fmt(&self, _f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.never {}
    }
}

/// Captures of a GPU, of which there are none.
#[derive(Debug, Default)]
pub(crate) struct Captures;

impl Captures {
    pub(crate) fn made(&self) -> u64 {
        0
    }

    pub(crate) fn refusal(&self) -> Option<&Error> {
        None
    }
}

/// A library for a GPU, of which there are none.
#[derive(Debug)]
pub(crate) struct CublasLt {
    never: Infallible,
}

impl CublasLt {
    pub(crate) fn open(gpu: &Gpu) -> Result<Option<Self>> {
        gpu.never()
    }

    pub(crate) fn search_in(_list: impl FnOnce() -> Vec<PathBuf>) {}

    pub(crate) fn path(&self) -> PathBuf {
        match self.never {}
    }

    pub(crate) fn name(&self) -> String {
        match self.never {}
    }

    pub(crate) fn multiply(&mut self, _product: &MatrixProduct, _at: &MatrixAddresses) -> Result<bool> {
        match self.never {}
    }
}

/// Words that kernels write, of which there are none.
#[derive(Debug)]
pub(crate) struct PinnedWords {
    never: Infallible,
}

impl PinnedWords {
    pub(crate) fn new(gpu: &Gpu, _len: usize) -> Result<Self> {
        gpu.never()
    }

    pub(crate) fn address(&self) -> u64 {
        match self.never {}
    }

    pub(crate) fn take(&self, _index: usize) -> u64 {
        match self.never {}
    }
}

/// Page-locked memory for a GPU, of which there is none.
#[derive(Debug)]
pub(crate) struct LockedBlock {
    never: Infallible,
}

impl LockedBlock {
    pub(crate) fn zeroed(gpu: &Gpu, _bytes: usize) -> Result<Self> {
        gpu.never()
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        match self.never {}
    }
}

/// Copies to a GPU, of which there are none.
#[derive(Debug, Default)]
pub(crate) struct PendingUploads;

impl PendingUploads {
    pub(crate) fn send(&mut self, gpu: &Gpu, _from: &[u8], _to: u64) -> Result<()> {
        gpu.never()
    }
}

/// Copies beside a GPU's work, of which there is none.
#[derive(Debug)]
pub(crate) struct CopyStream {
    never: Infallible,
}

impl CopyStream {
    pub(crate) fn new(gpu: &Gpu) -> Result<Self> {
        gpu.never()
    }

    pub(crate) fn release(&self, _gpu: &Gpu, _block: usize) -> Result<()> {
        match self.never {}
    }

    pub(crate) fn send(&mut self, _gpu: &Gpu, _from: &[u8], _block: usize, _to: u64) -> Result<()> {
        match self.never {}
    }

    pub(crate) fn send_aside(&self, _gpu: &Gpu, _from: &[u8], _block: usize, _to: u64) -> Result<()> {
        match self.never {}
    }
}

/// A copy from a GPU, of which there are none.
#[derive(Debug)]
pub(crate) struct PendingDownload {
    never: Infallible,
}

impl PendingDownload {
    pub(crate) fn new(gpu: &Gpu, _from: u64, _bytes: usize) -> Result<Self> {
        gpu.never()
    }

    pub(crate) fn wait(self, _to: &mut [u8]) -> Result<()> {
        match self.never {}
    }
}

/// Arguments in the order of a kernel's parameters. Made by [`arguments!`](crate::arguments).
#[derive(Clone, Debug, Default)]
pub struct Arguments;

impl Arguments {
    /// No arguments.
    pub fn new() -> Self {
        Arguments
    }

    /// These and `value` after them; messages call it `text`.
    #[must_use]
    pub fn with_value(self, _text: &'static str, _value: impl bytemuck::Pod) -> Self {
        self
    }
}
