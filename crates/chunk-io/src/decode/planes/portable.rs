//! Joins of byte planes in plain loops, the reference of the other forms.
#![forbid(unsafe_code)]

macro_rules! join {
    ($name:ident, $word:ty, [$($plane:ident),+]) => {
        /// Makes each word of its bytes, of which the first plane has the least significant. A
        /// plane has at least as many bytes as there are words.
        #[inline(always)]
        pub(super) fn $name(planes: [&[u8]; size_of::<$word>()], out: &mut [$word]) {
            let [$($plane),+] = planes.map(|plane| &plane[..out.len()]);
            for (k, word) in out.iter_mut().enumerate() {
                *word = <$word>::from_le_bytes([$($plane[k]),+]);
            }
        }
    };
}

join!(join_u16, u16, [a, b]);
join!(join_u32, u32, [a, b, c, d]);
join!(join_u64, u64, [a, b, c, d, e, f, g, h]);
