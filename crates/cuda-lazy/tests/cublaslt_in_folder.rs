//! cuBLASLt where only a folder that was named has it, such as that of a Python wheel.
#![cfg(target_os = "linux")]

use megabatch_cuda_lazy::cublaslt::{cublaslt, search_in};
use megabatch_simt::driver::FakeDriver;

#[test]
fn a_library_of_a_named_folder_is_opened() {
    let folder = FakeDriver::cublaslt_folder();
    search_in(|| vec!["/nowhere".into(), folder.clone()]);
    search_in(|| unreachable!("folders are listed once"));
    // A machine that has CUDA 12 answers with its own.
    let path = &cublaslt(12).expect("the folder has the library of CUDA 12").path;
    let expected = [folder.join("libcublasLt.so.12"), "libcublasLt.so.12".into()];
    assert!(expected.contains(path), "{}", path.display());
}
