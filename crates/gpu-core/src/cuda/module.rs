//! Modules: PTX that the driver has compiled for a GPU, and the kernels in it.

#![allow(unsafe_code, reason = "the driver is called")]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use cust::sys::{CUfunction, CUfunction_attribute, CUresult};

use super::compiled::CompiledModule;
use super::context::Context;
use super::fault::DriverFault;
use super::signature::{Signature, signatures};
use crate::error::{Error, Result};

/// Kernels compiled for one GPU. Loaded by [`Gpu::module`](super::Gpu::module).
pub struct Module {
    name: &'static str,
    /// `None` only while dropping.
    compiled: Option<CompiledModule>,
    signatures: BTreeMap<String, Signature>,
    /// Entries that were requested.
    entries: Mutex<BTreeMap<String, Arc<EntryPoint>>>,
    context: Arc<Context>,
}

impl Module {
    pub(super) fn load(context: &Arc<Context>, name: &'static str, ptx: &str) -> Result<Self> {
        let compile = || {
            context.enter_aside()?;
            CompiledModule::new(name, ptx)
        };
        let compiled = compile().map_err(|fault| context.error(fault))?;
        let (signatures, entries) = (signatures(ptx), Mutex::default());
        Ok(Module { name, compiled: Some(compiled), signatures, entries, context: Arc::clone(context) })
    }

    /// The kernel `name`. The driver is asked for it once.
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`]; [`Error::Driver`] where a call fails.
    pub fn kernel(&self, name: &str) -> Result<LoadedKernel<'_>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get(name) {
            return Ok(LoadedKernel { entry: Arc::clone(entry), module: self });
        }
        let absent = || Error::NoSuchKernel { module: self.name.to_owned(), kernel: name.to_owned() };
        let signature = self.signatures.get(name).ok_or_else(absent)?;
        let entry = match self.find(name, signature) {
            Ok(entry) => Arc::new(entry),
            Err(fault) if fault.is(CUresult::CUDA_ERROR_NOT_FOUND) => return Err(absent()),
            Err(fault) => return Err(self.context.error(fault)),
        };
        entries.insert(name.to_owned(), Arc::clone(&entry));
        Ok(LoadedKernel { entry, module: self })
    }

    fn find(&self, name: &str, signature: &Signature) -> Result<EntryPoint, DriverFault> {
        self.context.enter_aside()?;
        let compiled = self.compiled.as_ref().expect("a module is there until it is dropped");
        let function = compiled.function(name)?;
        let ask = |attribute| compiled.attribute(function, attribute);
        Ok(EntryPoint {
            name: name.to_owned(),
            function,
            signature: signature.clone(),
            threads_max: ask(CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            shared_static_bytes: ask(CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
        })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // The driver wants the context current. Where it cannot be, it is gone, and the module with
        // it.
        if self.context.enter_aside().is_ok() {
            drop(self.compiled.take());
        }
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({}, {} kernels)", self.name, self.signatures.len())
    }
}

/// Properties of a kernel by the driver.
#[derive(Debug)]
pub(super) struct EntryPoint {
    pub(super) name: String,
    pub(super) function: CUfunction,
    pub(super) signature: Signature,
    /// Most threads in a block, which its use of registers may have made fewer than the GPU's.
    pub(super) threads_max: u32,
    /// Shared memory of a block in bytes that its text declares.
    pub(super) shared_static_bytes: u32,
}

// SAFETY: the handle is a number to the driver, which any thread may pass it.
unsafe impl Send for EntryPoint {}
// SAFETY: as above; a shared entry is only read.
unsafe impl Sync for EntryPoint {}

/// One kernel of a module.
#[derive(Clone, Debug)]
pub struct LoadedKernel<'m> {
    pub(super) entry: Arc<EntryPoint>,
    module: &'m Module,
}

impl LoadedKernel<'_> {
    pub(super) fn context(&self) -> &Arc<Context> {
        &self.module.context
    }
}
