//! Instruments of a series among the names that a file of graphs has for its nodes.

use std::collections::HashMap;

use megabatch_bars::{likely_symbol, listed};

/// The place of each instrument among the names of the graphs, if it has one; `None` if none has.
pub(super) fn places_of(instruments: &[String], names: &[String]) -> Option<Vec<Option<u32>>> {
    let place: HashMap<&str, u32> = names.iter().map(String::as_str).zip(0..).collect();
    let places: Vec<Option<u32>> = instruments.iter().map(|name| place.get(name.as_str()).copied()).collect();
    places.iter().any(Option::is_some).then_some(places)
}

/// The instruments without a place among the names of the graphs, each with the name that may be
/// another form of it.
pub(super) fn absent_instruments(
    instruments: &[String],
    places: &[Option<u32>],
    names: &[String],
) -> Vec<(String, Option<String>)> {
    let absent = instruments.iter().zip(places).filter(|(_, place)| place.is_none());
    absent.map(|(name, _)| (name.clone(), likely_symbol(name, names).map(str::to_owned))).collect()
}

/// End of a note that names instruments that no graph has.
pub(super) fn absent_text(absent: &[(String, Option<String>)]) -> String {
    if absent.is_empty() {
        return String::new();
    }
    let names: Vec<String> = absent.iter().map(|(name, _)| name.clone()).collect();
    let mut text = format!("; no graph has {}", listed(&names));
    let renamed = absent.iter().filter_map(|(name, other)| Some(format!("{} for {name}", other.as_deref()?)));
    let renamed: Vec<String> = renamed.collect();
    if !renamed.is_empty() {
        text += &format!("; the graph has {}: build it from files of the same names", listed(&renamed));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BRK.B trained without neighbours beside a graph that has BRK-B, and no name was told.
    #[test]
    fn instruments_that_the_graphs_name_in_another_way_are_told() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<String>>();
        let instruments = names(&["AAPL", "BRK.B", "XOM"]);
        let graph = names(&["AAPL", "BRK-B"]);
        let places = places_of(&instruments, &graph).unwrap();
        let text = absent_text(&absent_instruments(&instruments, &places, &graph));
        let told = "; the graph has BRK-B for BRK.B: build it from files of the same names";
        assert_eq!(text, format!("; no graph has BRK.B, XOM{told}"));

        let many: Vec<(String, Option<String>)> = (0..12).map(|place| (format!("S{place}"), None)).collect();
        assert_eq!(absent_text(&many), "; no graph has S0, S1, S2, S3, S4, S5, S6, S7, S8, S9 and 2 more");
        assert_eq!(absent_text(&[]), "");
    }
}
