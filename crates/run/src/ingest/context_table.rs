//! Bars of another instrument for programs that hold them in memory.

use megabatch_bars::{Bars, ColumnFeature, ContextTiming, Feature, shared_features};

use super::Recipe;
use super::context::{clock_doubt, in_memory, read_bars};
use super::context_timing::timed_recipe;
use super::recipe::ContextFile;
use super::series::in_folder;
use super::spool::SpoolFolder;
use crate::error::Result;
use crate::host::Host;

/// Bars of another instrument, read as the file of a context is.
#[derive(Clone, Debug)]
pub struct ContextTable {
    /// The bars.
    pub bars: Bars,
    /// Names of their further columns.
    pub columns: Vec<String>,
    /// Doubts about them, a sentence each.
    pub warnings: Vec<String>,
}

impl ContextTable {
    /// Reads the one file of `recipe` by its rules for rows and by `timing`, with its columns for
    /// functions. Those among its features must have a value, and the others may be without one.
    /// Parsed bars are in a folder beside the file meanwhile.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn read(recipe: &Recipe, timing: &ContextTiming, host: &Host<'_>) -> Result<Self> {
        let symbol = recipe.symbol.clone().unwrap_or_default();
        let reading = timed_recipe(recipe, &symbol, timing);
        let file = ContextFile { symbol, path: recipe.bars[0].clone() };
        in_folder(&file.path, host, |folder| ContextTable::read_in(&reading, &file, folder, host))
    }

    fn read_in(recipe: &Recipe, file: &ContextFile, folder: &SpoolFolder, host: &Host<'_>) -> Result<Self> {
        let known = &recipe.function_columns;
        let has_column = |name: &str| known.iter().any(|column| column.column() == name);
        let features = shared_features(&recipe.features.0, &has_column);
        let own: Vec<&str> = features.iter().filter_map(Feature::as_column).map(ColumnFeature::column).collect();
        let is_seen_only = |column: &&ColumnFeature| !own.contains(&column.column());
        let seen: Vec<ColumnFeature> = known.iter().filter(is_seen_only).cloned().collect();
        let read = read_bars(recipe, file, &features, &seen, folder, host)?;
        let columns = own.into_iter().chain(seen.iter().map(ColumnFeature::column)).map(str::to_owned).collect();
        let summary = &read.recordings.universe.recordings[0].summary;
        let warnings = summary.warnings.iter().cloned().chain(clock_doubt(summary, recipe.zone.as_ref())).collect();
        Ok(ContextTable { bars: in_memory(&read.bars[0])?, columns, warnings })
    }
}
