use megabatch_bars::{Bars, OnError, ReadOptions, Timeframe, read, resample};

use crate::published;

fn bars_of(timeframe: Timeframe) -> Option<Bars> {
    let path = published(&format!("forex_multitf/sillydev_EURUSD_{timeframe}.csv.gz"))?;
    let options = ReadOptions { on_error: OnError::Repair, ..ReadOptions::default() };
    Some(read(&[path], &options).unwrap().bars)
}

/// Each published file is what the next finer one aggregates to: every bin that lies between the
/// finer file's first open and last close, and that the coarser file has reached, is there in both
/// and equal in every number.
#[test]
fn resampling_reproduces_the_published_chain() {
    use Timeframe::{H1, H4, M1, M5, M15};
    // At least this many bars are compared.
    let cases = [(M1, M5, 9_000), (M5, M15, 16_000), (M15, H1, 12_000), (H1, H4, 12_000)];
    for (fine, coarse, compared_min) in cases {
        let (Some(fine), Some(published)) = (bars_of(fine), bars_of(coarse)) else { return };
        let made = resample(&fine, coarse).unwrap();
        let (start, end) = (fine.open_time[0], fine.close_time(fine.len() - 1));
        let covered = |bars: &Bars| -> Vec<usize> {
            let first = start.max(published.open_time[0]);
            let last = end.min(published.close_time(published.len() - 1));
            (0..bars.len()).filter(|&k| bars.open_time[k] >= first && bars.close_time(k) <= last).collect()
        };
        let (ours, theirs) = (covered(&made), covered(&published));
        println!("{} to {coarse}: {} bars compared", fine.timeframe, ours.len());
        assert!(
            ours.len() >= compared_min && ours.len() == theirs.len(),
            "{coarse}: {} and {}",
            ours.len(),
            theirs.len()
        );
        for (&our, &their) in ours.iter().zip(&theirs) {
            assert_eq!(made.bar(our), published.bar(their), "{coarse}");
        }
    }
}
