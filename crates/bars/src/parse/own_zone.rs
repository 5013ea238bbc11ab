//! The zone that a file names itself: in its header, or behind each time.

use crate::error::row_error::RowError;
use crate::parse::fields::RowFields;
use crate::parse::format::RowFormat;
use crate::parse::header;
use crate::parse::row::RowFault;
use crate::time::timestamp::zone_name;
use crate::time::zone::Zone;

/// A zone, and the text of each time that names it.
#[derive(Clone, Debug)]
pub(crate) struct OwnZone {
    pub(crate) zone: Zone,
    /// Name behind each time; `None` if the header names the zone.
    name: Option<Vec<u8>>,
}

impl OwnZone {
    /// The zone that a header line names.
    pub(crate) fn in_header(text: &[u8], format: &RowFormat) -> Option<Self> {
        let zone = header::zone(&RowFields::split(text, format.delimiter))?;
        Some(OwnZone { zone, name: None })
    }

    /// True if each time names the zone.
    pub(crate) fn is_in_rows(&self) -> bool {
        self.name.is_some()
    }

    /// Place of the name, in words.
    pub(crate) fn why(&self) -> &'static str {
        if self.is_in_rows() { "each timestamp names it" } else { "the header names it" }
    }

    /// Takes the zone that the time of a row names; all rows of a file have to name one.
    pub(crate) fn take_row(own: &mut Option<Self>, fields: &RowFields<'_>, format: &RowFormat) -> Result<(), RowFault> {
        let column = format.columns.clock.unwrap_or(format.columns.time);
        let found = fields.get(column).and_then(zone_name);
        let known = own.as_ref().and_then(|own| own.name.as_deref());
        if found == known {
            return Ok(());
        }
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let fault = |expected: String| RowFault { kind: RowError::Unreadable, expected };
        match (found, known) {
            (Some(name), None) => {
                let unknown = || fault(format!("a known time zone behind the time, not `{}`", text(name)));
                let zone = text(name).parse().map_err(|_| unknown())?;
                *own = Some(OwnZone { zone, name: Some(name.to_vec()) });
                Ok(())
            }
            (_, Some(known)) => Err(fault(format!("the time zone {} as in the rows above", text(known)))),
            (None, None) => Ok(()),
        }
    }
}
