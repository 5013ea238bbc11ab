//! Modules: PTX that the driver has compiled for a GPU, and the kernels in it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use cust::function::FunctionAttribute;
use cust::module::Module as Loaded;
use cust::sys::{CUfunction, CUresult};

use super::context::Context;
use super::fault::{Checked as _, Fault};
use super::signature::{Signature, signatures};
use crate::error::{Error, Result};

/// Kernels compiled for one GPU. Loaded by [`Gpu::module`](super::Gpu::module).
pub struct Module {
    name: &'static str,
    /// `None` only while dropping.
    loaded: Option<Loaded>,
    signatures: BTreeMap<String, Signature>,
    context: Arc<Context>,
}

impl Module {
    pub(super) fn load(context: &Arc<Context>, name: &'static str, ptx: &str) -> Result<Self> {
        let load = || {
            context.enter()?;
            Loaded::from_ptx(ptx, &[]).checked("cuModuleLoadDataEx", format_args!("{name}, {} bytes of PTX", ptx.len()))
        };
        let loaded = load().map_err(|fault| context.error(fault))?;
        Ok(Module { name, loaded: Some(loaded), signatures: signatures(ptx), context: Arc::clone(context) })
    }

    /// The kernel `name`.
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`]; [`Error::Driver`] where a call fails.
    pub fn kernel(&self, name: &str) -> Result<Kernel<'_>> {
        let absent = || Error::NoSuchKernel { module: self.name.to_owned(), kernel: name.to_owned() };
        let (name, signature) = self.signatures.get_key_value(name).ok_or_else(absent)?;
        let find = || -> Result<_, Fault> {
            self.context.enter()?;
            let loaded = self.loaded.as_ref().expect("a module is there until it is dropped");
            let function = loaded.get_function(name).checked("cuModuleGetFunction", format_args!("{name}"))?;
            let ask = |attribute| {
                let value = function.get_attribute(attribute);
                let value = value.checked("cuFuncGetAttribute", format_args!("{name}, {attribute:?}"))?;
                Ok(u32::try_from(value).unwrap_or(0))
            };
            Ok(Kernel {
                name,
                function: function.to_raw(),
                signature,
                threads_max: ask(FunctionAttribute::MaxThreadsPerBlock)?,
                shared_static_bytes: ask(FunctionAttribute::SharedMemorySizeBytes)?,
                module: self,
            })
        };
        match find() {
            Ok(kernel) => Ok(kernel),
            Err(fault) if fault.is(CUresult::CUDA_ERROR_NOT_FOUND) => Err(absent()),
            Err(fault) => Err(self.context.error(fault)),
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // The driver wants the context current. Where it cannot be, it is gone, and the module with it.
        if self.context.enter().is_ok() {
            drop(self.loaded.take());
        }
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({}, {} kernels)", self.name, self.signatures.len())
    }
}

/// One kernel of a module.
#[derive(Clone, Copy, Debug)]
pub struct Kernel<'m> {
    pub(super) name: &'m str,
    pub(super) function: CUfunction,
    pub(super) signature: &'m Signature,
    /// Most threads in a block, which its use of registers may have made fewer than the GPU's.
    pub(super) threads_max: u32,
    /// Shared memory of a block in bytes that its text declares.
    pub(super) shared_static_bytes: u32,
    module: &'m Module,
}

impl Kernel<'_> {
    pub(super) fn context(&self) -> &Arc<Context> {
        &self.module.context
    }
}

// SAFETY: the handle is a number to the driver, which any thread may pass it.
unsafe impl Send for Kernel<'_> {}
// SAFETY: as above; a shared kernel is only read.
unsafe impl Sync for Kernel<'_> {}
