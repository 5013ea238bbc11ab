//! The configuration of a run: YAML < environment < `--set`. Unknown keys and bad values are errors
//! with their origin.

mod error;
mod keys;
mod layers;
mod tasks;
mod value;
mod written;
mod yaml;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub(crate) use error::ConfigError;
use error::Result;
pub(crate) use keys::choices;
use keys::choices::{LossKind, SampleLimit};
use keys::{ALIASES, VALUE_ALIASES};
pub(crate) use keys::{Condition, Key, RunTraits, Setting, keys};
pub(crate) use keys::{data, distributed, gpu_optimization, model, output, training};
use megabatch_nn::loss::Ascending;
use serde_json::json;

use value::{Read, Value};
use written::Written;

/// `training.validation_samples: auto`: the standard error of a mean over so many independent
/// samples is 0.7 % of their deviation.
pub(crate) const VALIDATION_SAMPLES_AUTO: usize = 20_000;

/// Where settings come from besides the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingSources {
    /// Configuration in YAML; missing keys have their defaults.
    pub file: Option<PathBuf>,
    /// Settings over the file and the environment, `key=value` each.
    pub set: Vec<String>,
}

impl SettingSources {
    /// The configuration, with the variables of `environment` between the file and the settings.
    pub(crate) fn load(&self, environment: &[(OsString, OsString)]) -> Result<Config> {
        Config::load(self.file.as_deref(), environment, &self.set)
    }

    /// As [`SettingSources::load`], with the settings `found`, by key, that the weights in the file
    /// `weights` tell, in the place of defaults.
    pub(crate) fn load_over(
        &self,
        weights: &Path,
        found: &[(&str, String)],
        environment: &[(OsString, OsString)],
    ) -> Result<Config> {
        Config::load_over(layers::from_weights(weights, found), self.file.as_deref(), environment, &self.set)
    }
}

/// Every setting of a run, by key.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    settings: BTreeMap<&'static str, (String, Value)>,
}

impl Config {
    /// Reads `file`, then the variables of `environment`, then `arguments` of `--set`, each over
    /// the one before, over the defaults.
    ///
    /// # Errors
    /// The first setting that is wrong, with the place where it was written.
    pub(crate) fn load(
        file: Option<&Path>,
        environment: &[(OsString, OsString)],
        arguments: &[String],
    ) -> Result<Self> {
        Config::load_over(Vec::new(), file, environment, arguments)
    }

    /// As [`Config::load`], with the settings `found` in the place of defaults.
    fn load_over(
        found: Vec<Written>,
        file: Option<&Path>,
        environment: &[(OsString, OsString)],
        arguments: &[String],
    ) -> Result<Self> {
        let text = match file {
            Some(file) => std::fs::read_to_string(file)
                .map_err(|reason| ConfigError::Unreadable { file: file.to_owned(), reason })?,
            None => String::new(),
        };
        let yaml = layers::from_yaml(file.unwrap_or(Path::new("")), &text)?;
        let environment = layers::from_environment(environment.iter().cloned())?;
        Config::from_layers([found, yaml, environment, layers::from_arguments(arguments)?])
    }

    /// The settings that `file`, written by [`Config::to_yaml`], holds; the environment has no say.
    pub(crate) fn load_saved(file: &Path, text: &str, arguments: &[String]) -> Result<Self> {
        Config::from_layers([layers::from_yaml(file, text)?, layers::from_arguments(arguments)?])
    }

    fn from_layers(layers: impl IntoIterator<Item = Vec<Written>>) -> Result<Self> {
        let mut settings = BTreeMap::new();
        for key in keys().filter(|key| !key.default.is_empty()) {
            let value = key.kind.parse(key.default).expect("a test parses every default");
            settings.insert(key.path, (key.default.to_owned(), value));
        }
        for layer in layers {
            settings.extend(accept(&layer)?);
        }
        let config = Config { settings };
        config.check_median()?;
        Ok(config)
    }

    /// A loss that is the median's by its name has no other quantiles.
    fn check_median(&self) -> Result<()> {
        let loss = self.text(&training::LOSS.key).trim();
        let is_median = loss != "quantile" && self.get(&training::LOSS) == Some(LossKind::Quantile);
        match is_median && self.get(&training::QUANTILE) != Ascending::one(0.5) {
            true => Err(ConfigError::NotTheMedian { loss: loss.to_owned() }),
            false => Ok(()),
        }
    }

