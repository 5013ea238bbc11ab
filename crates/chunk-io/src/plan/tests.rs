use proptest::prelude::*;

use super::*;

const GIB: u64 = 1 << 30;

fn shape(samples: usize, windows: &[(usize, usize)], horizons: usize) -> Shape {
    let timeframe = |&(steps, features): &(usize, usize)| TimeframeShape { name: None, steps, features };
    Shape { samples, timeframes: windows.iter().map(timeframe).collect(), horizons }
}

fn request(shape: &Shape, device_bytes: u64) -> PlanRequest<'_> {
    PlanRequest {
        shape,
        resident_bytes: shape.windows_bytes(),
        device_bytes,
        model_bytes: GIB,
        chunk_bytes: None,
        batch_size: 128,
        stored_rows: 1,
    }
}

#[test]
fn a_sample_takes_its_windows_and_targets() {
    let five = shape(1, &[480, 288, 192, 96, 48].map(|steps| (steps, 128)), 36);
    assert_eq!(five.timeframes.iter().map(|timeframe| timeframe.steps).sum::<usize>(), 1104);
    assert_eq!(five.sample_bytes(), 565_392);
    assert_eq!(shape(51_779, &[(360, 167)], 36).sample_bytes(), 360 * 167 * 4 + 36 * 4);
    assert_eq!(shape(2, &[(usize::MAX, usize::MAX)], 1).windows_bytes(), u64::MAX);
}

#[test]
fn what_a_chunk_holds_stays_in_memory() {
    let data = shape(51_779, &[(360, 167)], 36);
    let plan = ChunkPlan::new(&request(&data, 16 * GIB)).unwrap();
    assert_eq!((plan.residence, plan.chunks, plan.samples_per_chunk), (Residence::Resident, 1, 51_779));
    assert_eq!(plan.data_bytes, data.windows_bytes());

    let plan = ChunkPlan::new(&request(&data, 8 * GIB)).unwrap();
    // ⌊3 GiB ÷ 240,624 bytes⌋ = 13,386 samples, of which 104 batches of 128 are whole.
    assert_eq!((plan.residence, plan.chunks, plan.samples_per_chunk), (Residence::Chunked, 4, 104 * 128));
}

#[test]
fn five_timeframes_pass_in_two_chunks_of_three_quarters() {
    let data = shape(250_000, &[480, 288, 192, 96, 48].map(|steps| (steps, 128)), 36);
    for (device, fitting) in [(8, 5_697), (12, 8_545), (16, 11_394), (24, 17_091)] {
        let plan = ChunkPlan::new(&PlanRequest { batch_size: 1, ..request(&data, device * GIB) }).unwrap();
        assert_eq!(plan.samples_per_chunk, fitting, "{device} GiB");
        assert_eq!(plan.chunks, 250_000_usize.div_ceil(fitting));
    }
}

#[test]
fn a_model_that_leaves_less_than_three_quarters_makes_chunks_smaller() {
    let data = shape(1_000_000, &[(100, 10)], 1);
    let samples = |model_bytes| {
        let request = PlanRequest { model_bytes, batch_size: 1, ..request(&data, GIB) };
        ChunkPlan::new(&request).map(|plan| plan.samples_per_chunk)
    };
    assert_eq!(samples(0), samples(GIB / 4));
    assert_eq!(samples(GIB / 2).unwrap(), (GIB / 2 / 2 / 4004) as usize);
    let shortage = samples(GIB - 8007).unwrap_err();
    assert_eq!(shortage, MemoryShortage::Model { model_bytes: GIB - 8007, device_bytes: GIB, least_bytes: 8008 });
}

#[test]
fn a_chunk_holds_whole_batches_and_whole_chunks_of_the_file() {
    let data = shape(1_000_000, &[(100, 10)], 1);
    let samples = |batch_size, stored_rows| {
        let request =
            PlanRequest { chunk_bytes: Some(1000 * 4004), batch_size, stored_rows, ..request(&data, GIB + GIB / 4) };
        ChunkPlan::new(&request).unwrap().samples_per_chunk
    };
    for (batch_size, stored_rows, expected) in
        [(64, 1, 960), (64, 32, 960), (64, 48, 960), (64, 100, 960), (1, 300, 900), (96, 64, 960), (30, 32, 960)]
    {
        assert_eq!(samples(batch_size, stored_rows), expected, "batches of {batch_size}, stored in {stored_rows}");
    }
}

