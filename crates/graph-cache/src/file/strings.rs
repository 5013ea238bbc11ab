//! Lists of strings: their number, their ends, and their bytes.

#![forbid(unsafe_code)]

use std::ops::Range;

use super::fault::{FileFault, SectionReader};

/// Place of a list of strings in a file; its strings have been checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct StringList {
    ends: Range<usize>,
    bytes: Range<usize>,
}

/// Appends a list to `out`, whose length is a multiple of 8 before and after it.
pub(crate) fn push_strings<'s>(out: &mut Vec<u8>, strings: impl ExactSizeIterator<Item = &'s str> + Clone) {
    out.extend((strings.len() as u64).to_le_bytes());
    let mut end = 0;
    for string in strings.clone() {
        end += string.len() as u64;
        out.extend(end.to_le_bytes());
    }
    strings.for_each(|string| out.extend(string.as_bytes()));
    out.resize(out.len().next_multiple_of(8), 0);
}

impl StringList {
    /// Reads the list at `reading`.
    pub(crate) fn read(reading: &mut SectionReader<'_>) -> Result<Self, FileFault> {
        let count = reading.u64()?;
        let ends = reading.array(count, size_of::<u64>())?;
        let (mut start, numbers): (u64, &[u64]) = (0, bytemuck::cast_slice(&reading.file[ends.clone()]));
        let bytes = reading.array(numbers.last().copied().unwrap_or(0), 1)?;
        for (position, &end) in numbers.iter().enumerate() {
            let string = usize::try_from(start).ok().zip(usize::try_from(end).ok());
            let string = string.and_then(|(start, end)| reading.file[bytes.clone()].get(start..end));
            let outside = || reading.fault(format!("string {position} is from {start} to {end} of {}", bytes.len()));
            let string = string.ok_or_else(outside)?;
            std::str::from_utf8(string).map_err(|_| reading.fault(format!("string {position} is not UTF-8")))?;
            start = end;
        }
        Ok(StringList { ends, bytes })
    }

    /// Number of strings.
    pub(crate) fn len(&self) -> usize {
        self.ends.len() / size_of::<u64>()
    }

    /// The string at `position` of the list, which lies in `file`.
    pub(crate) fn get<'f>(&self, file: &'f [u8], position: usize) -> &'f str {
        let ends: &[u64] = bytemuck::cast_slice(&file[self.ends.clone()]);
        let start = if position == 0 { 0 } else { ends[position - 1] as usize };
        let bytes = &file[self.bytes.clone()][start..ends[position] as usize];
        std::str::from_utf8(bytes).expect("strings are looked through when they are read")
    }

    /// All of them.
    pub(crate) fn to_vec(&self, file: &[u8]) -> Vec<String> {
        (0..self.len()).map(|position| self.get(file, position).to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::mapping::FileBytes;

    fn written(strings: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        push_strings(&mut out, strings.iter().copied());
        out
    }

    #[test]
    fn lists_come_back_one_after_another() {
        let lists: [&[&str]; 4] = [&["a", "", "größer"], &[], &[""], &["12345678"]];
        let file = FileBytes::owned(&lists.map(written).concat());
        let mut reading = SectionReader::new(&file, "description", 0..file.len());
        for strings in lists {
            assert_eq!(StringList::read(&mut reading).unwrap().to_vec(&file), strings);
        }
        assert_eq!(reading.at, file.len());
    }

    #[test]
    fn lists_that_are_none_are_refused() {
        let cases: [(&[u64], &[u8], &str); 7] = [
            (&[], b"", "8 bytes are asked for where 0 are left"),
            (&[3, 1, 2], b"", "3 times 8 bytes"),
            (&[u64::MAX], b"", "18446744073709551615 times 8 bytes"),
            (&[2, 2, 1], b"ab\0\0\0\0\0\0", "string 0 is from 0 to 2 of 1"),
            (&[3, 2, 1, 2], b"ab\0\0\0\0\0\0", "string 1 is from 2 to 1 of 2"),
            (&[1, 9], b"ab\0\0\0\0\0\0", "9 times 1 bytes are asked for where 8 are left"),
            (&[1, 1], b"\xff\0\0\0\0\0\0\0", "string 0 is not UTF-8"),
        ];
        for (numbers, bytes, reason) in cases {
            let file = FileBytes::owned(&[bytemuck::cast_slice(numbers), bytes].concat());
            let fault = StringList::read(&mut SectionReader::new(&file, "keys", 0..file.len())).unwrap_err();
            assert!(fault.reason.contains(reason) && fault.object == "keys", "{fault:?}");
        }
    }
}
