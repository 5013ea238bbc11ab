//! The trampolines of cuda-lazy, written from the declarations of the bindings that the workspace
//! is locked to.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::limits;
use crate::workspace::{Workspace, cargo};

/// The bindings: every function that they declare gets a trampoline.
const BINDINGS: &str = "cust_raw";

/// Functions whose trampolines are written by hand.
const WRITTEN_BY_HAND: &[&str] = &["cuGetErrorString", "cuGetErrorName"];

/// `cargo xtask trampolines [--check]`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let workspace = Workspace::load()?;
    match args {
        [] => {
            let path = committed(&workspace);
            std::fs::write(&path, generate(&workspace)?).with_context(|| format!("cannot write {}", path.display()))
        }
        [only] if only == "--check" => check(&workspace),
        _ => bail!("cargo xtask trampolines takes --check or nothing"),
    }
}

/// Fails where the committed file is not what the bindings in Cargo.lock ask for.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let path = committed(workspace);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(
        text == generate(workspace)?,
        "{} is not what {BINDINGS} in Cargo.lock declares; run cargo xtask trampolines",
        path.display()
    );
    Ok(())
}

fn committed(workspace: &Workspace) -> PathBuf {
    workspace.root.join("crates/cuda-lazy/src/forward/functions.rs")
}

fn generate(workspace: &Workspace) -> Result<String> {
    let output = limits::output(&mut cargo(&workspace.root, &["metadata", "--format-version", "1", "--locked"]))?;
    ensure!(output.status.success(), "cargo metadata failed");
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("no packages in metadata")?;
    let bindings = packages.iter().find(|package| package["name"] == BINDINGS).context("no bindings in Cargo.lock")?;
    let manifest = PathBuf::from(bindings["manifest_path"].as_str().context("a package has a manifest")?);
    let source = std::fs::read_to_string(manifest.with_file_name("src").join("cuda.rs"))?;
    write(&source, bindings["version"].as_str().context("a package has a version")?)
}

/// The text of the file, from the text of the bindings.
fn write(source: &str, version: &str) -> Result<String> {
    let source = source.split_whitespace().collect::<Vec<_>>().join(" ");
    let types = Types::read(&source);
    let mut functions = String::new();
    for declaration in source.split("pub fn cu").skip(1) {
        let (name, rest) = declaration.split_once('(').context("a function has parameters")?;
        let name = format!("cu{name}");
        let (parameters, rest) = rest.split_once(") ->").with_context(|| format!("{name} returns nothing"))?;
        ensure!(rest.trim_start().starts_with("CUresult;"), "{name} does not return a CUresult");
        if !WRITTEN_BY_HAND.contains(&name.as_str()) {
            functions += &format!("    {name}({});\n", types.lower(parameters).with_context(|| name.clone())?);
        }
    }
    let known = ranges(&codes(&source)?).join(" | ");
    Ok(format!(
        "//! The driver's functions that {BINDINGS} {version} declares, and the codes that it knows.\n\
         //! Written by `cargo xtask trampolines`; not to be changed by hand.\n\n\
         #![allow(non_snake_case, reason = \"the names of parameters are the driver's\")]\n\n\
         use std::ffi::{{CStr, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void}};\n\
         use std::mem::transmute;\n\n\
         use crate::forward::{{Entry, Handle64, clamp, trampolines}};\n\n\
         #[rustfmt::skip]\n\
         pub(crate) fn is_known(code: c_int) -> bool {{\n    matches!(code, {known})\n}}\n\n\
         #[rustfmt::skip]\n\
         trampolines! {{\n{functions}}}\n"
    ))
}

/// Meanings of the bindings' type names.
struct Types<'a> {
    aliases: HashMap<&'a str, &'a str>,
    enums: BTreeSet<&'a str>,
}

impl<'a> Types<'a> {
    fn read(source: &'a str) -> Self {
        let after = |start: &'static str| source.split(start).skip(1);
        let mut aliases: HashMap<_, _> = after("pub type ")
            .filter_map(|rest| rest.split_once(';')?.0.split_once('='))
            .map(|(name, kind)| (name.trim(), kind.trim()))
            .collect();
        aliases.extend(
            after("pub use self::")
                .filter_map(|rest| rest.split_once(';')?.0.split_once(" as "))
                .map(|(kind, name)| (name.trim(), kind.trim())),
        );
        let enums = after("pub enum ").filter_map(|rest| rest.split_once(' ')).map(|(name, _)| name).collect();
        Types { aliases, enums }
    }

