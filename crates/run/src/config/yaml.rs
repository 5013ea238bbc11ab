//! Reading of YAML whose values stay text: the key that takes a value knows how to read it.

use saphyr::{MarkedYaml, YamlData, YamlLoader};
use saphyr_parser::{Parser, ScanError};

/// The documents of a text.
pub(super) fn parse(text: &str) -> Result<Vec<MarkedYaml<'_>>, ScanError> {
    let mut loader = YamlLoader::<MarkedYaml<'_>>::default();
    loader.early_parse(false);
    Parser::new_from_str(text).load(&mut loader, true)?;
    match loader.error() {
        Some(error) => Err(error.clone()),
        None => Ok(loader.into_documents()),
    }
}

/// The text of a plain value.
pub(super) fn scalar<'a>(node: &'a MarkedYaml<'_>) -> Option<&'a str> {
    match &node.data {
        YamlData::Representation(text, ..) => Some(text),
        _ => None,
    }
}

/// A node in YAML's flow style, as it stands in one line; `None` if a part of it has no text.
pub(super) fn flow(node: &MarkedYaml<'_>) -> Option<String> {
    match &node.data {
        YamlData::Sequence(items) => {
            let items: Option<Vec<String>> = items.iter().map(flow).collect();
            Some(format!("[{}]", items?.join(", ")))
        }
        YamlData::Mapping(pairs) => {
            let pair =
                |(key, value): (&MarkedYaml<'_>, &MarkedYaml<'_>)| Some(format!("{}: {}", scalar(key)?, flow(value)?));
            let pairs: Option<Vec<String>> = pairs.iter().map(pair).collect();
            Some(format!("{{{}}}", pairs?.join(", ")))
        }
        _ => scalar(node).map(str::to_owned),
    }
}
