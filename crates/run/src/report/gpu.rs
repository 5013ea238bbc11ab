//! Utilisation and memory of the GPU: the rows of gpu.csv.

use super::chart::{Axis, Chart, Mark, Series, Size, Words};
use super::html::{Section, Table, paragraph, side_by_side};
use crate::gpu::{GpuRow, GpuSample};
use crate::text::bytes;
use crate::text::number::{fixed, percent, plural};

type Value = fn(&GpuSample) -> Option<f64>;
/// A number with its unit.
type Shown = Box<dyn Fn(f64) -> String>;

/// None for a run on the CPU.
pub(crate) fn section(rows: &[GpuRow]) -> Option<Section> {
    if rows.is_empty() {
        return None;
    }
    let busy = values(rows, |sample| sample.busy_percent);
    let mean = busy.iter().sum::<f64>() / busy.len() as f64;
    let mut body = paragraph(&format!(
        "{} of the GPU during training, by NVIDIA's management library. Busy is the time in which a kernel ran, on any part of the GPU. Below the \
         dashed line the GPU waits; \u{201c}Time by phase\u{201d} shows for what.",
        plural(rows.len(), "sample"),
    ));
    let title =
        if mean.is_finite() { format!("Busy for {} of the time", percent(mean / 100.0)) } else { "Busy".to_owned() };
    let charts = [
        chart(&title, "busy, percent", rows, |sample| sample.busy_percent, 1.0),
        chart("Memory held by all programs", "GB", rows, |sample| sample.memory_used_bytes, 1e9),
        chart("Power", "W", rows, |sample| sample.power_w, 1.0),
        chart("Clock of the multiprocessors", "MHz", rows, |sample| sample.sm_mhz, 1.0),
    ];
    body.push_str(&side_by_side(&charts));
    body.push_str(&table(rows).to_html());
    Some(Section { id: "gpu", title: "GPU", body })
}

fn values(rows: &[GpuRow], value: Value) -> Vec<f64> {
    rows.iter().filter_map(|row| value(&row.sample)).collect()
}

fn chart(title: &str, label: &str, rows: &[GpuRow], value: Value, unit: f64) -> String {
    let points: Vec<(f64, f64)> =
        rows.iter().filter_map(|row| Some((row.time_s * 1e9, value(&row.sample)? / unit))).collect();
    let ends = points.first().zip(points.last()).map_or(Vec::new(), |(first, last)| vec![first.0, last.0]);
    let guide = if label.starts_with("busy") { ends.into_iter().map(|x| (x, 70.0)).collect() } else { Vec::new() };
    Chart {
        words: Words { title: title.to_owned(), description: format!("{label} over time, a point a sample.") },
        size: Size::Half,
        x: Axis::time("time, UTC"),
        y: Axis::number(label).with_zero(),
        series: vec![
            Series { name: "measured".to_owned(), mark: Mark::Line, color: 0, points },
            Series { name: "70 percent".to_owned(), mark: Mark::Guide, color: 6, points: guide },
        ],
    }
    .to_html()
}

fn table(rows: &[GpuRow]) -> Table {
    let number = |digits: usize, unit: &'static str| move |value: f64| format!("{} {unit}", fixed(value, digits));
    let size = |value: f64| bytes(value as usize);
    let cells: [(&str, Value, Shown); 6] = [
        ("busy", |sample| sample.busy_percent, Box::new(number(0, "%"))),
        ("memory held", |sample| sample.memory_used_bytes, Box::new(size)),
        ("power", |sample| sample.power_w, Box::new(number(0, "W"))),
        ("temperature", |sample| sample.celsius, Box::new(number(0, "\u{b0}C"))),
        ("clock of the multiprocessors", |sample| sample.sm_mhz, Box::new(number(0, "MHz"))),
        ("clock of the memory", |sample| sample.memory_mhz, Box::new(number(0, "MHz"))),
    ];
    let row = |(name, value, text): (&str, Value, Shown)| {
        let all = values(rows, value);
        let shown = |number: f64| if all.is_empty() { "-".to_owned() } else { text(number) };
        let [least, most] = [f64::min, f64::max].map(|pick| all.iter().copied().reduce(pick).unwrap_or(0.0));
        let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
        vec![name.to_owned(), shown(least), shown(mean), shown(most)]
    };
    Table::new("The GPU over the run", ["", "least", "mean", "most"], cells.into_iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::fixtures::sample;

    #[test]
    fn samples_are_drawn_and_summed_up_and_a_run_on_the_cpu_has_none() {
        assert!(section(&[]).is_none());
        let row = |(k, busy): (usize, &f64)| GpuRow { time_s: 1e9 + k as f64, step: k as u64, sample: sample(*busy) };
        let rows: Vec<GpuRow> = [40.0, 60.0, 95.0].iter().enumerate().map(row).collect();
        let html = section(&rows).unwrap().body;
        for part in
            ["3 samples of the GPU", "Busy for 65.0 % of the time", ">40 %<", ">65 %<", ">95 %<", "351 W", "3.00 GB"]
        {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(html.contains("70 percent") && !html.contains("NaN"), "{html}");
        let silent = [GpuRow { sample: GpuSample::default(), ..rows[0] }];
        let html = section(&silent).unwrap().body;
        assert!(html.contains("nothing was recorded") && !html.contains("NaN"), "{html}");
    }
}
