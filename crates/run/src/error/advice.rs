//! Advice on errors of the libraries: the options and commands that fix them. The libraries
//! themselves know nothing of the command line.

use std::error::Error as StdError;
use std::path::Path;

use megabatch_bars::{BarDifference, ColumnFault, Error as BarsError, Excluded, FunctionFault, RowError, TickError};
use megabatch_chunk_io::Error as FileError;
use megabatch_graph_cache::Error as GraphError;
use megabatch_nn::Error as ModelError;
use megabatch_trainer::Error as TrainerError;

/// Options that fix `cause`, as the end of a sentence; `None` where no option does.
pub(crate) fn advice(cause: &(dyn StdError + 'static)) -> Option<&'static str> {
    if let Some(FileError::NotHdf5 { .. }) = cause.downcast_ref() {
        return Some("bars in text form become a series file with `megabatch ingest`");
    }
    if let Some(GraphError::NoPositions) = cause.downcast_ref() {
        return Some("`megabatch graph build --kind sdf --positions` keeps them");
    }
    cause.downcast_ref().and_then(training_advice).or_else(|| cause.downcast_ref().and_then(bars_advice))
}

fn training_advice(error: &TrainerError) -> Option<&'static str> {
    Some(match error {
        TrainerError::NotOnGpu { .. } | TrainerError::Model(ModelError::NotOnGpu { .. }) => "use `--device cpu`",
        TrainerError::NeedsSeries { .. } => "`megabatch convert` turns them into series",
        TrainerError::NotDistributed { .. } => "use `--distributed off`, or change it",
        TrainerError::TooManyRanks { .. } => "`--set distributed.idle_ranks=allow` lets them wait",
        TrainerError::ReadoutLevel { .. } => "or leave it at auto",
        _ => return None,
    })
}

fn bars_advice(error: &BarsError) -> Option<&'static str> {
    Some(match error {
        BarsError::BadRow { kind: RowError::Duplicate, .. } => {
            "use `--repeats first` or `last`, or `--on-error skip` or `repair`, which keep the first"
        }
        BarsError::BadRow { kind: RowError::Unfinished, .. } => "wait until that line is whole, or delete it",
        BarsError::BadRow { .. } => {
            "`--on-error repair` mends or drops such rows and counts them, `--on-error skip` only drops them"
        }
        BarsError::UnknownFormat { .. } | BarsError::NoRows { .. } | BarsError::Unsorted { .. } => {
            "among other files, `--on-error skip` leaves such a one out and names it"
        }
        BarsError::EmptyColumns { .. } => "`--on-error skip` leaves it out, as long as others are left",
        BarsError::Ticks { .. } => "`megabatch ticks` makes bars of them",
        BarsError::Tick(error) => return tick_advice(error),
        BarsError::Crossed { .. } => "`--on-error repair` takes such a spread as 0, `--on-error skip` drops such bars",
        BarsError::Several { failed, .. } => for_instruments(failed),
        BarsError::Overlap { earlier, later, .. } if are_sides(earlier, later) => {
            "they look like bid and ask: name them with `--bid` and `--ask`"
        }
        BarsError::Overlap { .. } => "use `--overlaps once` if they have the same bars there",
        BarsError::UnlikeBars { path, other, .. } if are_sides(path, other) => {
            "they look like bid and ask: name them with `--bid` and `--ask`"
        }
        BarsError::UnlikeBars { difference, .. } if matches!(**difference, BarDifference::NoSpread { .. }) => NO_SPREAD,
        BarsError::UnlikeBars { .. } => UNLIKE_BARS,
        BarsError::UnknownDateOrder { .. } => "use `--date-order day-first` or `month-first`",
        BarsError::MixedSymbols { .. } => "use `--symbol`",
        BarsError::Columns { fault, .. } if matches!(**fault, ColumnFault::SymbolColumns { .. }) => "use `--symbol`",
        BarsError::UnknownPipSize { .. } => {
            "use `--symbol` where a file's name does not tell the pair, else `--target log_return` or `--pip-size`"
        }
        BarsError::MonthlyBase { .. } => "use `--timeframes`, such as D1:20,MN1:6",
        BarsError::UnknownBase { .. } | BarsError::WrongBase { .. } | BarsError::ShorterBars { .. } => "use `--base`",
        BarsError::TooShort { segments, .. } if *segments > 1 => {
            "use `--timeframes`, `--features`, `--horizon` or `--longest-hole`"
        }
        BarsError::TooShort { .. } => "use `--timeframes`, `--features` or `--horizon`",
        BarsError::TooFewToFit { .. } => {
            "use `--on-error skip`, which leaves it out, `--train-fraction` or `--scaling none`"
        }
        BarsError::Function { fault, .. } if matches!(**fault, FunctionFault::Value { to_the_end: false, .. }) => {
            "`--on-error skip` drops such bars"
        }
        BarsError::Invalid { key: "zone", .. } => "use `--zone`",
        BarsError::OwnBars { .. } => "use `--zone` or `--bins`, or leave out `--own-bars`",
        BarsError::Straddles { .. } => "use `--zone`, `--bins` or `--timeframes`",
        _ => return None,
    })
}

