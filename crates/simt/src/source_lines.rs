//! Places in compiled code, as lines of the kernel sources.

use std::path::Path;
use std::process::Command;

/// `report` with every `{0x1234}`, an address in `library`, replaced by the file and line that it
/// was compiled from. An address stays as it is where binutils' addr2line is missing.
pub(crate) fn named(library: &Path, report: &str) -> String {
    let mut text = String::new();
    let mut rest = report;
    while let Some((before, after)) = rest.split_once("{0x") {
        let Some((address, remainder)) = after.split_once('}') else { break };
        text.push_str(before);
        text.push_str(&line_of(library, address).unwrap_or_else(|| format!("0x{address}")));
        rest = remainder;
    }
    text + rest
}

fn line_of(library: &Path, address: &str) -> Option<String> {
    let output = Command::new("addr2line").arg("-e").arg(library).arg(address).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    // Behind a line that occurs several times in the code, addr2line adds ` (discriminator 2)`.
    let line = text.lines().next()?.split(" (").next()?;
    (!line.starts_with("??") && !line.ends_with(":?")).then(|| line.to_owned())
}
