//! Writing Python's pickle format, version 4, for plain values: dictionaries, lists, texts, whole
//! numbers, truth values.
//!
//! PyTorch's viewer reads pickles with an unpickler of its own, which knows few operations; these
//! are among them. It takes a list's elements as the arguments of one call, hence lists are built a
//! thousand elements at a time, as Python itself does.

use std::collections::HashMap;

/// A value that Python has too.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PickleValue {
    Bool(bool),
    Int(i64),
    Text(String),
    List(Vec<PickleValue>),
    /// A tuple of two.
    Pair(Box<(PickleValue, PickleValue)>),
    Dict(Vec<(&'static str, PickleValue)>),
}

const BATCH: usize = 1000;

const PROTO: u8 = 0x80;
const STOP: u8 = b'.';
const MARK: u8 = b'(';
const EMPTY_DICT: u8 = b'}';
const EMPTY_LIST: u8 = b']';
const SETITEMS: u8 = b'u';
const APPENDS: u8 = b'e';
const TUPLE2: u8 = 0x86;
const NEWTRUE: u8 = 0x88;
const NEWFALSE: u8 = 0x89;
const BININT: u8 = b'J';
const BININT1: u8 = b'K';
const BININT2: u8 = b'M';
const LONG1: u8 = 0x8a;
const BINUNICODE: u8 = b'X';
const BINPUT: u8 = b'q';
const LONG_BINPUT: u8 = b'r';
const BINGET: u8 = b'h';
const LONG_BINGET: u8 = b'j';

/// `value` as a pickle.
pub(super) fn pickle(value: &PickleValue) -> Vec<u8> {
    let mut pickler = Pickler { bytes: vec![PROTO, 4], memo: HashMap::new() };
    pickler.put(value);
    pickler.bytes.push(STOP);
    pickler.bytes
}

struct Pickler<'a> {
    bytes: Vec<u8>,
    /// Texts already written, and their numbers in the memo.
    memo: HashMap<&'a str, u32>,
}

impl<'a> Pickler<'a> {
    fn put(&mut self, value: &'a PickleValue) {
        match value {
            PickleValue::Bool(true) => self.bytes.push(NEWTRUE),
            PickleValue::Bool(false) => self.bytes.push(NEWFALSE),
            PickleValue::Int(number) => self.put_int(*number),
            PickleValue::Text(text) => self.put_text(text),
            PickleValue::Pair(pair) => {
                self.put(&pair.0);
                self.put(&pair.1);
                self.bytes.push(TUPLE2);
            }
            PickleValue::List(items) => {
                self.bytes.push(EMPTY_LIST);
                for batch in items.chunks(BATCH) {
                    self.bytes.push(MARK);
                    batch.iter().for_each(|item| self.put(item));
                    self.bytes.push(APPENDS);
                }
            }
            PickleValue::Dict(entries) => {
                self.bytes.extend([EMPTY_DICT, MARK]);
                for (key, value) in entries {
                    self.put_text(key);
                    self.put(value);
                }
                self.bytes.push(SETITEMS);
            }
        }
    }

    fn put_int(&mut self, number: i64) {
        if let Ok(small) = u8::try_from(number) {
            self.bytes.extend([BININT1, small]);
        } else if let Ok(short) = u16::try_from(number) {
            self.bytes.push(BININT2);
            self.bytes.extend(short.to_le_bytes());
        } else if let Ok(int) = i32::try_from(number) {
            self.bytes.push(BININT);
            self.bytes.extend(int.to_le_bytes());
        } else {
            self.bytes.extend([LONG1, 8]);
            self.bytes.extend(number.to_le_bytes());
        }
    }

    fn put_text(&mut self, text: &'a str) {
        if let Some(&known) = self.memo.get(text) {
            return self.put_place(BINGET, LONG_BINGET, known);
        }
        let place = u32::try_from(self.memo.len()).expect("texts of one snapshot are counted in 32 bits");
        self.memo.insert(text, place);
        self.bytes.push(BINUNICODE);
        self.bytes.extend(u32::try_from(text.len()).expect("a label is shorter than 4 GiB").to_le_bytes());
        self.bytes.extend(text.as_bytes());
        self.put_place(BINPUT, LONG_BINPUT, place);
    }

    fn put_place(&mut self, short: u8, long: u8, place: u32) {
        if let Ok(small) = u8::try_from(place) {
            self.bytes.extend([short, small]);
        } else {
            self.bytes.push(long);
            self.bytes.extend(place.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_the_format_says() {
        for (value, expected) in [
            (PickleValue::Bool(true), vec![NEWTRUE]),
            (PickleValue::Int(0), vec![b'K', 0]),
            (PickleValue::Int(255), vec![b'K', 255]),
            (PickleValue::Int(256), vec![b'M', 0, 1]),
            (PickleValue::Int(65_536), vec![b'J', 0, 0, 1, 0]),
            (PickleValue::Int(-1), vec![b'J', 255, 255, 255, 255]),
            (PickleValue::Int(1 << 40), vec![0x8a, 8, 0, 0, 0, 0, 0, 1, 0, 0]),
            (PickleValue::Text("é".into()), vec![b'X', 2, 0, 0, 0, 0xc3, 0xa9, b'q', 0]),
            (PickleValue::List(vec![]), vec![b']']),
            (PickleValue::Pair(Box::new((PickleValue::Int(1), PickleValue::Int(2)))), vec![b'K', 1, b'K', 2, 0x86]),
            (
                PickleValue::Dict(vec![("a", PickleValue::Text("a".into()))]),
                vec![b'}', b'(', b'X', 1, 0, 0, 0, b'a', b'q', 0, b'h', 0, b'u'],
            ),
        ] {
            let bytes = pickle(&value);
            assert_eq!(bytes[..2], [0x80, 4]);
            assert_eq!(bytes[2..bytes.len() - 1], expected, "{value:?}");
            assert_eq!(bytes[bytes.len() - 1], b'.');
        }
    }

    #[test]
    fn long_lists_come_in_batches_and_many_texts_are_remembered() {
        let bytes = pickle(&PickleValue::List(vec![PickleValue::Bool(true); 2_500]));
        assert_eq!(bytes.iter().filter(|&&byte| byte == APPENDS).count(), 3);
        let texts = || (0..300).map(|k| PickleValue::Text(format!("{k:03}")));
        let bytes = pickle(&PickleValue::List(texts().chain(texts()).collect()));
        let again = [LONG_BINGET, 43, 1, 0, 0, APPENDS, STOP];
        assert_eq!(bytes[bytes.len() - again.len()..], again);
    }
}
