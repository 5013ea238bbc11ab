//! Exit codes, which other programs read.

use megabatch_run::Kind;
use signal_hook::consts::SIGINT;

use crate::interruption;

/// Exit code after an error of `kind`. After a signal it is 128 plus the signal's number.
pub(crate) fn code(kind: Kind) -> u8 {
    match kind {
        Kind::Usage => 2,
        Kind::Data => 3,
        Kind::Capacity => 4,
        Kind::Numeric => 5,
        Kind::Device => 6,
        Kind::Cancelled => 128 + interruption::signal().unwrap_or(SIGINT) as u8,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_code() {
        for (kind, expected) in [
            (Kind::Failed, 1),
            (Kind::Usage, 2),
            (Kind::Data, 3),
            (Kind::Capacity, 4),
            (Kind::Numeric, 5),
            (Kind::Device, 6),
            (Kind::Cancelled, 130),
        ] {
            assert_eq!(code(kind), expected, "{kind:?}");
        }
    }
}
