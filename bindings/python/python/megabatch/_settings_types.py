# Written by `cargo xtask python stubs`.
"""Settings of a run with their types, as docs/reference/configuration.md has them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class DataSettings(TypedDict, total=False):
    """Settings of the section `data`.

    path: str | os.PathLike[str]
        Data file, HDF5 or `.mbg`; the same as the dataset.
    residency: Literal["auto", "resident", "streamed"] = "auto"
        Place of bars and targets during a run. `resident`: in memory. `streamed`: read from the file through a cache.
        `auto`: in memory if they fit. The results are the same.
    cache_gb: Literal["auto"] | float = "auto"
        Cache of a streamed series, in 10^9 bytes. `auto`: half of the memory left by the model, or the size of the
        series.
    split: Sequence[float] = [0.7, 0.15, 0.15]
        Shares of training, validation and test samples, in time order; validation and test may be 0.
    purge: Literal["auto"] | str = "auto"
        Distance between two neighbouring splits. `auto`: no window of the later one reaches back before the last label
        of the earlier one ends. Samples of the later split are excluded; of walk-forward folds, those of the earlier
        one.
    walk_forward: Literal["none"] | int = "none"
        Number of walk-forward test folds in the last part of `data.split`. Each has a model trained on the samples
        before it, in `fold-1`, `fold-2`, … of the run's folder. The purge never shortens a test.
    walk_forward_window: Literal["expanding", "sliding"] = "expanding"
        Training window of a fold. `expanding`: all samples before its validation part. `sliding`: the first share of
        `data.split` before it.
    walk_forward_overlap: float = 0
        Share of a fold's test that the next fold tests again.
    walk_forward_number: Literal["all"] | int = "all"
        Trains only this fold, from 1, as an ordinary run.
    folds: Literal["none"] | int = "none"
        Cross-validation: number of equal parts, random and stratified by class, in place of `data.split`. One part is
        the test, the next the validation, the others the training set.
    fold_number: Literal["all"] | int = 1
        Part to test, from 1. `all` tests each part once; `cross-validation.json` and `report.html` have mean and
        deviation.
    """

    path: str | os.PathLike[str]
    """Data file, HDF5 or `.mbg`; the same as the dataset."""
    residency: Literal["auto", "resident", "streamed"]
    """Place of bars and targets during a run. `resident`: in memory. `streamed`: read from the file through a cache.
    `auto`: in memory if they fit. The results are the same. Default: "auto"."""
    cache_gb: Literal["auto"] | float
    """Cache of a streamed series, in 10^9 bytes. `auto`: half of the memory left by the model, or the size of the
    series. Default: "auto"."""
    split: Sequence[float]
    """Shares of training, validation and test samples, in time order; validation and test may be 0. Default: [0.7,
    0.15, 0.15]."""
    purge: Literal["auto"] | str
    """Distance between two neighbouring splits. `auto`: no window of the later one reaches back before the last label
    of the earlier one ends. Samples of the later split are excluded; of walk-forward folds, those of the earlier one.
    Default: "auto"."""
    walk_forward: Literal["none"] | int
    """Number of walk-forward test folds in the last part of `data.split`. Each has a model trained on the samples
    before it, in `fold-1`, `fold-2`, … of the run's folder. The purge never shortens a test. Default: "none"."""
    walk_forward_window: Literal["expanding", "sliding"]
    """Training window of a fold. `expanding`: all samples before its validation part. `sliding`: the first share of
    `data.split` before it. Default: "expanding"."""
    walk_forward_overlap: float
    """Share of a fold's test that the next fold tests again. Default: 0."""
    walk_forward_number: Literal["all"] | int
    """Trains only this fold, from 1, as an ordinary run. Default: "all"."""
    folds: Literal["none"] | int
    """Cross-validation: number of equal parts, random and stratified by class, in place of `data.split`. One part is
    the test, the next the validation, the others the training set. Default: "none"."""
    fold_number: Literal["all"] | int
    """Part to test, from 1. `all` tests each part once; `cross-validation.json` and `report.html` have mean and
    deviation. Default: 1."""


