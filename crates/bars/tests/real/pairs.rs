use megabatch_bars::{Error, OnError, ReadOptions, Recording, read, read_pair};

use crate::published;

fn read_sides(on_error: OnError) -> Option<Result<Recording, Error>> {
    let bid = published("forex_m1/usdjpy-m1-bid-2013.csv.gz")?;
    let ask = published("forex_m1/usdjpy-m1-ask-2013.csv.gz")?;
    Some(read_pair(&[bid], &[ask], &ReadOptions { on_error, ..ReadOptions::default() }))
}

/// Bid and ask of USDJPY cross at the close of 683 of 28,761 minutes, by a tenth of a pip or two.
#[test]
fn sides_that_cross_are_refused_dropped_or_taken_as_equal() {
    let Some(failed) = read_sides(OnError::Fail) else { return };
    let message = failed.unwrap_err().to_string();
    for part in ["usdjpy-m1-bid", "usdjpy-m1-ask", "2013-02-01T00:53:00Z", "below the bid"] {
        assert!(message.contains(part), "{part} in {message}");
    }
    for (on_error, bars) in [(OnError::Skip, 28_078), (OnError::Repair, 28_761)] {
        let Recording { bars: joined, summary, symbol } = read_sides(on_error).unwrap().unwrap();
        let pair = summary.pair.unwrap();
        assert_eq!((symbol.as_str(), joined.len(), summary.files.len()), ("USDJPY", bars, 2));
        assert_eq!((pair.bid_only.count, pair.ask_only.count, pair.crossed.count), (0, 0, 683));
        assert_eq!(joined.spread.len(), bars);
        assert!(joined.spread.iter().all(|spread| (0.0..0.2).contains(spread)));
    }
}

#[test]
fn prices_are_the_mean_of_both_sides() {
    let Some(joined) = read_sides(OnError::Repair) else { return };
    let joined = joined.unwrap().bars;
    let side = |name: &str| read(&[published(name).unwrap()], &ReadOptions::default()).unwrap().bars;
    let (bid, ask) = (side("forex_m1/usdjpy-m1-bid-2013.csv.gz"), side("forex_m1/usdjpy-m1-ask-2013.csv.gz"));
    assert_eq!(joined.open_time, bid.open_time);
    for k in 0..joined.len() {
        let bar = joined.bar(k);
        assert!((bar.close - (bid.close[k] + ask.close[k]) / 2.0).abs() < 1e-9);
        assert!((bar.high - (bid.high[k] + ask.high[k]) / 2.0).abs() < 1e-9);
        assert_eq!(bar.spread, (ask.close[k] - bid.close[k]).max(0.0));
        assert!(bar.low <= bar.open.min(bar.close) && bar.high >= bar.open.max(bar.close));
    }
}
