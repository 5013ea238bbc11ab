//! Processor time, as the system tells it.

/// Seconds that all threads of this process have computed; none where the system does not tell.
pub(crate) fn time_s() -> Option<f64> {
    of_stat(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// The kernel counts in hundredths of a second there, whatever its own clock is.
const TICKS_PER_S: f64 = 100.0;

/// User and system time of a line of Linux's /proc/PID/stat, its fields 14 and 15. The second field
/// is the program's name in parentheses, which may hold anything.
fn of_stat(line: &str) -> Option<f64> {
    let (_, after_name) = line.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_added() {
        let line = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 100 1000 1 18446744073709551615";
        assert_eq!(of_stat(line), Some(3.0));
        assert_eq!((of_stat(""), of_stat("7 (x) S 1")), (None, None));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn time_passes_while_this_process_computes() {
        let before = time_s().unwrap();
        let mut x = 1u64;
        while time_s().unwrap() - before < 0.02 {
            (0..100_000)
                .for_each(|_| x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1)));
        }
    }
}
