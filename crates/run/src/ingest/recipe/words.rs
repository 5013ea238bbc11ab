//! A recipe as the arguments of `ingest`, which the series file keeps.

use std::path::{Path, PathBuf};

use megabatch_bars::{ColumnFeature, Feature, Overlaps, Prices, Repeats, StampedAt, Weekends};

use super::{Bins, Calendar, Recipe, column_name, symbol_name};

/// Words of a choice, each with its value.
type Words<T, const N: usize> = [(&'static str, T); N];

/// Options by which rows are read.
const READING: [&str; 5] = ["zone", "time", "prices", "on-error", "repeats"];

/// Name of the words with a symbol, and a file of which its rows are read. No user states them.
const ROWS: &str = "rows";

const TIME: Words<StampedAt, 2> = [("open", StampedAt::Open), ("close", StampedAt::Close)];
const PRICES: Words<Prices, 3> =
    [("auto", Prices::AdjustedIfGiven), ("quoted", Prices::AsQuoted), ("adjusted", Prices::Adjusted)];
const REPEATS: Words<Repeats, 3> = [("refuse", Repeats::Refuse), ("first", Repeats::First), ("last", Repeats::Last)];
const OVERLAPS: Words<Overlaps, 2> = [("refuse", Overlaps::Refuse), ("once", Overlaps::EqualOnce)];
const CALENDAR: Words<Calendar, 2> = [("all", Calendar::All), ("common", Calendar::Common)];
const WEEKENDS: Words<Weekends, 2> = [("span", Weekends::Spanned), ("split", Weekends::NotSpanned)];

impl Recipe {
    /// The recipe as arguments, including those at their defaults, so that defaults of other
    /// versions change nothing. Versions that do not know `overlaps`, `bins` or `own-bars` read
    /// what has none of them.
    pub(crate) fn to_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let given = [
            ("symbol", self.symbol.clone()),
            ("symbol-pattern", self.symbol_pattern.as_ref().map(ToString::to_string)),
            ("pip-size", self.pip_size.as_ref().map(ToString::to_string)),
            ("format", self.format.map(|format| format.to_string())),
            ("date-order", self.date_order.map(|order| order.to_string())),
            ("zone", self.zone.as_ref().map(ToString::to_string)),
            ("base", self.base.map(|base| base.to_string())),
            ("time", Some(word(&TIME, &self.time))),
            ("prices", Some(word(&PRICES, &self.prices))),
            ("on-error", Some(self.on_error.to_string())),
            ("repeats", Some(word(&REPEATS, &self.repeats))),
            ("overlaps", (self.overlaps != Overlaps::Refuse).then(|| word(&OVERLAPS, &self.overlaps))),
            ("calendar", Some(word(&CALENDAR, &self.calendar))),
            ("timeframes", Some(self.timeframes.to_string())),
            ("bins", (self.bins != Bins::default()).then(|| self.bins.to_string())),
            ("own-bars", self.own_bars.then(|| self.own_bars.to_string())),
            ("features", Some(self.features.to_string())),
            ("function-columns", (!self.function_columns.is_empty()).then(|| columns_text(&self.function_columns))),
            ("horizon", Some(self.horizon.to_string())),
            ("target", Some(self.target.to_string())),
            ("label-end", self.label_end.as_ref().map(|name| format!("{}:{name}", self.label_origin()))),
            ("weight", self.weight.as_ref().map(|name| format!("column:{name}"))),
            ("stride", Some(self.stride.to_string())),
            ("longest-hole", Some(self.longest_hole.to_string())),
            ("weekends", Some(word(&WEEKENDS, &self.weekends))),
            ("scaling", Some(self.scaling.to_string())),
            ("train-fraction", Some(self.train_fraction.to_string())),
        ];
        words.extend(given.into_iter().filter_map(|(name, value)| value.map(|value| format!("--{name}={value}"))));
        words.extend(self.context.iter().map(|file| format!("--context={file}")));
        for (path, symbols) in &self.file_symbols {
            words.extend(symbols.iter().map(|symbol| format!("--{ROWS}={symbol}={}", path.display())));
        }
        for (side, paths) in [("bid", &self.bid), ("ask", &self.ask)] {
            words.extend(paths.iter().map(|path| format!("--{side}={}", path.display())));
        }
        words.push("--".to_owned());
        words.extend(self.bars.iter().map(|path| path.display().to_string()));
        words
    }

    /// The recipe that [`Recipe::to_words`] wrote; `None` for other words.
    pub(crate) fn from_words(words: &[String]) -> Option<Self> {
        let mut recipe = Recipe::default();
        let mut words = words.iter().map(String::as_str).peekable();
        while let Some(word) = words.next() {
            if word == "--" {
                recipe.bars.extend(words.by_ref().map(PathBuf::from));
                break;
            }
            let Some(option) = word.strip_prefix("--") else {
                recipe.bars.push(word.into());
                continue;
            };
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, value),
                None => (option, words.next()?),
            };
            if name == ROWS {
                // A symbol such as EURUSD=X has the sign too. Paths are absolute.
                let (symbol, path) = value.split_once("=/")?;
                let symbols = recipe.file_symbols.entry(Path::new("/").join(path)).or_default();
                symbols.push(symbol.to_owned());
                continue;
            }
            recipe.set(name, value)?;
            if let "bid" | "ask" = name {
                while let Some(path) = words.next_if(|word| !option.contains('=') && !word.starts_with("--")) {
                    recipe.set(name, path)?;
                }
            }
        }
        recipe.is_whole().then_some(recipe)
    }

    pub(in crate::ingest) fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "symbol" => self.symbol = Some(symbol_name(value).ok()?),
            "symbol-pattern" => self.symbol_pattern = Some(value.parse().ok()?),
            "pip-size" => self.pip_size = Some(value.parse().ok()?),
            "format" => self.format = Some(value.parse().ok()?),
            "date-order" => self.date_order = Some(value.parse().ok()?),
            "zone" => self.zone = Some(value.parse().ok()?),
            "base" => self.base = Some(value.parse().ok()?),
            "time" => self.time = value_of(&TIME, value)?,
            "prices" => self.prices = value_of(&PRICES, value)?,
            "on-error" => self.on_error = value.parse().ok()?,
            "repeats" => self.repeats = value_of(&REPEATS, value)?,
            "overlaps" => self.overlaps = value_of(&OVERLAPS, value)?,
            "calendar" => self.calendar = value_of(&CALENDAR, value)?,
            "timeframes" => self.timeframes = value.parse().ok()?,
            "bins" => self.bins = value.parse().ok()?,
            "own-bars" => self.own_bars = value.parse().ok()?,
            "features" => self.features = value.parse().ok()?,
            "context" => self.context.push(value.parse().ok()?),
            "function-columns" => self.function_columns = columns_of(value)?,
            "horizon" => self.horizon = value.parse().ok()?,
            "target" => self.target = value.parse().ok()?,
            "label-end" if self.target.is_function() => {
                self.label_end = Some(value.strip_prefix("function:")?.to_owned());
            }
            "label-end" => self.label_end = Some(column_name(value).ok()?),
            "weight" => self.weight = Some(column_name(value).ok()?),
            "stride" => self.stride = value.parse().ok()?,
            "longest-hole" => self.longest_hole = value.parse().ok()?,
            "weekends" => self.weekends = value_of(&WEEKENDS, value)?,
            "scaling" => self.scaling = value.parse().ok()?,
            "train-fraction" => self.train_fraction = value.parse().ok()?,
            "bid" => self.bid.push(value.into()),
            "ask" => self.ask.push(value.into()),
            _ => return None,
        }
        Some(())
    }

    /// The options by which the rows of every instrument are read, by name.
    pub(in crate::ingest) fn reading_options(&self) -> Vec<(String, String)> {
        let words = self.to_words();
        let options = words.iter().filter_map(|word| word.strip_prefix("--")?.split_once('='));
        let reading = options.filter(|(name, _)| READING.contains(name));
        reading.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Origin of the column of the ends of labels.
    fn label_origin(&self) -> &'static str {
        if self.target.is_function() { "function" } else { "column" }
    }

    /// True if it reads bars in one way, with symbols from one source.
    pub(in crate::ingest) fn is_whole(&self) -> bool {
        let has_pairs = !self.bid.is_empty() && !self.ask.is_empty();
        let has_sides = !self.bid.is_empty() || !self.ask.is_empty();
        let reads_one_kind = if has_sides { has_pairs && self.bars.is_empty() } else { !self.bars.is_empty() };
        let has_paths = self.files().iter().all(|path| !path.as_os_str().is_empty());
        reads_one_kind && has_paths && (self.symbol.is_none() || self.symbol_pattern.is_none())
    }
}

