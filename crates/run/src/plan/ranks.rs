//! The plan of a run of several processes.

use megabatch_order::Rank;
use megabatch_trainer as trainer;
use megabatch_trainer::{IdleRanks, bytes_in_a_row_a_step, bytes_sent_a_step, reduction_blocks};
use serde::Serialize;

use crate::config;
use crate::error::Result;
use crate::setup::TrainingSetup;
use crate::text::{bytes, plural};

/// Ranks of a run, their blocks and their messages.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RanksPlan {
    pub(crate) ranks: usize,
    /// Reduction blocks of a whole step. More ranks than this would be idle.
    pub(crate) blocks: usize,
    /// Blocks of the rank with most.
    pub(crate) blocks_a_rank_max: usize,
    /// Bytes that the busiest rank sends in a step.
    pub(crate) sent_bytes_a_step: u64,
    /// Bytes that all ranks send in a step.
    pub(crate) sent_bytes_a_step_of_all: u64,
    /// Bytes that one link after another sends before all ranks have the sum.
    pub(crate) bytes_in_a_row_a_step: u64,
    /// Network rate below which a step spends more time on the network than on computation: bits a
    /// second for each sample a second of one process.
    pub(crate) bottleneck_bits_a_sample: f64,
    /// Bytes of the gradients that a rank holds until the sum of those before it arrives.
    pub(crate) held_bytes: usize,
    /// The smallest batch that gives every rank a block; absent if this batch does, or none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) batch_size_for_all: Option<usize>,
    /// True if ranks without a block wait for the others.
    #[serde(skip)]
    may_idle: bool,
}

/// Rates of networks, in bits a second.
const RATES: [(&str, f64); 3] = [("1 Gbit/s", 1e9), ("10 Gbit/s", 1e10), ("100 Gbit/s", 1e11)];

impl RanksPlan {
    /// The plan of `setup` with its ranks, for a model of `parameters`; `None` alone.
    pub(super) fn new(setup: &TrainingSetup, parameters: usize) -> Result<Option<Self>> {
        let ranks = setup.ranks;
        if ranks < 2 {
            return Ok(None);
        }
        let train = setup.split.train.len();
        let blocks = reduction_blocks(&setup.training, train)?;
        let blocks_of_rank = |rank: usize| Ok::<_, crate::error::Error>(Rank::new(rank, ranks)?.slice(0..blocks).len());
        let sent: Vec<u64> = (0..ranks).map(|rank| bytes_sent_a_step(parameters, rank, ranks)).collect();
        let in_a_row = bytes_in_a_row_a_step(parameters, ranks);
        // Of the samples of a step, the busiest rank computes its blocks.
        let samples =
            setup.training.step_samples().min(train) as f64 * blocks_of_rank(0)? as f64 / blocks.max(1) as f64;
        Ok(Some(RanksPlan {
            ranks,
            bytes_in_a_row_a_step: in_a_row,
            bottleneck_bits_a_sample: 8.0 * in_a_row as f64 / samples.max(1.0),
            blocks,
            blocks_a_rank_max: blocks_of_rank(0)?,
            sent_bytes_a_step: sent.iter().copied().max().unwrap_or_default(),
            sent_bytes_a_step_of_all: sent.iter().sum(),
            held_bytes: setup.held_blocks(&setup.training)? * parameters * size_of::<f32>(),
            batch_size_for_all: if blocks < ranks { batch_for(&setup.training, train, ranks) } else { None },
            may_idle: setup.config.get(&config::distributed::IDLE_RANKS) == IdleRanks::Allow,
        }))
    }

    pub(super) fn to_text(&self) -> String {
        let RanksPlan { ranks, blocks, blocks_a_rank_max, sent_bytes_a_step, held_bytes, .. } = self;
        let mut text = format!(
            "\nranks     {ranks}, for {} a step: {} a rank at most\n",
            plural(*blocks, "reduction block"),
            plural(*blocks_a_rank_max, "block")
        );
        if blocks < ranks {
            let idle = ranks - blocks;
            let advice = self.batch_size_for_all.map_or("there are too few samples for all".to_owned(), |batch| {
                format!("gpu_optimization.batch_size={batch} gives every rank one")
            });
            let treatment = if self.may_idle { "distributed.idle_ranks allows" } else { "is refused" };
            text.push_str(&format!("          {idle} of the ranks would be idle, which {treatment}; {advice}\n"));
        }
        let sent = usize::try_from(*sent_bytes_a_step).unwrap_or(usize::MAX);
        text.push_str(&format!(
            "network   {} sent a step by a rank, {} held until the sum of the ranks before arrives\n",
            bytes(sent),
            bytes(*held_bytes)
        ));
        let times: Vec<String> = RATES
            .iter()
            .map(|(name, rate)| format!("{:.2} ms at {name}", self.bytes_in_a_row_a_step as f64 * 8e3 / rate))
            .collect();
        text.push_str(&format!("          a step takes longer by up to {}, and latencies\n", times.join(", ")));
        text.push_str(&format!(
            "          the bottleneck below {} for every 1,000 samples a second that one process computes\n",
            rate(1e3 * self.bottleneck_bits_a_sample)
        ));
        text
    }
}

/// A rate in bits a second.
fn rate(bits_per_s: f64) -> String {
    match bits_per_s {
        rate if rate >= 1e9 => format!("{:.2} Gbit/s", rate / 1e9),
        rate => format!("{:.2} Mbit/s", rate / 1e6),
    }
}

/// The smallest batch, in multiples of a block, with which a step has `ranks` blocks.
fn batch_for(training: &trainer::Config, train: usize, ranks: usize) -> Option<usize> {
    let sizes = (1..=ranks * 32).map(|blocks| blocks * 32).take_while(|size| *size < 2 * train + 64);
    let graphs = (1..=ranks).filter(|_| training.model.is_over_graphs());
    let has_enough = |batch_size: &usize| {
        let config = trainer::Config { batch_size: *batch_size, ..training.clone() };
        *batch_size > training.batch_size && reduction_blocks(&config, train).is_ok_and(|blocks| blocks >= ranks)
    };
    graphs.chain(sizes).find(has_enough)
}
