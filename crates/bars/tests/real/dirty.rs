//! Every extract with a real defect, under the three treatments of errors.

use megabatch_bars::{GapKind, OnError, ReadOptions, ReadSummary, Recording, RowError, RowFix, Timeframe, read};

use crate::published;

fn read_dirty(name: &str, on_error: OnError) -> Option<Result<Recording, String>> {
    let path = published(&format!("dirty/{name}"))?;
    let options = ReadOptions { on_error, ..ReadOptions::default() };
    Some(read(&[path], &options).map_err(|error| error.to_string()))
}

/// Rows, bars, the kind of gaps that there are, weekends, flat bars, warnings.
type Found = (u64, u64, Option<GapKind>, u64, u64, usize);

fn found(summary: &ReadSummary) -> Found {
    let gap = summary.gaps.kinds.iter().map(|count| count.kind).find(|kind| *kind != GapKind::Weekend);
    let bars = summary.bars;
    (summary.rows(), bars.all, gap, summary.gaps.weekends(), bars.flat, summary.warnings.len())
}

/// Extracts whose defect is none to the reader. Most are too short to show their clock, which is a
/// warning.
#[test]
fn harmless_defects_are_read_whatever_is_wanted() {
    use GapKind::{Hours, Minutes, Months};
    use Timeframe::{M1, M5, M15};
    let cases: [(&str, Timeframe, Found); 7] = [
        ("03_EURUSD_2019_L148195-148290_outage_6h.csv", M1, (96, 96, Some(Hours), 1, 0, 0)),
        ("06_EURUSD_2018_L366840-366860_xmas_gap.csv", M1, (21, 21, Some(Hours), 0, 0, 1)),
        ("07_AAPL_M15_L23380-23420_unadjusted_split.tsv", M15, (41, 41, Some(Minutes), 1, 0, 2)),
        ("09_asier_EURUSD5_old_L1-30_spanish_header.csv", M5, (29, 29, None, 0, 0, 1)),
        ("11_jaffer_EURUSD_M1_L1-30_mt5_tab_spread_crlf.csv", M1, (29, 29, None, 0, 0, 1)),
        ("13_silly_EURUSD_M1_last5_no_final_newline.csv", M1, (5, 5, None, 0, 0, 1)),
        ("15_jd_EURUSD1_L6530-6550_32day_gap_crlf.csv", M1, (21, 21, Some(Months), 0, 1, 1)),
    ];
    for (name, base, expected) in cases {
        for on_error in OnError::ALL {
            let Some(recording) = read_dirty(name, on_error) else { return };
            let summary = recording.unwrap().summary;
            assert_eq!((summary.base, found(&summary)), (base, expected), "{name} {on_error}");
            assert_eq!((&summary.files[0].dropped[..], &summary.files[0].fixed[..]), (&[][..], &[][..]), "{name}");
        }
    }
}

#[test]
fn an_unadjusted_split_is_named_by_its_ratio() {
    let Some(recording) = read_dirty("07_AAPL_M15_L23380-23420_unadjusted_split.tsv", OnError::Fail) else { return };
    let summary = recording.unwrap().summary;
    let [jump] = summary.jumps[..] else { panic!("{:?}", summary.jumps) };
    assert_eq!((jump.from, jump.to, jump.split), (499.057, 127.527, Some((4, 1))));
    let is_told = |warning: &String| warning.contains("2020-08-31T13:30:00Z") && warning.contains("a split 4:1");
    assert!(summary.warnings.iter().any(is_told), "{:?}", summary.warnings);
}

#[test]
fn a_spread_in_points_of_five_digits() {
    let Some(recording) = read_dirty("11_jaffer_EURUSD_M1_L1-30_mt5_tab_spread_crlf.csv", OnError::Fail) else {
        return;
    };
    let Recording { bars, summary, .. } = recording.unwrap();
    assert_eq!((bars.spread[0], bars.spread[28], summary.bars.with_spread), (0.000_47, 0.000_21, 29));
}

