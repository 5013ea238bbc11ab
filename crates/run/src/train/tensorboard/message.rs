//! The few messages of protocol buffers that TensorBoard needs for scalars, encoded by hand
//! (TensorFlow, `core/util/event.proto` and `core/framework/summary.proto`;
//! <https://protobuf.dev/programming-guides/encoding/>).

/// Content of an event.
#[derive(Clone, Copy, Debug)]
pub(super) enum What<'a> {
    /// The first of every file.
    Version,
    /// A session begins. Earlier values of its steps and of later ones are void.
    Start,
    /// Tags and values.
    Scalars(&'a [(&'static str, f32)]),
}

/// An event of the optimizer step `step` at `wall_time_s`, seconds since 1970 UTC.
pub(super) fn event(what: What<'_>, wall_time_s: f64, step: u64) -> Vec<u8> {
    let mut event = Vec::new();
    key(1, Wire::Fixed64, &mut event);
    event.extend(wall_time_s.to_le_bytes());
    key(2, Wire::Varint, &mut event);
    varint(step, &mut event);
    match what {
        What::Version => bytes(3, b"brain.Event:2", &mut event),
        What::Scalars(values) => bytes(5, &summary(values), &mut event),
        // SessionLog with its status START.
        What::Start => bytes(7, &[0x08, 0x01], &mut event),
    }
    event
}

/// Summary: its values, each with tag and simple_value.
fn summary(values: &[(&'static str, f32)]) -> Vec<u8> {
    let mut summary = Vec::new();
    let mut one = Vec::new();
    for (tag, value) in values {
        one.clear();
        bytes(1, tag.as_bytes(), &mut one);
        key(2, Wire::Fixed32, &mut one);
        one.extend(value.to_le_bytes());
        bytes(1, &one, &mut summary);
    }
    summary
}

/// Wire type of a field.
#[derive(Clone, Copy)]
enum Wire {
    Varint = 0,
    Fixed64 = 1,
    Bytes = 2,
    Fixed32 = 5,
}

fn key(field: u64, wire: Wire, out: &mut Vec<u8>) {
    varint(field << 3 | wire as u64, out);
}

fn bytes(field: u64, value: &[u8], out: &mut Vec<u8>) {
    key(field, Wire::Bytes, out);
    varint(value.len() as u64, out);
    out.extend(value);
}

/// Seven bits a byte, the lowest first; all but the last have the highest bit.
fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_seven_bits_a_byte() {
        for (value, expected) in [
            (0, &[0][..]),
            (127, &[127]),
            (128, &[0x80, 1]),
            (300, &[0xac, 2]),
            (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ] {
            let mut encoded = Vec::new();
            varint(value, &mut encoded);
            assert_eq!(encoded, expected, "{value}");
        }
    }

    #[test]
    fn events_are_encoded_as_by_protoc() {
        let time = 1.5_f64.to_le_bytes();
        let head = |step: u8| [&[0x09][..], &time, &[0x10, step]].concat();
        let version = [&head(0)[..], &[0x1a, 13], b"brain.Event:2"].concat();
        assert_eq!(event(What::Version, 1.5, 0), version);
        assert_eq!(event(What::Start, 1.5, 9), [&head(9)[..], &[0x3a, 2, 8, 1]].concat());
        let value = [&[0x0a, 2, b'l', b'r', 0x15][..], &0.5_f32.to_le_bytes()].concat();
        let summary = [&[0x0a, value.len() as u8][..], &value].concat();
        let expected = [&head(3)[..], &[0x2a, summary.len() as u8], &summary].concat();
        assert_eq!(event(What::Scalars(&[("lr", 0.5)]), 1.5, 3), expected);
    }
}
