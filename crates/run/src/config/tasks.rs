//! `training.tasks`: groups of targets, each with a loss.

use megabatch_nn::loss::{Ascending, Classes, Task, TaskLoss, Tasks};
use saphyr::{MarkedYaml, YamlData};

use super::yaml::{flow, parse, scalar};

/// Keys of each entry of the list.
const KEYS: [&str; 8] = ["targets", "loss", "weight", "huber_delta", "quantile", "quantiles", "classes", "thresholds"];

/// The tasks of the configuration. The last may be open-ended, and weights may be left out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TaskList(Vec<Entry>);

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    start: usize,
    /// None for all that follow.
    end: Option<usize>,
    loss: TaskLoss,
    weight: Option<f64>,
}

impl TaskList {
    /// Example for messages and the documentation.
    pub(super) const EXPECTED: &str = "none, or a list such as [{targets: 0..35, loss: huber, weight: 0.7}, {targets: 35.., loss: cross_entropy, classes: 3, weight: 0.3}]";

    /// Reads a list in YAML's flow style; else what was expected, by the name of the key.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let documents = parse(text).map_err(|error| format!("YAML: {}", error.info()))?;
        let Some(YamlData::Sequence(items)) = documents.first().map(|document| &document.data) else {
            return Err(Self::EXPECTED.to_owned());
        };
        let entry = |(k, item): (usize, &MarkedYaml<'_>)| {
            Entry::parse(item).map_err(|(key, expected)| {
                let dot = if key.is_empty() { "" } else { "." };
                format!("training.tasks[{k}]{dot}{key} to be {expected}")
            })
        };
        let entries: Vec<Entry> = items.iter().enumerate().map(entry).collect::<Result<_, String>>()?;
        let weights = entries.iter().filter(|entry| entry.weight.is_some()).count();
        match entries.iter().position(|entry| entry.weight.is_none()) {
            Some(k) if weights > 0 => Err(format!(
                "training.tasks[{k}].weight to be given, as in other tasks; left out of all, they weigh alike"
            )),
            _ => Ok(TaskList(entries)),
        }
    }

    /// The tasks for samples of so many targets.
    pub(crate) fn resolve(&self, targets: usize) -> Result<Tasks, megabatch_nn::Error> {
        let alike = 1.0 / self.0.len() as f64;
        let task = |entry: &Entry| Task {
            targets: [entry.start, entry.end.unwrap_or(targets)],
            loss: entry.loss,
            weight: entry.weight.unwrap_or(alike),
        };
        Tasks::new(&self.0.iter().map(task).collect::<Vec<_>>())
    }
}

/// A key and what was expected of it.
type Fault = (String, String);

impl Entry {
    fn parse(item: &MarkedYaml<'_>) -> Result<Self, Fault> {
        let YamlData::Mapping(pairs) = &item.data else {
            return Err((String::new(), "keys and values in braces, such as {targets: 0..3, loss: mse}".to_owned()));
        };
        let mut texts: Vec<(&str, String)> = Vec::new();
        for (key, value) in pairs {
            let key = scalar(key).unwrap_or_default();
            if !KEYS.contains(&key) {
                return Err((key.to_owned(), format!("a key of a task; the nearest is `{}`", nearest_of(KEYS, key))));
            }
            texts.push((key, flow(value).ok_or_else(|| (key.to_owned(), "a value".to_owned()))?));
        }
        let text_of = |key: &str| texts.iter().find(|(name, _)| *name == key).map(|(_, text)| text.as_str());
        let (start, end) = range(text_of("targets"))?;
        let loss = text_of("loss").unwrap_or("mse");
        let own: &[&str] = match loss {
            "mse" => &[],
            "huber" => &["huber_delta"],
            "quantile" => &["quantile", "quantiles"],
            "cross_entropy" => &["classes", "thresholds"],
            _ => return Err(("loss".to_owned(), format!("mse, huber, quantile or cross_entropy, not {loss}"))),
        };
        let idle = texts.iter().find(|(key, _)| !own.contains(key) && !["targets", "loss", "weight"].contains(key));
        if let Some((key, _)) = idle {
            return Err(((*key).to_owned(), format!("left out: it has no effect with loss {loss}")));
        }
        let loss = match loss {
            "huber" => {
                TaskLoss::Huber { delta: text_of("huber_delta").map_or(Ok(1.0), |text| number("huber_delta", text))? }
            }
            "quantile" => {
                let (key, text) = match (text_of("quantile"), text_of("quantiles")) {
                    (text, None) => ("quantile", text),
                    (None, text) => ("quantiles", text),
                    _ => return Err(("quantiles".to_owned(), "left out beside quantile, which it is".to_owned())),
                };
                TaskLoss::Quantile { levels: text.map_or(Ok(Ascending::one(0.5)), |text| ascending(key, text))? }
            }
            "cross_entropy" => TaskLoss::Classes(match (text_of("classes"), text_of("thresholds")) {
                (Some(text), None) => {
                    let expected = || ("classes".to_owned(), format!("a whole number from 2 to {}", Classes::MAX));
                    let count = parse_count(text).and_then(|count| usize::try_from(count).ok());
                    Classes::Labels(count.ok_or_else(expected)?)
                }
                (None, Some(text)) => Classes::Thresholds(ascending("thresholds", text)?),
                _ => return Err(("classes".to_owned(), "given, or thresholds, and not both".to_owned())),
            }),
            "mse" => TaskLoss::Mse,
            other => unreachable!("{other} has options, but no loss is made of it"),
        };
        let weight = text_of("weight").map(|text| number("weight", text)).transpose()?;
        Ok(Entry { start, end, loss, weight })
    }
}