class ModelSettings(TypedDict, total=False):
    """Settings of the section `model`.

    cell: Literal["lstm", "gru"] = "lstm"
        Recurrent cell. `gru`: on the CPU; settings of LSTMs are then those of GRUs.
    hidden: int = 64
        Hidden units H of each LSTM.
    layers: int = 1
        Layers of each LSTM.
    bias: bool = True
        The LSTMs have bias terms.
    dropout: float = 0
        Dropout rate between LSTM layers.
    layer_norm: bool = False
        Layer norm on the outputs of every LSTM layer, before dropout. The recurrence uses the states before it.
    pooling: Literal["last", "attention"] = "last"
        Pooling of a sequence. `last`: the last hidden state. `attention`: attention of a learned query over all hidden
        states.
    pooling_heads: Literal["auto"] | int = "auto"
        Heads of attention pooling. They divide H; `auto` is the largest such number up to 4.
    fusion: Literal["concat", "attention"] = "concat"
        Fusion of the timeframes' vectors. `concat`: concatenated, shortest timeframe first. `attention`: a transformer
        encoder layer, then the mean.
    fusion_heads: Literal["auto"] | int = "auto"
        Heads of attention fusion. They divide H; `auto` is the largest such number up to 4.
    fusion_feed_forward: int = 4
        Width of the feed-forward network of fusion, in multiples of H.
    encoder: Literal["auto", "lstm", "none"] = "auto"
        Encoder before graph attention. `lstm`: an LSTM for each timeframe. `none`: the last bar itself. `auto`: `lstm`
        for bars, `none` for a file of graphs.
    graph: Literal["none"] | str | os.PathLike[str] = "none"
        File of graphs over the instruments, from `mb.graph.build`. A sample is then all instruments at one time. `none`
        if `data.path` is a file of graphs.
    graph_attention: Literal["gat", "gatv2"] = "gat"
        Scores of neighbours. `gat`: "Graph attention networks" (2018). `gatv2`: "How attentive are graph attention
        networks?" (2022).
    graph_layers: int = 2
        Layers of graph attention; 0 for none.
    graph_heads: int = 4
        Heads of each layer of graph attention.
    graph_hidden: int = 16
        Units of each head.
    graph_output: Literal["linear", "attention"] = "linear"
        Output layer. `linear`: a linear head on the last attention layer. `attention`: the last attention layer itself,
        averaged over its heads.
    graph_output_heads: int = 1
        Heads of the output layer.
    graph_activation: Literal["elu", "relu"] = "elu"
        Activation between layers of graph attention.
    graph_residual: bool = False
        Each layer adds a linear map of its input to its output.
    graph_self_loops: bool = True
        Each node attends to itself once; self-loops of the graph are ignored.
    graph_edge_attributes: bool = True
        Attention uses weights and attributes of edges.
    graph_dropout: float = 0
        Dropout rate of the inputs of graph attention layers.
    graph_attention_dropout: float = 0
        Dropout rate of the attention weights.
    readout: Literal["auto", "node", "mean", "sum", "max"] = "auto"
        Level of the predictions. `node`: each node. `mean`, `sum`, `max`: each graph, pooled over its nodes. `auto`:
        `mean` if targets belong to graphs, else `node`.
    """

    cell: Literal["lstm", "gru"]
    """Recurrent cell. `gru`: on the CPU; settings of LSTMs are then those of GRUs. Default: "lstm"."""
    hidden: int
    """Hidden units H of each LSTM. Default: 64."""
    layers: int
    """Layers of each LSTM. Default: 1."""
    bias: bool
    """The LSTMs have bias terms. Default: True."""
    dropout: float
    """Dropout rate between LSTM layers. Default: 0."""
    layer_norm: bool
    """Layer norm on the outputs of every LSTM layer, before dropout. The recurrence uses the states before it. Default:
    False."""
    pooling: Literal["last", "attention"]
    """Pooling of a sequence. `last`: the last hidden state. `attention`: attention of a learned query over all hidden
    states. Default: "last"."""
    pooling_heads: Literal["auto"] | int
    """Heads of attention pooling. They divide H; `auto` is the largest such number up to 4. Default: "auto"."""
    fusion: Literal["concat", "attention"]
    """Fusion of the timeframes' vectors. `concat`: concatenated, shortest timeframe first. `attention`: a transformer
    encoder layer, then the mean. Default: "concat"."""
    fusion_heads: Literal["auto"] | int
    """Heads of attention fusion. They divide H; `auto` is the largest such number up to 4. Default: "auto"."""
    fusion_feed_forward: int
    """Width of the feed-forward network of fusion, in multiples of H. Default: 4."""
    encoder: Literal["auto", "lstm", "none"]
    """Encoder before graph attention. `lstm`: an LSTM for each timeframe. `none`: the last bar itself. `auto`: `lstm`
    for bars, `none` for a file of graphs. Default: "auto"."""
    graph: Literal["none"] | str | os.PathLike[str]
    """File of graphs over the instruments, from `mb.graph.build`. A sample is then all instruments at one time. `none`
    if `data.path` is a file of graphs. Default: "none"."""
    graph_attention: Literal["gat", "gatv2"]
    """Scores of neighbours. `gat`: "Graph attention networks" (2018). `gatv2`: "How attentive are graph attention
    networks?" (2022). Default: "gat"."""
    graph_layers: int
    """Layers of graph attention; 0 for none. Default: 2."""
    graph_heads: int
    """Heads of each layer of graph attention. Default: 4."""
    graph_hidden: int
    """Units of each head. Default: 16."""
    graph_output: Literal["linear", "attention"]
    """Output layer. `linear`: a linear head on the last attention layer. `attention`: the last attention layer itself,
    averaged over its heads. Default: "linear"."""
    graph_output_heads: int
    """Heads of the output layer. Default: 1."""
    graph_activation: Literal["elu", "relu"]
    """Activation between layers of graph attention. Default: "elu"."""
    graph_residual: bool
    """Each layer adds a linear map of its input to its output. Default: False."""
    graph_self_loops: bool
    """Each node attends to itself once; self-loops of the graph are ignored. Default: True."""
    graph_edge_attributes: bool
    """Attention uses weights and attributes of edges. Default: True."""
    graph_dropout: float
    """Dropout rate of the inputs of graph attention layers. Default: 0."""
    graph_attention_dropout: float
    """Dropout rate of the attention weights. Default: 0."""
    readout: Literal["auto", "node", "mean", "sum", "max"]
    """Level of the predictions. `node`: each node. `mean`, `sum`, `max`: each graph, pooled over its nodes. `auto`:
    `mean` if targets belong to graphs, else `node`. Default: "auto"."""


