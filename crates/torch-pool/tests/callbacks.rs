#![allow(unsafe_code, reason = "the interface is one of C")]

//! The functions that PyTorch calls, called from C++ as it does.
#![cfg(target_os = "linux")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::ptr;
use std::thread;

use libloading::Library;
use megabatch_simt::driver::{FakeDriver, Setting};
use megabatch_torch_pool::{Callbacks, Error, PoolSettings, install};

const MIB: usize = 1 << 20;

type PlayMalloc = unsafe extern "C" fn(usize, usize, c_int, *mut c_void, *mut *mut c_void, *mut c_char, usize) -> c_int;
type PlayWithoutArguments = unsafe extern "C" fn(usize, *mut c_char, usize) -> c_int;
type Free = unsafe extern "C" fn(*mut c_void, usize, c_int, *mut c_void);

/// A program in C++ that plays PyTorch.
struct Player(Library);

impl Player {
    fn new() -> Self {
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
        let library = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("libplayer.so");
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/player.cpp");
        let done =
            Command::new(compiler).args(["-std=c++17", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
        assert!(done.unwrap().success());
        // SAFETY: it initialises nothing.
        Player(unsafe { Library::new(library) }.unwrap())
    }

    fn malloc(&self, callbacks: &Callbacks, bytes: usize) -> Result<*mut c_void, String> {
        let (mut block, mut what) = (ptr::null_mut(), [0; 4096]);
        // SAFETY: these are the types of the functions; 0 is the default stream.
        let caught = unsafe {
            let play = self.0.get::<PlayMalloc>(b"play_malloc").unwrap();
            play(callbacks.malloc, bytes, 0, ptr::null_mut(), &raw mut block, what.as_mut_ptr(), what.len())
        };
        if caught == 0 { Ok(block) } else { Err(text(&what)) }
    }

    fn refused(&self, function: usize) -> String {
        let mut what = [0; 4096];
        // SAFETY: this is the type of the function.
        unsafe {
            let play = self.0.get::<PlayWithoutArguments>(b"play_without_arguments").unwrap();
            assert_eq!(play(function, what.as_mut_ptr(), what.len()), 1);
        }
        text(&what)
    }
}

fn text(what: &[c_char]) -> String {
    // SAFETY: the player ends its texts with a zero.
    unsafe { CStr::from_ptr(what.as_ptr()) }.to_str().unwrap().to_owned()
}

fn free(callbacks: &Callbacks, block: *mut c_void, bytes: usize) {
    // SAFETY: this is the type of the function, and the block is freed once.
    unsafe { std::mem::transmute::<usize, Free>(callbacks.free)(block, bytes, 0, ptr::null_mut()) }
}

/// Resident memory of this process in bytes.
fn resident_bytes() -> usize {
    let pages: usize = std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// One test, as a process has one pool.
#[test]
fn pytorch_is_served_by_the_callbacks() {
    let driver = FakeDriver::whole();
    driver.set(Setting::TotalBytes, 64 * MIB as u64);
    let player = Player::new();
    let settings = PoolSettings { stitching: true, budget_bytes: None, leave_bytes: 0 };
    let (pool, callbacks) = install(settings.clone()).unwrap();
    assert!(matches!(install(settings), Err(Error::Installed)));

    assert!(player.malloc(&callbacks, 0).unwrap().is_null());
    let block = player.malloc(&callbacks, 40 * MIB).unwrap();
    let shortage = player.malloc(&callbacks, 30 * MIB).unwrap_err();
    let text = "CUDA out of memory. Tried to allocate 30.00 MiB on cuda:0, which does not fit now: 40.00 MiB are allocated, 0 \
                bytes free in megabatch's pool, which holds 40.00 MiB of the 64.00 MiB that it may; others hold 0 bytes. Owners: \
                torch 40.00 MiB. Use a smaller batch, drop tensors that are not needed, or end other processes on this GPU";
    assert_eq!(shortage, text);
    let never = player.malloc(&callbacks, 65 * MIB).unwrap_err();
    assert!(
        never.starts_with("CUDA out of memory. Tried to allocate 65.00 MiB on cuda:0, which never fits: "),
        "{never}"
    );
    free(&callbacks, block, 40 * MIB);
    assert_eq!(pool.memory(0).unwrap().counts.allocated_bytes, 0);
    // An address that nobody has.
    free(&callbacks, ptr::without_provenance_mut(12345), 1);

    assert!(player.refused(callbacks.begin_allocate_to_pool).contains("CUDA graphs"));
    assert!(player.refused(callbacks.base_alloc).contains("another process"));

    driver.fail("cuMemCreate", 1, 999);
    let refused = player.malloc(&callbacks, 50 * MIB).unwrap_err();
    assert!(refused.starts_with("megabatch: torch: cuda:0 refused 52428800 bytes: cuMemCreate"), "{refused}");

    let play = |calls: usize| {
        for call in 0..calls {
            let bytes = 1 + call * 7919 % 100_000;
            let block = player.malloc(&callbacks, bytes).unwrap();
            free(&callbacks, block, bytes);
            if call % 1000 == 0 {
                pool.step();
            }
        }
    };
    play(50_000);
    let before = resident_bytes();
    thread::scope(|scope| {
        scope.spawn(|| play(500_000));
        play(500_000);
    });
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 4 * MIB, "a million calls grew by {grown} bytes");
    // Blocks are live when the process ends, as PyTorch's are.
    player.malloc(&callbacks, MIB).unwrap();
}
