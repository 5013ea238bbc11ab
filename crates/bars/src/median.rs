/// The middle one of some values; the upper of two. Reorders the values.
///
/// # Panics
/// When there are none.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}
