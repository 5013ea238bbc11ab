use std::collections::HashMap;
use std::io::{BufRead, Read as _};

use megabatch_gpu_core::recording::{BLOCK_BYTES_MAX, TraceEvent};
use megabatch_gpu_core::source::StreamId;
use serde::Deserialize;
use serde_json::Value;

use super::{TraceError, TraceLine};

/// Longest line that is read, in bytes.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Reads a trace line by line; holds no more than a line and the ids of the live blocks.
///
/// Lines of blanks are passed over, and keys that are not of the format are ignored, so that
/// recorders may add their own. After an error the trace ends.
#[derive(Debug)]
pub struct TraceReader<R> {
    input: R,
    buffer: Vec<u8>,
    line: u64,
    /// Line on which each live block was asked for, by id.
    live: HashMap<u64, u64>,
    ended: bool,
}

impl<R: BufRead> TraceReader<R> {
    /// Reads from the first line of `input` on.
    pub fn new(input: R) -> Self {
        TraceReader { input, buffer: Vec::new(), line: 0, live: HashMap::new(), ended: false }
    }

    /// The next line that is not blank; `None` at the end.
    fn next_line(&mut self) -> Result<Option<TraceLine>, TraceError> {
        loop {
            self.line += 1;
            let line = self.line;
            self.buffer.clear();
            let mut bounded = self.input.by_ref().take(LINE_BYTES_MAX as u64 + 1);
            match bounded.read_until(b'\n', &mut self.buffer) {
                Err(source) => return Err(TraceError::Read { line, source }),
                Ok(0) => return Ok(None),
                Ok(length) if length > LINE_BYTES_MAX => {
                    return Err(TraceError::TooLong { line, limit_bytes: LINE_BYTES_MAX });
                }
                Ok(_) => {}
            }
            if !self.buffer.trim_ascii().is_empty() {
                let event = parse(line, self.buffer.trim_ascii())?;
                self.admit(event)?;
                return Ok(Some(TraceLine { number: line, event }));
            }
        }
    }

    /// Keeps account of which ids are live.
    fn admit(&mut self, event: TraceEvent) -> Result<(), TraceError> {
        let line = self.line;
        match event {
            TraceEvent::Alloc { id, .. } => match self.live.insert(id, line) {
                Some(since_line) => Err(TraceError::AllocatedTwice { line, id, since_line }),
                None => Ok(()),
            },
            TraceEvent::Free { id } => match self.live.remove(&id) {
                Some(_) => Ok(()),
                None => Err(TraceError::NotLive { line, id }),
            },
            TraceEvent::Step => Ok(()),
        }
    }
}

