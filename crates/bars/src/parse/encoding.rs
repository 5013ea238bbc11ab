//! Text in UTF-16, which is what MetaTrader exports by default, turned into UTF-8 while it is read.

use std::char::DecodeUtf16Error;
use std::io::{self, BufRead, Read};

/// Byte order of UTF-16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// The low byte comes first.
    LittleEndian,
    /// The high byte comes first.
    BigEndian,
}

impl ByteOrder {
    /// The byte order of a text in UTF-16 from its first four bytes; `None` for any other text.
    ///
    /// It is told from the mark in front, or, where there is none, from two characters of ASCII: no
    /// other text has a NUL in every second byte.
    pub fn recognised(head: &[u8]) -> Option<Self> {
        match head {
            [0xff, 0xfe, ..] => Some(ByteOrder::LittleEndian),
            [0xfe, 0xff, ..] => Some(ByteOrder::BigEndian),
            [1..=0x7f, 0, 1..=0x7f, 0] => Some(ByteOrder::LittleEndian),
            [0, 1..=0x7f, 0, 1..=0x7f] => Some(ByteOrder::BigEndian),
            _ => None,
        }
    }

    /// The unit that two bytes are.
    pub fn unit(self, bytes: [u8; 2]) -> u16 {
        match self {
            ByteOrder::LittleEndian => u16::from_le_bytes(bytes),
            ByteOrder::BigEndian => u16::from_be_bytes(bytes),
        }
    }
}

/// A reader of UTF-16 that gives UTF-8. Halves of characters become U+FFFD.
pub(crate) struct Utf16Reader<R> {
    inner: R,
    byte_order: ByteOrder,
    /// The first byte of a unit whose second one is still to come.
    half: Option<u8>,
    /// The first unit of a character whose second one is still to come.
    high: Option<u16>,
    text: String,
    used: usize,
}

impl<R: BufRead> Utf16Reader<R> {
    pub(crate) fn new(inner: R, byte_order: ByteOrder) -> Self {
        Utf16Reader { inner, byte_order, half: None, high: None, text: String::new(), used: 0 }
    }

    /// Decodes what the inner reader has at hand; false at its end.
    fn refill(&mut self) -> io::Result<bool> {
        let bytes = self.inner.fill_buf()?;
        let len = bytes.len();
        self.text.clear();
        self.used = 0;
        for &byte in bytes {
            match self.half.take() {
                None => self.half = Some(byte),
                Some(first) => push_unit(&mut self.text, &mut self.high, self.byte_order.unit([first, byte])),
            }
        }
        self.inner.consume(len);
        if len == 0 && (self.half.take().is_some() | self.high.take().is_some()) {
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
        Ok(len > 0)
    }
}

/// Adds a unit to the text, or keeps it in `high` where it is the first half of a character.
fn push_unit(text: &mut String, high: &mut Option<u16>, unit: u16) {
    let lossy = |c: Result<char, DecodeUtf16Error>| c.unwrap_or(char::REPLACEMENT_CHARACTER);
    match (high.take(), unit) {
        (Some(first), 0xdc00..=0xdfff) => return text.extend(char::decode_utf16([first, unit]).map(lossy)),
        (Some(_), _) => text.push(char::REPLACEMENT_CHARACTER),
        (None, _) => {}
    }
    match unit {
        0xd800..=0xdbff => *high = Some(unit),
        _ => text.extend(char::decode_utf16([unit]).map(lossy)),
    }
}

impl<R: BufRead> BufRead for Utf16Reader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.used == self.text.len() && (self.refill()? || !self.text.is_empty()) {}
        Ok(&self.text.as_bytes()[self.used..])
    }

    fn consume(&mut self, count: usize) {
        self.used += count;
    }
}

impl<R: BufRead> Read for Utf16Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use proptest::prelude::*;

    use super::*;

    fn bytes_of(units: &[u16], byte_order: ByteOrder) -> Vec<u8> {
        let bytes = |unit: &u16| match byte_order {
            ByteOrder::LittleEndian => unit.to_le_bytes(),
            ByteOrder::BigEndian => unit.to_be_bytes(),
        };
        units.iter().flat_map(bytes).collect()
    }

    fn decoded(bytes: &[u8], byte_order: ByteOrder, chunk: usize) -> String {
        let mut text = String::new();
        Utf16Reader::new(BufReader::with_capacity(chunk, bytes), byte_order).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn byte_orders_are_recognised() {
        let cases: [(&[u8], Option<ByteOrder>); 7] = [
            (b"\xff\xfe2\0", Some(ByteOrder::LittleEndian)),
            (b"\xfe\xff\x002", Some(ByteOrder::BigEndian)),
            (b"2\x000\0", Some(ByteOrder::LittleEndian)),
            (b"\x002\x000", Some(ByteOrder::BigEndian)),
            (b"2018", None),
            (b"\xef\xbb\xbf2", None),
            (b"", None),
        ];
        for (head, expected) in cases {
            assert_eq!(ByteOrder::recognised(head), expected, "{head:?}");
        }
    }

    proptest! {
        /// Whatever the units, their order and where the buffer is cut: what the standard library
        /// decodes.
        #[test]
        fn agrees_with_the_standard_library(
            units in prop::collection::vec(prop_oneof![any::<u16>(), 0xd700u16..0xe100], 0..40), chunk in 1usize..9,
        ) {
            for byte_order in [ByteOrder::LittleEndian, ByteOrder::BigEndian] {
                prop_assert_eq!(decoded(&bytes_of(&units, byte_order), byte_order, chunk), String::from_utf16_lossy(&units));
            }
        }
    }

    #[test]
    fn half_a_character_at_the_end_is_told() {
        assert_eq!(decoded(b"2\x000", ByteOrder::LittleEndian, 8), "2\u{fffd}");
    }
}