class TrainingSettings(TypedDict, total=False):
    """Settings of the section `training`.

    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
        Optimizer. `adamw` decays weights apart from the gradient; `adam` adds the decay to it.
    lr: float = 0.001
        Learning rate; with a schedule, the highest.
    lr_schedule: Literal["constant", "cosine", "one_cycle"] = "constant"
        Learning-rate schedule after the warm-up. `cosine`: half a cosine down to `training.lr_min` at the last step.
        `one_cycle`: PyTorch's OneCycleLR, without other warm-up.
    warmup_steps: int = 0
        Steps of linear warm-up to `training.lr`.
    lr_min: float = 0
        Learning rate at the end of the cosine.
    pct_start: float = 0.3
        Share of the steps in which `one_cycle` rises.
    div_factor: float = 25
        `one_cycle` starts at `training.lr` divided by this, 1 or more.
    final_div_factor: float = 10000
        `one_cycle` ends at its first rate divided by this, 1 or more.
    beta1: float = 0.9
        Decay of Adam's running mean of the gradients.
    beta2: float = 0.999
        Decay of Adam's running mean of the squared gradients.
    epsilon: float = 1e-8
        Term that Adam adds to the root of the mean squared gradients.
    weight_decay: float = 0.01
        Weight decay.
    clip_norm: Literal["none"] | float = 1.0
        Maximum global norm of the gradients.
    loss: Literal["auto", "mse", "huber", "quantile", "cross_entropy", "rank_pairwise", "rank_listwise"] = "auto"
        Loss, averaged over the known targets of a step (NaN is unknown). `mse`: squared error. `huber`: linear beyond
        `training.huber_delta`. `quantile`: pinball loss. `cross_entropy`: classes by `training.thresholds` or
        `training.classes`, or class probabilities of graphs. `rank_pairwise` (RankNet), `rank_listwise` (ListNet):
        order of the nodes of a graph. `auto`: `cross_entropy` for graphs with class labels, else `mse`.
    huber_delta: float = 1.0
        Error at which the loss becomes linear, in the unit of the targets as they are scaled.
    quantile: float | Sequence[float] = 0.5
        Predicted quantiles. RMSE, MAE and direction accuracy use the one nearest to 0.5, the lower of two.
    thresholds: Literal["none"] | float | Sequence[float] = "none"
        Boundaries between classes, in the unit of the targets: [-5, 5] makes class 0 up to -5, class 1 up to 5, class 2
        above.
    classes: Literal["none"] | int = "none"
        Number of classes if targets are class numbers from 0.
    rank_temperature: Literal["auto"] | float = "auto"
        Divisor of the targets, in their unit. Far below their spread only the best node counts; far above, nothing is
        learned. `auto`: their deviation within a graph over the training part; the run keeps it.
    tasks: Literal["none"] | Sequence[Mapping[str, Any]] = "none"
        Several losses, each for a range of consecutive targets, in place of `training.loss`: `loss` (mse, huber,
        quantile or cross_entropy), its option (`huber_delta`, `quantile`, `classes` or `thresholds`) and `weight`. The
        ranges cover all targets. Weights sum to one, or all are omitted. The objective is the weighted sum of the means
        over known targets.
    target_scaling: Literal["auto", "none"] = "auto"
        Scaling of targets in training. `auto`: each by mean and deviation of its known training values, for `mse`,
        `huber` and `quantile`. Losses are those of scaled targets; predictions, errors and saved weights keep the
        targets' unit. `none` with `init` and in `megabatch import`.
    sample_weights: Literal["auto", "none"] = "auto"
        Use of the weights of samples (`/samples/weight`) in training. `auto`: the loss of a sample is multiplied by its
        weight over the mean weight of the training samples; validations, errors and baselines count all samples alike.
    on_nan: Literal["stop", "rollback"] = "rollback"
        Reaction to an infinite or NaN loss or gradient, or a loss spike. `rollback`: back to the last checkpoint, with
        half the learning rate; a checkpoint is saved before the first step. `stop`: `NumericError`.
    max_rollbacks: int = 3
        Rollbacks, including those before a resume, after which the run ends with `NumericError`.
    loss_spike_factor: Literal["none"] | float = "none"
        A loss above this multiple of the median of the last 32 steps (at least 8) counts as NaN.
    epochs: int = 10
        Passes over the training split, unless `training.max_steps` is set.
    validate_every_steps: Literal["epoch"] | int = "epoch"
        Steps between validations, besides those at the end of each epoch.
    validation_samples: Literal["auto", "all"] | int = "auto"
        Most samples, cross-sections or graphs of a validation: evenly spaced runs of 64, always the same, the first and
        the last of the part among them. With carried state and in dense training: up to 16 longer runs, each after a
        warm-up of four windows. `auto` is 20000. A resumed run keeps it.
    test_samples: Literal["auto", "all"] | int = "auto"
        Most samples, cross-sections or graphs of the errors at the end of `train`, chosen as in a validation. `auto`:
        all if they take at most a tenth of the work of training, else 20000. Errors of fewer than all are estimates
        with standard errors. `evaluate` takes all.
    early_stopping: Literal["none"] | int = "none"
        Validations without improvement after which the run ends.
    early_stopping_min_delta: float = 0
        Smallest decrease of the validation loss that is an improvement.
    max_steps: Literal["none"] | int = "none"
        Optimizer steps of the run; the same as the argument `max_steps`.
    precision: Literal["auto", "fp32", "bf16", "fp16", "bf16-mixed", "16-mixed"] = "auto"
        Precision of the inputs of matrix products and of the recurrence; the rest, including stored weights, is fp32.
        On a CPU bf16 is faster with AMX, or AMD's AVX512_BF16, and not measured with Arm's BF16; elsewhere it, and fp16
        always, imitate a GPU and save no time. `auto`: fp32, or fp16 with `gpu_optimization.use_amp`. `16-mixed` is
        fp16, `bf16-mixed` bf16.
    tf32: bool = False
        A GPU rounds the fp32 inputs of matrix products to TF32 (11 significant bits); the rest stays fp32. With bf16 or
        fp16 it is an error.
    autotune: Literal["off", "deterministic", "fast"] = "deterministic"
        Choice of a GPU's kernels. `off`: by shape. `deterministic`: the fastest of those with the same bits, measured
        once for each GPU and shape and kept in the cache folder (`XDG_CACHE_HOME` or `~/.cache`). `fast`: the fastest
        of all, with cuBLASLt if installed; rounding depends on GPU and measurement.
    loss_scale_initial: float = 65536
        First loss scale. Powers of two, here and for the factors, keep scaling exact.
    loss_scale_growth_factor: float = 2
        Growth factor of the loss scale.
    loss_scale_backoff_factor: float = 0.5
        Backoff factor of the loss scale after an overflow, below 1. The overflowed step is skipped.
    loss_scale_growth_interval: int = 2000
        Steps without overflow after which the loss scale grows.
    loss_scale_hysteresis: int = 1
        Overflows in a row needed to lower the loss scale.
    loss_scale_floor: float = 1
        Smallest loss scale. An overflow at it counts as NaN (`training.on_nan`).
    loss_scale_ceiling: float = 16777216
        Largest loss scale.
    checkpoint_every_steps: Literal["epoch"] | int = "epoch"
        Steps between checkpoints, besides those at the end of each epoch and after the best validation so far.
    keep_checkpoints: int = 3
        Number of newest checkpoints kept.
    keep_best_checkpoint: bool = True
        The checkpoint with the best validation loss is kept too, and evaluated.
    run_length: Literal["auto", "batch"] | int = "auto"
        Consecutive samples that stay together when the order is shuffled; 1 for a full shuffle, `batch` for those of an
        optimizer step. `auto`: 1 for graphs of a file and windows that do not overlap, else `batch`. The run keeps it.
    seed: int = 0
        Seed of the initial weights and of the order of samples.
    carry_state: bool = False
        A window starts from the state last computed at the bar before it instead of zeros.
    loss_on: Literal["last_step", "every_step"] = "last_step"
        Steps with a loss. `last_step`: the last of each window. `every_step` (dense training): every bar of a sample
        run, all computed in one pass. Use runs several times as long as a window, and many runs a batch.
    gradient_checkpointing: bool = False
        Half of the LSTMs' gates are computed again in the backward pass: less memory, more time, the same bits. On a
        GPU those of all layers below the top one; one layer is refused there.
    profile: bool = False
        Logs the time of each layer of each timeframe in every step: projection, recurrence, backward pass, weight
        gradients. Measuring takes some time.
    threads: Literal["all"] | int = "all"
        Threads that compute. Any number gives the same bits.
    """

    optimizer: Literal["adamw", "adam", "sgd"]
    """Optimizer. `adamw` decays weights apart from the gradient; `adam` adds the decay to it. Default: "adamw"."""
    lr: float
    """Learning rate; with a schedule, the highest. Default: 0.001."""
    lr_schedule: Literal["constant", "cosine", "one_cycle"]
    """Learning-rate schedule after the warm-up. `cosine`: half a cosine down to `training.lr_min` at the last step.
    `one_cycle`: PyTorch's OneCycleLR, without other warm-up. Default: "constant"."""
    warmup_steps: int
    """Steps of linear warm-up to `training.lr`. Default: 0."""
    lr_min: float
    """Learning rate at the end of the cosine. Default: 0."""
    pct_start: float
    """Share of the steps in which `one_cycle` rises. Default: 0.3."""
    div_factor: float
    """`one_cycle` starts at `training.lr` divided by this, 1 or more. Default: 25."""
    final_div_factor: float
    """`one_cycle` ends at its first rate divided by this, 1 or more. Default: 10000."""
    beta1: float
    """Decay of Adam's running mean of the gradients. Default: 0.9."""
    beta2: float
    """Decay of Adam's running mean of the squared gradients. Default: 0.999."""
    epsilon: float
    """Term that Adam adds to the root of the mean squared gradients. Default: 1e-8."""
    weight_decay: float
    """Weight decay. Default: 0.01."""
    clip_norm: Literal["none"] | float
    """Maximum global norm of the gradients. Default: 1.0."""
    loss: Literal["auto", "mse", "huber", "quantile", "cross_entropy", "rank_pairwise", "rank_listwise"]
    """Loss, averaged over the known targets of a step (NaN is unknown). `mse`: squared error. `huber`: linear beyond
    `training.huber_delta`. `quantile`: pinball loss. `cross_entropy`: classes by `training.thresholds` or
    `training.classes`, or class probabilities of graphs. `rank_pairwise` (RankNet), `rank_listwise` (ListNet): order of
    the nodes of a graph. `auto`: `cross_entropy` for graphs with class labels, else `mse`. Default: "auto"."""
    huber_delta: float
    """Error at which the loss becomes linear, in the unit of the targets as they are scaled. Default: 1.0."""
    quantile: float | Sequence[float]
    """Predicted quantiles. RMSE, MAE and direction accuracy use the one nearest to 0.5, the lower of two. Default:
    0.5."""
    thresholds: Literal["none"] | float | Sequence[float]
    """Boundaries between classes, in the unit of the targets: [-5, 5] makes class 0 up to -5, class 1 up to 5, class 2
    above. Default: "none"."""
    classes: Literal["none"] | int
    """Number of classes if targets are class numbers from 0. Default: "none"."""
    rank_temperature: Literal["auto"] | float
    """Divisor of the targets, in their unit. Far below their spread only the best node counts; far above, nothing is
    learned. `auto`: their deviation within a graph over the training part; the run keeps it. Default: "auto"."""
    tasks: Literal["none"] | Sequence[Mapping[str, Any]]
    """Several losses, each for a range of consecutive targets, in place of `training.loss`: `loss` (mse, huber,
    quantile or cross_entropy), its option (`huber_delta`, `quantile`, `classes` or `thresholds`) and `weight`. The
    ranges cover all targets. Weights sum to one, or all are omitted. The objective is the weighted sum of the means
    over known targets. Default: "none"."""
    target_scaling: Literal["auto", "none"]
    """Scaling of targets in training. `auto`: each by mean and deviation of its known training values, for `mse`,
    `huber` and `quantile`. Losses are those of scaled targets; predictions, errors and saved weights keep the targets'
    unit. `none` with `init` and in `megabatch import`. Default: "auto"."""
    sample_weights: Literal["auto", "none"]
    """Use of the weights of samples (`/samples/weight`) in training. `auto`: the loss of a sample is multiplied by its
    weight over the mean weight of the training samples; validations, errors and baselines count all samples alike.
    Default: "auto"."""
    on_nan: Literal["stop", "rollback"]
    """Reaction to an infinite or NaN loss or gradient, or a loss spike. `rollback`: back to the last checkpoint, with
    half the learning rate; a checkpoint is saved before the first step. `stop`: `NumericError`. Default: "rollback"."""
    max_rollbacks: int
    """Rollbacks, including those before a resume, after which the run ends with `NumericError`. Default: 3."""
    loss_spike_factor: Literal["none"] | float
    """A loss above this multiple of the median of the last 32 steps (at least 8) counts as NaN. Default: "none"."""
    epochs: int
    """Passes over the training split, unless `training.max_steps` is set. Default: 10."""
    validate_every_steps: Literal["epoch"] | int
    """Steps between validations, besides those at the end of each epoch. Default: "epoch"."""
    validation_samples: Literal["auto", "all"] | int
    """Most samples, cross-sections or graphs of a validation: evenly spaced runs of 64, always the same, the first and
    the last of the part among them. With carried state and in dense training: up to 16 longer runs, each after a
    warm-up of four windows. `auto` is 20000. A resumed run keeps it. Default: "auto"."""
    test_samples: Literal["auto", "all"] | int
    """Most samples, cross-sections or graphs of the errors at the end of `train`, chosen as in a validation. `auto`:
    all if they take at most a tenth of the work of training, else 20000. Errors of fewer than all are estimates with
    standard errors. `evaluate` takes all. Default: "auto"."""
    early_stopping: Literal["none"] | int
    """Validations without improvement after which the run ends. Default: "none"."""
    early_stopping_min_delta: float
    """Smallest decrease of the validation loss that is an improvement. Default: 0."""
    max_steps: Literal["none"] | int
    """Optimizer steps of the run; the same as the argument `max_steps`. Default: "none"."""
    precision: Literal["auto", "fp32", "bf16", "fp16", "bf16-mixed", "16-mixed"]
    """Precision of the inputs of matrix products and of the recurrence; the rest, including stored weights, is fp32. On
    a CPU bf16 is faster with AMX, or AMD's AVX512_BF16, and not measured with Arm's BF16; elsewhere it, and fp16
    always, imitate a GPU and save no time. `auto`: fp32, or fp16 with `gpu_optimization.use_amp`. `16-mixed` is fp16,
    `bf16-mixed` bf16. Default: "auto"."""
    tf32: bool
    """A GPU rounds the fp32 inputs of matrix products to TF32 (11 significant bits); the rest stays fp32. With bf16 or
    fp16 it is an error. Default: False."""
    autotune: Literal["off", "deterministic", "fast"]
    """Choice of a GPU's kernels. `off`: by shape. `deterministic`: the fastest of those with the same bits, measured
    once for each GPU and shape and kept in the cache folder (`XDG_CACHE_HOME` or `~/.cache`). `fast`: the fastest of
    all, with cuBLASLt if installed; rounding depends on GPU and measurement. Default: "deterministic"."""
    loss_scale_initial: float
    """First loss scale. Powers of two, here and for the factors, keep scaling exact. Default: 65536."""
    loss_scale_growth_factor: float
    """Growth factor of the loss scale. Default: 2."""
    loss_scale_backoff_factor: float
    """Backoff factor of the loss scale after an overflow, below 1. The overflowed step is skipped. Default: 0.5."""
    loss_scale_growth_interval: int
    """Steps without overflow after which the loss scale grows. Default: 2000."""
    loss_scale_hysteresis: int
    """Overflows in a row needed to lower the loss scale. Default: 1."""
    loss_scale_floor: float
    """Smallest loss scale. An overflow at it counts as NaN (`training.on_nan`). Default: 1."""
    loss_scale_ceiling: float
    """Largest loss scale. Default: 16777216."""
    checkpoint_every_steps: Literal["epoch"] | int
    """Steps between checkpoints, besides those at the end of each epoch and after the best validation so far. Default:
    "epoch"."""
    keep_checkpoints: int
    """Number of newest checkpoints kept. Default: 3."""
    keep_best_checkpoint: bool
    """The checkpoint with the best validation loss is kept too, and evaluated. Default: True."""
    run_length: Literal["auto", "batch"] | int
    """Consecutive samples that stay together when the order is shuffled; 1 for a full shuffle, `batch` for those of an
    optimizer step. `auto`: 1 for graphs of a file and windows that do not overlap, else `batch`. The run keeps it.
    Default: "auto"."""
    seed: int
    """Seed of the initial weights and of the order of samples. Default: 0."""
    carry_state: bool
    """A window starts from the state last computed at the bar before it instead of zeros. Default: False."""
    loss_on: Literal["last_step", "every_step"]
    """Steps with a loss. `last_step`: the last of each window. `every_step` (dense training): every bar of a sample
    run, all computed in one pass. Use runs several times as long as a window, and many runs a batch. Default:
    "last_step"."""
    gradient_checkpointing: bool
    """Half of the LSTMs' gates are computed again in the backward pass: less memory, more time, the same bits. On a GPU
    those of all layers below the top one; one layer is refused there. Default: False."""
    profile: bool
    """Logs the time of each layer of each timeframe in every step: projection, recurrence, backward pass, weight
    gradients. Measuring takes some time. Default: False."""
    threads: Literal["all"] | int
    """Threads that compute. Any number gives the same bits. Default: "all"."""


