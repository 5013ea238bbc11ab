use std::time::Duration;

use serde::Serialize;

use crate::cost::ReadCost;

/// Delivered samples, waiting time of the consumer, and its causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LoaderStats {
    /// Time in which the consumer waited for data: `disk`, `decode` and `copy` together.
    pub waited: Duration,
    /// The part of it that was due to reading from the file. Each wait is divided in proportion to
    /// the times of the chunk waited for.
    pub disk: Duration,
    /// The part that was due to undoing filters.
    pub decode: Duration,
    /// The part that was due to copying values, and the rest.
    pub copy: Duration,
    /// Cost of all delivered chunks.
    pub read: ReadCost,
    /// Batches delivered.
    pub batches: u64,
    /// Samples delivered.
    pub samples: u64,
}

impl LoaderStats {
    /// Notes a wait for a chunk that took `cost` to read.
    pub(super) fn note_wait(&mut self, waited: Duration, cost: ReadCost) {
        let worked = (cost.disk + cost.decode + cost.copy).as_secs_f64();
        let share = |part: Duration| if worked > 0.0 { waited.mul_f64(part.as_secs_f64() / worked) } else { part };
        // Rounding must not make the parts more than the whole.
        let disk = share(cost.disk).min(waited);
        let decode = share(cost.decode).min(waited - disk);
        self.waited += waited;
        self.disk += disk;
        self.decode += decode;
        self.copy += waited - disk - decode;
        self.read += cost;
    }

    pub(super) fn note_batch(&mut self, samples: usize) {
        self.batches += 1;
        self.samples += samples as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn cost(disk: u64, decode: u64, copy: u64) -> ReadCost {
        ReadCost { bytes_read: 7, disk: ms(disk), decode: ms(decode), copy: ms(copy) }
    }

    #[test]
    fn a_wait_is_shared_out_as_the_work_was() {
        let cases = [
            (40, [1, 2, 1], [10, 20, 10]),
            // On several threads the work is more than the time on the clock.
            (10, [0, 500, 500], [0, 5, 5]),
            (10, [500, 0, 0], [10, 0, 0]),
            (10, [0, 0, 0], [0, 0, 10]),
            (0, [5, 5, 5], [0, 0, 0]),
        ];
        for (waited, work, [disk, decode, copy]) in cases {
            let mut stalls = LoaderStats::default();
            stalls.note_wait(ms(waited), cost(work[0], work[1], work[2]));
            assert_eq!(stalls.waited, ms(waited));
            assert_eq!([stalls.disk, stalls.decode, stalls.copy], [ms(disk), ms(decode), ms(copy)], "{work:?}");
        }
    }

    #[test]
    fn parts_add_up_to_the_whole_however_they_round() {
        let mut stalls = LoaderStats::default();
        for waited in 1..2_000 {
            stalls.note_wait(Duration::from_nanos(waited), cost(waited % 7, waited % 5, waited % 3));
        }
        assert_eq!(stalls.waited, Duration::from_nanos((1..2_000).sum()));
        assert_eq!(stalls.disk + stalls.decode + stalls.copy, stalls.waited);
        assert_eq!(stalls.read.bytes_read, 7 * 1_999);
    }
}
