//! Types of settings for Python, from the settings that the program lists.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::limits::output;

/// Columns of a line of Python.
const COLUMNS: usize = 120;

/// Words of the program in those of Python, in the meanings of settings.
const WORDS: [(&str, &str); 8] = [
    ("`--data`", "the dataset"),
    ("`--init`", "`init`"),
    ("`--max-steps`", "the argument `max_steps`"),
    ("`--out`", "the argument `out`"),
    ("`eval`", "`evaluate`"),
    ("`import`", "`megabatch import`"),
    ("`megabatch graph build`", "`mb.graph.build`"),
    ("exit code 5", "`NumericError`"),
];

/// A setting as the program lists it.
struct Setting {
    section: String,
    name: String,
    /// Type of its values in Python.
    values: String,
    /// Its default in Python.
    default: Option<String>,
    meaning: String,
}

impl Setting {
    fn from_json(listed: &Value) -> Result<Self> {
        let path = listed["name"].as_str().context("a setting has no name")?;
        let (section, name) = path.split_once('.').with_context(|| format!("{path} has no section"))?;
        let mut meaning = listed["meaning"].as_str().unwrap_or_default().to_owned();
        for (word, own) in WORDS {
            meaning = meaning.replace(word, own);
        }
        ensure!(!meaning.contains("`--"), "the meaning of {path} names an option of the program: {meaning}");
        Ok(Setting {
            section: section.to_owned(),
            name: name.to_owned(),
            values: python_type(&listed["values"]).with_context(|| format!("{path} has values without a type"))?,
            default: listed["default"].as_str().map(python_value),
            meaning,
        })
    }

    /// Name, type and default, as a function declares an argument.
    fn declaration(&self) -> String {
        let default = self.default.as_ref().map_or(String::new(), |default| format!(" = {default}"));
        format!("{}: {}{default}", self.name, self.values)
    }

    fn meaning_with_default(&self) -> String {
        match &self.default {
            Some(default) => format!("{} Default: {default}.", self.meaning),
            None => self.meaning.clone(),
        }
    }
}

/// A section of settings.
struct Section {
    name: String,
    settings: Vec<Setting>,
}

impl Section {
    /// `GpuOptimizationSettings` for `gpu_optimization`.
    fn class(&self) -> String {
        let capitalized = |word: &str| word[..1].to_uppercase() + &word[1..];
        self.name.split('_').map(capitalized).collect::<String>() + "Settings"
    }
}

/// The module of types, from the settings that `program` lists.
pub(crate) fn setting_types(program: &Path) -> Result<String> {
    let listed = output(Command::new(program).args(["--json", "config"]))?;
    let listed: Value = serde_json::from_slice(&listed.stdout).context("`megabatch --json config` gives no JSON")?;
    module(listed["settings"].as_array().context("`megabatch --json config` lists no settings")?)
}

fn module(listed: &[Value]) -> Result<String> {
    let mut sections: Vec<Section> = Vec::new();
    for setting in listed {
        let setting = Setting::from_json(setting)?;
        match sections.iter_mut().find(|section| section.name == setting.section) {
            Some(section) => section.settings.push(setting),
            None => sections.push(Section { name: setting.section.clone(), settings: vec![setting] }),
        }
    }
    let mut text = String::from(
        "# Written by `cargo xtask python stubs`.\n\
         \"\"\"Settings of a run with their types, as docs/reference/configuration.md has them.\"\"\"\n\n\
         from __future__ import annotations\n\n\
         import os\n\
         from collections.abc import Mapping, Sequence\n\
         from typing import Any, Literal, TypedDict\n",
    );
    sections.iter().for_each(|section| push_section(&mut text, section));
    text.push_str("\n\nclass Settings(TypedDict, total=False):\n");
    text.push_str("    \"\"\"Settings of a run by their sections, whose classes say what each means.\n\n");
    for section in &sections {
        text.push_str(&format!("    {}\n", section.name));
        for setting in &section.settings {
            text.push_str(&format!("        {}\n", setting.declaration()));
        }
    }
    text.push_str("    \"\"\"\n\n");
    for section in &sections {
        text.push_str(&format!("    {}: {}\n", section.name, section.class()));
    }
    text.push_str("\n\nclass ShortSettings(TypedDict, total=False):\n");
    text.push_str(
        "    \"\"\"Settings of a run by section and name: `model__hidden=64` is `model={\"hidden\": 64}`.\"\"\"\n\n",
    );
    for setting in sections.iter().flat_map(|section| &section.settings) {
        text.push_str(&format!("    {}__{}: {}\n", setting.section, setting.name, setting.values));
    }
    match text.lines().find(|line| line.chars().count() > COLUMNS) {
        Some(line) => bail!("a line is longer than {COLUMNS} columns: {line}"),
        None => Ok(text),
    }
}

/// Declares a section. Python forgets what stands below a field: `help` shows the text of the
/// class.
fn push_section(text: &mut String, section: &Section) {
    text.push_str(&format!("\n\nclass {}(TypedDict, total=False):\n", section.class()));
    text.push_str(&format!("    \"\"\"Settings of the section `{}`.\n\n", section.name));
    for setting in &section.settings {
        text.push_str(&format!("    {}\n", setting.declaration()));
        push_wrapped(text, &setting.meaning, "        ");
    }
    text.push_str("    \"\"\"\n\n");
    for setting in &section.settings {
        text.push_str(&format!("    {}: {}\n", setting.name, setting.values));
        push_wrapped(text, &format!("\"\"\"{}\"\"\"", setting.meaning_with_default()), "    ");
    }
}