class GpuOptimizationSettings(TypedDict, total=False):
    """Settings of the section `gpu_optimization`.

    batch_size: int = 64
        Samples in a batch.
    gradient_accumulation_steps: int = 1
        Batches whose gradients are averaged before an optimizer step.
    use_amp: bool = False
        Mixed precision in fp16, unless `training.precision` is set.
    use_chunk_loader: bool = True
        Data that do not fit in memory are loaded in large chunks. On a GPU all windows, and the edges of all graphs,
        stay where they fit; else windows pass through it in chunks. `false`: batch by batch.
    chunk_size_gb: Literal["auto"] | float = "auto"
        Size of such a chunk, in 10^9 bytes; two are in memory, and two on a GPU, of half the size in 16 bits. `auto`:
        half of the memory left by the model, at most three eighths of all memory, or of what the run leaves of a GPU's.
    driver_reserve_gb: Literal["auto"] | float = "auto"
        GPU memory left to the driver, in 10^9 bytes. `auto`: 1 GiB, or an eighth of a smaller GPU's memory.
    num_workers: int = 0
        Accepted, without effect: a background thread loads ahead, on all free CPU cores.
    pin_memory: bool = True
        Accepted, without effect on the CPU.
    persistent_workers: bool = True
        Accepted, without effect: there are no worker processes.
    empty_cache_every_n_epochs: int = 0
        Epochs after which unused cached memory is returned to the system; 0: never.
    empty_cache_every_n_batches: int = 0
        Batches after which unused cached memory is returned to the system; 0: never. Taking it again costs time.
    leak_warning_mb: Literal["none"] | float = 100
        Growth of live memory, in 10^6 bytes, from which a warning names the owner: at least three rises over the
        epochs, without a fall.
    record_memory: Literal["events", "trace", "off"] = "events"
        Record of memory use. `events`: memory over time, peak and last allocations, in memory.json and the report.
        `trace`: also every allocation, in memory-trace.jsonl.
    log_gpu_stats_every_n_batches: int = 0
        Batches between two rows of gpu.csv; 0: a row a second.
    """

    batch_size: int
    """Samples in a batch. Default: 64."""
    gradient_accumulation_steps: int
    """Batches whose gradients are averaged before an optimizer step. Default: 1."""
    use_amp: bool
    """Mixed precision in fp16, unless `training.precision` is set. Default: False."""
    use_chunk_loader: bool
    """Data that do not fit in memory are loaded in large chunks. On a GPU all windows, and the edges of all graphs,
    stay where they fit; else windows pass through it in chunks. `false`: batch by batch. Default: True."""
    chunk_size_gb: Literal["auto"] | float
    """Size of such a chunk, in 10^9 bytes; two are in memory, and two on a GPU, of half the size in 16 bits. `auto`:
    half of the memory left by the model, at most three eighths of all memory, or of what the run leaves of a GPU's.
    Default: "auto"."""
    driver_reserve_gb: Literal["auto"] | float
    """GPU memory left to the driver, in 10^9 bytes. `auto`: 1 GiB, or an eighth of a smaller GPU's memory. Default:
    "auto"."""
    num_workers: int
    """Accepted, without effect: a background thread loads ahead, on all free CPU cores. Default: 0."""
    pin_memory: bool
    """Accepted, without effect on the CPU. Default: True."""
    persistent_workers: bool
    """Accepted, without effect: there are no worker processes. Default: True."""
    empty_cache_every_n_epochs: int
    """Epochs after which unused cached memory is returned to the system; 0: never. Default: 0."""
    empty_cache_every_n_batches: int
    """Batches after which unused cached memory is returned to the system; 0: never. Taking it again costs time.
    Default: 0."""
    leak_warning_mb: Literal["none"] | float
    """Growth of live memory, in 10^6 bytes, from which a warning names the owner: at least three rises over the epochs,
    without a fall. Default: 100."""
    record_memory: Literal["events", "trace", "off"]
    """Record of memory use. `events`: memory over time, peak and last allocations, in memory.json and the report.
    `trace`: also every allocation, in memory-trace.jsonl. Default: "events"."""
    log_gpu_stats_every_n_batches: int
    """Batches between two rows of gpu.csv; 0: a row a second. Default: 0."""


