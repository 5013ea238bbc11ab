//! Files and rows of symbols that are stated, written in another form, or one of several.

use super::*;

/// A file with another name than those of before was of another symbol, and `--symbol` was refused.
#[test]
fn a_file_of_any_name_is_of_the_one_symbol_that_is_stated() {
    let stage = Stage::new();
    let new = part(&stage.whole, "export_2024.csv", CUT..rows_in(&stage.whole));
    let plain = Recipe { symbol_pattern: None, ..base(Vec::new()) };
    let old = part(&stage.whole, "EURUSD.csv", 0..CUT);
    ingest(&Recipe { bars: vec![old], ..plain.clone() }, &stage.out, &Host::silent()).unwrap();
    let said = |files: &[&PathBuf], symbol: Option<&str>| {
        let bars = files.iter().map(|&file| file.clone()).collect();
        let recipe = Recipe { bars, symbol: symbol.map(str::to_owned), ..plain.clone() };
        let stated = symbol.map(|_| "symbol".to_owned());
        append(&recipe, stated.as_slice(), &stage.out, &Host::silent()).map_err(|error| error.to_string())
    };
    let refused = said(&[&new], None).unwrap_err();
    assert!(
        refused.contains("bars of EXPORT_2024 by its name") && refused.contains("add `--symbol EURUSD`"),
        "{refused}"
    );
    // `--symbol` was told, and refused: the files are named after two symbols.
    let other = part(&stage.whole, "GBPUSD_M1_live.csv", CUT..rows_in(&stage.whole));
    let refused = said(&[&other], None).unwrap_err();
    assert!(
        refused.contains("bars of GBPUSD by its name")
            && refused.contains("if bars of EURUSD are meant, name the file after EURUSD;")
            && !refused.contains("--symbol"),
        "{refused}"
    );
    // A fault of the rows is no fault of the name.
    let alike = stage.whole.with_file_name("alike.csv");
    fs::write(&alike, "date,open,high,low,close,symbol\n2018-03-01,1,1,1,1,AAA\n2018-03-01,1,1,1,1,aaa\n").unwrap();
    let refused = said(&[&alike], None).unwrap_err();
    assert!(refused.contains("the symbols AAA and aaa differ") && !refused.contains("--symbol"), "{refused}");
    let refused = said(&[&new], Some("GBPUSD")).unwrap_err();
    assert!(refused.contains("--symbol GBPUSD: ") && refused.contains("has bars of EURUSD"), "{refused}");
    let before = fs::read(&stage.out).unwrap();
    ingest(&base(vec![stage.old.clone()]), &stage.out, &Host::silent()).unwrap();
    let refused = said(&[&new], None).unwrap_err();
    assert!(refused.contains("does not fit `{}-*`") && refused.contains("add `--symbol EURUSD`"), "{refused}");
    // With the ending of a broker it was refused.
    for symbol in ["EURUSD.r", "EURUSD"] {
        fs::write(&stage.out, &before).unwrap();
        let report = said(&[&new], Some(symbol)).unwrap();
        assert_eq!(report.json["appended"]["bars"]["EURUSD"], rows_in(&stage.whole) - CUT);
    }
    let scalers = ExistingSeries::open(&stage.out).unwrap().scalers;
    assert!(fs::read(&stage.out).unwrap() == ingested_anew(&stage.out, &scalers), "other bytes");
    leak::prove(&stage.out, &leak::Options { samples: 2, ..leak::Options::default() }, &Host::silent()).unwrap();
    // The series has the symbol now: it need not be stated again.
    for symbol in [None, Some("EURUSD.r")] {
        assert_eq!(said(&[&new], symbol).unwrap().json["appended"]["samples"], 0);
    }
}

