//! Settings that choose among words.

use megabatch_amp::Precision;
use megabatch_nn::batch::LossOn;
use megabatch_nn::model::{AttentionKind, Cell, Encoder, GraphActivation, GraphOutput, Readout};
use megabatch_nn_cuda::Tuning;
use megabatch_trainer::{IdleRanks, OptimizerKind, SampleWeighting, TargetScaling, TrainingWindow};

use crate::config::value::{Choice, Read, Value};

/// The words of a type, in the order of the reference page.
macro_rules! words {
    ($type:ident: $($word:literal => $choice:ident),+ $(,)?) => {
        impl Choice for $type {
            const CHOICES: &'static [(&'static str, Self)] = &[$(($word, $type::$choice)),+];
        }

        impl Read for $type {
            fn read(value: &Value) -> Option<Self> {
                <$type as Choice>::find(value)
            }
        }
    };
}

/// A type that only the configuration has, with its words.
macro_rules! choice {
    ($(#[doc = $doc:literal])+ $type:ident: $($word:literal => $choice:ident),+ $(,)?) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $type {
            $($choice),+
        }

        words!($type: $($word => $choice),+);
    };
}

choice!(
    /// Place of a series during a run.
    Residency: "resident" => Resident, "streamed" => Streamed
);
choice!(
    /// Pooling of a sequence.
    PoolingKind: "last" => Last, "attention" => Attention
);
choice!(
    /// Fusion of timeframes.
    FusionKind: "concat" => Concat, "attention" => Attention
);
choice!(
    /// Curve of the learning rate.
    LrCurve: "constant" => Constant, "cosine" => Cosine, "one_cycle" => OneCycle
);
choice!(
    /// Loss of all targets.
    LossKind:
    "mse" => Mse,
    "huber" => Huber,
    "quantile" => Quantile,
    "cross_entropy" => CrossEntropy,
    "rank_pairwise" => RankPairwise,
    "rank_listwise" => RankListwise,
);
choice!(
    /// Reaction to a divergence.
    OnNan: "stop" => Stop, "rollback" => Rollback
);
choice!(
    /// Record of memory use.
    MemoryRecord: "events" => Events, "trace" => Trace, "off" => Off
);
choice!(
    /// Connection of processes.
    Backend: "mpi" => Mpi, "off" => Off
);

words!(TrainingWindow: "expanding" => Expanding, "sliding" => Sliding);
words!(Cell: "lstm" => Lstm, "gru" => Gru);
words!(Encoder: "lstm" => Recurrent, "none" => LastBar);
words!(AttentionKind: "gat" => Gat, "gatv2" => GatV2);
words!(GraphOutput: "linear" => Linear, "attention" => Attention);
words!(GraphActivation: "elu" => Elu, "relu" => Relu);
words!(Readout: "node" => Node, "mean" => Mean, "sum" => Sum, "max" => Max);
words!(OptimizerKind: "adamw" => AdamW, "adam" => Adam, "sgd" => Sgd);
words!(Precision: "fp32" => Fp32, "bf16" => Bf16, "fp16" => Fp16, "bf16-mixed" => Bf16, "16-mixed" => Fp16);
words!(Tuning: "off" => Off, "deterministic" => Deterministic, "fast" => Fast);
words!(LossOn: "last_step" => LastStep, "every_step" => EveryStep);
words!(TargetScaling: "auto" => Auto, "none" => None);
words!(SampleWeighting: "auto" => Auto, "none" => None);
words!(IdleRanks: "refuse" => Refuse, "allow" => Allow);

/// Number of samples that errors are computed from, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampleLimit {
    Auto,
    /// All of them.
    None,
    Samples(usize),
}

impl Read for SampleLimit {
    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Word("auto") => Some(SampleLimit::Auto),
            Value::Word(_) => Some(SampleLimit::None),
            number => usize::read(number).map(SampleLimit::Samples),
        }
    }
}

/// Consecutive samples that stay together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunLength {
    Auto,
    /// As many as an optimizer step has.
    Batch,
    Samples(usize),
}

impl Read for RunLength {
    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Word("auto") => Some(RunLength::Auto),
            Value::Word(_) => Some(RunLength::Batch),
            number => usize::read(number).map(RunLength::Samples),
        }
    }
}