/// The usual causes of files that do not agree where they overlap.
const UNLIKE_BARS: &str = "if the bar was unfinished when its file was exported, delete it there and ingest all bars \
     anew; a dividend or split changes all adjusted prices before it: where that is so, ingest all bars anew";

/// The usual cause of bars that differ in their spread alone.
const NO_SPREAD: &str = "one file has spreads, which MetaTrader 5 exports and MetaTrader 4 does not: export both from \
     the same terminal, or leave out the bars that the other has already";

fn tick_advice(error: &TickError) -> Option<&'static str> {
    Some(match error {
        TickError::BadRow { .. } => "`--on-error skip` drops such ticks and counts them",
        TickError::UnknownZone { .. } => "use `--zone`, which is new-york+7 for most brokers",
        TickError::UnknownPoint { .. } => "use `--point`",
        TickError::NoPrice { .. } => "use `--price`",
        TickError::NoVolume { .. } => "use `--volume ticks`, or `--bars ticks:N`",
        TickError::NoFullBar { .. } => "use `--bars`",
        _ => return None,
    })
}

/// Options for instruments that cannot be used. A bad row is dropped; a bad file drops its
/// instrument. Dropping hides no adjustment: the other instruments may have one too.
fn for_instruments(failed: &[Excluded]) -> &'static str {
    if let Some(unlike) = failed.iter().find(|excluded| matches!(excluded.reason, BarsError::UnlikeBars { .. })) {
        return bars_advice(&unlike.reason).unwrap_or(UNLIKE_BARS);
    }
    let has_bad_row = |excluded: &Excluded| matches!(excluded.reason, BarsError::BadRow { .. });
    match (failed.iter().any(has_bad_row), failed.iter().all(has_bad_row)) {
        (_, true) => "`--on-error repair` mends or drops such rows and counts them, `--on-error skip` only drops them",
        (true, false) => {
            "`--on-error skip` drops such rows, and leaves the other instruments out, as long as some are left"
        }
        (false, false) => "`--on-error skip` leaves these instruments out, as long as others are left",
    }
}

