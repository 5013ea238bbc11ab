//! Functions and other instruments that the features of a series file need beside its bars.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use megabatch_bars::{AGE_IN_CONTEXT, BarFunctions, ContextTiming};
use serde_json::Value;

use super::Recipe;
use super::context_timing::{CONTEXT, recorded_timing};
use crate::error::Result;

/// Inputs of the functions of a series file, as it tells them.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionInputs {
    /// Columns of the bars that only functions see, as `column:NAME:RULE`.
    pub columns: Vec<String>,
    /// Library of their frames; `None` for a series without functions.
    pub frames: Option<String>,
    /// The other features, which other instruments have too.
    pub features: Vec<String>,
    /// Options by which rows are read, by name: those of other instruments are read so too.
    pub reading: Vec<(String, String)>,
    /// Timing of the other instruments.
    pub timing: ContextTiming,
}

impl FunctionInputs {
    /// Reads the account in the series file at `path`.
    ///
    /// # Errors
    /// A data error for a file that `ingest` did not write.
    pub fn read(path: &Path) -> Result<Self> {
        let (provenance, recipe) = Recipe::as_written(path)?;
        Ok(FunctionInputs {
            columns: recipe.function_columns.iter().map(|column| column.written().to_owned()).collect(),
            frames: provenance["functions"]["frames"].as_str().map(str::to_owned),
            features: recipe.without_functions().features.0.iter().map(|own| own.name().to_owned()).collect(),
            reading: recipe.reading_options(),
            timing: recorded_timing(&provenance),
        })
    }
}

/// Functions whose source is another one than the series with this account was made with. Bars of
/// other instruments have no source, and go on.
pub(crate) fn changed_functions(provenance: &Value, given: &BTreeMap<String, String>) -> Vec<String> {
    let was = &provenance["functions"]["fingerprints"];
    let differs = |(name, now): &(&String, &String)| {
        !name.starts_with(CONTEXT) && was[name.as_str()].as_str() != Some(now.as_str())
    };
    given.iter().filter(differs).map(|(name, _)| name.clone()).collect()
}

/// Other instruments whose bars are others than those that the series with this account was made
/// with.
pub(crate) fn changed_context(provenance: &Value, given: &BTreeMap<String, String>) -> BTreeSet<String> {
    let was = &provenance["functions"]["fingerprints"];
    let context = given.iter().filter_map(|(name, now)| Some((name, name.strip_prefix(CONTEXT)?, now)));
    let changed = context.filter(|(name, _, now)| was[name.as_str()].as_str() != Some(now.as_str()));
    changed.map(|(_, symbol, _)| symbol.to_owned()).collect()
}

/// The other instrument whose features `function` gives, if it gives these.
pub(crate) fn context_symbol(function: &str) -> Option<&str> {
    function.strip_prefix(CONTEXT)
}

/// Name of the column of ages beside the features of another instrument, if `function` gives these.
pub(crate) fn age_column(function: &str) -> Option<String> {
    context_symbol(function).map(|symbol| format!("{symbol}.{AGE_IN_CONTEXT}"))
}

/// Inputs of the features of a series beside its own bars.
pub(crate) struct FurtherInputs<'a> {
    /// Names of functions.
    functions: Vec<&'a str>,
    /// Other instruments.
    symbols: Vec<&'a str>,
}

impl<'a> FurtherInputs<'a> {
    /// Reads `provenance`, the account of a series. Inputs that `given` names are left out.
    pub(crate) fn read(provenance: &'a Value, given: &[String]) -> Self {
        let known = provenance["functions"]["fingerprints"].as_object();
        let missing = known.into_iter().flat_map(|known| known.keys()).filter(|name| !given.contains(name));
        let (mut functions, mut symbols) = (Vec::new(), Vec::new());
        for name in missing {
            match name.strip_prefix(CONTEXT) {
                Some(symbol) => symbols.push(symbol),
                None if name.starts_with("target ") => {}
                None => functions.push(name.as_str()),
            }
        }
        FurtherInputs { functions, symbols }
    }

    /// Line that names the inputs and the call in Python that takes them, as `predict --follow`
    /// takes none; `None` without any.
    pub(crate) fn follow_in_python(&self) -> Option<String> {
        let kinds = [("function", &self.functions, "features="), ("context", &self.symbols, "context=")];
        let known = kinds.iter().filter(|(_, names, _)| !names.is_empty());
        let (inputs, arguments): (Vec<String>, Vec<&str>) =
            known.map(|(kind, names, argument)| (format!("{kind} {}", names.join(", ")), *argument)).unzip();
        (!inputs.is_empty()).then(|| {
            let (inputs, arguments) = (inputs.join(" and "), arguments.join(", "));
            format!("no `predict --follow`: {inputs}; in Python, `run.follow(…, {arguments})`")
        })
    }
}

/// Reason for which a series with this account cannot go on with `functions`: the bars of the other
/// instruments among its features that these do not have. `call` is the beginning of a call in
/// Python that takes them.
pub(crate) fn missing_context(provenance: &Value, functions: Option<&dyn BarFunctions>, call: &str) -> Option<String> {
    let given: Vec<String> =
        functions.map_or_else(Vec::new, |own| own.fingerprints().into_iter().map(|(name, _)| name).collect());
    let FurtherInputs { functions, symbols } = FurtherInputs::read(provenance, &given);
    let kind = match symbols.len() {
        0 => return None,
        1 => "another instrument",
        _ => "other instruments",
    };
    let features = if functions.is_empty() { "" } else { ", features=[function]" };
    let frames: Vec<String> = symbols.iter().map(|symbol| format!("\"{symbol}\": frame")).collect();
    Some(format!(
        "its data have features of {}, {kind}, whose bars do not come with these: give them in Python, as {call}{features}, context={{{}}})",
        symbols.join(", "),
        frames.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `predict --follow` was offered for data with functions and other instruments.
    #[test]
    fn a_series_names_its_further_inputs() {
        let line = |names: &[&str]| {
            let known: BTreeMap<&str, &str> = names.iter().map(|&name| (name, "0")).collect();
            let provenance = json!({ "functions": { "fingerprints": known } });
            FurtherInputs::read(&provenance, &[]).follow_in_python()
        };
        assert_eq!([line(&[]), line(&["target next"])], [None, None]);
        let told = [line(&["context D1"]), line(&["calm", "change"]), line(&["change", "context D1", "target next"])];
        let expected = [
            "context D1; in Python, `run.follow(…, context=)`",
            "function calm, change; in Python, `run.follow(…, features=)`",
            "function change and context D1; in Python, `run.follow(…, features=, context=)`",
        ];
        assert_eq!(told, expected.map(|line| Some(format!("no `predict --follow`: {line}"))));
        let provenance = json!({ "functions": { "fingerprints": { "change": "0", "context D1": "0" } } });
        let given = ["change".to_owned(), "context D1".to_owned()];
        assert_eq!(FurtherInputs::read(&provenance, &given).follow_in_python(), None);
    }
}
