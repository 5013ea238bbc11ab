//! Arguments of a launch, checked against the kernel's parameters.

use std::ffi::c_void;
use std::marker::PhantomData;

use bytemuck::Pod;

/// One argument: a slice for a pointer, which the kernel may read and, if it is mutable, write; or a number.
///
/// ```
/// # use megabatch_simt::Arg;
/// let (input, mut output) = ([1.0f32; 8], [0.0f32; 8]);
/// let arguments = [Arg::from(&input[..]), Arg::from(&mut output[..]), Arg::from(8u32)];
/// ```
#[derive(Debug)]
pub struct Arg<'a> {
    /// The bytes of the value as the kernel takes it: the address, for a slice.
    value: [u64; 2],
    kind: Kind,
    bytes: usize,
    memory: Option<Range>,
    slice: PhantomData<&'a mut [u8]>,
}

/// Memory that a launch may touch, as the runtime has it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    begin: usize,
    end: usize,
    writable: u64,
}

/// What a parameter takes or an argument is, as the runtime has it.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "Other comes from the C++ side only")]
pub(crate) enum Kind {
    Floating,
    Integer,
    Other,
    PointerToConst,
    Pointer,
}

/// A kernel's parameter. `bytes` is the size of the value, or of what a pointer points to.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    pub(crate) kind: Kind,
    pub(crate) bytes: u32,
}

impl Arg<'_> {
    /// A pointer to nothing, for a parameter that a kernel leaves alone.
    pub fn null() -> Self {
        Arg { value: [0; 2], kind: Kind::Pointer, bytes: 0, memory: None, slice: PhantomData }
    }

    fn number(kind: Kind, bytes: &[u8]) -> Self {
        let mut value = [0u64; 2];
        bytemuck::bytes_of_mut(&mut value)[..bytes.len()].copy_from_slice(bytes);
        Arg { value, kind, bytes: bytes.len(), memory: None, slice: PhantomData }
    }

    fn pointer<T>(address: usize, len: usize, kind: Kind) -> Self {
        let range =
            Range { begin: address, end: address + len * size_of::<T>(), writable: u64::from(kind == Kind::Pointer) };
        Arg { value: [address as u64, 0], kind, bytes: size_of::<T>(), memory: Some(range), slice: PhantomData }
    }

    pub(crate) fn as_ptr(&self) -> *mut c_void {
        self.value.as_ptr().cast_mut().cast()
    }

    pub(crate) fn memory(&self) -> Option<Range> {
        self.memory
    }

    /// What is wrong with passing this to `parameter`.
    pub(crate) fn mismatch(&self, parameter: Parameter) -> Option<String> {
        let is_null = self.kind == Kind::Pointer && self.memory.is_none();
        let size_fits = parameter.bytes as usize == self.bytes;
        let fits = match parameter.kind {
            Kind::PointerToConst | Kind::Pointer if is_null => true,
            Kind::PointerToConst => self.is_pointer() && (size_fits || parameter.bytes == 0),
            Kind::Pointer => self.kind == Kind::Pointer && (size_fits || parameter.bytes == 0),
            kind => self.kind == kind && size_fits,
        };
        (!fits).then(|| {
            format!("takes {}, but was given {}", phrase(parameter.kind, parameter.bytes as usize), self.phrase())
        })
    }

    fn is_pointer(&self) -> bool {
        matches!(self.kind, Kind::Pointer | Kind::PointerToConst)
    }

    fn phrase(&self) -> String {
        phrase(self.kind, self.bytes)
    }
}

fn phrase(kind: Kind, bytes: usize) -> String {
    match kind {
        Kind::Floating => format!("a float of {bytes} bytes"),
        Kind::Integer => format!("an integer of {bytes} bytes"),
        Kind::Other => format!("a value of {bytes} bytes"),
        Kind::PointerToConst => format!("a slice to read with elements of {bytes} bytes"),
        Kind::Pointer => format!("a slice to write with elements of {bytes} bytes"),
    }
}

impl<'a, T: Pod> From<&'a [T]> for Arg<'a> {
    fn from(slice: &'a [T]) -> Self {
        Arg::pointer::<T>(slice.as_ptr().expose_provenance(), slice.len(), Kind::PointerToConst)
    }
}

impl<'a, T: Pod> From<&'a mut [T]> for Arg<'a> {
    fn from(slice: &'a mut [T]) -> Self {
        Arg::pointer::<T>(slice.as_mut_ptr().expose_provenance(), slice.len(), Kind::Pointer)
    }
}

macro_rules! numbers {
    ($kind:ident: $($number:ty),*) => {
        $(impl From<$number> for Arg<'_> {
            fn from(number: $number) -> Self {
                Arg::number(Kind::$kind, &number.to_ne_bytes())
            }
        })*
    };
}

numbers!(Floating: f32, f64);
numbers!(Integer: u8, i8, u16, i16, u32, i32, u64, i64, usize);
