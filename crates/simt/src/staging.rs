//! The memory that a kernel sees: a copy of the slices, as a GPU has one.
//!
//! Each copy begins where an allocation on a GPU would, at a multiple of 256 bytes, and ends before
//! a gap, so that running over the end of one buffer never reaches the next. A kernel that went
//! wrong has touched nothing but copies.

use std::ffi::c_void;

use crate::argument::{Arg, HostValue};

const ALIGN_BYTES: usize = 256;

/// Arguments of a kernel call.
pub(crate) struct StagedArguments {
    /// One value an argument: its bytes, or an address in `copies`. Words, for their alignment, of
    /// which no type asks for more.
    values: Vec<Vec<u128>>,
    copies: Vec<Option<Copy>>,
}

/// Memory that a launch may touch, as the runtime has it: half-open, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchMemory {
    begin: usize,
    end: usize,
    writable: u64,
}

struct Copy {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
    writable: bool,
}

impl StagedArguments {
    pub(crate) fn new(arguments: &[Arg<'_>]) -> Self {
        let mut copies: Vec<Option<Copy>> = arguments.iter().map(|argument| copy(&argument.value)).collect();
        let values = arguments.iter().zip(&mut copies).map(|(argument, copy)| match (&argument.value, copy) {
            (HostValue::Plain(bytes), _) => words(bytes),
            (_, Some(copy)) => words(&copy.address().to_ne_bytes()),
            (_, None) => words(&[0; 8]),
        });
        StagedArguments { values: values.collect(), copies }
    }

    /// Pointers to the values, as cuLaunchKernel takes them.
    pub(crate) fn arguments(&mut self) -> Vec<*mut c_void> {
        self.values.iter_mut().map(|value| value.as_mut_ptr().cast()).collect()
    }

    pub(crate) fn ranges(&mut self) -> Vec<LaunchMemory> {
        let range = |copy: &mut Copy| {
            let begin = copy.address() as usize;
            LaunchMemory { begin, end: begin + copy.bytes, writable: u64::from(copy.writable) }
        };
        self.copies.iter_mut().flatten().map(range).collect()
    }

    /// Copies the results of the kernel into the slices.
    pub(crate) fn write_back(&self, arguments: &mut [Arg<'_>]) {
        for (argument, copy) in arguments.iter_mut().zip(&self.copies) {
            if let (HostValue::Write(slice), Some(copy)) = (&mut argument.value, copy) {
                slice.copy_from_slice(&copy.memory[copy.start..copy.start + copy.bytes]);
            }
        }
    }
}

impl Copy {
    fn address(&mut self) -> u64 {
        self.memory[self.start..].as_mut_ptr().expose_provenance() as u64
    }
}

fn words(bytes: &[u8]) -> Vec<u128> {
    let mut words = vec![0; bytes.len().div_ceil(size_of::<u128>())];
    bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
    words
}

fn copy(value: &HostValue<'_>) -> Option<Copy> {
    let (slice, writable): (&[u8], bool) = match value {
        HostValue::Read(slice) => (slice, false),
        HostValue::Write(slice) => (slice, true),
        HostValue::Null | HostValue::Plain(_) => return None,
    };
    let mut memory = vec![0; slice.len() + 2 * ALIGN_BYTES];
    let start = memory.as_ptr().align_offset(ALIGN_BYTES);
    memory[start..start + slice.len()].copy_from_slice(slice);
    Some(Copy { memory, start, bytes: slice.len(), writable })
}
