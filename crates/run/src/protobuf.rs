//! Protocol buffers as bytes, as far as files of ONNX and events of TensorBoard need them:
//! <https://protobuf.dev/programming-guides/encoding>.
//!
//! Written by hand: ten messages that are only ever written take fewer lines than a generator's
//! set-up, and no compiler of `.proto` files at build time.

/// A message that is being written, field after field.
#[derive(Default)]
pub(crate) struct Message {
    bytes: Vec<u8>,
}

/// Wire type of a field.
#[derive(Clone, Copy)]
enum WireType {
    Varint = 0,
    Fixed64 = 1,
    Delimited = 2,
    Fixed32 = 5,
}

impl Message {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// An `int64`, `int32` or enum.
    pub(crate) fn int(mut self, field: u32, value: i64) -> Self {
        self.key(field, WireType::Varint);
        self.varint(value.cast_unsigned());
        self
    }

    /// A `double`.
    pub(crate) fn double(mut self, field: u32, value: f64) -> Self {
        self.key(field, WireType::Fixed64);
        self.bytes.extend(value.to_le_bytes());
        self
    }

    /// A `float`.
    pub(crate) fn float(mut self, field: u32, value: f32) -> Self {
        self.key(field, WireType::Fixed32);
        self.bytes.extend(value.to_le_bytes());
        self
    }

    /// `bytes`, or a `string` as UTF-8.
    pub(crate) fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.key(field, WireType::Delimited);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
        self
    }

    pub(crate) fn text(self, field: u32, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    pub(crate) fn message(self, field: u32, value: &Message) -> Self {
        self.bytes(field, &value.bytes)
    }

    /// A repeated field: `add` appends one item after the other.
    pub(crate) fn each<T>(self, items: &[T], add: impl Fn(Self, &T) -> Self) -> Self {
        items.iter().fold(self, add)
    }

    fn key(&mut self, field: u32, wire_type: WireType) {
        self.varint(u64::from(field) << 3 | wire_type as u64);
    }

    /// Seven bits a byte, the lowest first; all but the last have their highest bit set.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_specification() {
        let inner = || Message::default().int(1, 150);
        for (message, expected) in [
            (inner(), &[0x08, 0x96, 0x01][..]),
            (Message::default().text(2, "testing"), b"\x12\x07testing"),
            (Message::default().message(3, &inner()), &[0x1a, 0x03, 0x08, 0x96, 0x01]),
            (Message::default().float(4, 1.0), &[0x25, 0, 0, 0x80, 0x3f]),
            (Message::default().double(1, 1.5), &[0x09, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f]),
            (Message::default().int(20, 0), &[0xa0, 0x01, 0x00]),
            (Message::default().int(1, -1), &[8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
            (Message::default().each(&[1, 127, 128], |m, &x| m.int(8, x)), &[0x40, 1, 0x40, 127, 0x40, 128, 1]),
        ] {
            assert_eq!(message.into_bytes(), expected);
        }
    }
}
