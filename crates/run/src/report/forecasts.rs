//! Predicted beside actual: clouds at a few horizons, and a stretch of time.

use super::chart::{Axis, Chart, Mark, Series, Size, Words};
use super::html::{Section, paragraph, side_by_side};
use crate::evaluate::forecasts::{Forecasts, Pairs};
use crate::text::number::{grouped, plural, significant};

/// Points of a cloud.
const POINTS_MAX: usize = 1_200;
/// Groups of equally many predictions whose mean outcome is shown.
const GROUPS: usize = 10;
/// Share of the values at each end that a cloud leaves out of the picture.
const TAIL: f64 = 0.005;

/// `unit` is that of the targets, and `names` are theirs; none where they are horizons.
pub(crate) fn section(forecasts: &Forecasts, bar: &str, unit: &str, names: &[String]) -> Section {
    let (drawn, all) = (forecasts.len().min(POINTS_MAX), plural(forecasts.len(), "sample"));
    let chosen = if drawn < forecasts.len() {
        format!(", {} of them drawn at even distances; correlations are over all", grouped(drawn as u64))
    } else {
        String::new()
    };
    let mut body = paragraph(&format!("The {all} of the {} split{chosen}.", forecasts.part.name()));
    body.push_str(&paragraph(
        "Both axes have one scale. On the dashed line, a prediction equals the target. The dots are means of ten groups of equally many samples, from the \
         lowest predictions to the highest; they lie on the line if predictions are calibrated. The highest and the lowest half percent of predictions \
         and of targets are left out.",
    ));
    let target = |pairs: &Pairs| target(pairs.horizon, bar, names);
    let cloud = |pairs: &Pairs| cloud(&pairs.known(), &target(pairs), unit).to_html();
    body.push_str(&side_by_side(&forecasts.pairs.iter().map(cloud).collect::<Vec<_>>()));
    body.push_str(&stretch(forecasts, target, unit));
    Section { id: "forecasts", title: "Predicted against actual", body }
}

fn cloud(pairs: &Pairs, target: &str, unit: &str) -> Chart {
    let correlation = correlation(&pairs.predicted, &pairs.actual);
    let (x, y) = (middle(&pairs.predicted), middle(&pairs.actual));
    let inside = |&(px, py): &(f64, f64)| (x.0..=x.1).contains(&px) && (y.0..=y.1).contains(&py);
    let chosen = evenly(pairs.predicted.len(), POINTS_MAX);
    let points: Vec<(f64, f64)> = chosen.map(|k| (f64::from(pairs.predicted[k]), f64::from(pairs.actual[k]))).collect();
    let guide = (x.0.min(y.0), x.1.max(y.1));
    Chart {
        words: Words {
            title: format!(
                "{target}: correlation {}, RMSE {}",
                correlation.map_or("undefined".to_owned(), |r| format!("{r:.3}")),
                significant(rmse(pairs), 4)
            ),
            description: format!("Actual against predicted {unit}, with the line on which they are equal."),
        },
        size: Size::Square,
        x: Axis::number(format!("predicted, {unit}")),
        y: Axis::number(format!("actual, {unit}")),
        series: vec![
            Series::new("samples", Mark::Cloud, 0, points.into_iter().filter(inside).collect()),
            Series::new("actual = predicted", Mark::Guide, 6, vec![(guide.0, guide.0), (guide.1, guide.1)]),
            Series { name: "means of ten groups".into(), mark: Mark::Dots, color: 1, points: group_means(pairs) },
        ],
    }
}

/// The name of a target that has one, else its horizon: `36 bars of M1 ahead`.
fn target(horizon: usize, bar: &str, names: &[String]) -> String {
    if let Some(name) = names.get(horizon - 1) {
        return name.clone();
    }
    let bar = if horizon == 1 { bar.replacen("bars", "bar", 1) } else { bar.to_owned() };
    format!("{horizon} {bar} ahead")
}