    /// The configuration as YAML, one section after the other, in the order of the table.
    pub(crate) fn to_yaml(&self) -> String {
        let (mut yaml, mut open_section) = (String::new(), "");
        for key in keys() {
            let Some((text, _)) = self.settings.get(key.path) else { continue };
            let (section, name) = key.path.split_once('.').expect("a key has a section");
            if section != open_section {
                yaml.push_str(&format!("{section}:\n"));
                open_section = section;
            }
            yaml.push_str(&format!("  {name}: {}\n", quoted(text)));
        }
        yaml
    }

    /// The settings and their texts, in the order of the reference page.
    pub(crate) fn settings(&self) -> impl Iterator<Item = (&'static Key, &str)> {
        keys().filter_map(|key| self.settings.get(key.path).map(|(text, _)| (key, text.as_str())))
    }

    /// The value of `key` as it was written; empty if there is none.
    pub(crate) fn text(&self, key: &Key) -> &str {
        self.settings.get(key.path).map_or("", |(text, _)| text)
    }

    fn value(&self, path: &str) -> Option<&Value> {
        self.settings.get(path).map(|(_, value)| value)
    }

    /// The value of `setting`.
    pub(crate) fn get<T: Read>(&self, setting: &Setting<T>) -> T {
        let value = self.value(setting.key.path).map_or_else(T::absent, T::read);
        value.unwrap_or_else(|| panic!("{} is not read as what its kind has", setting.key.path))
    }

    /// The word under `key`: a choice, or one in the place of another value.
    pub(crate) fn word(&self, key: &Key) -> Option<&'static str> {
        match self.value(key.path)? {
            Value::Word(word) => Some(word),
            _ => None,
        }
    }

    /// Settings that differ from their defaults and do not act with `traits`, each with the first
    /// condition that does not hold.
    pub(crate) fn ineffective(&self, traits: &RunTraits) -> Vec<IneffectiveSetting> {
        let is_set = |key: &Key| {
            let default = key.kind.parse(key.default).ok();
            self.value(key.path).is_some_and(|value| default.as_ref() != Some(value))
        };
        let unmet = |key: &'static Key| {
            let unmet = *key.conditions.iter().find(|conditions| !conditions.holds(traits, self))?;
            Some(IneffectiveSetting { path: key.path, text: self.text(key).to_owned(), unmet })
        };
        keys().filter(|key| is_set(key)).filter_map(unmet).collect()
    }

    /// Sets a key of text to a path that came by another way than the configuration.
    ///
    /// # Errors
    /// Where it is not UTF-8, which YAML cannot hold.
    pub(crate) fn set_path(&mut self, setting: &Setting<Option<PathBuf>>, value: &Path) -> Result<()> {
        let text = value.to_str().ok_or_else(|| ConfigError::PathNotText { path: value.to_owned() })?.to_owned();
        self.settings.insert(setting.key.path, (text.clone(), Value::Text(text)));
        Ok(())
    }

    /// Sets `setting` to one of its words.
    pub(crate) fn set_word<T>(&mut self, setting: &Setting<T>, word: &'static str) {
        self.settings.insert(setting.key.path, (word.to_owned(), Value::Word(word)));
    }

    /// Sets `setting` to a count that came by another way than the configuration.
    pub(crate) fn set_count<T>(&mut self, setting: &Setting<Option<T>>, count: u64) {
        self.settings.insert(setting.key.path, (count.to_string(), Value::Count(count)));
    }

    /// Sets `setting` to a number that was found out, in so many digits that it reads back the
    /// same.
    pub(crate) fn set_number(&mut self, setting: &Setting<Option<f64>>, number: f64) {
        self.settings.insert(setting.key.path, (number.to_string(), Value::Number(number)));
    }

    /// `data.split`.
    pub(crate) fn split(&self) -> [f64; 3] {
        self.get(&data::SPLIT)
    }

    /// `data.purge` in nanoseconds, or `None` for `auto`.
    pub(crate) fn purge_ns(&self) -> Option<i64> {
        self.get(&data::PURGE).map(|duration| duration.ns)
    }

    /// The most samples of an evaluation that `training.validation_samples` allows; `None` for all.
    pub(crate) fn validation_samples(&self) -> Option<usize> {
        match self.get(&training::VALIDATION_SAMPLES) {
            SampleLimit::Auto => Some(VALIDATION_SAMPLES_AUTO),
            SampleLimit::None => None,
            SampleLimit::Samples(samples) => Some(samples),
        }
    }

    /// True if `data.split` leaves samples to validate or to test.
    pub(crate) fn has_unseen(&self) -> bool {
        let [_, validation, test] = self.split();
        validation > 0.0 || test > 0.0
    }

    /// True if training walks forward through all folds, not one of them.
    pub(crate) fn walks_all_folds(&self) -> bool {
        self.get(&data::WALK_FORWARD).is_some() && self.walk_forward_fold().is_none()
    }

    /// The one fold of a walk forward to train, counted from 0; `None` for all.
    pub(crate) fn walk_forward_fold(&self) -> Option<usize> {
        self.get(&data::WALK_FORWARD_NUMBER).map(|number| number.saturating_sub(1))
    }

    /// Asks for the `fold`-th fold, counted from 0.
    pub(crate) fn set_walk_forward_fold(&mut self, fold: usize) {
        self.set_count(&data::WALK_FORWARD_NUMBER, fold as u64 + 1);
    }

    /// The one part of a cross-validation that is to be the test, counted from 0; `None` for each
    /// once.
    pub(crate) fn cross_validation_fold(&self) -> Option<usize> {
        self.get(&data::FOLD_NUMBER).map(|number| number.saturating_sub(1))
    }

    /// Asks for the `fold`-th part as test, counted from 0.
    pub(crate) fn set_cross_validation_fold(&mut self, fold: usize) {
        self.set_count(&data::FOLD_NUMBER, fold as u64 + 1);
    }
}