/// Columns as `column:NAME:RULE,column:NAME`.
fn columns_text(columns: &[ColumnFeature]) -> String {
    let written: Vec<&str> = columns.iter().map(ColumnFeature::written).collect();
    written.join(",")
}

fn columns_of(text: &str) -> Option<Vec<ColumnFeature>> {
    text.split(',').map(|name| name.parse::<Feature>().ok()?.as_column().cloned()).collect()
}

/// Word of a value.
fn word<T: PartialEq, const N: usize>(words: &Words<T, N>, value: &T) -> String {
    let (word, _) = words.iter().find(|(_, other)| other == value).expect("every value has a word");
    (*word).to_owned()
}

/// Value of a word.
fn value_of<T: Copy, const N: usize>(words: &Words<T, N>, word: &str) -> Option<T> {
    words.iter().find(|(other, _)| *other == word).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<Recipe> {
        Recipe::from_words(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_recipe_reads_back_as_it_was_written() {
        for text in [
            "EURUSD.csv",
            "a.csv b.csv --symbol X --pip-size 0.5 --format iso --zone new-york+7 --base M5 --time close --on-error repair",
            "a.csv --pip-size=A=0.1,B=2 --repeats last --timeframes H1:9,M1:3 --features rsi_14,body --horizon 3 --stride 7",
            "folder --symbol-pattern DA-{}-T-* --target log_return --prices quoted --calendar common",
            "a.csv --longest-hole 90m --weekends split --scaling none --train-fraction 0.123456789 --prices adjusted --target increment",
            "--bid a.csv b.csv --ask c.csv d.csv --zone=-05:00",
            "a.csv --features body,function:strength --function-columns=column:flow:sum,column:depth",
            "a.csv --context DXY=dxy.csv --context=X=a=b.csv --features body,function:DXY.body",
            "/data/a.csv --rows=EURUSD=X=/data/a.csv --rows=GBPUSD=/data/a.csv",
            "a.csv --bins new-york+7 --timeframes M1:9,D1:3",
            "a.csv --bins=-05:00",
            "a.csv b.csv --own-bars=true",
            "a.csv --target column:y --label-end column:known --weight column:uniqueness",
            "a.csv --target function:up,function:down --label-end function:label_end",
        ] {
            let recipe = parsed(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(Recipe::from_words(&recipe.to_words()), Some(recipe), "{text}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for text in [
            "",
            "--bid a.csv",
            "--ask a.csv",
            "x.csv --bid a.csv --ask b.csv",
            "x.csv --longest-hole 5",
            "x.csv --symbol X --symbol-pattern {}",
            // An instrument without a name was written into the file.
            "x.csv --symbol=",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