fn stretch(forecasts: &Forecasts, target: impl Fn(&Pairs) -> String, unit: &str) -> String {
    let Some((range, pairs)) = forecasts.stretch() else { return String::new() };
    let x: Vec<f64> = match &forecasts.times {
        Some(times) => times[range.clone()].iter().map(|&time| time as f64).collect(),
        None => forecasts.indices.slice(range.clone()).iter().map(|index| index as f64).collect(),
    };
    let line = |values: &[f32]| broken_at_holes(&x, &values[range.clone()]);
    Chart {
        words: Words {
            title: format!(
                "{} in a row{}, {}",
                plural(x.len(), "sample"),
                forecasts.instrument(range.start).map_or_else(String::new, |name| format!(" of {name}")),
                target(pairs)
            ),
            description: format!("Predicted and actual {unit} over time, from the middle of the split."),
        },
        size: Size::Wide,
        x: if forecasts.times.is_some() { Axis::time("time of the sample, UTC") } else { Axis::count("sample") },
        y: Axis::number(unit.to_owned()),
        series: vec![
            Series { name: "actual".into(), mark: Mark::Line, color: 6, points: line(&pairs.actual) },
            Series { name: "predicted".into(), mark: Mark::Line, color: 0, points: line(&pairs.predicted) },
        ],
    }
    .to_html()
}

/// Points of a line that ends before each distance much longer than usual.
fn broken_at_holes(x: &[f64], y: &[f32]) -> Vec<(f64, f64)> {
    let mut distances: Vec<f64> = x.windows(2).map(|pair| pair[1] - pair[0]).collect();
    distances.sort_by(f64::total_cmp);
    let usual = distances.get(distances.len() / 2).copied().unwrap_or(0.0);
    let mut points = Vec::with_capacity(x.len());
    for (k, (&x_k, &y_k)) in x.iter().zip(y).enumerate() {
        if k > 0 && x_k - x[k - 1] > 5.0 * usual {
            points.push((x_k, f64::NAN));
        }
        points.push((x_k, f64::from(y_k)));
    }
    points
}

/// At most `most` of the first `len` numbers, at even distances.
fn evenly(len: usize, most: usize) -> impl Iterator<Item = usize> {
    let count = len.min(most);
    (0..count).map(move |k| k * len / count)
}

/// The range without the tails.
fn middle(values: &[f32]) -> (f64, f64) {
    let mut sorted: Vec<f32> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f32::total_cmp);
    let at = |share: f64| sorted.get((share * sorted.len().saturating_sub(1) as f64).round() as usize);
    let value = |share: f64| at(share).map_or(0.0, |&value| f64::from(value));
    (value(TAIL), value(1.0 - TAIL))
}

/// Mean prediction and mean outcome of groups of equally many samples, from the lowest prediction
/// to the highest.
fn group_means(pairs: &Pairs) -> Vec<(f64, f64)> {
    let len = pairs.predicted.len();
    if len < 5 * GROUPS {
        return Vec::new();
    }
    let mut order: Vec<usize> = (0..len).collect();
    order.sort_by(|&a, &b| pairs.predicted[a].total_cmp(&pairs.predicted[b]));
    let mean =
        |values: &[f32], group: &[usize]| group.iter().map(|&k| f64::from(values[k])).sum::<f64>() / group.len() as f64;
    let groups = (0..GROUPS).map(|g| &order[g * len / GROUPS..(g + 1) * len / GROUPS]);
    groups.map(|group| (mean(&pairs.predicted, group), mean(&pairs.actual, group))).collect()
}

fn rmse(Pairs { predicted, actual, .. }: &Pairs) -> f64 {
    let squares = predicted.iter().zip(actual).map(|(&y, &target)| (f64::from(y) - f64::from(target)).powi(2));
    (squares.sum::<f64>() / predicted.len() as f64).sqrt()
}