    /// `name: type` for each parameter, the types as the C calling convention passes them.
    fn lower(&self, parameters: &str) -> Result<String> {
        let parameters = parameters.trim().trim_end_matches(',');
        let lowered = parameters.split(',').filter(|parameter| !parameter.trim().is_empty()).map(|parameter| {
            let (name, kind) = parameter.split_once(':').with_context(|| format!("`{parameter}` has no type"))?;
            Ok(format!("{}: {}", name.trim(), self.passed(kind.trim())?))
        });
        Ok(lowered.collect::<Result<Vec<_>>>()?.join(", "))
    }

    /// Type by which a value of type `kind` is passed: a pointer as any pointer, an enum as the
    /// integer that C makes of it.
    fn passed(&self, kind: &str) -> Result<&'static str> {
        if kind.starts_with('*') || kind.contains("option::Option<") {
            return Ok("*mut c_void");
        }
        let name = kind.rsplit("::").next().unwrap_or(kind);
        Ok(match name {
            "c_int" | "i32" => "c_int",
            "c_uint" | "u32" => "c_uint",
            "c_uchar" => "c_uchar",
            "c_ushort" => "c_ushort",
            "c_ulonglong" => "c_ulonglong",
            "u64" => "u64",
            "usize" => "usize",
            "f32" => "f32",
            "CUipcEventHandle_st" | "CUipcMemHandle_st" => "Handle64",
            _ if self.enums.contains(name) => "c_uint",
            _ => match self.aliases.get(name) {
                Some(alias) => self.passed(alias)?,
                None => bail!("a type that this program does not know: {kind}"),
            },
        })
    }
}

/// The values of `cudaError_enum`, ascending.
fn codes(source: &str) -> Result<BTreeSet<i32>> {
    let variants = source.split_once("pub enum cudaError_enum {").and_then(|(_, rest)| rest.split_once('}'));
    let (variants, _) = variants.context("no cudaError_enum")?;
    let codes = variants.split(',').filter_map(|variant| variant.split_once('='));
    codes.map(|(_, code)| Ok(code.trim().parse()?)).collect()
}

/// `first..=last` for each run of consecutive numbers.
fn ranges(numbers: &BTreeSet<i32>) -> Vec<String> {
    let mut runs: Vec<(i32, i32)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let text = |(first, last)| if first == last { format!("{first}") } else { format!("{first}..={last}") };
    runs.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINDINGS_TEXT: &str = "
        pub type CUdevice_v1 = ::std::os::raw::c_int;
        pub type CUdevice = CUdevice_v1;
        pub type CUstream = *mut CUstream_st;
        pub enum cudaError_enum { CUDA_SUCCESS = 0, CUDA_ERROR_A = 1, CUDA_ERROR_B = 3, }
        pub use self::cudaError_enum as CUresult;
        #[repr(u32)] pub enum CUlimit_enum { A = 0 }
        pub use self::CUlimit_enum as CUlimit;
        extern \"C\" { pub fn cuOne( device: CUdevice, stream: CUstream, limit: CUlimit, ) -> CUresult; }
        extern \"C\" { pub fn cuNone() -> CUresult; }
        extern \"C\" { pub fn cuGetErrorName(error: CUresult, pStr: *mut *const c_char) -> CUresult; }";

    #[test]
    fn types_are_lowered_to_what_c_passes() {
        let text = write(BINDINGS_TEXT, "1.2.3").unwrap();
        assert!(text.contains("cuOne(device: c_int, stream: *mut c_void, limit: c_uint);"), "{text}");
        assert!(text.contains("cuNone();"), "{text}");
        assert!(!text.contains("cuGetErrorName"), "{text}");
        assert!(text.contains("matches!(code, 0..=1 | 3)"), "{text}");
        assert!(text.contains("1.2.3"));
    }

    #[test]
    fn an_unknown_type_is_an_error_that_names_the_function() {
        let text = BINDINGS_TEXT.replace("limit: CUlimit", "limit: Strange");
        let error = format!("{:#}", write(&text, "1.2.3").unwrap_err());
        assert_eq!(error, "cuOne: a type that this program does not know: Strange");
    }
}