/// The sixty rows after 19:59 are those of 19:00 to 19:59 once more, the same in every number: the
/// hour was written twice, and no clock went back. The price goes on from 19:59 to 20:00 and not to
/// the second 19:00.
#[test]
fn an_hour_that_was_written_twice_is_read_once() {
    let name = "01_EURUSD_2019_L305950-306090_dst_fallback_dup60.csv";
    for on_error in OnError::ALL {
        let Some(recording) = read_dirty(name, on_error) else { return };
        let Recording { bars, summary, .. } = recording.unwrap();
        let dropped = &summary.files[0].dropped;
        assert_eq!((summary.rows(), bars.len(), summary.gaps.count(), dropped.len()), (141, 81, 0, 1));
        assert_eq!((dropped[0].kind, dropped[0].rows, dropped[0].first_line), (RowError::Copy, 60, 70));
        assert!(bars.open_time.windows(2).all(|pair| pair[1] - pair[0] == 60_000_000_000));
    }
}

/// A zone that goes back at that very hour does not make two hours of one.
#[test]
fn copies_are_no_second_hour_on_any_clock() {
    let Some(path) = published("dirty/01_EURUSD_2019_L305950-306090_dst_fallback_dup60.csv") else { return };
    let text = std::fs::read_to_string(path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    // The hours of the file on the night when New York's clock goes back: 19:00 is 01:00.
    let moved = |text: &str, hour: &str, to: &str| text.replace(&format!("20191027 {hour}"), &format!("20191103 {to}"));
    let moved = moved(&moved(&moved(&text, "18", "00"), "19", "01"), "20", "02");
    // As it stands, and with other prices in the second pass, as a clock that goes back would bring
    // them.
    let (first, second) = moved.split_at(moved.match_indices("20191103 010000").nth(1).unwrap().0);
    let changed = format!("{first}{}", second.replace(";1.108", ";1.109"));
    let cases = [(&moved, (81, 60, 0)), (&changed, (141, 0, 60))];
    for (text, (bars, copies, second_pass)) in cases {
        let path = folder.path().join("EURUSD.csv");
        std::fs::write(&path, text).unwrap();
        let zone = Some("America/New_York".parse().unwrap());
        let options = ReadOptions { zone, on_error: OnError::Skip, ..ReadOptions::default() };
        let summary = read(&[path], &options).unwrap().summary;
        let found = (summary.bars.all, summary.dropped(RowError::Copy), summary.fixed(RowFix::SecondPass));
        assert_eq!(found, (bars, copies, second_pass));
    }
}

#[test]
fn null_fields_are_an_unreadable_row() {
    let name = "18_stocknet_SNP_L960-964_null_fields.csv";
    let Some(failed) = read_dirty(name, OnError::Fail) else { return };
    let message = failed.unwrap_err();
    for part in [name, "line 3", "unreadable row", "a number for open in field 2", "2016-06-29,null"] {
        assert!(message.contains(part), "{part} in {message}");
    }
    for on_error in [OnError::Skip, OnError::Repair] {
        let Recording { bars, summary, .. } = read_dirty(name, on_error).unwrap().unwrap();
        assert_eq!((summary.base, bars.len(), summary.dropped(RowError::Unreadable)), (Timeframe::D1, 4, 1));
        assert_eq!(bars.volume[0], 180_700.0, "the volume is the last column, after the adjusted close");
    }
}

#[test]
fn a_saved_json_error_is_no_file_of_bars() {
    for on_error in OnError::ALL {
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
    let message = read(&[&path], &ReadOptions::default()).unwrap_err().to_string();
    for part in ["line 1", "unreadable row", "a timestamp of format iso in field 1", "-(2018-10-12 12:00"] {
        assert!(message.contains(part), "{part} in {message}");
    }
    for on_error in [OnError::Skip, OnError::Repair] {
        let options = ReadOptions { on_error, ..ReadOptions::default() };
        let file = &read(&[&path], &options).unwrap().summary.files[0];
        let dropped = file.dropped[0];
        assert_eq!(
            (file.rows, file.kept, dropped.kind, dropped.rows, dropped.first_line),
            (50_000, 49_999, RowError::Unreadable, 1, 1)
        );
    }
}
