//! Times operations on segments, for `benches/peers/segment.py`: one line of JSON with the fastest
//! time of each in seconds.
//!
//! `segment_speed ROWS COLUMNS SEGMENTS THREADS REPEATS sorted|unsorted`

use std::hint::black_box;
use std::time::Instant;

use megabatch_gpu_core::{Buffer, Device, Scope};
use megabatch_segment::{Result, SegmentPlan, ops};

struct Arrays {
    index: Vec<u32>,
    segments: usize,
    plan: SegmentPlan,
    x: Buffer<f32>,
    d_x: Buffer<f32>,
    out: Buffer<f32>,
    argument: Buffer<u32>,
    scope: Scope,
}

type Operation = (&'static str, fn(&mut Arrays) -> Result<()>);

const OPERATIONS: &[Operation] = &[
    ("plan", |on| {
        black_box(SegmentPlan::from_index(&on.scope, &on.index, on.segments)?);
        Ok(())
    }),
    ("sum", |on| ops::sum(&on.plan, &on.x, &mut on.out)),
    ("mean", |on| ops::mean(&on.plan, &on.x, &mut on.out)),
    ("max", |on| ops::max(&on.plan, &on.x, &mut on.out, &mut on.argument)),
    ("gather", |on| ops::gather(&on.plan, &on.out, &mut on.d_x)),
    ("mean_backward", |on| ops::mean_backward(&on.plan, &on.out, &mut on.d_x)),
    ("max_backward", |on| ops::extremum_backward(&on.plan, &on.argument, &on.out, &mut on.d_x)),
    ("softmax", |on| ops::softmax(&on.plan, &on.x, &mut on.d_x)),
];

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [rows, columns, segments, threads, repeats] =
        [0, 1, 2, 3, 4].map(|k| words.get(k).and_then(|word| word.parse().ok()).expect("five numbers"));
    let order = words.get(5).map_or("unsorted", String::as_str);
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().expect("nobody has made the pool yet");
    let mut arrays = Arrays::new(rows, columns, segments, order == "sorted")?;
    let mut times = Vec::new();
    for (name, operation) in OPERATIONS {
        operation(&mut arrays)?;
        let mut fastest = f64::INFINITY;
        for _ in 0..repeats {
            let start = Instant::now();
            operation(&mut arrays)?;
            fastest = fastest.min(start.elapsed().as_secs_f64());
        }
        times.push(format!("\"{name}\": {fastest}"));
    }
    println!("{{{}}}", times.join(", "));
    Ok(())
}

impl Arrays {
    fn new(rows: usize, columns: usize, segments: usize, sorted: bool) -> Result<Self> {
        let scope = Device::cpu().scope("speed");
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as u32
        };
        let mut index: Vec<u32> = (0..rows).map(|_| random() % segments as u32).collect();
        if sorted {
            index.sort_unstable();
        }
        let x: Vec<f32> = (0..rows * columns).map(|_| random() as f32 / 2f32.powi(23) - 1.0).collect();
        Ok(Arrays {
            plan: SegmentPlan::from_index(&scope, &index, segments)?,
            x: Buffer::from_slice(&scope, &x)?,
            d_x: Buffer::zeros(&scope, rows * columns)?,
            out: Buffer::zeros(&scope, segments * columns)?,
            argument: Buffer::zeros(&scope, segments * columns)?,
            index,
            segments,
            scope,
        })
    }
}
