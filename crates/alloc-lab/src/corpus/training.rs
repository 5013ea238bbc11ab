//! Training: weights, activations that live from forward to backward, gradients, an optimizer whose
//! state is born in the first step.

use std::collections::VecDeque;

use super::random::Random;
use super::tape::{Tape, TracedBlock};
use super::{GIB, KIB, MIB, Pattern};

/// Sequences that grow through the run, as with a curriculum or with data sorted by length.
pub(super) const GROWING_SEQUENCES: Pattern =
    Pattern::roomy("growing-sequences", "LSTM training, sequences growing from 64 to 1,000 steps", growing_sequences);

/// Training and evaluation in turn, with batches of other sizes.
pub(super) const TRAIN_AND_EVALUATE: Pattern =
    Pattern::roomy("train-and-evaluate", "training and evaluation in turn, odd batch sizes", train_and_evaluate);

/// Graphs of another size in every batch.
pub(super) const GNN_BATCHES: Pattern =
    Pattern::roomy("gnn-batches", "graph batches of 20,000 to 60,000 nodes, embeddings kept for some", gnn_batches);

/// Equal steps, one after the other.
pub(super) const REPEATED_STEPS: Pattern =
    Pattern::roomy("repeated-steps", "20 equal training steps, optimizer state born in the first", repeated_steps);

/// A million events.
pub(super) const LONG_RUN: Pattern =
    Pattern::roomy("long-run", "a million events: 200 steps of 2,500 blocks with tangled lifetimes", long_run);

/// Blocks of every size, from a bias to a batch of activations.
pub(super) const MIXED_SIZES: Pattern =
    Pattern::roomy("mixed-sizes", "training steps with blocks of 512 B to 256 MiB", mixed_sizes);

/// Weights, and from the first step on the optimizer's two moments of each.
struct WeightBlocks {
    sizes: Vec<usize>,
    held: Vec<TracedBlock>,
    has_moments: bool,
}

impl WeightBlocks {
    fn new(tape: &mut Tape, sizes: Vec<usize>) -> Self {
        let held = tape.alloc_all(sizes.iter().copied());
        WeightBlocks { sizes, held, has_moments: false }
    }

    fn gradients(&self, tape: &mut Tape) -> Vec<TracedBlock> {
        tape.alloc_all(self.sizes.iter().copied())
    }

    fn update(&mut self, tape: &mut Tape, gradients: Vec<TracedBlock>) {
        if !self.has_moments {
            let moments = self.sizes.iter().flat_map(|&bytes| [bytes, bytes]);
            self.held.extend(tape.alloc_all(moments));
            self.has_moments = true;
        }
        tape.free_all(gradients);
        tape.step();
    }
}

/// Forward and backward of an LSTM in f32 with `hidden` units: per layer the projected input lives
/// for a moment, gates, cell and hidden states until backward.
struct LstmActivations {
    layers: usize,
    hidden: usize,
}

impl LstmActivations {
    /// 4H × 2H weights a layer.
    fn weights(&self) -> Vec<usize> {
        vec![4 * self.hidden * 2 * self.hidden * 4; self.layers]
    }

    fn forward(&self, tape: &mut Tape, states: usize) -> Vec<[TracedBlock; 3]> {
        let bytes = states * self.hidden * 4;
        let layer = |_| {
            let projection = tape.alloc(4 * bytes);
            let saved = [4 * bytes, bytes, bytes].map(|bytes| tape.alloc(bytes));
            tape.free(projection);
            saved
        };
        (0..self.layers).map(layer).collect()
    }

    fn backward(&self, tape: &mut Tape, states: usize, saved: Vec<[TracedBlock; 3]>) {
        let bytes = states * self.hidden * 4;
        let mut upstream = tape.alloc(bytes);
        for layer in saved.into_iter().rev() {
            let gates = tape.alloc(4 * bytes);
            tape.free_all(layer);
            let input = tape.alloc(bytes);
            tape.free_all([gates, upstream]);
            upstream = input;
        }
        tape.free(upstream);
    }
}

fn growing_sequences(tape: &mut Tape, random: &mut Random) {
    let lstm = LstmActivations { layers: 4, hidden: 512 };
    let mut parameters = WeightBlocks::new(tape, lstm.weights());
    for length in (64..1_000).step_by(24) {
        let states = 256 * (length + random.in_range(0, 24));
        let batch = tape.alloc(states * 128 * 4);
        let saved = lstm.forward(tape, states);
        let gradients = parameters.gradients(tape);
        lstm.backward(tape, states, saved);
        tape.free(batch);
        parameters.update(tape, gradients);
    }
    tape.free_all(parameters.held);
}