/// Appends words to `text` in lines that begin with `indent`.
fn push_wrapped(text: &mut String, words: &str, indent: &str) {
    let mut line = String::new();
    for word in words.split_whitespace() {
        if !line.is_empty() && indent.len() + line.chars().count() + 1 + word.chars().count() > COLUMNS {
            text.push_str(&format!("{indent}{line}\n"));
            line.clear();
        }
        line.push_str(if line.is_empty() { "" } else { " " });
        line.push_str(word);
    }
    text.push_str(&format!("{indent}{line}\n"));
}

/// The type in Python of the values that `schema` allows, words first.
fn python_type(schema: &Value) -> Option<String> {
    let (mut words, mut types) = (Vec::new(), Vec::new());
    collect_types(schema, &mut words, &mut types)?;
    if !words.is_empty() {
        types.insert(0, format!("Literal[{}]", words.join(", ")));
    }
    Some(types.join(" | "))
}

fn collect_types(schema: &Value, words: &mut Vec<String>, types: &mut Vec<String>) -> Option<()> {
    if let Some(choices) = schema["anyOf"].as_array() {
        return choices.iter().try_for_each(|choice| collect_types(choice, words, types));
    }
    if let Some(own) = schema["enum"].as_array() {
        words.extend(own.iter().map(Value::to_string));
        return Some(());
    }
    let own = match schema["type"].as_str()? {
        "boolean" => "bool",
        "integer" => "int",
        "number" => "float",
        "string" if schema["pattern"].is_string() => "str",
        // Text without a pattern may be a path.
        "string" => "str | os.PathLike[str]",
        "array" if schema["items"]["type"] == "number" => "Sequence[float]",
        "array" if schema["items"]["type"] == "object" => "Sequence[Mapping[str, Any]]",
        _ => return None,
    };
    types.push(own.to_owned());
    Some(())
}

/// A default as Python writes it.
fn python_value(default: &str) -> String {
    match default {
        "true" => "True".to_owned(),
        "false" => "False".to_owned(),
        _ if default.starts_with('[') || default.parse::<f64>().is_ok() => default.to_owned(),
        word => format!("\"{word}\""),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_become_fields_with_types() {
        let listed = [
            json!({ "name": "model.hidden", "default": "64", "values": { "type": "integer" }, "meaning": "Hidden units." }),
            json!({ "name": "model.cell", "default": "lstm", "values": { "enum": ["lstm", "gru"] }, "meaning": "Cell." }),
            json!({ "name": "gpu_optimization.dir", "default": null, "values": { "type": "string" },
                    "meaning": "The same as `--out`, or exit code 5." }),
        ];
        let text = module(&listed).unwrap();
        for expected in [
            "class ModelSettings(TypedDict, total=False):\n    \"\"\"Settings of the section `model`.\n\n    \
             hidden: int = 64\n        Hidden units.\n    cell: Literal[\"lstm\", \"gru\"] = \"lstm\"\n        Cell.\n    \"\"\"\n",
            "    hidden: int\n    \"\"\"Hidden units. Default: 64.\"\"\"\n",
            "    cell: Literal[\"lstm\", \"gru\"]\n    \"\"\"Cell. Default: \"lstm\".\"\"\"\n",
            "    dir: str | os.PathLike[str]\n    \"\"\"The same as the argument `out`, or `NumericError`.\"\"\"\n",
            "    model\n        hidden: int = 64\n        cell: Literal[\"lstm\", \"gru\"] = \"lstm\"\n    gpu_optimization\n        dir: ",
            "    model: ModelSettings\n    gpu_optimization: GpuOptimizationSettings\n",
            "    model__cell: Literal[\"lstm\", \"gru\"]\n    gpu_optimization__dir: str | os.PathLike[str]\n",
        ] {
            assert!(text.contains(expected), "{expected}\nis not in\n{text}");
        }
        let option = json!({ "name": "a.b", "values": { "type": "boolean" }, "meaning": "As `--b`." });
        assert!(module(&[option]).unwrap_err().to_string().contains("an option of the program: As `--b`."));
        let long = json!({ "name": "a.b", "values": { "enum": vec!["word"; 20] }, "meaning": "" });
        assert!(module(&[long]).unwrap_err().to_string().contains("longer than 120 columns"));
    }

    #[test]
    fn values_have_types_of_python() {
        let (word, number) = (json!({ "enum": ["auto"] }), json!({ "type": "number" }));
        let numbers = json!({ "type": "array", "items": number });
        for (schema, expected) in [
            (json!({ "type": "boolean" }), "bool"),
            (json!({ "type": "string", "pattern": "^[0-9]+[dhms]$" }), "str"),
            (json!({ "anyOf": [number, numbers] }), "float | Sequence[float]"),
            (
                json!({ "anyOf": [word, { "anyOf": [{ "enum": ["all"] }, number] }] }),
                "Literal[\"auto\", \"all\"] | float",
            ),
            (json!({ "type": "array", "items": { "type": "object" } }), "Sequence[Mapping[str, Any]]"),
        ] {
            assert_eq!(python_type(&schema).as_deref(), Some(expected));
        }
        assert_eq!(python_type(&json!({ "type": "null" })), None);
        let values = ["true", "1e-8", "[0.7, 0.15, 0.15]", "none"].map(python_value);
        assert_eq!(values, ["True", "1e-8", "[0.7, 0.15, 0.15]", "\"none\""]);
    }

    #[test]
    fn texts_wrap() {
        let mut text = String::new();
        push_wrapped(&mut text, &"word ".repeat(30), "    ");
        let lines: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert_eq!(lines, [118, 38]);
    }
}
