use megabatch_bars::{OnError, ReadOptions, Timeframe, Trouble, read};

use crate::published;

fn read_dirty(name: &str, on_error: OnError) -> Option<Result<megabatch_bars::Recording, String>> {
    let path = published(&format!("dirty/{name}"))?;
    let options = ReadOptions { on_error, ..ReadOptions::default() };
    Some(read(&[path], &options).map_err(|error| error.to_string()))
}

/// Extracts whose defect is none to the reader: bars, bars of gaps that are counted, timeframe, warnings.
#[test]
fn harmless_defects_are_read() {
    use Timeframe::{M1, M5, M15};
    let cases = [
        ("03_EURUSD_2019_L148195-148290_outage_6h.csv", 96, 1, M1, 0),
        ("06_EURUSD_2018_L366840-366860_xmas_gap.csv", 21, 1, M1, 0),
        ("07_AAPL_M15_L23380-23420_unadjusted_split.tsv", 41, 1, M15, 1),
        ("09_asier_EURUSD5_old_L1-30_spanish_header.csv", 29, 0, M5, 0),
        ("11_jaffer_EURUSD_M1_L1-30_mt5_tab_spread_crlf.csv", 29, 0, M1, 0),
        ("13_silly_EURUSD_M1_last5_no_final_newline.csv", 5, 0, M1, 0),
        ("15_jd_EURUSD1_L6530-6550_32day_gap_crlf.csv", 21, 1, M1, 0),
    ];
    for (name, bars, gaps, base, warnings) in cases {
        for on_error in [OnError::Fail, OnError::Repair] {
            let Some(recording) = read_dirty(name, on_error) else { return };
            let summary = recording.unwrap().summary;
            println!("{summary}");
            assert_eq!((summary.kept(), summary.rows(), summary.base), (bars, bars, base), "{name}");
            assert_eq!((summary.gaps.count, summary.warnings.len()), (gaps, warnings), "{name}");
        }
    }
}

#[test]
fn an_unadjusted_split_is_warned_of() {
    let Some(recording) = read_dirty("07_AAPL_M15_L23380-23420_unadjusted_split.tsv", OnError::Fail) else { return };
    let warning = &recording.unwrap().summary.warnings[0];
    assert!(warning.contains("2020-08-31T") && warning.contains("a split"), "{warning}");
}

#[test]
fn the_clock_going_back_duplicates_sixty_minutes() {
    let name = "01_EURUSD_2019_L305950-306090_dst_fallback_dup60.csv";
    let Some(failed) = read_dirty(name, OnError::Fail) else { return };
    let message = failed.unwrap_err();
    for part in [name, "line 70", "duplicate timestamp", "20191027 190000;1.108390", "--on-error repair"] {
        assert!(message.contains(part), "{part} in {message}");
    }
    let summary = read_dirty(name, OnError::Repair).unwrap().unwrap().summary;
    let dropped = &summary.files[0].dropped;
    assert_eq!((summary.rows(), summary.kept()), (141, 81));
    assert_eq!(
        (dropped.len(), dropped[0].trouble, dropped[0].rows, dropped[0].first_line),
        (1, Trouble::Duplicate, 60, 70)
    );
}

#[test]
fn null_fields_are_an_unreadable_row() {
    let name = "18_stocknet_SNP_L960-964_null_fields.csv";
    let Some(failed) = read_dirty(name, OnError::Fail) else { return };
    let message = failed.unwrap_err();
    for part in
        [name, "line 3", "unreadable row", "a number for open in field 2", "2016-06-29,null", "--on-error repair"]
    {
        assert!(message.contains(part), "{part} in {message}");
    }
    let recording = read_dirty(name, OnError::Repair).unwrap().unwrap();
    assert_eq!((recording.summary.base, recording.bars.len()), (Timeframe::D1, 4));
    assert_eq!(recording.bars.volume[0], 180_700.0, "the volume is the last column, after the adjusted close");
}

#[test]
fn a_saved_json_error_is_no_file_of_bars() {
    for on_error in [OnError::Fail, OnError::Repair] {
        let Some(failed) = read_dirty("14_pooksoft_BF.B_json_error_as_csv.csv", on_error) else { return };
        let message = failed.unwrap_err();
        for part in ["14_pooksoft", "no line has a timestamp and four prices", "HistData", "MetaTrader", "ISO", "`{`"] {
            assert!(message.contains(part), "{part} in {message}");
        }
    }
}

#[test]
fn one_garbage_line_at_the_top_is_an_unreadable_row() {
    let Some(path) = published("forex_multitf/sillydev_EURUSD_M15.csv.gz") else { return };
    let message = read(&[path], &ReadOptions::default()).unwrap_err().to_string();
    for part in ["line 1", "unreadable row", "a timestamp of format iso in field 1", "-(2018-10-12 12:00"] {
        assert!(message.contains(part), "{part} in {message}");
    }
}
