//! Import of weights as a run that can be evaluated, used and trained further.

use std::path::{Path, PathBuf};

use megabatch_nn::model::TensorFile;
use megabatch_trainer::Trainer;
use serde_json::json;

use crate::command_report::CommandReport;
use crate::config::{self, SettingSources};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::plan::Plan;
use crate::run_folder::RunFolder;
use crate::setup::{Intent, Request, TrainingSetup, data_path, make_graph_absolute};
use crate::text::shown;

/// Weights to import.
#[derive(Clone, Debug)]
pub struct ImportRequest {
    /// The weights, in safetensors, with PyTorch's names, shapes and gate order.
    pub weights: PathBuf,
    /// Settings. Those of the recurrence and of graph attention are taken from the weights where
    /// they are not set.
    pub settings: SettingSources,
    /// Data with the shape of the model; goes over `data.path`.
    pub data: Option<PathBuf>,
    /// Folder of the run to make.
    pub out: PathBuf,
}

/// Makes a run of weights from elsewhere.
///
/// # Errors
/// A data error for weights that do not fit the model, a usage error for a folder that holds a run.
pub fn import(request: &ImportRequest, host: &Host<'_>) -> Result<CommandReport> {
    let shapes = supported_shapes(&request.weights)?;
    let found = [recurrence(&shapes), graph_attention(&shapes)].concat();
    let mut config = request.settings.load_over(&request.weights, &found, &host.environment)?;
    let data = data_path(&config, request.data.as_deref())?;
    config.set_path(&config::data::PATH, &std::path::absolute(data)?)?;
    make_graph_absolute(&mut config)?;
    config.set_path(&config::output::DIR, &request.out)?;
    // The weights are for the targets as they are.
    config.set_word(&config::training::TARGET_SCALING, "none");
    let folder = RunFolder::new(&request.out)?;
    let setup = TrainingSetup::open(Request::new(config, Intent::Plan, host))?;
    let plan = Plan::new(&setup)?;
    let mut trainer = Trainer::new(&setup.device, setup.training.clone(), plan.shape.clone())?;
    trainer.load_weights(&request.weights)?;

    let _run_lock = folder.take()?;
    folder.begin(&setup.config, &plan)?;
    let checkpoints = folder.keep_checkpoints(&setup.config);
    let checkpoint = trainer.save_checkpoint(&setup.run(&checkpoints))?;
    let text = format!("{}: {} weights as step 0", folder.root().display(), plan.parameters);
    Ok(CommandReport::new(
        text,
        &json!({ "run": shown(folder.root()), "checkpoint": checkpoint.as_deref().map(shown), "parameters": plan.parameters }),
    ))
}

/// Names and shapes of the weights in the file `path`.
///
/// # Errors
/// A data error for weights of a recurrence that no model has, and for a file that cannot be read.
pub(crate) fn supported_shapes(path: &Path) -> Result<Vec<(String, Vec<usize>)>> {
    let shapes = TensorFile::open(path)?.shapes();
    match unsupported(&shapes) {
        None => Ok(shapes),
        Some(problem) => Err(Error::data(format!("{}: {problem}", path.display()))),
    }
}

/// The recurrence that no model has, if the weights are of one.
fn unsupported(weights: &[(String, Vec<usize>)]) -> Option<String> {
    let mut recurrent = weights.iter().filter(|(name, _)| name.contains("weight_hh_l"));
    recurrent.find_map(|(name, shape)| match shape.as_slice() {
        _ if name.ends_with("_reverse") => Some(format!(
            "{name} is of a bidirectional recurrence, which is not supported: models read windows forward"
        )),
        [rows, hidden] if rows == hidden => {
            Some(format!("{name}, {shape:?}, is of nn.RNN, which is not supported: models have an LSTM or a GRU"))
        }
        _ => None,
    })
}

/// The settings of the recurrence, by key, that names and shapes of weights tell; none for weights
/// without one.
fn recurrence(weights: &[(String, Vec<usize>)]) -> Vec<(&'static str, String)> {
    let layer = |name: &str| name.rsplit_once("weight_hh_l")?.1.parse::<usize>().ok();
    let layers: Vec<(usize, &[usize])> =
        weights.iter().filter_map(|(name, shape)| Some((layer(name)?, shape.as_slice()))).collect();
    let (Some(last), Some(&(_, &[rows, hidden]))) = (layers.iter().map(|(layer, _)| layer).max(), layers.first())
    else {
        return Vec::new();
    };
    let cell = match rows.checked_div(hidden) {
        Some(3) => "gru",
        Some(4) => "lstm",
        _ => return Vec::new(),
    };
    let any = |is_one: fn(&str) -> bool| weights.iter().any(|(name, _)| is_one(name));
    vec![
        ("model.cell", cell.to_owned()),
        ("model.hidden", hidden.to_string()),
        ("model.layers", last.saturating_add(1).to_string()),
        ("model.bias", any(|name| name.contains("bias_hh_l")).to_string()),
        ("model.layer_norm", any(|name| name.starts_with("norm.")).to_string()),
    ]
}

