use std::sync::Arc;

/// Begins the name of a feature that is a column of the bars.
pub(crate) const PREFIX: &str = "column:";

/// A column of the bars' files as a feature: `column:NAME`, or `column:NAME:RULE`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ColumnFeature {
    /// `column:NAME:RULE`, without the rule where it is the usual one.
    written: Arc<str>,
    name: Arc<str>,
    rule: ColumnRule,
}

/// Value of a column in a bar of a longer timeframe, from its values in the shorter bars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ColumnRule {
    /// `last`: the value of the last bar.
    #[default]
    Last,
    /// `first`: the value of the first bar.
    First,
    /// `sum`: the sum.
    Sum,
    /// `mean`: the mean.
    Mean,
    /// `min`: the lowest value.
    Min,
    /// `max`: the highest value.
    Max,
}

impl ColumnRule {
    /// Every rule.
    pub const ALL: [ColumnRule; 6] =
        [ColumnRule::Last, ColumnRule::First, ColumnRule::Sum, ColumnRule::Mean, ColumnRule::Min, ColumnRule::Max];

    /// The name in configurations and files.
    pub const fn name(self) -> &'static str {
        match self {
            ColumnRule::Last => "last",
            ColumnRule::First => "first",
            ColumnRule::Sum => "sum",
            ColumnRule::Mean => "mean",
            ColumnRule::Min => "min",
            ColumnRule::Max => "max",
        }
    }

    /// Takes the value of the next bar into that of the bars before it. [`ColumnRule::Mean`] sums:
    /// see [`ColumnRule::close`].
    pub(crate) fn extend(self, value: &mut f64, next: f64) {
        *value = match self {
            ColumnRule::Last => next,
            ColumnRule::First => *value,
            ColumnRule::Sum | ColumnRule::Mean => *value + next,
            ColumnRule::Min => value.min(next),
            ColumnRule::Max => value.max(next),
        }
    }

    /// The value of a bar that `bars` shorter ones made.
    pub(crate) fn close(self, value: f64, bars: usize) -> f64 {
        if self == ColumnRule::Mean { value / bars as f64 } else { value }
    }
}

impl ColumnFeature {
    /// The column that a header calls `name`.
    pub fn new(name: &str, rule: ColumnRule) -> Self {
        let is_ambiguous = split_rule(name).is_some();
        let rule_text = match rule {
            ColumnRule::Last if !is_ambiguous => String::new(),
            rule => format!(":{}", rule.name()),
        };
        ColumnFeature { written: format!("{PREFIX}{name}{rule_text}").into(), name: name.into(), rule }
    }

    /// The feature that is written so; `None` for text that does not begin as one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix(PREFIX)?;
        let (name, rule) = split_rule(text).unwrap_or((text, ColumnRule::Last));
        Some(ColumnFeature::new(name, rule))
    }

    /// `column:NAME:RULE`, without the rule where it is the usual one.
    pub fn written(&self) -> &str {
        &self.written
    }

    /// Name of the column in the header.
    pub fn column(&self) -> &str {
        &self.name
    }

    /// Rule for longer timeframes.
    pub fn rule(&self) -> ColumnRule {
        self.rule
    }
}

/// Name and rule of `NAME:RULE`; `None` where no rule stands at the end.
fn split_rule(text: &str) -> Option<(&str, ColumnRule)> {
    let (name, rule) = text.rsplit_once(':')?;
    Some((name, ColumnRule::ALL.into_iter().find(|known| known.name() == rule)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_written_and_read_back() {
        for (written, name, rule) in [
            ("column:rsi_14", "rsi_14", ColumnRule::Last),
            ("column:volume imbalance:sum", "volume imbalance", ColumnRule::Sum),
            ("column:a:b", "a:b", ColumnRule::Last),
            // A column whose own name ends as a rule.
            ("column:price:max:last", "price:max", ColumnRule::Last),
        ] {
            let column = ColumnFeature::parse(written).unwrap();
            assert_eq!((column.column(), column.rule(), column.written()), (name, rule, written));
            assert_eq!(ColumnFeature::new(name, rule), column);
        }
        assert_eq!(ColumnFeature::parse("column:x:last").unwrap().written(), "column:x");
        assert_eq!(ColumnFeature::parse("rsi_14"), None);
    }

    #[test]
    fn each_rule_on_three_bars() {
        for (rule, expected) in ColumnRule::ALL.into_iter().zip([2.0, 4.0, 15.0, 5.0, 2.0, 9.0]) {
            let mut value = 4.0;
            [9.0, 2.0].into_iter().for_each(|next| rule.extend(&mut value, next));
            assert_eq!(rule.close(value, 3), expected, "{}", rule.name());
        }
    }
}