/// True if the names of two files say that one has the bid and the other the ask.
fn are_sides(one: &Path, other: &Path) -> bool {
    let has = |path: &Path, side: &str| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        name.split(|c: char| !c.is_alphanumeric()).any(|word| word == side)
    };
    (has(one, "bid") && has(other, "ask")) || (has(one, "ask") && has(other, "bid"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn errors_of_libraries_are_followed_by_the_options_that_fix_them() {
        let error = TrainerError::NotOnGpu { setting: "profile", value: "true".to_owned(), together_with: "" };
        assert_eq!(
            Error::from(error).context("run").to_string(),
            "run: training.profile is true, which is not supported on a GPU yet; use `--device cpu`"
        );
        let error = TrainerError::NeedsSeries { setting: "carry_state", value: "true", expected: "false for windows" };
        assert_eq!(
            Error::from(error).to_string(),
            "training.carry_state is true: expected false for windows; `megabatch convert` turns them into series"
        );
        assert_eq!(
            Error::from(GraphError::NoPositions).to_string(),
            "graphs with no positions of nodes cannot be exported as SDF: build them of molecules with their positions; \
             `megabatch graph build --kind sdf --positions` keeps them"
        );
        let error = BarsError::UnknownPipSize { symbol: "X".to_owned() };
        assert!(Error::from(error).to_string().ends_with(
            "; use `--symbol` where a file's name does not tell the pair, else `--target log_return` or `--pip-size`"
        ));
    }

    /// `ingest --append` of a file that was being written advised an option that it refuses.
    #[test]
    fn a_line_that_is_being_written_is_waited_for() {
        let error = BarsError::BadRow {
            path: "A.csv".into(),
            line: 3,
            kind: RowError::Unfinished,
            expected: "5 fields or more, and there are 2".to_owned(),
            text: "2018-01-02 00:05,1.".to_owned(),
        };
        let text = Error::from(error).to_string();
        assert!(text.ends_with("; wait until that line is whole, or delete it"), "{text}");
    }

    /// Thirty files with a bad row each were told that skipping leaves them out: it drops a row of
    /// each.
    #[test]
    fn skipping_costs_a_row_or_an_instrument() {
        let row = || BarsError::BadRow {
            path: "A.csv".into(),
            line: 3,
            kind: RowError::Unreadable,
            expected: "a number".to_owned(),
            text: "x".to_owned(),
        };
        let unlike = || BarsError::UnlikeBars {
            path: "later.csv".into(),
            line: 3,
            time: "2018-01-02".to_owned(),
            other: "A.csv".into(),
            difference: Box::new(BarDifference::Column),
        };
        let excluded = |reason| Excluded { symbol: "A".to_owned(), reason };
        for (failed, says) in [
            (vec![row(), row()], "only drops them"),
            (vec![row(), BarsError::NoFiles], "drops such rows, and leaves the other instruments out"),
            (vec![BarsError::NoFiles, BarsError::NoFiles], "leaves these instruments out"),
            (vec![unlike(), unlike()], "a dividend or split changes all adjusted prices before it"),
        ] {
            let error = BarsError::Several { instruments: 3, failed: failed.into_iter().map(excluded).collect() };
            let text = Error::from(error).to_string();
            assert!(text.contains(says), "{text}");
            assert!(!says.starts_with("a dividend") || !text.contains("--on-error"), "{text}");
        }
    }

    /// An export without spreads was told of dividends.
    #[test]
    fn bars_without_the_spread_of_others_are_told_of_the_terminal() {
        let error = BarsError::UnlikeBars {
            path: "EURUSD1.csv".into(),
            line: 3,
            time: "2018-01-02".to_owned(),
            other: "EURUSD_M1.csv".into(),
            difference: Box::new(BarDifference::NoSpread { spread: 0.0001, is_first: true }),
        };
        let text = Error::from(error).to_string();
        assert!(text.contains("(it has no spread, and the other has the spread 0.0001)"), "{text}");
        assert!(
            text.contains("MetaTrader 5 exports and MetaTrader 4 does not") && !text.contains("dividend"),
            "{text}"
        );
    }

    #[test]
    fn bid_and_ask_as_plain_files_are_told_how_to_be_named() {
        let overlap = |earlier: &str, later: &str| {
            let [begins, ends] = ["x", "y"].map(str::to_owned);
            Error::from(BarsError::Overlap { earlier: earlier.into(), later: later.into(), begins, ends }).to_string()
        };
        let text = overlap("usdjpy-m1-bid-2013.csv.gz", "usdjpy-m1-ask-2013.csv.gz");
        assert!(text.ends_with("name them with `--bid` and `--ask`"), "{text}");
        let text = overlap("EURUSD_2018.csv", "EURUSD_task.csv");
        assert!(!text.contains("--bid"), "{text}");
        assert!(text.ends_with("; use `--overlaps once` if they have the same bars there"), "{text}");
    }
}
