//! Layers above the encoders: fusion, graph attention, a readout, the linear head, each where the
//! model has it.

use crate::model::fusion::{AttentionFusion, Fusion, FusionSizes};
use crate::model::graph::{GraphAttention, GraphOutput};
use crate::model::head::Head;
use crate::model::readout::Readout;
use crate::model::tensor::Layout;
use crate::model::{Encoder, ModelConfig};

/// The parts of a model above its encoder, from D numbers a sample to K outputs.
#[derive(Debug)]
pub struct Decoder {
    /// Numbers in a row at each height.
    pub widths: Widths,
    /// Fusion by attention; `None` for encodings as they are.
    pub fusion: Option<AttentionFusion>,
    /// Graph attention, for a model over graphs that has some.
    pub attention: Option<GraphAttention>,
    /// The linear head; `None` where attention gives the outputs.
    pub head: Option<Head>,
    /// True if attention sees the attributes of edges.
    pub sees_attributes: bool,
    /// True if the encoder has parameters, so that the gradient goes on below.
    pub encoder_learns: bool,
}

/// Numbers in a row at each height of a decoder.
#[derive(Clone, Copy, Debug)]
pub struct Widths {
    /// D.
    pub encoding: usize,
    /// H of what fusion makes of it; D without fusion.
    pub fused: usize,
    /// W: of what the head, or a readout, reads.
    pub top: usize,
    /// K.
    pub outputs: usize,
    /// Readout of a graph's nodes.
    pub readout: Readout,
}

impl Decoder {
    /// Appends the parameters to `layout`, for encodings of `width` numbers, `timeframes` times as
    /// many units, and K = `outputs`.
    pub(crate) fn new(
        config: ModelConfig,
        timeframes: usize,
        width: usize,
        outputs: usize,
        layout: &mut Layout,
    ) -> Self {
        let hidden = config.hidden;
        let fusion = match config.fusion {
            Fusion::Concat => None,
            Fusion::Attention { heads, feed_forward } => {
                let sizes = FusionSizes { tokens: timeframes, hidden, heads, inner: feed_forward * hidden };
                Some(AttentionFusion::new(sizes, layout))
            }
        };
        let fused = if fusion.is_some() { hidden } else { width };
        let attention =
            config.graph.map(|graph| GraphAttention::new(graph, fused, config.graph_edge_attributes, outputs, layout));
        let has_head = config.graph.is_none_or(|graph| graph.output == GraphOutput::Linear);
        let top = attention.as_ref().map_or(fused, GraphAttention::width);
        let head = has_head.then(|| Head::new(top, outputs, layout));
        let widths = Widths { encoding: width, fused, top, outputs, readout: config.readout.unwrap_or_default() };
        let (sees_attributes, encoder_learns) = (config.graph_edge_attributes > 0, config.encoder != Encoder::LastBar);
        Decoder { widths, fusion, attention, head, sees_attributes, encoder_learns }
    }

    /// Weights of fusion by attention in a sample: heads · n · n; none without it.
    pub fn fusion_weights_len(&self) -> usize {
        self.fusion.map_or(0, |fusion| fusion.sizes.weights_len())
    }

    /// Rows of outputs for `samples` samples that are computed together.
    pub fn rows(&self, samples: usize) -> usize {
        self.widths.readout.rows(samples)
    }
}
