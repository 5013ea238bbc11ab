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
    pub(crate) value: Value<'a>,
    kind: Kind,
    /// Size of the value, or of an element of the slice.
    bytes: usize,
}

#[derive(Debug)]
pub(crate) enum Value<'a> {
    Null,
    Plain(Vec<u8>),
    Read(&'a [u8]),
    Write(&'a mut [u8]),
}

/// Kind of a parameter or argument, as the runtime has it.
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
        Arg { value: Value::Null, kind: Kind::Pointer, bytes: 0 }
    }

    /// A `#[repr(C)]` struct or an array, for a parameter that is a struct.
    pub fn of_struct<T: Pod>(value: &T) -> Self {
        Arg::plain(Kind::Other, bytemuck::bytes_of(value))
    }

    fn plain(kind: Kind, bytes: &[u8]) -> Self {
        Arg { value: Value::Plain(bytes.to_vec()), kind, bytes: bytes.len() }
    }

    /// Fault of passing this to `parameter`.
    pub(crate) fn mismatch(&self, parameter: Parameter) -> Option<String> {
        let is_null = matches!(self.value, Value::Null);
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
        Arg { value: Value::Read(bytemuck::cast_slice(slice)), kind: Kind::PointerToConst, bytes: size_of::<T>() }
    }
}

impl<'a, T: Pod> From<&'a mut [T]> for Arg<'a> {
    fn from(slice: &'a mut [T]) -> Self {
        Arg { value: Value::Write(bytemuck::cast_slice_mut(slice)), kind: Kind::Pointer, bytes: size_of::<T>() }
    }
}

macro_rules! numbers {
    ($kind:ident: $($number:ty),*) => {
        $(impl From<$number> for Arg<'_> {
            fn from(number: $number) -> Self {
                Arg::plain(Kind::$kind, &number.to_ne_bytes())
            }
        })*
    };
}

numbers!(Floating: f32, f64);
numbers!(Integer: u8, i8, u16, i16, u32, i32, u64, i64, usize);