fn train_and_evaluate(tape: &mut Tape, random: &mut Random) {
    let lstm = LstmActivations { layers: 3, hidden: 512 };
    let mut parameters = WeightBlocks::new(tape, lstm.weights());
    for _epoch in 0..6 {
        for step in 0..10 {
            // The last batch of an epoch is what the others left.
            let samples = if step == 9 { random.in_range(17, 96) } else { 96 };
            let saved = lstm.forward(tape, samples * 360);
            let gradients = parameters.gradients(tape);
            lstm.backward(tape, samples * 360, saved);
            parameters.update(tape, gradients);
        }
        let mut predictions = Vec::new();
        for _batch in 0..5 {
            let samples = random.in_range(101, 240);
            let saved = lstm.forward(tape, samples * 360);
            predictions.push(tape.alloc(samples * 360 * 36 * 4));
            saved.into_iter().for_each(|layer| tape.free_all(layer));
        }
        tape.step();
        tape.free_all(predictions);
    }
    tape.free_all(parameters.held);
}

fn gnn_batches(tape: &mut Tape, random: &mut Random) {
    let mut parameters = WeightBlocks::new(tape, vec![2 * MIB; 12]);
    let mut embeddings = VecDeque::new();
    for _step in 0..80 {
        let nodes = random.in_range(20_000, 60_000);
        let edges = nodes * random.in_range(8, 20);
        // Features, edge index, edge attributes.
        let inputs = tape.alloc_all([nodes * 256 * 4, edges * 16, edges * 4 * 4]);
        let mut saved = Vec::new();
        for _layer in 0..4 {
            let messages = tape.alloc(edges * 256 * 4);
            // Attention of 8 heads, aggregated states.
            saved.extend(tape.alloc_all([edges * 8 * 4, nodes * 256 * 4]));
            tape.free(messages);
        }
        let gradients = parameters.gradients(tape);
        while !saved.is_empty() {
            let messages = tape.alloc(edges * 256 * 4);
            let which = random.in_range(0, saved.len());
            tape.free(saved.swap_remove(which));
            tape.free(messages);
        }
        embeddings.push_back(tape.alloc(nodes * 64 * 4));
        tape.keep_last(&mut embeddings, 16);
        tape.free_all(inputs);
        parameters.update(tape, gradients);
    }
    tape.free_all(embeddings);
    tape.free_all(parameters.held);
}

fn repeated_steps(tape: &mut Tape, random: &mut Random) {
    let weights: Vec<usize> = (0..24).map(|_| random.size(4 * MIB, 64 * MIB)).collect();
    let activations: Vec<usize> = (0..48).map(|_| random.size(8 * MIB, 400 * MIB)).collect();
    let mut parameters = WeightBlocks::new(tape, weights);
    for _step in 0..20 {
        let mut saved = Vec::new();
        for pair in activations.chunks(2) {
            let workspace = tape.alloc(pair[0] / 2 + 2 * MIB);
            saved.push(tape.alloc_all([pair[0], pair[1]]));
            tape.free(workspace);
        }
        let mut gradients = Vec::new();
        for (k, (layer, &bytes)) in saved.into_iter().zip(&parameters.sizes).enumerate().rev() {
            let workspace = tape.alloc(activations[2 * k] / 3 + 2 * MIB);
            gradients.push(tape.alloc(bytes));
            tape.free_all(layer);
            tape.free(workspace);
        }
        parameters.update(tape, gradients);
    }
    tape.free_all(parameters.held);
}

fn long_run(tape: &mut Tape, random: &mut Random) {
    const BLOCKS: usize = 2_500;
    let sizes: Vec<usize> = (0..BLOCKS).map(|_| random.size(2 * MIB, 128 * MIB)).collect();
    // How many blocks later each goes: half soon, half after long.
    let lifetimes: Vec<usize> = (0..BLOCKS)
        .map(|_| if random.percent(50) { random.in_range(1, 16) } else { random.in_range(16, 800) })
        .collect();
    for _step in 0..200 {
        let mut ending: Vec<Vec<TracedBlock>> = (0..=BLOCKS).map(|_| Vec::new()).collect();
        for (k, (&bytes, &lifetime)) in sizes.iter().zip(&lifetimes).enumerate() {
            let due = std::mem::take(&mut ending[k]);
            tape.free_all(due);
            let block = tape.alloc(bytes);
            ending[(k + lifetime).min(BLOCKS)].push(block);
        }
        let rest = ending.into_iter().flatten();
        tape.free_all(rest);
        tape.step();
    }
}

fn mixed_sizes(tape: &mut Tape, random: &mut Random) {
    let weights: Vec<usize> = (0..120).map(|_| random.size(512, 64 * MIB)).collect();
    let mut parameters = WeightBlocks::new(tape, weights);
    let mut kept = VecDeque::new();
    for _step in 0..60 {
        let batch = 70 + random.in_range(0, 60);
        let mut saved = Vec::new();
        for layer in 0..60 {
            let bytes = (4 << (layer % 20)) * 41 * batch / 13;
            let scratch = tape.alloc(random.size(512, 32 * MIB));
            saved.push(tape.alloc(bytes.clamp(512, GIB / 4)));
            tape.free(scratch);
            kept.push_back(tape.alloc(random.size(512, 64 * KIB)));
        }
        let gradients = parameters.gradients(tape);
        tape.free_all(saved.into_iter().rev());
        tape.keep_last(&mut kept, 500);
        parameters.update(tape, gradients);
    }
    tape.free_all(kept);
    tape.free_all(parameters.held);
}
