//! Description of a collection: its identity, its schema, and the widths of its numbers.

#![forbid(unsafe_code)]

use std::ops::Range;

use super::fault::{FileFault, SectionReader};
use super::layout::{FloatWidth, IndexWidth, Widths};
use super::strings::{StringList, push_strings};
use crate::builder::Identity;
use crate::schema::{Schema, TargetLevel};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CollectionDescription {
    pub(crate) identity: Identity,
    pub(crate) schema: Schema,
    pub(crate) widths: Widths,
}

impl CollectionDescription {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let CollectionDescription { identity, schema, widths } = self;
        let level = match schema.target_level {
            TargetLevel::None => 0,
            TargetLevel::Node => 1,
            TargetLevel::Graph => 2,
        };
        let sizes = [widths.indices.bytes(), widths.edges.bytes(), widths.features.bytes()].map(|bytes| bytes as u8);
        let mut bytes = [&sizes[..], &[level, u8::from(schema.weighted), 0, 0, 0]].concat();
        bytes.extend(identity.data.to_le_bytes());
        push_strings(&mut bytes, [identity.builder.as_str(), &identity.parameters].into_iter());
        for names in [&schema.names, &schema.edge_attributes, &schema.node_features, &schema.targets] {
            push_strings(&mut bytes, names.iter().map(String::as_str));
        }
        bytes
    }

    pub(crate) fn decode(file: &[u8], section: Range<usize>) -> Result<Self, FileFault> {
        let mut reading = SectionReader::new(file, "description", section);
        let numbers: [u8; 8] = reading.bytes()?;
        let unknown =
            || reading.fault(format!("{numbers:?} are not the widths of numbers, a level of targets and weights"));
        let (widths, target_level, weighted) = decode_numbers(numbers).ok_or_else(unknown)?;
        let data = u128::from_le_bytes(reading.bytes()?);
        let made = StringList::read(&mut reading)?.to_vec(file);
        let [builder, parameters] =
            made.try_into().map_err(|_| reading.fault("a builder and its parameters are two strings"))?;
        let mut names = || Ok(StringList::read(&mut reading)?.to_vec(file));
        let schema = Schema {
            names: names()?,
            weighted,
            edge_attributes: names()?,
            node_features: names()?,
            targets: names()?,
            target_level,
        };
        Ok(CollectionDescription { identity: Identity { data, builder, parameters }, schema, widths })
    }
}

fn decode_numbers(numbers: [u8; 8]) -> Option<(Widths, TargetLevel, bool)> {
    let [indices, edges, features, level, weighted, 0, 0, 0] = numbers else { return None };
    let float = |bytes| match bytes {
        4 => Some(FloatWidth::F32),
        2 => Some(FloatWidth::F16),
        _ => None,
    };
    let indices = match indices {
        4 => IndexWidth::U32,
        8 => IndexWidth::U64,
        _ => return None,
    };
    let level = match level {
        0 => TargetLevel::None,
        1 => TargetLevel::Node,
        2 => TargetLevel::Graph,
        _ => return None,
    };
    let widths = Widths { indices, edges: float(edges)?, features: float(features)? };
    (weighted < 2).then_some((widths, level, weighted == 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::mapping::FileBytes;

    fn strings<const N: usize>(strings: [&str; N]) -> Vec<String> {
        strings.map(str::to_owned).to_vec()
    }

    #[test]
    fn a_description_comes_back() {
        let identity = Identity { data: 1 << 100, builder: "b/1".into(), parameters: "{}".into() };
        let schema = Schema {
            names: strings(["A", "B"]),
            weighted: true,
            edge_attributes: strings(["distance"]),
            node_features: strings([]),
            targets: strings(["up", "down"]),
            target_level: TargetLevel::Graph,
        };
        let wide = Widths { indices: IndexWidth::U64, edges: FloatWidth::F16, features: FloatWidth::F16 };
        let described = CollectionDescription { identity, schema, widths: wide };
        for description in [CollectionDescription::default(), described] {
            let file = FileBytes::owned(&description.encode());
            assert_eq!(CollectionDescription::decode(&file, 0..file.len()).unwrap(), description);
            for shorter in (0..file.len()).step_by(8) {
                assert!(CollectionDescription::decode(&file[..shorter], 0..shorter).is_err(), "{shorter}");
            }
        }
    }

    #[test]
    fn numbers_that_mean_nothing_are_refused() {
        let right = [4, 2, 4, 1, 1, 0, 0, 0];
        assert!(decode_numbers(right).is_some());
        for (place, number) in [(0, 2), (1, 8), (2, 0), (3, 3), (4, 2), (5, 1), (6, 1), (7, 1)] {
            let mut wrong = right;
            wrong[place] = number;
            assert_eq!(decode_numbers(wrong), None, "{wrong:?}");
        }
    }
}