fn range(text: Option<&str>) -> Result<(usize, Option<usize>), Fault> {
    let parsed = text.and_then(|text| {
        let number = |text: &str| text.trim().parse::<usize>().ok();
        match text.split_once("..") {
            Some((start, "")) => Some((number(start)?, None)),
            Some((start, end)) => Some((number(start)?, Some(number(end)?))),
            None => number(text).map(|one| (one, Some(one + 1))),
        }
    });
    let expected = "A..B, half-open from 0, A.. up to the last target, or the number of one";
    parsed.ok_or_else(|| ("targets".to_owned(), expected.to_owned()))
}

fn number(key: &str, text: &str) -> Result<f64, Fault> {
    let number = text.parse().ok().filter(|x: &f64| x.is_finite() && *x > 0.0);
    number.ok_or_else(|| (key.to_owned(), "a number greater than 0".to_owned()))
}

fn ascending(key: &str, text: &str) -> Result<Ascending, Fault> {
    parse_ascending(text).ok_or_else(|| (key.to_owned(), "numbers in ascending order, such as [0.1, 0.9]".to_owned()))
}

/// The name among `names` that is spelled most like `name`.
fn nearest_of<const N: usize>(names: [&'static str; N], name: &str) -> &'static str {
    let distance = |known: &&str| strsim::damerau_levenshtein(known, name);
    names.into_iter().min_by_key(distance).expect("there are names")
}

/// Bound below which a float has every whole number.
const EXACT_MAX: f64 = (1u64 << 53) as f64;

/// A whole number, which may be written as a float: `2`, `2.0`, `2e3`.
pub(super) fn parse_count(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| {
        let number: f64 = text.parse().ok()?;
        (number.fract() == 0.0 && (0.0..EXACT_MAX).contains(&number)).then_some(number as u64)
    })
}

/// Numbers of a list with or without its brackets.
pub(super) fn parse_numbers(text: &str) -> Option<Vec<f64>> {
    let list = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    list.split(',').map(|number| number.trim().parse().ok()).collect()
}

/// Numbers in ascending order; brackets may be left out.
pub(super) fn parse_ascending(text: &str) -> Option<Ascending> {
    Ascending::new(&parse_numbers(text)?)
}

#[cfg(test)]
mod tests {
    use megabatch_nn::loss::Loss;

    use super::*;

    #[test]
    fn a_list_is_read_as_it_is_written() {
        let text = "[{targets: 0..35, loss: huber, weight: 0.7}, {targets: 35.., loss: cross_entropy, classes: 3, weight: 0.3}]";
        let tasks = TaskList::parse(text).unwrap().resolve(37).unwrap();
        assert_eq!(Loss::Tasks(tasks).outputs(37), 35 + 2 * 3);
        let block = "- targets: 0\n  loss: quantile\n  quantiles: [0.1, 0.5]\n- targets: 1..3\n  loss: cross_entropy\n  thresholds: [-1, 1]\n- targets: 3..\n";
        let tasks = TaskList::parse(block).unwrap().resolve(4).unwrap();
        assert_eq!(Loss::Tasks(tasks).outputs(4), 2 + 2 * 3 + 1);
        assert!(tasks.as_slice().iter().all(|task| task.weight == 1.0 / 3.0));
        let classes =
            |count: &str| TaskList::parse(&format!("[{{targets: 0.., loss: cross_entropy, classes: {count}}}]"));
        assert_eq!((classes("3.0"), classes("3.5").is_err()), (classes("3"), true));
        let documents = parse(block).unwrap();
        assert_eq!(TaskList::parse(&flow(&documents[0]).unwrap()), TaskList::parse(block));
    }

    #[test]
    fn what_is_wrong_is_named_by_its_key() {
        for (text, expected) in [
            ("0..3", "none, or a list such as"),
            ("[0..3]", "training.tasks[0] to be keys and values"),
            ("[{loss: mse}]", "training.tasks[0].targets to be A..B"),
            ("[{targets: 3..x}]", "training.tasks[0].targets to be A..B"),
            (
                "[{targets: 0}, {targets: 1, los: mse}]",
                "training.tasks[1].los to be a key of a task; the nearest is `loss`",
            ),
            (
                "[{targets: 0.., loss: hubr}]",
                "training.tasks[0].loss to be mse, huber, quantile or cross_entropy, not hubr",
            ),
            ("[{targets: 0.., loss: huber, huber_delta: -1}]", "training.tasks[0].huber_delta to be a number greater"),
            (
                "[{targets: 0.., huber_delta: 1}]",
                "training.tasks[0].huber_delta to be left out: it has no effect with loss mse",
            ),
            ("[{targets: 0.., loss: cross_entropy}]", "training.tasks[0].classes to be given, or thresholds"),
            ("[{targets: 0.., loss: cross_entropy, classes: x}]", "training.tasks[0].classes to be a whole number"),
            (
                "[{targets: 0.., loss: quantile, quantile: [0.9, 0.1]}]",
                "training.tasks[0].quantile to be numbers in asc",
            ),
            ("[{targets: 0, weight: 0.5}, {targets: 1..}]", "training.tasks[1].weight to be given"),
            ("[{targets: 0.., weight: 0}]", "training.tasks[0].weight to be a number greater than 0"),
        ] {
            let message = TaskList::parse(text).unwrap_err();
            assert!(message.starts_with(expected), "{text}: {message}");
        }
    }
}