/// A folder of several symbols was refused with the advice to name files of others after the one of
/// the series.
#[test]
fn a_folder_of_several_symbols_is_refused_with_the_option_that_takes_one() {
    let stage = Stage::new();
    let plain = Recipe { symbol_pattern: None, ..base(Vec::new()) };
    let old = part(&stage.whole, "EURUSD.csv", 0..CUT);
    ingest(&Recipe { bars: vec![old], ..plain.clone() }, &stage.out, &Host::silent()).unwrap();
    let live = stage.folder.path().join("live");
    fs::create_dir(&live).unwrap();
    for name in ["live/EURUSD_live.csv", "live/GBPUSD_live.csv"] {
        part(&stage.whole, name, CUT..rows_in(&stage.whole));
    }
    let whole_folder = Recipe { bars: vec![live], ..plain };
    let refused = append(&whole_folder, &[], &stage.out, &Host::silent()).unwrap_err().to_string();
    let advice = "has EURUSD; `--symbol EURUSD` reads the files of EURUSD in its folder alone;";
    assert!(refused.contains("bars of GBPUSD by its name") && refused.contains(advice), "{refused}");
    let stated = Recipe { symbol: Some("EURUSD".to_owned()), ..whole_folder };
    let report = append(&stated, &["symbol".to_owned()], &stage.out, &Host::silent()).unwrap();
    assert_eq!(report.json["appended"]["bars"]["EURUSD"], rows_in(&stage.whole) - CUT);
}

/// A file of several symbols was refused, whose rows name the one with the ending of a broker.
#[test]
fn rows_of_the_stated_symbol_are_appended_from_a_file_of_several() {
    let stage = Stage::new();
    let plain = Recipe { symbol_pattern: None, ..base(Vec::new()) };
    let old = part(&stage.whole, "EURUSD.csv", 0..CUT);
    ingest(&Recipe { bars: vec![old], ..plain.clone() }, &stage.out, &Host::silent()).unwrap();
    let whole = fs::read_to_string(&stage.whole).unwrap();
    let rows = whole.lines().skip(CUT).map(|row| format!("{row},GBPUSD.r\n{row},EURUSD.r\n"));
    let mixed = stage.whole.with_file_name("mixed.csv");
    fs::write(&mixed, format!("{},symbol\n{}", whole.lines().next().unwrap(), rows.collect::<String>())).unwrap();
    let append_as = |symbol: &str| {
        let recipe = Recipe { bars: vec![mixed.clone()], symbol: Some(symbol.to_owned()), ..plain.clone() };
        append(&recipe, &["symbol".to_owned()], &stage.out, &Host::silent())
    };
    let report = append_as("EURUSD.r").unwrap();
    assert_eq!(report.json["appended"]["bars"]["EURUSD"], rows_in(&stage.whole) - CUT);
    assert!(report.text.contains("mixed.csv: rows of EURUSD.r are taken for those of EURUSD"), "{}", report.text);
    // They are found again.
    leak::prove(&stage.out, &leak::Options { samples: 2, ..leak::Options::default() }, &Host::silent()).unwrap();
    assert_eq!(append_as("EURUSD").unwrap().json["appended"]["samples"], 0);
}

/// A file that is named after one of several symbols, with the ending of a broker, was refused.
#[test]
fn a_file_of_one_of_several_symbols_with_endings_is_appended() {
    let stage = Stage::new();
    let plain = Recipe { symbol_pattern: None, ..base(Vec::new()) };
    let whole = fs::read_to_string(&stage.whole).unwrap();
    let mut lines = whole.lines().take(CUT);
    let header = lines.next().unwrap();
    let rows: String = lines.map(|row| format!("{row},EURUSD.r\n{row},GBPUSD.r\n")).collect();
    let mixed = stage.whole.with_file_name("mixed.csv");
    fs::write(&mixed, format!("{header},symbol\n{rows}")).unwrap();
    ingest(&Recipe { bars: vec![mixed], ..plain.clone() }, &stage.out, &Host::silent()).unwrap();
    let new = part(&stage.whole, "EURUSD.r_M1_live.csv", CUT..rows_in(&stage.whole));
    let recipe = Recipe { bars: vec![new], ..plain };
    let report = append(&recipe, &[], &stage.out, &Host::silent()).unwrap();
    assert_eq!(report.json["appended"]["bars"]["EURUSD.r"], rows_in(&stage.whole) - CUT);
    // It is found again.
    leak::prove(&stage.out, &leak::Options { samples: 2, ..leak::Options::default() }, &Host::silent()).unwrap();
    let stated = Recipe { symbol: Some("eurusd.r".to_owned()), ..recipe };
    let report = append(&stated, &["symbol".to_owned()], &stage.out, &Host::silent()).unwrap();
    assert_eq!(report.json["appended"]["samples"], 0);
    // Without bars any symbol was accepted.
    let unknown = Recipe { symbol: Some("NOPE".to_owned()), bars: Vec::new(), ..stated };
    let refused = append(&unknown, &["symbol".to_owned()], &stage.out, &Host::silent()).unwrap_err().to_string();
    assert!(
        refused.contains("--symbol NOPE: ") && refused.contains("has bars of EURUSD.r, GBPUSD.r; a new symbol needs"),
        "{refused}"
    );
}

