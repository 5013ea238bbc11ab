//! Builders of whole collections of graphs.

use std::ops::Range;

use super::channel::ChannelValues;
use super::correlation::Correlation;
use super::knn::Knn;
use super::nearest::{Parallelism, search};
use super::pairwise::{Pearson, Products};
use super::panel::Panel;
use super::points::Points;
use super::radius::Radius;
use super::sliding::{DAYS_MAX, Sliding};
use super::window::LookbackWindow;
use crate::builder::{Builder, Identity};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::schema::Schema;

/// The correlation graphs of a panel: one for each day with a whole look-back of days before it,
/// counted from the first day with an observation. Its key is the [day's](Panel::keys).
pub struct CorrelationGraphs<'a> {
    options: Correlation,
    panel: Panel<'a>,
    schema: Schema,
    keys: Vec<String>,
    first: usize,
}

impl<'a> CorrelationGraphs<'a> {
    /// The graphs that `options` make of `panel`.
    ///
    /// # Errors
    /// As [`Correlation::check`].
    pub fn new(options: Correlation, panel: Panel<'a>) -> Result<Self> {
        options.check(&panel)?;
        let first = panel.first_observed().saturating_add(options.lookback).min(panel.days());
        let keys = panel.keys().split_off(first);
        Ok(CorrelationGraphs { schema: options.schema(&panel), options, panel, keys, first })
    }
}

impl Builder for CorrelationGraphs<'_> {
    fn identity(&self) -> Identity {
        let names: Vec<u8> = self.panel.names().iter().flat_map(|name| text(name)).collect();
        let instants = [self.panel.times(), self.panel.known()].map(|times| bytes(times, i64::to_le_bytes));
        let mut parts = vec![names];
        parts.extend(instants);
        parts.push(bytes(self.panel.values(), f64::to_le_bytes));
        parts.extend(self.options.channels.iter().map(|channel| match &channel.values {
            ChannelValues::Sizes(sizes) => bytes(sizes, f64::to_le_bytes),
            ChannelValues::Labels(labels) => labels.iter().flat_map(|label| text(label)).collect(),
        }));
        Identity {
            data: Identity::hash(parts.iter().map(Vec::as_slice)),
            builder: "correlation/1".to_owned(),
            parameters: self.options.parameters(),
        }
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn keys(&self) -> &[String] {
        &self.keys
    }

    fn build(&self, index: usize) -> Result<Graph> {
        self.options.build(&self.panel, self.first + index)
    }

    fn run_length(&self) -> usize {
        // As long as the sliding sums last.
        DAYS_MAX + 1
    }

    fn build_run(&self, run: Range<usize>, sink: &mut dyn FnMut(usize, Graph) -> Result<()>) -> Result<()> {
        let Correlation { lookback, half_life, min_observations, .. } = self.options;
        let (mut window, mut sliding) = (LookbackWindow::default(), Sliding::default());
        for index in run {
            let day = self.first + index;
            window.fill(self.options.lookback_options(), &self.panel, day);
            // Sums carried from day to day only propose candidates: they change no graph.
            let neighbours = if Sliding::pays(&window) {
                sliding.advance(&window, lookback, half_life);
                let pearson = Pearson::new(&window, min_observations, &sliding);
                search(&pearson, self.options.choice(), Parallelism::Alone)
            } else {
                let pearson = Pearson::new(&window, min_observations, Products);
                search(&pearson, self.options.choice(), Parallelism::Alone)
            };
            sink(index, self.options.graph(&self.panel, day, &window, &neighbours)?)?;
        }
        Ok(())
    }
}

/// Graphs of several sets of points, such as molecules: one a set.
pub struct PointGraphs<'a> {
    rule: PointRule,
    sets: Vec<(String, Points<'a>)>,
    keys: Vec<String>,
    schema: Schema,
}

/// Rule that joins points.
#[derive(Clone, Debug, PartialEq)]
pub enum PointRule {
    /// The nearest neighbours of each point.
    Neighbours(Knn),
    /// Points near each other.
    Radius(Radius),
}

impl<'a> PointGraphs<'a> {
    /// The graph of each set of points, called by its key.
    ///
    /// # Errors
    /// [`Error::Data`] where two keys are equal.
    pub fn new(rule: PointRule, sets: Vec<(String, Points<'a>)>) -> Result<Self> {
        let keys: Vec<String> = sets.iter().map(|(key, _)| key.clone()).collect();
        let mut seen = std::collections::HashSet::new();
        if let Some(key) = keys.iter().find(|key| !seen.insert(key.as_str())) {
            return Err(Error::Data {
                object: format!("the key {key:?} is there twice"),
                expected: "a key of one graph".into(),
            });
        }
        let schema = match &rule {
            PointRule::Neighbours(knn) => knn.schema(),
            PointRule::Radius(radius) => radius.schema(),
        };
        Ok(PointGraphs { rule, sets, keys, schema })
    }
}

impl Builder for PointGraphs<'_> {
    fn identity(&self) -> Identity {
        let parts: Vec<[Vec<u8>; 2]> = self
            .sets
            .iter()
            .map(|(key, points)| {
                let numbers = points.rows().flatten().flat_map(|x| x.to_le_bytes()).collect();
                [[&text(key)[..], &(points.width() as u64).to_le_bytes()].concat(), numbers]
            })
            .collect();
        let (builder, parameters) = match &self.rule {
            PointRule::Neighbours(knn) => ("knn/1", knn.parameters()),
            PointRule::Radius(radius) => ("radius/1", radius.parameters()),
        };
        let data = Identity::hash(parts.iter().flatten().map(Vec::as_slice));
        Identity { data, builder: builder.to_owned(), parameters }
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn keys(&self) -> &[String] {
        &self.keys
    }

    fn build(&self, index: usize) -> Result<Graph> {
        let points = &self.sets[index].1;
        match &self.rule {
            PointRule::Neighbours(knn) => knn.build(points),
            PointRule::Radius(radius) => radius.build(points),
        }
    }
}

fn bytes<T: Copy>(numbers: &[T], to_bytes: impl Fn(T) -> [u8; 8]) -> Vec<u8> {
    numbers.iter().flat_map(|&number| to_bytes(number)).collect()
}

/// A text and where it ends.
fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}
