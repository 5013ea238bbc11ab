//! The functions and constants of an MPI library, whichever interface it has. All unsafe code of
//! the crate is here.
//!
//! Sources: MPI 5.0, chapter "Application Binary Interface"; mpi.h of Open MPI 5.0 and MPICH 5.0,
//! whose numbers have been the same since Open MPI 1.7 and MPICH 3.1.

#![allow(unsafe_code, reason = "MPI is a library of C")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use libloading::os::unix::{Library as Handle, RTLD_GLOBAL, RTLD_NOW};

use crate::error::{Error, Result};

/// A communicator, datatype, operation, error handler or request. MPICH's own interface has `int`
/// in their place: the platform's calling convention passes its bits in the same register, and a
/// little-endian word that was zero has them after a call that writes it.
type Object = usize;

/// Length of the longest text of an error, of all libraries.
const TEXT_MAX: usize = 8192;

/// An open library, before and after `MPI_Init_thread`. Every call is made by the thread that
/// started it.
pub(crate) struct Library {
    name: String,
    functions: Functions,
    constants: Constants,
    world: Object,
    /// `!Send`: MPI is initialised for one calling thread.
    _one_thread: std::marker::PhantomData<*const ()>,
}

#[derive(Clone, Copy)]
struct Constants {
    world: Object,
    byte: Object,
    uint32: Object,
    band: Object,
    errors_return: Object,
    ignore: *mut c_void,
    thread_funneled: c_int,
}

macro_rules! functions {
    ($($field:ident = $name:literal ($($kind:ty),*);)*) => {
        struct Functions {
            $($field: unsafe extern "C" fn($($kind),*) -> c_int,)*
            recovery: Option<RecoveryFunctions>,
            // Never closed: libraries of MPI register functions that run when the process ends.
            _handle: std::mem::ManuallyDrop<Handle>,
        }

        impl Functions {
            fn load(handle: Handle) -> std::result::Result<Self, String> {
                // SAFETY: each type is the function's declaration in mpi.h, with `Object` for
                // handles, and the library stays open.
                unsafe {
                    $(let $field = *handle
                        .get::<unsafe extern "C" fn($($kind),*) -> c_int>($name.as_bytes())
                        .map_err(|_| format!("has no function {}", $name))?;)*
                    let recovery = RecoveryFunctions::load(&handle);
                    Ok(Functions { $($field,)* recovery, _handle: std::mem::ManuallyDrop::new(handle) })
                }
            }
        }
    };
}

functions! {
    init = "MPI_Init_thread" (*mut c_int, *mut c_void, c_int, *mut c_int);
    set_errhandler = "MPI_Comm_set_errhandler" (Object, Object);
    rank = "MPI_Comm_rank" (Object, *mut c_int);
    size = "MPI_Comm_size" (Object, *mut c_int);
    isend = "MPI_Isend" (*const c_void, c_int, Object, c_int, c_int, Object, *mut Object);
    irecv = "MPI_Irecv" (*mut c_void, c_int, Object, c_int, c_int, Object, *mut Object);
    ibcast = "MPI_Ibcast" (*mut c_void, c_int, Object, c_int, Object, *mut Object);
    iallreduce = "MPI_Iallreduce" (*const c_void, *mut c_void, c_int, Object, Object, Object, *mut Object);
    test = "MPI_Test" (*mut Object, *mut c_int, *mut c_void);
    error_string = "MPI_Error_string" (c_int, *mut c_char, *mut c_int);
    finalize = "MPI_Finalize" ();
}

/// User-Level Failure Mitigation.
#[derive(Clone, Copy)]
struct RecoveryFunctions {
    revoke: unsafe extern "C" fn(Object) -> c_int,
    agree: unsafe extern "C" fn(Object, *mut c_int) -> c_int,
    iagree: Option<unsafe extern "C" fn(Object, *mut c_int, *mut Object) -> c_int>,
    shrink: unsafe extern "C" fn(Object, *mut Object) -> c_int,
}

impl RecoveryFunctions {
    fn load(handle: &Handle) -> Option<Self> {
        // SAFETY: the types are the declarations in mpi-ext.h, and the library stays open.
        unsafe {
            Some(RecoveryFunctions {
                revoke: *handle.get(b"MPIX_Comm_revoke").ok()?,
                agree: *handle.get(b"MPIX_Comm_agree").ok()?,
                iagree: handle.get(b"MPIX_Comm_iagree").ok().map(|function| *function),
                shrink: *handle.get(b"MPIX_Comm_shrink").ok()?,
            })
        }
    }
}