class DistributedSettings(TypedDict, total=False):
    """Settings of the section `distributed`.

    backend: Literal["auto", "mpi", "off"] = "auto"
        Training by all processes that an MPI launcher started; on CPUs to the weights of one alone. `auto`: if
        `mpirun`, `mpiexec` or `srun` started more than one. `mpi`: always. `off`: each process is a run of its own.
    library: str | os.PathLike[str]
        MPI library, by path or name; else the system's.
    timeout: float = 60
        Seconds of silence after which a process counts as lost. One that computes for longer sends heartbeats.
    idle_ranks: Literal["refuse", "allow"] = "refuse"
        Processes without a block of samples in a step. `allow` lets them wait for the others.
    """

    backend: Literal["auto", "mpi", "off"]
    """Training by all processes that an MPI launcher started; on CPUs to the weights of one alone. `auto`: if `mpirun`,
    `mpiexec` or `srun` started more than one. `mpi`: always. `off`: each process is a run of its own. Default:
    "auto"."""
    library: str | os.PathLike[str]
    """MPI library, by path or name; else the system's."""
    timeout: float
    """Seconds of silence after which a process counts as lost. One that computes for longer sends heartbeats. Default:
    60."""
    idle_ranks: Literal["refuse", "allow"]
    """Processes without a block of samples in a step. `allow` lets them wait for the others. Default: "refuse"."""


