//! Advice on errors of the libraries: the options and commands that fix them. The libraries
//! themselves know nothing of the command line.

use std::error::Error as StdError;

use megabatch_bars::{Error as BarsError, RowError};
use megabatch_chunk_io::Error as FileError;
use megabatch_nn::Error as ModelError;
use megabatch_trainer::Error as TrainerError;

/// Options that fix `cause`, as the end of a sentence; `None` where no option does.
pub(crate) fn advice(cause: &(dyn StdError + 'static)) -> Option<&'static str> {
    if let Some(FileError::NotHdf5 { .. }) = cause.downcast_ref() {
        return Some("bars in text form become a series file with `megabatch ingest`");
    }
    cause.downcast_ref().and_then(of_training).or_else(|| cause.downcast_ref().and_then(of_bars))
}

fn of_training(error: &TrainerError) -> Option<&'static str> {
    Some(match error {
        TrainerError::NotOnGpu { .. } | TrainerError::Model(ModelError::NotOnGpu { .. }) => "use `--device cpu`",
        TrainerError::NeedsSeries { .. } => "megabatch convert turns them into series",
        TrainerError::NotDistributed { .. } => "use `--distributed off`, or change it",
        TrainerError::TooManyRanks { .. } => "`--set distributed.idle_ranks=allow` lets them wait",
        TrainerError::ReadoutLevel { .. } => "or leave it at auto",
        _ => return None,
    })
}

fn of_bars(error: &BarsError) -> Option<&'static str> {
    Some(match error {
        BarsError::BadRow { kind: RowError::Duplicate, .. } => {
            "use `--repeats first` or `last`, or `--on-error skip` or `repair`, which keep the first"
        }
        BarsError::BadRow { .. } => {
            "`--on-error repair` mends or drops such rows and counts them, `--on-error skip` only drops them"
        }
        BarsError::Crossed { .. } => "`--on-error repair` takes such a spread as 0, `--on-error skip` drops such bars",
        BarsError::Several { .. } => "`--on-error skip` leaves them out, where others are left",
        BarsError::UnknownDateOrder { .. } => "use `--date-order day-first` or `month-first`",
        BarsError::MixedSymbols { .. } | BarsError::SymbolColumns { .. } => "use `--symbol`",
        BarsError::UnknownPipSize { .. } => "use `--target log_return` or `--pip-size`",
        BarsError::UnknownBase { .. } | BarsError::WrongBase { .. } | BarsError::ShorterBars { .. } => "use `--base`",
        BarsError::TooShort { segments, .. } if *segments > 1 => "use `--timeframes`, `--features` or `--longest-hole`",
        BarsError::TooShort { .. } => "use `--timeframes` or `--features`",
        BarsError::TooFewToFit { .. } => {
            "use `--on-error skip`, which leaves it out, `--train-fraction` or `--scaling none`"
        }
        BarsError::Invalid { key: "zone", .. } => "use `--zone`",
        _ => return None,
    })
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
            "training.carry_state is true: expected false for windows; megabatch convert turns them into series"
        );
        let error = BarsError::UnknownPipSize { symbol: "X".to_owned() };
        assert!(Error::from(error).to_string().ends_with("; use `--target log_return` or `--pip-size`"));
    }
}
