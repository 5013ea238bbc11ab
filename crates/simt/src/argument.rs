//! Arguments of a launch, checked against the kernel's parameters.

use bytemuck::Pod;

/// One argument: a slice for a pointer, which the kernel may read and, if it is mutable, write; or
/// a number.
///
/// ```
/// # use megabatch_simt::Arg;
/// let (input, mut output) = ([1.0f32; 8], [0.0f32; 8]);
/// let arguments = [Arg::from(&input[..]), Arg::from(&mut output[..]), Arg::from(8u32)];
/// ```
#[derive(Debug)]
pub struct Arg<'a> {
    pub(crate) value: HostValue<'a>,
    kind: ArgumentKind,
    /// Size of the value, or of an element of the slice.
    bytes: usize,
}

#[derive(Debug)]
pub(crate) enum HostValue<'a> {
    Null,
    Plain(Vec<u8>),
    Read(&'a [u8]),
    Write(&'a mut [u8]),
}

/// Kind of a parameter or argument, as the runtime has it.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "Other comes from the C++ side only")]
pub(crate) enum ArgumentKind {
    Floating,
    Integer,
    Other,
    PointerToConst,
    Pointer,
}

/// A kernel's parameter. `bytes` is the size of the value, or of the memory behind a pointer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    pub(crate) kind: ArgumentKind,
    pub(crate) bytes: u32,
}

impl Arg<'_> {
    /// A pointer to nothing, for a parameter that a kernel leaves alone.
    pub fn null() -> Self {
        Arg { value: HostValue::Null, kind: ArgumentKind::Pointer, bytes: 0 }
    }

    /// A `#[repr(C)]` struct or an array, for a parameter that is a struct.
    pub fn from_struct<T: Pod>(value: &T) -> Self {
        Arg::plain(ArgumentKind::Other, bytemuck::bytes_of(value))
    }

    fn plain(kind: ArgumentKind, bytes: &[u8]) -> Self {
        Arg { value: HostValue::Plain(bytes.to_vec()), kind, bytes: bytes.len() }
    }

    /// Fault of passing this to `parameter`.
    pub(crate) fn mismatch(&self, parameter: Parameter) -> Option<String> {
        let is_null = matches!(self.value, HostValue::Null);
        let size_fits = parameter.bytes as usize == self.bytes;
        let fits = match parameter.kind {
            ArgumentKind::PointerToConst | ArgumentKind::Pointer if is_null => true,
            ArgumentKind::PointerToConst => self.is_pointer() && (size_fits || parameter.bytes == 0),
            ArgumentKind::Pointer => self.kind == ArgumentKind::Pointer && (size_fits || parameter.bytes == 0),
            kind => self.kind == kind && size_fits,
        };
        (!fits).then(|| {
            format!("takes {}, but was given {}", phrase(parameter.kind, parameter.bytes as usize), self.phrase())
        })
    }

    fn is_pointer(&self) -> bool {
        matches!(self.kind, ArgumentKind::Pointer | ArgumentKind::PointerToConst)
    }

    fn phrase(&self) -> String {
        phrase(self.kind, self.bytes)
    }
}

fn phrase(kind: ArgumentKind, bytes: usize) -> String {
    match kind {
        ArgumentKind::Floating => format!("a float of {bytes} bytes"),
        ArgumentKind::Integer => format!("an integer of {bytes} bytes"),
        ArgumentKind::Other => format!("a value of {bytes} bytes"),
        ArgumentKind::PointerToConst => format!("a slice to read with elements of {bytes} bytes"),
        ArgumentKind::Pointer => format!("a slice to write with elements of {bytes} bytes"),
    }
}

impl<'a, T: Pod> From<&'a [T]> for Arg<'a> {
    fn from(slice: &'a [T]) -> Self {
        Arg {
            value: HostValue::Read(bytemuck::cast_slice(slice)),
            kind: ArgumentKind::PointerToConst,
            bytes: size_of::<T>(),
        }
    }
}

impl<'a, T: Pod> From<&'a mut [T]> for Arg<'a> {
    fn from(slice: &'a mut [T]) -> Self {
        Arg {
            value: HostValue::Write(bytemuck::cast_slice_mut(slice)),
            kind: ArgumentKind::Pointer,
            bytes: size_of::<T>(),
        }
    }
}

macro_rules! numbers {
    ($kind:ident: $($number:ty),*) => {
        $(impl From<$number> for Arg<'_> {
            fn from(number: $number) -> Self {
                Arg::plain(ArgumentKind::$kind, &number.to_ne_bytes())
            }
        })*
    };
}

numbers!(Floating: f32, f64);
numbers!(Integer: u8, i8, u16, i16, u32, i32, u64, i64, usize);