class OutputSettings(TypedDict, total=False):
    """Settings of the section `output`.

    dir: str | os.PathLike[str]
        Folder of the run; the same as the argument `out`.
    tensorboard: bool = True
        Also writes tb/, for `tensorboard --logdir RUN`.
    trace_steps: Literal["none"] | int = 1000
        Steps of each session in trace.json, for Perfetto and about:tracing; about 700 bytes a step.
    """

    dir: str | os.PathLike[str]
    """Folder of the run; the same as the argument `out`."""
    tensorboard: bool
    """Also writes tb/, for `tensorboard --logdir RUN`. Default: True."""
    trace_steps: Literal["none"] | int
    """Steps of each session in trace.json, for Perfetto and about:tracing; about 700 bytes a step. Default: 1000."""


class Settings(TypedDict, total=False):
    """Settings of a run by their sections, whose classes say what each means.

    data
        path: str | os.PathLike[str]
        residency: Literal["auto", "resident", "streamed"] = "auto"
        cache_gb: Literal["auto"] | float = "auto"
        split: Sequence[float] = [0.7, 0.15, 0.15]
        purge: Literal["auto"] | str = "auto"
        walk_forward: Literal["none"] | int = "none"
        walk_forward_window: Literal["expanding", "sliding"] = "expanding"
        walk_forward_overlap: float = 0
        walk_forward_number: Literal["all"] | int = "all"
        folds: Literal["none"] | int = "none"
        fold_number: Literal["all"] | int = 1
    model
        cell: Literal["lstm", "gru"] = "lstm"
        hidden: int = 64
        layers: int = 1
        bias: bool = True
        dropout: float = 0
        layer_norm: bool = False
        pooling: Literal["last", "attention"] = "last"
        pooling_heads: Literal["auto"] | int = "auto"
        fusion: Literal["concat", "attention"] = "concat"
        fusion_heads: Literal["auto"] | int = "auto"
        fusion_feed_forward: int = 4
        encoder: Literal["auto", "lstm", "none"] = "auto"
        graph: Literal["none"] | str | os.PathLike[str] = "none"
        graph_attention: Literal["gat", "gatv2"] = "gat"
        graph_layers: int = 2
        graph_heads: int = 4
        graph_hidden: int = 16
        graph_output: Literal["linear", "attention"] = "linear"
        graph_output_heads: int = 1
        graph_activation: Literal["elu", "relu"] = "elu"
        graph_residual: bool = False
        graph_self_loops: bool = True
        graph_edge_attributes: bool = True
        graph_dropout: float = 0
        graph_attention_dropout: float = 0
        readout: Literal["auto", "node", "mean", "sum", "max"] = "auto"
    training
        optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
        lr: float = 0.001
        lr_schedule: Literal["constant", "cosine", "one_cycle"] = "constant"
        warmup_steps: int = 0
        lr_min: float = 0
        pct_start: float = 0.3
        div_factor: float = 25
        final_div_factor: float = 10000
        beta1: float = 0.9
        beta2: float = 0.999
        epsilon: float = 1e-8
        weight_decay: float = 0.01
        clip_norm: Literal["none"] | float = 1.0
        loss: Literal["auto", "mse", "huber", "quantile", "cross_entropy", "rank_pairwise", "rank_listwise"] = "auto"
        huber_delta: float = 1.0
        quantile: float | Sequence[float] = 0.5
        thresholds: Literal["none"] | float | Sequence[float] = "none"
        classes: Literal["none"] | int = "none"
        rank_temperature: Literal["auto"] | float = "auto"
        tasks: Literal["none"] | Sequence[Mapping[str, Any]] = "none"
        target_scaling: Literal["auto", "none"] = "auto"
        sample_weights: Literal["auto", "none"] = "auto"
        on_nan: Literal["stop", "rollback"] = "rollback"
        max_rollbacks: int = 3
        loss_spike_factor: Literal["none"] | float = "none"
        epochs: int = 10
        validate_every_steps: Literal["epoch"] | int = "epoch"
        validation_samples: Literal["auto", "all"] | int = "auto"
        test_samples: Literal["auto", "all"] | int = "auto"
        early_stopping: Literal["none"] | int = "none"
        early_stopping_min_delta: float = 0
        max_steps: Literal["none"] | int = "none"
        precision: Literal["auto", "fp32", "bf16", "fp16", "bf16-mixed", "16-mixed"] = "auto"
        tf32: bool = False
        autotune: Literal["off", "deterministic", "fast"] = "deterministic"
        loss_scale_initial: float = 65536
        loss_scale_growth_factor: float = 2
        loss_scale_backoff_factor: float = 0.5
        loss_scale_growth_interval: int = 2000
        loss_scale_hysteresis: int = 1
        loss_scale_floor: float = 1
        loss_scale_ceiling: float = 16777216
        checkpoint_every_steps: Literal["epoch"] | int = "epoch"
        keep_checkpoints: int = 3
        keep_best_checkpoint: bool = True
        run_length: Literal["auto", "batch"] | int = "auto"
        seed: int = 0
        carry_state: bool = False
        loss_on: Literal["last_step", "every_step"] = "last_step"
        gradient_checkpointing: bool = False
        profile: bool = False
        threads: Literal["all"] | int = "all"
    gpu_optimization
        batch_size: int = 64
        gradient_accumulation_steps: int = 1
        use_amp: bool = False
        use_chunk_loader: bool = True
        chunk_size_gb: Literal["auto"] | float = "auto"
        driver_reserve_gb: Literal["auto"] | float = "auto"
        num_workers: int = 0
        pin_memory: bool = True
        persistent_workers: bool = True
        empty_cache_every_n_epochs: int = 0
        empty_cache_every_n_batches: int = 0
        leak_warning_mb: Literal["none"] | float = 100
        record_memory: Literal["events", "trace", "off"] = "events"
        log_gpu_stats_every_n_batches: int = 0
    distributed
        backend: Literal["auto", "mpi", "off"] = "auto"
        library: str | os.PathLike[str]
        timeout: float = 60
        idle_ranks: Literal["refuse", "allow"] = "refuse"
    output
        dir: str | os.PathLike[str]
        tensorboard: bool = True
        trace_steps: Literal["none"] | int = 1000
    """

    data: DataSettings
    model: ModelSettings
    training: TrainingSettings
    gpu_optimization: GpuOptimizationSettings
    distributed: DistributedSettings
    output: OutputSettings


