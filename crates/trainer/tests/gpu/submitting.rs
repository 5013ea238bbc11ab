//! Requests of steps to a GPU: memory, launches, waits, graphs.

use std::ops::ControlFlow;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::model::{ModelConfig, SampleShape, Timeframe};
use megabatch_trainer::{Config, Event, InMemory, Run, SampleRanges, Samples, Trainer};

use crate::carrying::carrying;
use crate::{bits, config, on_gpu, series, train, wave, whole, windows, with_kernels};

/// Allocations of the device's pool after each step.
fn allocations(gpu: &Device, trainer: &mut Trainer, samples: &dyn Samples) -> Vec<u64> {
    let train_on = SampleRanges::from(0..49);
    let run = Run { samples, train: &train_on, validation: SampleRanges::NONE, checkpoints: None };
    let mut allocations = Vec::new();
    trainer
        .train(&run, &mut |event| {
            if let Event::Step(_) = event {
                allocations.push(gpu.stats().allocations_total);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    allocations
}

#[test]
fn a_step_takes_no_memory_after_the_first_of_its_shape() {
    let (_driver, gpu) = with_kernels();
    // So many rows that products are split.
    let timeframe = Timeframe { name: "M1".to_owned(), steps: 100, features: 2 };
    let shape = SampleShape { timeframes: vec![timeframe], outputs: 2 };
    let samples = InMemory::new(shape.clone(), vec![wave(60 * 200, 0.7)], wave(120, 0.3)).unwrap();
    for layers in [1, 2] {
        let config = Config { max_steps: Some(4), ..config(Precision::Bf16, layers) };
        let mut trainer = Trainer::on_gpu(&gpu, &Device::cpu(), config, shape.clone()).unwrap();
        let given = allocations(&gpu, &mut trainer, &samples);
        assert_eq!(given[1..], [given[0]; 3], "{layers} layers");
    }
    // In single precision a step has launches for every step of its windows. The fifth batch, of
    // fewer samples, comes with the fourth step.
    let given = allocations(&gpu, &mut on_gpu(&gpu, &config(Precision::Fp32, 2)), &windows());
    assert_eq!(given[1..3], [given[0]; 2]);
    // Norms, pooling and fusion, whose memory is of as many windows and samples as there are.
    let given = allocations(&gpu, &mut on_gpu(&gpu, &whole(Precision::Bf16, 2)), &windows());
    assert_eq!(given[1..3], [given[0]; 2]);
    // Groups of blocks, which tell each other of their steps.
    let (short, narrow) = (Timeframe { name: "M1".to_owned(), steps: 2, features: 1 }, config(Precision::Bf16, 1));
    let shape = SampleShape { timeframes: vec![short], outputs: 2 };
    let samples = InMemory::new(shape.clone(), vec![wave(60 * 2, 0.7)], wave(120, 0.3)).unwrap();
    let wide = ModelConfig { hidden: 130, ..narrow.model };
    let config = Config { model: wide, batch_size: 3, max_steps: Some(3), ..narrow };
    let mut trainer = Trainer::on_gpu(&gpu, &Device::cpu(), config, shape).unwrap();
    let given = allocations(&gpu, &mut trainer, &samples);
    assert_eq!(given[1..], [given[0]; 2]);
}

#[test]
fn steps_of_one_shape_have_the_same_launches() {
    let (driver, gpu) = with_kernels();
    // With dropout, a learning rate that rises, and samples that share no window.
    let mut config = config(Precision::Fp16, 2);
    config.lr_schedule.warmup_steps = 4;
    let samples = windows();
    let train_on = SampleRanges::from(0..49);
    let run = Run { samples: &samples, train: &train_on, validation: SampleRanges::NONE, checkpoints: None };
    let (mut launches, mut rates) = (Vec::new(), Vec::new());
    on_gpu(&gpu, &config)
        .train(&run, &mut |event| {
            if let Event::Step(step) = event {
                launches.push(driver.launches());
                rates.push(step.lr);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    // The first one finds buffers that are not there yet, windows come to two places in turn, and
    // the fifth has five samples. What is submitted ahead is not done yet where a step is told of.
    assert_eq!(launches[3], launches[1]);
    assert_ne!(launches[4], launches[2]);
    assert!(rates[1] < rates[2] && rates[2] < rates[3], "{rates:?}");
}

#[test]
fn weights_of_all_timeframes_change_their_order_in_one_launch() {
    let (driver, gpu) = with_kernels();
    let (samples, layers, steps) = (windows(), 2, 3);
    assert!(samples.shape().timeframes.len() > 1);
    let config = Config { max_steps: Some(steps), ..config(Precision::Bf16, layers) };
    let kernels = ["interleave_bf16", "interleave_f32", "fragments_bf16", "add_separated"];
    let before = kernels.map(|kernel| driver.runs(kernel));
    let train_on = SampleRanges::from(0..49);
    let run = Run { samples: &samples, train: &train_on, validation: SampleRanges::NONE, checkpoints: None };
    on_gpu(&gpu, &config).train(&run, &mut |_| ControlFlow::Continue(())).unwrap();
    let runs = [0, 1, 2, 3].map(|k| (driver.runs(kernels[k]) - before[k]) / (steps * layers as u64));
    // W_ih and W_hh, the sums of the biases, what the recurrence reads; gradients of them all.
    assert_eq!(runs, [2, 1, 1, 1]);
}

#[test]
fn no_step_waits_for_all_that_was_submitted() {
    let (driver, gpu) = with_kernels();
    // Windows come in copies of their own, one a timeframe.
    for (samples, copies) in [(&series() as &dyn Samples, 1), (&windows(), 4)] {
        let config =
            Config { gradient_accumulation_steps: 2, batch_size: 7, max_steps: Some(3), ..config(Precision::Bf16, 2) };
        let train_on = SampleRanges::from(0..49);
        let run = Run { samples, train: &train_on, validation: SampleRanges::NONE, checkpoints: None };
        let mut waits = Vec::new();
        on_gpu(&gpu, &config)
            .train(&run, &mut |event| {
                if let Event::Step(_) = event {
                    waits.push(["cuStreamSynchronize", "cuEventSynchronize"].map(|call| driver.calls(call)));
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        let step_waits = [0, 1].map(|call| waits[1][call] - waits[0][call]);
        // For what became of the step, and for page-locked memory by each of the two batches that
        // were submitted ahead: two before them are under way.
        assert_eq!(step_waits, [0, 1 + 2 * copies]);
    }
}

/// The steps of a run and what it leaves, bit by bit.
fn outcome(gpu: &Device, config: &Config, samples: &dyn Samples) -> (Vec<[u64; 2]>, Vec<bool>, Vec<u32>) {
    let mut trainer = on_gpu(gpu, config);
    let (steps, _) = train(&mut trainer, samples, None);
    let numbers = steps.iter().map(|step| [step.loss.to_bits(), step.grad_norm.to_bits()]).collect();
    (numbers, steps.iter().map(|step| step.overflow.is_some()).collect(), bits(&trainer))
}

#[test]
fn what_is_replayed_has_the_bits_of_what_is_submitted_as_it_is() {
    let (driver, gpu) = with_kernels();
    let long = |config: Config| Config { max_steps: Some(9), ..config };
    let mut overflows = long(config(Precision::Fp16, 2));
    (overflows.loss_scale.initial, overflows.loss_scale.growth_interval) = (1e6, 2);
    let accumulates = Config { gradient_accumulation_steps: 2, batch_size: 5, ..long(config(Precision::Bf16, 2)) };
    for (config, samples) in [
        (&long(config(Precision::Fp32, 1)), &windows() as &dyn Samples),
        (&long(whole(Precision::Bf16, 1)), &windows()),
        // Shapes change from batch to batch.
        (&accumulates, &series()),
        (&carrying(&accumulates), &series()),
        (&overflows, &windows()),
        (&carrying(&overflows), &series()),
    ] {
        let launched = || driver.calls("cuGraphLaunch");
        let before = launched();
        let replayed = outcome(&gpu, config, samples);
        let graphs = launched() - before;
        assert!(graphs > 9, "{graphs} graphs");
        // CUDA_ERROR_NOT_SUPPORTED: the driver is not asked again in this run.
        driver.fail("cuStreamBeginCapture_v2", 1, 801);
        let plain = outcome(&gpu, config, samples);
        assert_eq!(launched(), before + graphs);
        assert!(replayed == plain, "{replayed:?}\nwhere\n{plain:?}\nis right");
        let (_, overflows, _) = plain;
        let has_overflows = overflows.iter().any(|&overflow| overflow);
        assert_eq!(has_overflows, config.precision == Precision::Fp16, "{overflows:?}");
        assert!(overflows.iter().any(|&overflow| !overflow));
    }
}

#[test]
fn a_capture_that_the_driver_refuses_is_told_once() {
    let (driver, gpu) = with_kernels();
    let samples = windows();
    let train_on = SampleRanges::from(0..49);
    let run = Run { samples: &samples, train: &train_on, validation: SampleRanges::NONE, checkpoints: None };
    driver.fail("cuStreamBeginCapture_v2", 1, 801);
    let mut notes = Vec::new();
    on_gpu(&gpu, &Config { max_steps: Some(9), ..config(Precision::Bf16, 1) })
        .train(&run, &mut |event| {
            if let Event::Note { text, .. } = event {
                notes.push(text);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    let [note] = &notes[..] else { panic!("{notes:?}") };
    assert!(
        note.starts_with("CUDA graphs are not used, and steps take longer: cuda:0: cuStreamBeginCapture("),
        "{note}"
    );
}

#[test]
fn a_step_that_comes_again_is_three_graphs() {
    let (driver, gpu) = with_kernels();
    let samples = windows();
    let train_on = SampleRanges::from(0..49);
    let run = Run { samples: &samples, train: &train_on, validation: SampleRanges::NONE, checkpoints: None };
    let mut calls = Vec::new();
    on_gpu(&gpu, &config(Precision::Fp16, 2))
        .train(&run, &mut |event| {
            if let Event::Step(_) = event {
                let one_by_one = ["cuLaunchKernel", "cuMemsetD8Async", "cuMemcpyDtoDAsync_v2"];
                let one_by_one = one_by_one.iter().map(|call| driver.calls(call)).sum::<u64>();
                let copies = ["cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"].map(|call| driver.calls(call));
                calls.push([one_by_one, driver.calls("cuGraphLaunch"), copies[0], copies[1]]);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    // The end, weights taken up, and the batch of the eighth step, which is as the first four; what
    // the host knows of the step, what the next batch brings and its windows of three timeframes;
    // what became of the step.
    let seventh_calls: Vec<u64> = calls[6].iter().zip(calls[5]).map(|(after, before)| after - before).collect();
    assert_eq!(seventh_calls, [0, 3, 5, 1]);
}