impl Constants {
    /// MPI 5.0, appendix "ABI constants".
    const STANDARD: Constants = Constants {
        world: 0x101,
        byte: 0x247,
        uint32: 0x251,
        band: 0x28,
        errors_return: 0x143,
        ignore: null_mut(),
        thread_funneled: 1024,
    };
    const MPICH: Constants = Constants {
        world: 0x4400_0000,
        byte: 0x4c00_010d,
        uint32: 0x4c00_043d,
        band: 0x5800_0006,
        errors_return: 0x5400_0001,
        ignore: std::ptr::without_provenance_mut(1),
        thread_funneled: 1,
    };

    /// Constants and name of the interface that `handle` has.
    fn detect(handle: &Handle) -> std::result::Result<(Constants, &'static str), String> {
        if standard_version(handle).is_some_and(|major| major >= 1) {
            return Ok((Constants::STANDARD, "standard ABI"));
        }
        let symbol = |name: &str| -> Option<Object> {
            // SAFETY: the address alone is taken.
            unsafe { handle.get::<*mut c_void>(name.as_bytes()).ok().map(|symbol| symbol.into_raw() as Object) }
        };
        if symbol("ompi_mpi_comm_world").is_some() {
            let constant = |name: &str| symbol(name).ok_or_else(|| format!("has no {name}, as Open MPI has"));
            let constants = Constants {
                world: constant("ompi_mpi_comm_world")?,
                byte: constant("ompi_mpi_byte")?,
                uint32: constant("ompi_mpi_uint32_t")?,
                band: constant("ompi_mpi_op_band")?,
                errors_return: constant("ompi_mpi_errors_return")?,
                ignore: null_mut(),
                thread_funneled: 1,
            };
            return Ok((constants, "Open MPI"));
        }
        if symbol("MPI_Init_thread").is_some() {
            return Ok((Constants::MPICH, "MPICH"));
        }
        Err("is no library of MPI".to_owned())
    }
}

/// The major version of the standard's ABI; -1 for a library of another interface, `None` for one
/// that was never asked.
fn standard_version(handle: &Handle) -> Option<c_int> {
    let (mut major, mut minor) = (-1, -1);
    // SAFETY: the type is the function's declaration in MPI 5.0, section 20.1; it may be called
    // before MPI is initialised, and writes both numbers.
    unsafe {
        let version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int =
            *handle.get(b"MPI_Abi_get_version").ok()?;
        (version(&raw mut major, &raw mut minor) == 0).then_some(major)
    }
}

/// A call of MPI that is under way, with the memory that it reads or writes.
pub(crate) struct Pending {
    request: Object,
    buffer: Vec<u8>,
    /// The flags of an agreement, and their answer.
    words: Box<[u32; 2]>,
    is_done: bool,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_done {
            // MPI may still read or write it: nobody else gets the memory.
            std::mem::forget(std::mem::take(&mut self.buffer));
            std::mem::forget(std::mem::replace(&mut self.words, Box::new([0; 2])));
        }
    }
}

impl Pending {
    fn new(buffer: Vec<u8>) -> Self {
        // Its memory has an address, also where it is empty.
        Pending { request: 0, buffer, words: Box::new([0; 2]), is_done: true }
    }

    /// The message, once it is there.
    pub(crate) fn into_message(mut self) -> Vec<u8> {
        assert!(self.is_done, "a call that is under way has the memory");
        std::mem::take(&mut self.buffer)
    }

    /// The answer of an agreement, once it is there.
    pub(crate) fn answer(&self) -> u32 {
        assert!(self.is_done, "a call that is under way has the memory");
        self.words[1]
    }
}

static STARTED: AtomicBool = AtomicBool::new(false);