#[test]
fn shortages_name_what_would_do() {
    let data = shape(1_000_000, &[(100, 10)], 1);
    let small = PlanRequest { chunk_bytes: Some(100 * 4004), ..request(&data, 2 * GIB) };
    assert_eq!(
        ChunkPlan::new(&small).unwrap_err(),
        MemoryShortage::Batch { chunk_bytes: 100 * 4004, sample_bytes: 4004, fitting: 100, batch_size: 128 }
    );
    assert!(ChunkPlan::new(&PlanRequest { batch_size: 100, ..small }).is_ok());
    let large = PlanRequest { chunk_bytes: Some(GIB), ..small };
    assert_eq!(ChunkPlan::new(&large).unwrap_err(), MemoryShortage::Chunk { chunk_bytes: GIB, fitting_bytes: GIB / 2 });
    assert!(ChunkPlan::new(&PlanRequest { chunk_bytes: Some(GIB / 2), ..large }).is_ok());
}

#[test]
fn amplification_counts_what_every_chunk_of_the_loader_decodes() {
    let count = |order: &[usize], rows, stored, loaded| read_amplification(order.iter().copied(), rows, stored, loaded);
    let in_order: Vec<usize> = (0..10).collect();
    // Four chunks of the file, the last of one row; the loader's chunks end with them, and then
    // between them.
    assert_eq!(count(&in_order, 10, 3, 6), ReadAmplification { rows: 10, rows_decoded: 10 });
    assert_eq!(count(&in_order, 10, 3, 5), ReadAmplification { rows: 10, rows_decoded: 13 });
    assert_eq!(count(&[0, 9, 3, 8, 1], 10, 5, 1).factor(), 5.0);
    assert_eq!(count(&[], 10, 5, 1).factor(), 1.0);
}

#[test]
fn a_remedy_is_the_largest_chunk_that_wastes_nothing() {
    let runs = |run: usize| (0..64 / run).rev().flat_map(move |k| k * run..(k + 1) * run);
    let remedy = |run, row_bytes, loaded| remedy(&runs(run).collect::<Vec<_>>().into_iter(), 64, 32, row_bytes, loaded);
    assert_eq!(remedy(32, 1 << 20, 8), Some(Remedy::ChunkRows(8)));
    assert_eq!(remedy(1, 1 << 20, 4), Some(Remedy::ChunkRows(4)));
    assert_eq!(remedy(32, 1 << 20, 32), None);
    assert_eq!(remedy(32, 1 << 10, 8), Some(Remedy::Contiguous), "chunks of 8 KiB");
}

proptest! {
    /// A plan holds what it promises, whatever is asked for.
    #[test]
    fn a_plan_fits(
        (samples, steps, features, horizons) in (1usize..5_000, 1usize..50, 1usize..20, 1usize..5),
        (device_bytes, model_bytes) in (1u64..20_000_000, 0u64..10_000_000),
        (batch_size, stored_rows) in (1usize..300, 1usize..100),
        chunk_bytes in prop::option::weighted(0.5, 1u64..5_000_000),
    ) {
        let data = shape(samples, &[(steps, features)], horizons);
        let request = PlanRequest { model_bytes, chunk_bytes, batch_size, stored_rows, ..request(&data, device_bytes) };
        if let Ok(plan) = ChunkPlan::new(&request) {
            prop_assert!(plan.data_bytes + model_bytes <= device_bytes);
            prop_assert!(plan.samples_per_chunk >= batch_size.min(samples));
            prop_assert_eq!(plan.chunks, samples.div_ceil(plan.samples_per_chunk));
            if plan.residence == Residence::Chunked {
                prop_assert_eq!(plan.samples_per_chunk % batch_size.min(samples), 0);
                prop_assert!(chunk_bytes.is_none_or(|limit| plan.chunk_bytes <= limit));
            } else {
                prop_assert_eq!(plan.data_bytes, data.windows_bytes());
            }
        }
    }
}
