//! The messages that TensorBoard needs for scalars (TensorFlow, `core/util/event.proto` and
//! `core/framework/summary.proto`).

use crate::protobuf::Message;

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
    let event = Message::default().double(1, wall_time_s).int(2, step.cast_signed());
    let event = match what {
        What::Version => event.text(3, "brain.Event:2"),
        What::Scalars(values) => event.message(5, &summary(values)),
        // SessionLog with its status START.
        What::Start => event.message(7, &Message::default().int(1, 1)),
    };
    event.into_bytes()
}

/// Summary: its values, each with tag and simple_value.
fn summary(values: &[(&'static str, f32)]) -> Message {
    let one = |&(tag, value): &(&str, f32)| Message::default().text(1, tag).float(2, value);
    Message::default().each(values, |summary, value| summary.message(1, &one(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