impl Library {
    /// Opens the library `name`, and starts MPI in this process.
    ///
    /// # Errors
    /// [`Error::Absent`] for a library that cannot be opened, [`Error::Unfit`] for one of another
    /// kind, [`Error::Again`] for a second start, [`Error::Failed`].
    pub(crate) fn start(name: &str) -> Result<Self> {
        // SAFETY: initialisers of a library of MPI have no conditions. Its symbols are global, as
        // the modules that Open MPI 4 opens itself need them.
        let handle = unsafe { Handle::open(Some(name), RTLD_NOW | RTLD_GLOBAL) };
        let handle = handle.map_err(|error| {
            let reason = error.to_string();
            let reason = reason.strip_prefix(&format!("{name}: ")).unwrap_or(&reason).to_owned();
            Error::Absent { tried: vec![(name.to_owned(), reason)] }
        })?;
        let unfit = |reason: String| Error::Unfit { library: name.to_owned(), reason };
        let (constants, interface) = Constants::detect(&handle).map_err(unfit)?;
        let functions = Functions::load(handle).map_err(unfit)?;
        if STARTED.swap(true, Ordering::SeqCst) {
            return Err(Error::Again);
        }
        let mut library = Library {
            name: format!("{name} ({interface})"),
            functions,
            constants,
            world: constants.world,
            _one_thread: std::marker::PhantomData,
        };
        let mut provided = 0;
        // SAFETY: MPI is started once, here; null stands for the command line since MPI 2.
        let code =
            unsafe { (library.functions.init)(null_mut(), null_mut(), constants.thread_funneled, &raw mut provided) };
        library.check("MPI_Init_thread", code)?;
        library.use_world(constants.world)?;
        Ok(library)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// True if ranks that are left can go on.
    pub(crate) fn can_recover(&self) -> bool {
        self.functions.recovery.is_some()
    }

    /// This rank, and the number of ranks.
    pub(crate) fn rank_and_world(&self) -> Result<(usize, usize)> {
        let (mut rank, mut world) = (0, 0);
        // SAFETY: the communicator is valid, and each call writes its number.
        let codes = unsafe {
            [(self.functions.rank)(self.world, &raw mut rank), (self.functions.size)(self.world, &raw mut world)]
        };
        self.check("MPI_Comm_rank", codes[0])?;
        self.check("MPI_Comm_size", codes[1])?;
        Ok((usize::try_from(rank).unwrap_or(0), usize::try_from(world).unwrap_or(1)))
    }

    /// Counts `world` as all ranks; its errors are returned, and do not end the process.
    fn use_world(&mut self, world: Object) -> Result<()> {
        self.world = world;
        // SAFETY: both are valid.
        let code = unsafe { (self.functions.set_errhandler)(world, self.constants.errors_return) };
        self.check("MPI_Comm_set_errhandler", code)
    }

    /// Begins to send `message` with `tag` to rank `destination`.
    pub(crate) fn send(&self, tag: c_int, destination: usize, message: Vec<u8>) -> Result<Pending> {
        let mut pending = Pending::new(message);
        let (data, len) = (pending.buffer.as_ptr(), length(&pending.buffer)?);
        let (destination, byte, world) = (number(destination)?, self.constants.byte, self.world);
        // SAFETY: `pending` keeps the message until the call is done, or for ever.
        let code = unsafe {
            (self.functions.isend)(data.cast(), len, byte, destination, tag, world, &raw mut pending.request)
        };
        self.begun("MPI_Isend", code, pending)
    }

    /// Begins to receive a message of `len` bytes with `tag` from rank `source`.
    pub(crate) fn receive(&self, tag: c_int, source: usize, len: usize) -> Result<Pending> {
        let mut pending = Pending::new(vec![0; len]);
        let (data, len) = (pending.buffer.as_mut_ptr(), length(&pending.buffer)?);
        let (source, byte, world) = (number(source)?, self.constants.byte, self.world);
        // SAFETY: as in `send`; nobody reads or writes the memory until the call is done.
        let code =
            unsafe { (self.functions.irecv)(data.cast(), len, byte, source, tag, world, &raw mut pending.request) };
        self.begun("MPI_Irecv", code, pending)
    }

    /// Begins to copy `message` of rank `root` to all ranks.
    pub(crate) fn broadcast(&self, root: usize, message: Vec<u8>) -> Result<Pending> {
        let mut pending = Pending::new(message);
        let (data, len) = (pending.buffer.as_mut_ptr(), length(&pending.buffer)?);
        let (root, byte, world) = (number(root)?, self.constants.byte, self.world);
        // SAFETY: as in `receive`.
        let code = unsafe { (self.functions.ibcast)(data.cast(), len, byte, root, world, &raw mut pending.request) };
        self.begun("MPI_Ibcast", code, pending)
    }

    /// Begins to form the AND of the flags of all ranks.
    pub(crate) fn agree(&self, flags: u32) -> Result<Pending> {
        let mut pending = Pending::new(Vec::new());
        pending.words[0] = flags;
        let words = pending.words.as_mut_ptr();
        let Constants { uint32, band, .. } = self.constants;
        // SAFETY: as in `receive`; the two words are those of `pending`, one read and one written.
        let code = unsafe {
            let (source, destination) = (words.cast_const().cast(), words.add(1).cast());
            (self.functions.iallreduce)(source, destination, 1, uint32, band, self.world, &raw mut pending.request)
        };
        self.begun("MPI_Iallreduce", code, pending)
    }

    fn begun(&self, function: &'static str, code: c_int, mut pending: Pending) -> Result<Pending> {
        self.check(function, code)?;
        pending.is_done = false;
        Ok(pending)
    }

    /// True if `pending` is done.
    pub(crate) fn test(&self, pending: &mut Pending) -> Result<bool> {
        if pending.is_done {
            return Ok(true);
        }
        let mut flag = 0;
        // SAFETY: the request is one that is under way; MPI sets it to null when it is done.
        let code = unsafe { (self.functions.test)(&raw mut pending.request, &raw mut flag, self.constants.ignore) };
        self.check("MPI_Test", code)?;
        pending.is_done = flag != 0;
        Ok(pending.is_done)
    }

    /// Interrupts the waits of other ranks.
    pub(crate) fn revoke(&self) {
        if let Some(recovery) = self.functions.recovery {
            // SAFETY: the communicator is valid. A failure leaves the others to their deadlines.
            unsafe { (recovery.revoke)(self.world) };
        }
    }

    /// Begins to form the AND of the flags of all ranks that are left, also where the communicator
    /// is revoked. An error on every rank where one is lost. A library without `MPIX_Comm_iagree`
    /// returns when it is done.
    pub(crate) fn agree_with_survivors(&self, flags: u32) -> Result<Pending> {
        let recovery = self.recovery()?;
        let mut pending = Pending::new(Vec::new());
        pending.words[1] = flags;
        // SAFETY: `pending` keeps the word until the call is done, or for ever.
        let flag = unsafe { pending.words.as_mut_ptr().add(1).cast::<c_int>() };
        let Some(iagree) = recovery.iagree else {
            // SAFETY: the communicator is valid, and the call reads and writes the flag.
            let code = unsafe { (recovery.agree)(self.world, flag) };
            return self.check("MPIX_Comm_agree", code).map(|()| pending);
        };
        // SAFETY: as above, until the request is done.
        let code = unsafe { iagree(self.world, flag, &raw mut pending.request) };
        self.begun("MPIX_Comm_iagree", code, pending)
    }

    /// Forms a communicator of the surviving ranks.
    pub(crate) fn shrink(&mut self) -> Result<()> {
        let recovery = self.recovery()?;
        let mut world = 0;
        // SAFETY: as above; the call writes the new communicator.
        let code = unsafe { (recovery.shrink)(self.world, &raw mut world) };
        self.check("MPIX_Comm_shrink", code)?;
        self.use_world(world)
    }

    fn recovery(&self) -> Result<RecoveryFunctions> {
        let reason = || "has no functions to recover from failures".to_owned();
        self.functions.recovery.ok_or_else(|| Error::Unfit { library: self.name.clone(), reason: reason() })
    }

    /// Ends MPI in this process.
    pub(crate) fn finalize(self) -> Result<()> {
        // SAFETY: MPI was started, and `self` is gone after this.
        let code = unsafe { (self.functions.finalize)() };
        self.check("MPI_Finalize", code)
    }

    fn check(&self, function: &'static str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let mut text: [c_char; TEXT_MAX] = [0; TEXT_MAX];
        let mut len = 0;
        // SAFETY: the text has room for the longest of any library, and ends with a zero.
        let text = unsafe {
            (self.functions.error_string)(code, text.as_mut_ptr(), &raw mut len);
            text[TEXT_MAX - 1] = 0;
            CStr::from_ptr(text.as_ptr()).to_string_lossy().trim().to_owned()
        };
        let text = if text.is_empty() { format!("error {code}") } else { text };
        Err(Error::Failed { function, text })
    }
}

/// Tag of messages. Those of one rank to another arrive in order.
pub(crate) const MESSAGES: c_int = 0;
/// Tag of heartbeats.
pub(crate) const HEARTBEATS: c_int = 1;

fn length(message: &[u8]) -> Result<c_int> {
    let text = || format!("a message of {} bytes is too long", message.len());
    c_int::try_from(message.len()).map_err(|_| Error::Failed { function: "MPI", text: text() })
}

fn number(rank: usize) -> Result<c_int> {
    c_int::try_from(rank).map_err(|_| Error::Failed { function: "MPI", text: format!("there is no rank {rank}") })
}
