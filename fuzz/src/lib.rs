//! Shared by the fuzz targets: any bytes, read as a file of bars in every mode, end in bars that
//! keep the promises of [`read`] or in an error.
#![deny(unsafe_code)]

pub mod chunk;
pub mod graph_files;
pub mod graphs;

use std::cell::RefCell;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use megabatch_bars::{FormatName, OnError, ReadOptions, Recording, Timeframe, read};
use tempfile::NamedTempFile;

thread_local! {
    /// The file that the bytes are written to, in memory where the system has such a folder.
    static FILE: RefCell<NamedTempFile> = RefCell::new(
        NamedTempFile::new_in("/dev/shm").or_else(|_| NamedTempFile::new()).expect("a temporary file"),
    );
}

/// Reads `bytes` as a file of `format`, or of the format that it looks like, in every mode.
pub fn read_in_every_mode(bytes: &[u8], format: Option<FormatName>) {
    FILE.with_borrow_mut(|file| {
        let out = file.as_file_mut();
        out.set_len(0).and_then(|()| out.seek(SeekFrom::Start(0))).expect("an empty file");
        out.write_all(bytes).expect("room for the bytes");
        for on_error in OnError::ALL {
            // Stated, so that bytes without two neighbouring times get beyond the search for a
            // timeframe.
            let base = (on_error == OnError::Repair).then_some(Timeframe::M1);
            let symbol = Some("FUZZED".to_owned());
            read_and_check(file.path(), &ReadOptions { format, on_error, base, symbol, ..ReadOptions::default() });
        }
    });
}

fn read_and_check(path: &Path, options: &ReadOptions) {
    match read(&[path], options) {
        Ok(recording) => check(&recording),
        Err(error) => assert!(!error.to_string().is_empty(), "an error says what is wrong"),
    }
}

fn check(Recording { bars, summary, .. }: &Recording) {
    assert!(!bars.is_empty(), "no bars is an error");
    assert!(bars.open_time.is_sorted_by(|earlier, later| earlier < later), "bars are in order of time, each once");
    assert_eq!(summary.kept(), bars.len() as u64);
    assert!(summary.kept() <= summary.rows());
    assert!(!summary.to_string().is_empty());
    for index in 0..bars.len() {
        let bar = bars.bar(index);
        assert!(bar.low > 0.0 && bar.high.is_finite(), "{bar:?}");
        assert!(bar.low <= bar.open.min(bar.close) && bar.open.max(bar.close) <= bar.high, "{bar:?}");
        assert!(bar.volume >= 0.0 && bar.volume.is_finite(), "{bar:?}");
        assert!(bar.spread >= 0.0 && bar.spread.is_finite(), "{bar:?}");
    }
}