/// A recipe of bars of any symbols, of which a series of EURUSD and GBPUSD is made.
fn series_of_two(stage: &Stage) -> Recipe {
    let plain = Recipe { symbol_pattern: None, ..base(Vec::new()) };
    let old = ["EURUSD.csv", "GBPUSD.csv"].map(|name| part(&stage.whole, name, 0..CUT));
    ingest(&Recipe { bars: old.to_vec(), ..plain.clone() }, &stage.out, &Host::silent()).unwrap();
    plain
}

/// Bars of `BRK-B` were those of a new symbol, without a word of `BRK.B`.
#[test]
fn a_symbol_in_another_form_is_refused_with_the_one_that_is_known() {
    let stage = Stage::new();
    let plain = Recipe { symbol_pattern: None, ..base(Vec::new()) };
    let old = ["AAPL.csv", "BRK.B.csv"].map(|name| part(&stage.whole, name, 0..CUT));
    ingest(&Recipe { bars: old.to_vec(), ..plain.clone() }, &stage.out, &Host::silent()).unwrap();
    let named = part(&stage.whole, "BRK-B.csv", CUT..rows_in(&stage.whole));
    let mixed = later_rows(&stage, &["AAPL", "BRK-B"]);
    for (file, symbol, expected) in [
        (&named, None, "if bars of BRK.B are meant, write this symbol in its name;"),
        (&mixed, None, "if bars of BRK.B are meant, write this symbol in its rows;"),
        (&named, Some("BRK/B".to_owned()), "; did you mean BRK.B?"),
    ] {
        let stated = symbol.iter().map(|_| "symbol".to_owned()).collect::<Vec<_>>();
        let recipe = Recipe { bars: vec![file.clone()], symbol, ..plain.clone() };
        let refused = append(&recipe, &stated, &stage.out, &Host::silent()).unwrap_err().to_string();
        assert!(refused.contains(expected) && refused.contains("a new symbol needs a scaler"), "{refused}");
    }
}

/// A file with the later rows of each of `symbols`.
fn later_rows(stage: &Stage, symbols: &[&str]) -> PathBuf {
    let whole = fs::read_to_string(&stage.whole).unwrap();
    let with_symbols = |row: &str| symbols.iter().map(|symbol| format!("{row},{symbol}\n")).collect::<String>();
    let rows: String = whole.lines().skip(CUT).map(with_symbols).collect();
    let mixed = stage.whole.with_file_name("mixed.csv");
    fs::write(&mixed, format!("{},symbol\n{rows}", whole.lines().next().unwrap())).unwrap();
    mixed
}