class ShortSettings(TypedDict, total=False):
    """Settings of a run by section and name: `model__hidden=64` is `model={"hidden": 64}`."""

    data__path: str | os.PathLike[str]
    data__residency: Literal["auto", "resident", "streamed"]
    data__cache_gb: Literal["auto"] | float
    data__split: Sequence[float]
    data__purge: Literal["auto"] | str
    data__walk_forward: Literal["none"] | int
    data__walk_forward_window: Literal["expanding", "sliding"]
    data__walk_forward_overlap: float
    data__walk_forward_number: Literal["all"] | int
    data__folds: Literal["none"] | int
    data__fold_number: Literal["all"] | int
    model__cell: Literal["lstm", "gru"]
    model__hidden: int
    model__layers: int
    model__bias: bool
    model__dropout: float
    model__layer_norm: bool
    model__pooling: Literal["last", "attention"]
    model__pooling_heads: Literal["auto"] | int
    model__fusion: Literal["concat", "attention"]
    model__fusion_heads: Literal["auto"] | int
    model__fusion_feed_forward: int
    model__encoder: Literal["auto", "lstm", "none"]
    model__graph: Literal["none"] | str | os.PathLike[str]
    model__graph_attention: Literal["gat", "gatv2"]
    model__graph_layers: int
    model__graph_heads: int
    model__graph_hidden: int
    model__graph_output: Literal["linear", "attention"]
    model__graph_output_heads: int
    model__graph_activation: Literal["elu", "relu"]
    model__graph_residual: bool
    model__graph_self_loops: bool
    model__graph_edge_attributes: bool
    model__graph_dropout: float
    model__graph_attention_dropout: float
    model__readout: Literal["auto", "node", "mean", "sum", "max"]
    training__optimizer: Literal["adamw", "adam", "sgd"]
    training__lr: float
    training__lr_schedule: Literal["constant", "cosine", "one_cycle"]
    training__warmup_steps: int
    training__lr_min: float
    training__pct_start: float
    training__div_factor: float
    training__final_div_factor: float
    training__beta1: float
    training__beta2: float
    training__epsilon: float
    training__weight_decay: float
    training__clip_norm: Literal["none"] | float
    training__loss: Literal["auto", "mse", "huber", "quantile", "cross_entropy", "rank_pairwise", "rank_listwise"]
    training__huber_delta: float
    training__quantile: float | Sequence[float]
    training__thresholds: Literal["none"] | float | Sequence[float]
    training__classes: Literal["none"] | int
    training__rank_temperature: Literal["auto"] | float
    training__tasks: Literal["none"] | Sequence[Mapping[str, Any]]
    training__target_scaling: Literal["auto", "none"]
    training__sample_weights: Literal["auto", "none"]
    training__on_nan: Literal["stop", "rollback"]
    training__max_rollbacks: int
    training__loss_spike_factor: Literal["none"] | float
    training__epochs: int
    training__validate_every_steps: Literal["epoch"] | int
    training__validation_samples: Literal["auto", "all"] | int
    training__test_samples: Literal["auto", "all"] | int
    training__early_stopping: Literal["none"] | int
    training__early_stopping_min_delta: float
    training__max_steps: Literal["none"] | int
    training__precision: Literal["auto", "fp32", "bf16", "fp16", "bf16-mixed", "16-mixed"]
    training__tf32: bool
    training__autotune: Literal["off", "deterministic", "fast"]
    training__loss_scale_initial: float
    training__loss_scale_growth_factor: float
    training__loss_scale_backoff_factor: float
    training__loss_scale_growth_interval: int
    training__loss_scale_hysteresis: int
    training__loss_scale_floor: float
    training__loss_scale_ceiling: float
    training__checkpoint_every_steps: Literal["epoch"] | int
    training__keep_checkpoints: int
    training__keep_best_checkpoint: bool
    training__run_length: Literal["auto", "batch"] | int
    training__seed: int
    training__carry_state: bool
    training__loss_on: Literal["last_step", "every_step"]
    training__gradient_checkpointing: bool
    training__profile: bool
    training__threads: Literal["all"] | int
    gpu_optimization__batch_size: int
    gpu_optimization__gradient_accumulation_steps: int
    gpu_optimization__use_amp: bool
    gpu_optimization__use_chunk_loader: bool
    gpu_optimization__chunk_size_gb: Literal["auto"] | float
    gpu_optimization__driver_reserve_gb: Literal["auto"] | float
    gpu_optimization__num_workers: int
    gpu_optimization__pin_memory: bool
    gpu_optimization__persistent_workers: bool
    gpu_optimization__empty_cache_every_n_epochs: int
    gpu_optimization__empty_cache_every_n_batches: int
    gpu_optimization__leak_warning_mb: Literal["none"] | float
    gpu_optimization__record_memory: Literal["events", "trace", "off"]
    gpu_optimization__log_gpu_stats_every_n_batches: int
    distributed__backend: Literal["auto", "mpi", "off"]
    distributed__library: str | os.PathLike[str]
    distributed__timeout: float
    distributed__idle_ranks: Literal["refuse", "allow"]
    output__dir: str | os.PathLike[str]
    output__tensorboard: bool
    output__trace_steps: Literal["none"] | int
