//! Made-up observations.

use megabatch_graph_cache::build::Panel;

/// Numbers in [0, 1) that look random: SplitMix64 (Steele, Lea & Flood, 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Data behind a panel.
#[derive(Clone)]
pub(crate) struct Data {
    pub(crate) names: Vec<String>,
    pub(crate) times: Vec<i64>,
    pub(crate) values: Vec<f64>,
}

impl Data {
    /// Steps of random walks that move together somewhat, of which a part `holes` is missing.
    pub(crate) fn new(nodes: usize, days: usize, seed: u64, holes: f64) -> Data {
        let mut random = Random(seed);
        let market: Vec<f64> = (0..days).map(|_| random.next() - 0.5).collect();
        let value = |random: &mut Random, day: usize| match random.next() < holes {
            true => f64::NAN,
            false => 0.01 * (random.next() - 0.5 + 0.7 * market[day]),
        };
        let values = (0..nodes * days).map(|at| value(&mut random, at % days)).collect();
        Data::from_values(days, values)
    }

    /// `values` [nodes, days].
    pub(crate) fn from_values(days: usize, values: Vec<f64>) -> Data {
        let nodes = values.len().checked_div(days).unwrap_or(0);
        Data {
            names: (0..nodes).map(|k| format!("N{k}")).collect(),
            times: (0..days as i64).map(|day| day * 86_400_000_000_000).collect(),
            values,
        }
    }

    pub(crate) fn panel(&self) -> Panel<'_> {
        Panel::new(&self.names, &self.times, &self.times, &self.values).unwrap()
    }
}