/// A setting without effect.
pub(crate) struct IneffectiveSetting {
    pub(crate) path: &'static str,
    /// Its value, as the user wrote it.
    pub(crate) text: String,
    /// Unmet condition.
    pub(crate) unmet: Condition,
}

/// The settings of one layer, checked; within a layer two names of one key must agree.
fn accept(layer: &[Written]) -> Result<BTreeMap<&'static str, (String, Value)>> {
    let mut accepted: BTreeMap<&'static str, (&Written, Value)> = BTreeMap::new();
    for written in layer {
        let key = keys::find(&written.path).ok_or_else(|| ConfigError::UnknownKey {
            path: written.path.clone(),
            origin: written.origin.to_string(),
            nearest: keys::nearest(&written.path),
        })?;
        let value =
            key.kind.parse(keys::own_value(key.path, &written.text)).map_err(|expected| ConfigError::BadValue {
                path: written.path.clone(),
                text: written.text.clone(),
                origin: written.origin.to_string(),
                expected,
            })?;
        match accepted.get(key.path) {
            Some((other, other_value)) if other.path != written.path && *other_value != value => {
                let (written, other) = (Box::new(written.clone()), Box::new(Written::clone(other)));
                return Err(ConfigError::Contradiction { written, other });
            }
            _ => accepted.insert(key.path, (written, value)),
        };
    }
    let setting = |(path, (written, value)): (&'static str, (&Written, Value))| {
        // Other forms of a number are no other setting.
        let text = if let Value::Count(count) = value { count.to_string() } else { written.text.clone() };
        (path, (text, value))
    };
    Ok(accepted.into_iter().map(setting).collect())
}

/// `text` as a YAML scalar: plain where that is safe, single-quoted otherwise.
fn quoted(text: &str) -> String {
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "._/-[], ".contains(c))
        && (text.starts_with('[') == text.ends_with(']'))
        && text.trim() == text
        && !text.starts_with(['-', ',']);
    if is_plain { text.to_owned() } else { format!("'{}'", text.replace('\'', "''")) }
}

/// The page of all keys: docs/reference/configuration.md.
pub fn reference_page() -> String {
    let mut page = String::from(
        "# Configuration\n\n\
         Settings come from a YAML file (`--config`), environment variables and `--set key=value`; later ones\n\
         take precedence. In the environment, `training.lr` is `MEGABATCH_TRAINING__LR` or\n\
         `MEGABATCH_TRAINING_LR`. An unknown key is an error that names the nearest known one.\n\
         `megabatch config` prints this page.\n\n\
         The column \"acts with\" names the conditions of a setting; an empty field means always. `plan`\n\
         and `train` name settings without effect, and refuse those that would split other data. Whole\n\
         numbers ≥ 1 are at most 1,000,000,000.\n\n\
         | key | default | value | acts with | meaning |\n| --- | --- | --- | --- | --- |\n",
    );
    for key in keys() {
        let default = if key.default.is_empty() { String::new() } else { format!("`{}`", key.default) };
        let conditions = key.conditions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        page.push_str(&format!(
            "| `{}` | {default} | {} | {conditions} | {} |\n",
            key.path,
            key.kind.in_table(),
            key.doc.trim()
        ));
    }
    page.push_str("\nAliases of names:\n\n| name | means |\n| --- | --- |\n");
    for alias in ALIASES {
        page.push_str(&format!("| `{}` | `{}` |\n", alias.path, alias.means));
    }
    page.push_str("\nAliases of values:\n\n| key | value | means |\n| --- | --- | --- |\n");
    for alias in VALUE_ALIASES {
        page.push_str(&format!("| `{}` | `{}` | `{}` |\n", alias.key, alias.text, alias.means));
    }
    page
}

