//! Values of a recipe's arguments that are lists.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use megabatch_bars::Feature;

/// One size for all symbols, or one a symbol.
#[derive(Clone, Debug, PartialEq)]
pub enum PipSizes {
    /// The same for every symbol.
    All(f64),
    /// By symbol.
    BySymbol(BTreeMap<String, f64>),
}

/// Features in the order of their columns.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureList(
    /// The features.
    pub Vec<Feature>,
);

/// A file of bars of another instrument, written `SYMBOL=FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextFile {
    /// Name of the instrument.
    pub symbol: String,
    /// The file.
    pub path: PathBuf,
}

impl FromStr for ContextFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("`{text}` is no context; expected SYMBOL=FILE, such as DXY=dxy.csv");
        let (symbol, path) = text.split_once('=').ok_or_else(expected)?;
        let is_plain = !symbol.trim().is_empty() && !symbol.contains([',', '"', '\n']) && symbol.trim() == symbol;
        if !is_plain || path.is_empty() {
            return Err(expected());
        }
        Ok(ContextFile { symbol: symbol.to_owned(), path: path.into() })
    }
}

impl fmt::Display for ContextFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.symbol, self.path.display())
    }
}

/// The name of an instrument, which is not empty.
///
/// # Errors
/// The expected form.
pub fn symbol_name(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("the symbol is empty; expected a name such as EURUSD, or leave the option out".to_owned()),
        name => Ok(name.to_owned()),
    }
}

/// The name in `column:NAME`.
///
/// # Errors
/// The expected form.
pub fn column_name(text: &str) -> Result<String, String> {
    match text.trim().strip_prefix("column:") {
        Some(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => Err(format!("`{text}` is no column; expected column:NAME, with the name in the header")),
    }
}

impl FromStr for PipSizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = |text: &str| {
            text.parse()
                .map_err(|_| format!("`{text}` is no size; expected a number, or SYMBOL=NUMBER separated by commas"))
        };
        if !text.contains('=') {
            return size(text).map(PipSizes::All);
        }
        let mut sizes = BTreeMap::new();
        for entry in text.split(',') {
            let (symbol, number) =
                entry.split_once('=').ok_or(format!("`{entry}` lacks its symbol; expected SYMBOL=NUMBER"))?;
            if sizes.insert(symbol.trim().to_owned(), size(number.trim())?).is_some() {
                return Err(format!("{symbol} is given twice"));
            }
        }
        Ok(PipSizes::BySymbol(sizes))
    }
}

impl fmt::Display for PipSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PipSizes::All(size) => size.fmt(f),
            PipSizes::BySymbol(sizes) => {
                let entries: Vec<String> = sizes.iter().map(|(symbol, size)| format!("{symbol}={size}")).collect();
                f.write_str(&entries.join(","))
            }
        }
    }
}

impl FromStr for FeatureList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut features: Vec<Feature> = Vec::new();
        for name in text.split(',').map(str::trim) {
            let named = match name {
                "default" => Feature::DEFAULT.to_vec(),
                "all" => Feature::ALL.to_vec(),
                name => vec![name.parse::<Feature>().map_err(|error| error.to_string())?],
            };
            features.extend(named);
        }
        Ok(FeatureList(features))
    }
}

impl fmt::Display for FeatureList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(Feature::name).collect();
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_a_symbol_and_a_file() {
        for text in ["DXY=dxy.csv", "US 500=a=b.csv"] {
            assert_eq!(text.parse::<ContextFile>().unwrap().to_string(), text);
        }
        for text in ["DXY", "=dxy.csv", "DXY=", "A,B=x.csv", " DXY=x.csv"] {
            let expected = format!("`{text}` is no context; expected SYMBOL=FILE, such as DXY=dxy.csv");
            assert_eq!(text.parse::<ContextFile>().unwrap_err(), expected);
        }
    }

    #[test]
    fn features_are_chosen_by_name() {
        let chosen: FeatureList = "rsi_14, body".parse().unwrap();
        assert_eq!(chosen.0, [Feature::Rsi14, Feature::Body]);
        assert!("rsi_14,,body".parse::<FeatureList>().is_err());
        assert_eq!("all".parse::<FeatureList>().unwrap().0.len(), Feature::ALL.len());
        let more: FeatureList = "default,spread_pips".parse().unwrap();
        assert_eq!(
            (&more.0[..Feature::DEFAULT.len()], more.0.last()),
            (&Feature::DEFAULT[..], Some(&Feature::SpreadPips))
        );
    }

    #[test]
    fn sizes_of_a_pip_are_for_all_or_by_symbol() {
        assert_eq!("0.01".parse(), Ok(PipSizes::All(0.01)));
        assert_eq!("A=1, B=0.5".parse::<PipSizes>().unwrap().to_string(), "A=1,B=0.5");
        for wrong in ["", "x", "A=1,B", "A=x", "A=1,A=2"] {
            assert!(wrong.parse::<PipSizes>().is_err(), "{wrong:?}");
        }
    }
}