/// The settings of graph attention, by key, that names and shapes of weights tell; none for weights
/// without it.
fn graph_attention(weights: &[(String, Vec<usize>)]) -> Vec<(&'static str, String)> {
    let scores = |(name, shape): &(String, Vec<usize>)| {
        let (layer, tensor) = name.strip_prefix("graph.")?.split_once('.')?;
        let kind = match tensor {
            "att_src" => "gat",
            "att" => "gatv2",
            _ => return None,
        };
        let &[1, heads, units] = shape.as_slice() else { return None };
        Some((layer.parse::<usize>().ok()?, kind, heads, units))
    };
    let mut layers: Vec<_> = weights.iter().filter_map(scores).collect();
    layers.sort_unstable();
    let [(_, kind, heads, units), ..] = layers[..] else { return Vec::new() };
    let (last, _, output_heads, _) = layers[layers.len() - 1];
    let has = |tensor: &str| weights.iter().any(|(name, _)| name.starts_with("graph.") && name.ends_with(tensor));
    let mut found = vec![
        ("model.graph_attention", kind.to_owned()),
        ("model.graph_layers", last.saturating_add(1).to_string()),
        ("model.graph_residual", has(".res.weight").to_string()),
        ("model.graph_edge_attributes", has(".lin_edge.weight").to_string()),
    ];
    let has_head = weights.iter().any(|(name, _)| name == "head.weight");
    if !has_head {
        found.push(("model.graph_output", "attention".to_owned()));
        found.push(("model.graph_output_heads", output_heads.to_string()));
    }
    // A layer that is the output has sizes of its own.
    if has_head || layers.len() > 1 {
        found.push(("model.graph_heads", heads.to_string()));
        found.push(("model.graph_hidden", units.to_string()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{graph_attention, recurrence, unsupported};

    /// Names and shapes of weights.
    fn named(weights: &[(&str, &[usize])]) -> Vec<(String, Vec<usize>)> {
        weights.iter().map(|(name, shape)| ((*name).to_owned(), shape.to_vec())).collect()
    }

    /// Settings as `KEY=VALUE`.
    fn joined(settings: &[(&str, String)]) -> String {
        settings.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    }

    /// Weights of other sizes than the settings' defaults were refused with a list of shapes.
    #[test]
    fn graph_attention_is_told_by_its_weights() {
        let case = |weights: &[(&str, &[usize])]| joined(&graph_attention(&named(weights)));
        let gat = case(&[
            ("graph.1.att_src", &[1, 2, 5]),
            ("graph.0.att_src", &[1, 2, 5]),
            ("graph.0.lin_edge.weight", &[10, 1]),
            ("head.weight", &[3, 10]),
        ]);
        let expected = "model.graph_attention=gat model.graph_layers=2 model.graph_residual=false \
                        model.graph_edge_attributes=true model.graph_heads=2 model.graph_hidden=5";
        assert_eq!(gat, expected);
        let output = case(&[("graph.0.att", &[1, 6, 3]), ("graph.0.res.weight", &[3, 4])]);
        let expected = "model.graph_attention=gatv2 model.graph_layers=1 model.graph_residual=true \
                        model.graph_edge_attributes=false model.graph_output=attention model.graph_output_heads=6";
        assert_eq!(output, expected);
        assert_eq!(case(&[("graph.0.att", &[6, 3])]), "");
        assert_eq!(case(&[("graph.x.att", &[1, 6, 3])]), "");
        assert_eq!(case(&[("head.weight", &[2, 4])]), "");
    }

    #[test]
    fn the_recurrence_is_told_by_its_weights() {
        let case = |weights: &[(&str, &[usize])]| joined(&recurrence(&named(weights)));
        let lstm = case(&[
            ("lstm.M1.weight_ih_l0", &[16, 3]),
            ("lstm.M1.weight_hh_l0", &[16, 4]),
            ("lstm.M1.weight_hh_l1", &[16, 4]),
            ("lstm.M1.bias_hh_l0", &[16]),
            ("head.weight", &[2, 4]),
        ]);
        assert_eq!(lstm, "model.cell=lstm model.hidden=4 model.layers=2 model.bias=true model.layer_norm=false");
        let gru = case(&[("gru.weight_hh_l0", &[15, 5]), ("norm.l0.weight", &[5])]);
        assert_eq!(gru, "model.cell=gru model.hidden=5 model.layers=1 model.bias=false model.layer_norm=true");
        assert_eq!(case(&[("graph.0.bias", &[4])]), "");
        assert_eq!(case(&[("lstm.weight_hh_l0", &[4])]), "");
        assert_eq!(case(&[("lstm.weight_hh_lx", &[4, 1])]), "");
        assert_eq!(case(&[("lstm.weight_hh_l0", &[4, 0])]), "");
    }

    #[test]
    fn recurrences_that_no_model_has_are_refused_by_name() {
        let case = |name: &str, shape: &[usize]| unsupported(&[(name.to_owned(), shape.to_vec())]);
        assert!(case("rnn.weight_hh_l0", &[4, 4]).unwrap().starts_with("rnn.weight_hh_l0, [4, 4], is of nn.RNN"));
        let reverse = case("lstm.weight_hh_l0_reverse", &[16, 4]).unwrap();
        assert!(reverse.starts_with("lstm.weight_hh_l0_reverse is of a bidirectional recurrence"), "{reverse}");
        assert_eq!(case("lstm.weight_hh_l0", &[16, 4]), None);
        assert_eq!(case("gru.weight_hh_l0", &[12, 4]), None);
        assert_eq!(case("head.weight", &[4, 4]), None);
    }
}