impl<R: BufRead> Iterator for TraceReader<R> {
    type Item = Result<TraceLine, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.next_line().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// The fields of any event, as JSON has them.
#[derive(Deserialize)]
struct Fields {
    op: Option<Value>,
    id: Option<Value>,
    bytes: Option<Value>,
    stream: Option<Value>,
}

fn parse(line: u64, text: &[u8]) -> Result<TraceEvent, TraceError> {
    let not_an_object = |reason: String| TraceError::NotAnObject { line, reason };
    // An array would do as well for a structure's fields, in their order.
    if text[0] != b'{' {
        return Err(not_an_object(format!("it begins with `{}`", String::from_utf8_lossy(&text[..1]))));
    }
    let fields: Fields = serde_json::from_slice(text).map_err(|error| not_an_object(error.to_string()))?;
    let number = |field: (&'static str, Option<&Value>), largest| number(line, field.0, field.1, largest);
    let required = |op, field: (&'static str, Option<&Value>), largest| {
        number(field, largest)?.ok_or(TraceError::Missing { line, op, field: field.0 })
    };
    let id = |op| required(op, ("id", fields.id.as_ref()), u64::MAX);
    match fields.op.as_ref().map(|op| (op, op.as_str())) {
        None => Err(TraceError::Missing { line, op: "an event", field: "op" }),
        Some((_, Some("alloc"))) => {
            let bytes = required("alloc", ("bytes", fields.bytes.as_ref()), BLOCK_BYTES_MAX as u64)?;
            let stream = number(("stream", fields.stream.as_ref()), u32::MAX.into())?.unwrap_or(0);
            let bytes = usize::try_from(bytes).expect("addresses have 64 bits");
            Ok(TraceEvent::Alloc { id: id("alloc")?, bytes, stream: StreamId(stream as u32) })
        }
        Some((_, Some("free"))) => Ok(TraceEvent::Free { id: id("free")? }),
        Some((_, Some("step"))) => Ok(TraceEvent::Step),
        Some((op, text)) => Err(TraceError::UnknownOp { line, op: text.map_or_else(|| op.to_string(), str::to_owned) }),
    }
}

/// A whole number from 0 to `largest`; `None` where the field is absent or null.
fn number(line: u64, field: &'static str, value: Option<&Value>, largest: u64) -> Result<Option<u64>, TraceError> {
    let Some(value) = value else { return Ok(None) };
    match value.as_u64().filter(|&number| number <= largest) {
        Some(number) => Ok(Some(number)),
        None => Err(TraceError::BadNumber { line, field, largest, found: value.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Vec<TraceLine>, TraceError> {
        TraceReader::new(text.as_bytes()).collect()
    }

    #[test]
    fn a_trace_is_read_as_it_stands() {
        let text = "{\"op\":\"alloc\",\"id\":7,\"bytes\":1048576,\"stream\":3}\n\n \t\r\n{\"id\":8,\"bytes\":0,\"op\":\"alloc\"}\r\n\
                    {\"op\":\"step\",\"time_us\":5}\n{\"op\":\"free\",\"id\":7,\"owner\":null}";
        let events = [
            (1, TraceEvent::Alloc { id: 7, bytes: 1 << 20, stream: StreamId(3) }),
            (4, TraceEvent::Alloc { id: 8, bytes: 0, stream: StreamId(0) }),
            (5, TraceEvent::Step),
            (6, TraceEvent::Free { id: 7 }),
        ];
        assert_eq!(read(text).unwrap(), events.map(|(number, event)| TraceLine { number, event }));
        assert_eq!(read("").unwrap(), []);
    }

    #[test]
    fn an_error_names_the_line_and_what_was_expected() {
        let first = "{\"op\":\"alloc\",\"id\":1,\"bytes\":512}\n";
        for (second, message) in [
            ("{\"op\":\"malloc\",\"id\":2}", "expected the op alloc, free or step, found `malloc`"),
            ("{\"op\":7,\"id\":2}", "expected the op alloc, free or step, found `7`"),
            ("{\"id\":2}", "an event needs the field `op`"),
            ("{\"op\":\"alloc\",\"id\":2}", "alloc needs the field `bytes`, which is missing"),
            ("{\"op\":\"alloc\",\"bytes\":2}", "alloc needs the field `id`, which is missing"),
            ("{\"op\":\"free\"}", "free needs the field `id`, which is missing"),
            ("{\"op\":\"free\",\"id\":null}", "free needs the field `id`, which is missing"),
            (
                "{\"op\":\"alloc\",\"id\":2,\"bytes\":-5}",
                "`bytes`: expected a whole number from 0 to 281474976710656, found -5",
            ),
            ("{\"op\":\"alloc\",\"id\":2,\"bytes\":1e99}", "`bytes`: expected a whole number"),
            ("{\"op\":\"alloc\",\"id\":2,\"bytes\":281474976710657}", "found 281474976710657"),
            (
                "{\"op\":\"alloc\",\"id\":2.5,\"bytes\":5}",
                "`id`: expected a whole number from 0 to 18446744073709551615, found 2.5",
            ),
            (
                "{\"op\":\"alloc\",\"id\":2,\"bytes\":5,\"stream\":\"a\"}",
                "`stream`: expected a whole number from 0 to 4294967295, found \"a\"",
            ),
            ("{\"op\":\"alloc\",\"id\":1,\"bytes\":5}", "block 1 is allocated again; it is live since line 1"),
            ("{\"op\":\"free\",\"id\":2}", "block 2 is freed and is not live"),
            ("[\"alloc\",2,5]", "expected one JSON object"),
            ("{\"op\":\"step\"} {\"op\":\"step\"}", "expected one JSON object"),
            ("{\"op\":\"step\",\"op\":\"step\"}", "duplicate field"),
            ("{\"op\":\"step\"", "expected one JSON object"),
            ("step", "expected one JSON object"),
        ] {
            let error = read(&format!("{first}{second}\n{first}")).unwrap_err().to_string();
            assert!(error.starts_with("line 2: ") && error.contains(message), "{second}: {error}");
        }
    }

    #[test]
    fn a_line_without_end_is_not_read_to_its_end() {
        let endless = std::io::BufReader::new(std::io::repeat(b' '));
        let error = TraceReader::new(endless).next().unwrap().unwrap_err();
        assert!(matches!(error, TraceError::TooLong { line: 1, .. }), "{error}");
        let padded = format!("{{\"op\":\"step\"}}{}\n", " ".repeat(LINE_BYTES_MAX - 14));
        assert_eq!(read(&padded).unwrap().len(), 1);
        assert!(read(&format!(" {padded}")).is_err());
    }

    /// Traces without an error: an id is allocated when it is not live, and freed when it is.
    fn events() -> impl Strategy<Value = Vec<TraceEvent>> {
        let wish = (0..8_u64, 0..=BLOCK_BYTES_MAX, any::<u32>(), any::<bool>());
        prop::collection::vec(wish, 0..40).prop_map(|wishes| {
            let mut live = std::collections::HashSet::new();
            let event = |(id, bytes, stream, step)| match step {
                true => TraceEvent::Step,
                false if live.remove(&id) => TraceEvent::Free { id },
                false => {
                    live.insert(id);
                    TraceEvent::Alloc { id, bytes, stream: StreamId(stream) }
                }
            };
            wishes.into_iter().map(event).collect()
        })
    }

    /// Lines that are nearly right, and bytes of any kind.
    fn garbage() -> impl Strategy<Value = Vec<u8>> {
        let word = prop::sample::select(vec![
            "{",
            "}",
            "[",
            "\"op\"",
            ":",
            "\"alloc\"",
            "\"free\"",
            "\"step\"",
            ",",
            "\"id\"",
            "\"bytes\"",
            "\"stream\"",
            "7",
            "-1",
            "1e400",
            "0.5",
            "null",
            "\n",
            "\\",
            "\"",
            " ",
            "\u{feff}",
        ]);
        let words = prop::collection::vec(word, 0..40).prop_map(|words| words.concat().into_bytes());
        prop_oneof![words, prop::collection::vec(any::<u8>(), 0..200)]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(events in events()) {
            let mut text = Vec::new();
            events.iter().for_each(|event| event.write_line(&mut text).unwrap());
            let read: Vec<TraceLine> = TraceReader::new(text.as_slice()).collect::<Result<_, _>>().unwrap();
            let numbered = (1..).zip(events).map(|(number, event)| TraceLine { number, event });
            prop_assert_eq!(read, numbered.collect::<Vec<_>>());
        }

        #[test]
        fn garbage_is_an_error_on_its_line_or_a_trace(garbage in garbage()) {
            let good = b"{\"op\":\"alloc\",\"id\":18446744073709551615,\"bytes\":1}\n";
            let text = [good.as_slice(), &garbage].concat();
            let mut reader = TraceReader::new(text.as_slice());
            let results: Vec<_> = reader.by_ref().collect();
            prop_assert!(results[0].is_ok());
            if let Some(Err(error)) = results.last() {
                let lines = text.iter().filter(|&&byte| byte == b'\n').count() + 1;
                let named = error.to_string();
                let named: usize = named["line ".len()..named.find(':').unwrap()].parse().unwrap();
                prop_assert!((2..=lines).contains(&named), "{}", error);
            }
            prop_assert!(reader.next().is_none());
        }
    }
}
