//! Made-up data: the demo and the tests run on them, and a user tries a set-up with them before his
//! own are ready.

pub(crate) mod bars;
pub(crate) mod random;
pub(crate) mod samples;
pub(crate) mod shares;
