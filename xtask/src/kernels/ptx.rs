//! PTX as it is committed: readable by old drivers, and the same wherever it was compiled.

use std::path::Path;

use anyhow::{Result, bail};

/// The version that the text claims. A driver refuses text newer than itself, whatever is in it;
/// this one came with CUDA 11.0 and the 450 drivers of 2020, as did compute capability 8.0. ptxas
/// holds every instruction against it, so that a kernel that uses a newer one does not assemble.
const VERSION: &str = "7.0";

/// A function of a file's own has a hash of the file's path in its name.
const PATH_HASH: &str = "_INTERNAL_";

pub(super) fn committed_form(raw: &str, source: &Path) -> Result<String> {
    if raw.contains(PATH_HASH) {
        bail!(
            "{}: a `static` function or variable that was not inlined gets a name that differs by machine; make it `inline`",
            source.display()
        );
    }
    let name = source.file_name().unwrap_or_default().to_string_lossy();
    let mut text = format!("// Compiled from {name} by `cargo xtask kernels`.\n.version {VERSION}\n");
    // Before the version stand comments with the compiler's build.
    let Some((_, body)) = raw.split_once("\n.version ") else {
        bail!("{}: the compiler's output has no .version", source.display());
    };
    for line in body.lines().skip(1) {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_replaced_and_the_version_lowered() {
        let raw = "//\n// Compiler Build ID: CL-1\n//\n\n.version 9.0\n.target sm_80\n\tret; \n}\n\n";
        let text = committed_form(raw, Path::new("crates/a/src/fill.cu")).unwrap();
        assert_eq!(
            text,
            "// Compiled from fill.cu by `cargo xtask kernels`.\n.version 7.0\n.target sm_80\n\tret;\n}\n"
        );
    }

    #[test]
    fn what_differs_by_machine_is_refused() {
        let raw = "\n.version 9.0\n.func _INTERNAL_0fe1_4_k_cu_1(\n";
        assert!(committed_form(raw, Path::new("k.cu")).is_err());
        assert!(committed_form(".target sm_80", Path::new("k.cu")).is_err());
    }
}