/// The settings of the page of all keys, in its order, for programs: each with its default as a
/// user writes it (none for a setting without one), its values as a JSON Schema, and its meaning.
pub fn reference_json() -> serde_json::Value {
    let setting = |key: &Key| {
        let default = (!key.default.is_empty()).then_some(key.default);
        json!({ "name": key.path, "default": default, "values": key.kind.schema(), "meaning": key.doc.trim() })
    };
    keys().map(setting).collect()
}

/// Every key with its default and its meaning as a configuration file, which changes nothing as it
/// stands.
pub fn template() -> String {
    let mut yaml = String::from("# Settings of a run, at their defaults. Keys without a default are commented out.\n");
    let mut open_section = "";
    for key in keys() {
        let (section, name) = key.path.split_once('.').expect("a key has a section");
        if section != open_section {
            yaml.push_str(&format!("\n{section}:\n"));
            open_section = section;
        }
        yaml.push_str(&comment(&format!("{} Values: {}.", key.doc, key.kind.expected())));
        let mark = if key.default.is_empty() { "# " } else { "" };
        yaml.push_str(&format!("  {mark}{name}: {}\n", quoted(key.default)).replace(": \n", ":\n"));
    }
    yaml
}

/// `text` as comments of a section, wrapped at 100 columns.
fn comment(text: &str) -> String {
    const COLUMNS: usize = 96;
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push(word.to_owned());
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines.iter().map(|line| format!("  # {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(yaml: &str, arguments: &[&str]) -> Result<Config> {
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let yaml = layers::from_yaml(Path::new("run.yaml"), yaml)?;
        Config::from_layers([yaml, layers::from_arguments(&arguments)?])
    }

    #[test]
    fn later_layers_go_over_earlier_ones() {
        let config = load("training:\n  lr: 0.5\n  epochs: 3\nmodel.hidden: 16\n", &["training.lr=0.25"]).unwrap();
        assert_eq!(config.get(&training::LR), 0.25);
        assert_eq!(config.get(&training::EPOCHS), 3);
        assert_eq!(config.get(&model::HIDDEN), 16);
        assert_eq!(config.get(&model::LAYERS), 1);
        for (variable, key) in
            [("MEGABATCH_TRAINING__EPOCHS", "training.epochs"), ("MEGABATCH_MODEL_HIDDEN", "model.hidden")]
        {
            let variables = [(variable, "2"), ("MEGABATCH_DATA", "/x"), ("MEGABATCH_PYTHON", "/p"), ("HOME", "/h")];
            let environment =
                layers::from_environment(variables.map(|(k, v)| (k.into(), v.into())).into_iter()).unwrap();
            assert_eq!(Config::from_layers([environment]).unwrap().value(key), Some(&Value::Count(2)));
        }
        let misspelt = [("MEGABATCH_TRAINING_EPOCH".into(), "2".into())];
        let environment = layers::from_environment(misspelt.into_iter()).unwrap();
        let error = Config::from_layers([environment]).unwrap_err().to_string();
        assert!(error.contains("MEGABATCH_TRAINING_EPOCH: unknown key `training.epoch`"), "{error}");
    }

    /// The error named an argument of `--set` that nobody had given.
    #[test]
    fn a_setting_that_weights_tell_names_their_file() {
        let found = [("model.layers", "100".to_owned())];
        let error =
            SettingSources::default().load_over(Path::new("w.safetensors"), &found, &[]).unwrap_err().to_string();
        assert!(error.starts_with("w.safetensors, by its weights: model.layers = 100: expected"), "{error}");
    }

    #[test]
    fn empty_files_and_empty_keys_say_nothing() {
        for yaml in ["", "# only a comment\n", "training:\n", "training:\n  lr:\n", "~"] {
            assert_eq!(load(yaml, &[]).unwrap().get(&training::LR), 0.001, "{yaml:?}");
        }
    }

    #[test]
    fn a_wrong_setting_is_named_with_its_place() {
        let cases: &[(&str, &[&str], &str)] = &[
            (
                "training:\n  lerning_rate: 1\n",
                &[],
                "run.yaml, line 2: unknown key `training.lerning_rate`; the nearest known key is",
            ),
            ("model:\n  hiden: 1\n", &[], "the nearest known key is `model.hidden`"),
            ("training:\n  lr: -1\n", &[], "run.yaml, line 2: training.lr = -1: expected a number greater than 0"),
            (
                "",
                &["training.epochs=0"],
                "--set training.epochs=0: training.epochs = 0: expected a whole number from 1 to 1000000000",
            ),
            ("", &["training.precision=fp8"], "expected auto, fp32, bf16, fp16, bf16-mixed, 16-mixed"),
            ("", &["lr"], "--set lr: expected key=value"),
            ("training: [1\n", &[], "run.yaml, line "),
            ("training: 1\ntraining: 2\n", &[], "duplicated key"),
            ("5\n", &[], "run.yaml, line 1: expected sections"),
            ("data:\n  split: [[1]]\n", &[], "data.split: a list of lists"),
            (
                "training:\n  batch_size: 8\ngpu_optimization:\n  batch_size: 16\n",
                &[],
                "gpu_optimization.batch_size = 16 (run.yaml, line 4) contradicts training.batch_size = 8 (run.yaml, line 2)",
            ),
        ];
        for (yaml, arguments, message) in cases {
            let error = load(yaml, arguments).unwrap_err().to_string();
            assert!(error.contains(message), "{yaml:?} {arguments:?}: {error}");
        }
    }

    #[test]
    fn the_template_changes_nothing() {
        let template = template();
        assert_eq!(load(&template, &[]).unwrap().settings, load("", &[]).unwrap().settings);
        assert!(template.lines().all(|line| line.chars().count() <= 100 || !line.contains(' ')), "{template}");
        assert!(keys().all(|key| template.contains(&format!("{}:", key.path.split_once('.').unwrap().1))));
    }

    #[test]
    fn a_float_without_a_fraction_is_a_whole_number() {
        let floats = load("model:\n  hidden: 16.0\n", &["training.epochs=2.0"]).unwrap();
        assert_eq!(floats.settings, load("model:\n  hidden: 16\n", &["training.epochs=2"]).unwrap().settings);
        assert!(load("model:\n  hidden: 2.5\n", &[]).is_err());
    }

    // `--set training.loss=mae` was refused with a list of losses.
    #[test]
    fn the_mean_absolute_error_is_the_median() {
        let config = load("training:\n  loss: mae\n", &[]).unwrap();
        assert_eq!(config.word(&training::LOSS.key), Some("quantile"));
        assert!(load(&config.to_yaml(), &[]).is_ok());
        let error = load("training:\n  loss: mae\n", &["training.quantile=[0.1,0.5]"]).unwrap_err().to_string();
        assert!(error.contains("training.loss = mae is the loss of the median"), "{error}");
        assert_eq!(load("", &["training.learning_rate=0.5"]).unwrap().get(&training::LR), 0.5);
    }

    #[test]
    fn settings_under_their_old_names_are_read() {
        let old = "training:\n  mode: dense\n  tuning: fast\n  explosion_factor: 9\n";
        let config = load(old, &[]).unwrap();
        assert_eq!(config.word(&training::LOSS_ON.key), Some("every_step"));
        assert_eq!(config.word(&training::AUTOTUNE.key), Some("fast"));
        assert_eq!(config.get(&training::LOSS_SPIKE_FACTOR), Some(9.0));
        assert_eq!(load("", &["training.mode=windows"]).unwrap().word(&training::LOSS_ON.key), Some("last_step"));
    }

    #[test]
    fn what_is_saved_reads_back_the_same() {
        let config = load("data:\n  path: 'a b: c''s.h5'\n  split: [0.8, 0.2, 0]\n", &["training.lr=1e-4"]).unwrap();
        let saved = config.to_yaml();
        let again = Config::load_saved(Path::new("config.yaml"), &saved, &[]).unwrap();
        assert_eq!(again.settings, config.settings);
        assert_eq!(again.get(&data::PATH), Some(PathBuf::from("a b: c's.h5")));
    }

    #[test]
    fn the_reference_page_is_up_to_date() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
        let written = std::fs::read_to_string(&page).unwrap_or_default();
        assert!(
            written == reference_page(),
            "docs/reference/configuration.md is old; run: megabatch config > docs/reference/configuration.md"
        );
    }
}