/// A stated symbol was refused for a file of several, beside a series of several.
#[test]
fn rows_of_one_of_several_symbols_are_appended_from_a_file_of_several() {
    let stage = Stage::new();
    let plain = series_of_two(&stage);
    let mixed = later_rows(&stage, &["GBPUSD.r", "EURUSD.r", "AUDUSD.r"]);
    let append_as = |symbol: &str| {
        let recipe = Recipe { bars: vec![mixed.clone()], symbol: Some(symbol.to_owned()), ..plain.clone() };
        append(&recipe, &["symbol".to_owned()], &stage.out, &Host::silent())
    };
    let refused = append_as("AUDUSD.r").unwrap_err().to_string();
    assert!(refused.contains("has bars of EURUSD, GBPUSD; a new symbol needs a scaler"), "{refused}");
    let rows = rows_in(&stage.whole) - CUT;
    for (symbol, counts) in [("EURUSD.r", [rows, 0]), ("gbpusd", [0, rows])] {
        let report = append_as(symbol).unwrap();
        assert_eq!(report.json["appended"]["bars"], serde_json::json!({ "EURUSD": counts[0], "GBPUSD": counts[1] }));
        // They are found again.
        leak::prove(&stage.out, &leak::Options { samples: 2, ..leak::Options::default() }, &Host::silent()).unwrap();
        assert_eq!(append_as(symbol).unwrap().json["appended"]["samples"], 0);
    }
}

/// A file of which the rows of one symbol were appended was said to have no others.
#[test]
fn all_rows_of_a_file_are_appended_after_those_of_one_symbol() {
    let stage = Stage::new();
    let plain = Recipe { bars: vec![later_rows(&stage, &["EURUSD", "GBPUSD"])], ..series_of_two(&stage) };
    let stated = Recipe { symbol: Some("EURUSD".to_owned()), ..plain.clone() };
    let rows = rows_in(&stage.whole) - CUT;
    for (recipe, names, counts) in [(&stated, &["symbol".to_owned()][..], [rows, 0]), (&plain, &[], [0, rows])] {
        let report = append(recipe, names, &stage.out, &Host::silent()).unwrap();
        assert_eq!(report.json["appended"]["bars"], serde_json::json!({ "EURUSD": counts[0], "GBPUSD": counts[1] }));
        leak::prove(&stage.out, &leak::Options { samples: 2, ..leak::Options::default() }, &Host::silent()).unwrap();
    }
    assert_eq!(append(&plain, &[], &stage.out, &Host::silent()).unwrap().json["appended"]["samples"], 0);
}

/// `--symbol eurusd.r` was refused for a series of `EURUSD.r`.
#[test]
fn the_symbol_may_be_stated_in_lower_case() {
    let stage = Stage::new();
    let stated = |symbol: &str, file: PathBuf| Recipe {
        symbol: Some(symbol.to_owned()),
        symbol_pattern: None,
        ..base(vec![file])
    };
    ingest(&stated("EURUSD.r", stage.old.clone()), &stage.out, &Host::silent()).unwrap();
    let recipe = stated("eurusd.r", stage.rest(CUT));
    let report = append(&recipe, &["symbol".to_owned()], &stage.out, &Host::silent()).unwrap();
    assert_eq!(report.json["appended"]["bars"]["EURUSD.r"], rows_in(&stage.whole) - CUT);
}

/// A file of the stated symbol's name was refused beside one of another name that was taken for it.
#[test]
fn a_file_that_is_named_after_the_stated_symbol_is_of_it() {
    let stage = Stage::new();
    let plain = Recipe { symbol: Some("EURUSD".to_owned()), symbol_pattern: None, ..base(Vec::new()) };
    let old = part(&stage.whole, "GBPUSD.csv", 0..CUT);
    ingest(&Recipe { bars: vec![old], ..plain.clone() }, &stage.out, &Host::silent()).unwrap();
    let rows = rows_in(&stage.whole);
    let append_as = |name: &str, end: usize| {
        let new = part(&stage.whole, name, CUT..end);
        append(&Recipe { bars: vec![new], ..plain.clone() }, &[], &stage.out, &Host::silent())
    };
    let said = append_as("USDJPY.csv", rows).unwrap_err().to_string();
    assert!(
        said.contains("GBPUSD.csv is named after GBPUSD, and ") && said.contains("USDJPY.csv after USDJPY"),
        "{said}"
    );
    // Beside that file, those of before were two names, and every other file was refused.
    for (name, end, count) in
        [("EURUSD_new.csv", rows - 200, rows - 200 - CUT), ("GBPUSD_2.csv", rows - 100, 100), ("last.csv", rows, 100)]
    {
        assert_eq!(append_as(name, end).unwrap().json["appended"]["bars"]["EURUSD"], count, "{name}");
    }
}