/// Pearson's correlation; `None` where either side does not vary.
fn correlation(x: &[f32], y: &[f32]) -> Option<f64> {
    let mean = |values: &[f32]| values.iter().copied().map(f64::from).sum::<f64>() / values.len() as f64;
    let (mean_x, mean_y) = (mean(x), mean(y));
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (&x, &y) in x.iter().zip(y) {
        let (dx, dy) = (f64::from(x) - mean_x, f64::from(y) - mean_y);
        (xx, yy, xy) = (xx + dx * dx, yy + dy * dy, xy + dx * dy);
    }
    let r = xy / (xx * yy).sqrt();
    r.is_finite().then_some(r)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(predicted: Vec<f32>, actual: Vec<f32>) -> Pairs {
        Pairs { horizon: 3, predicted, actual }
    }

    #[test]
    fn correlation_by_hand() {
        assert_eq!(correlation(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0]), Some(1.0));
        assert_eq!(correlation(&[1.0, 2.0, 3.0], &[1.0, 0.0, -1.0]), Some(-1.0));
        let r = correlation(&[1.0, 2.0, 3.0, 4.0], &[1.0, 3.0, 2.0, 4.0]).unwrap();
        assert!((r - 0.8).abs() < 1e-12, "{r}");
        assert_eq!(correlation(&[1.0, 1.0], &[1.0, 2.0]), None);
    }

    #[test]
    fn groups_go_from_the_lowest_prediction_to_the_highest() {
        let predicted: Vec<f32> = (0..100).rev().map(|k| k as f32).collect();
        let actual = predicted.iter().map(|y| 2.0 * y).collect();
        let means = group_means(&pairs(predicted, actual));
        assert_eq!(means.len(), GROUPS);
        assert_eq!((means[0], means[9]), ((4.5, 9.0), (94.5, 189.0)));
        assert!(group_means(&pairs(vec![0.0; 49], vec![0.0; 49])).is_empty());
    }

    #[test]
    fn samples_are_taken_at_even_distances_and_lines_end_at_holes() {
        assert_eq!(evenly(10, 5).collect::<Vec<_>>(), [0, 2, 4, 6, 8]);
        assert_eq!(evenly(3, 5).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(evenly(0, 5).count(), 0);
        let line = broken_at_holes(&[0.0, 1.0, 2.0, 60.0], &[1.0; 4]);
        assert_eq!(line.iter().filter(|(_, y)| y.is_nan()).count(), 1);
        assert_eq!(line.len(), 5);
    }

    #[test]
    fn a_cloud_says_its_horizon_and_correlation_and_leaves_out_tails() {
        let mut predicted: Vec<f32> = (0..1000).map(|k| k as f32).collect();
        predicted[500] = 1e9;
        let chart = cloud(&pairs(predicted.clone(), predicted), &target(3, "bars of M1", &[]), "pips");
        assert_eq!(chart.words.title, "3 bars of M1 ahead: correlation 1.000, RMSE 0.000");
        assert!(chart.series[0].points.iter().all(|point| point.0 < 2000.0));
        assert_eq!(target(1, "bars of M1", &[]), "1 bar of M1 ahead");
        // It was "1 bar of M1 ahead" also of a column that is no horizon.
        assert_eq!(target(1, "bars of M1", &["forward_3".to_owned()]), "forward_3");
    }

    /// Predictions of a tenth of the targets' size filled the picture as if they were as large.
    #[test]
    fn predictions_and_targets_have_one_scale() {
        let actual: Vec<f32> = (-100..=100).map(|k| k as f32).collect();
        let predicted = actual.iter().map(|y| y / 10.0).collect();
        let html = cloud(&pairs(predicted, actual), "3 bars of M1 ahead", "pips").to_html();
        let path = html.split("class=\"line guide c6\" d=\"M").nth(1).unwrap().split('"').next().unwrap();
        let ends: Vec<f64> = path.split([' ', 'L']).map(|number| number.parse().unwrap()).collect();
        let [x0, y0, x1, y1] = ends[..] else { panic!("{path}") };
        assert!(((x1 - x0) - (y0 - y1)).abs() < 0.2 && x1 - x0 > 300.0, "the line of equality is no diagonal: {path}");
    }
}
