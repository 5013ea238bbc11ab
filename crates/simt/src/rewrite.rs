//! The two CUDA keywords that no macro can express, rewritten in preprocessed source.
//!
//! - `__global__ void name(…)` is noted as a kernel, and an exported launcher is appended for it.
//! - `__shared__ float tile[32][33];` becomes `float (&tile)[32][33] =
//!   simt::shared<float[32][33]>(1, "tile");`
//! - `extern __shared__ float scratch[];` becomes `float* const scratch =
//!   (float*)simt::dynamic_shared("scratch");`
//!
//! Lines stay where they are, so that messages and reports name those of the source.

use crate::error::{Error, Result};

/// A source that a C++ compiler takes.
#[derive(Debug)]
pub(crate) struct Rewritten {
    pub(crate) text: String,
    pub(crate) kernels: Vec<String>,
}

pub(crate) fn rewrite(preprocessed: &str) -> Result<Rewritten> {
    let mut rewriter = Rewriter { rest: preprocessed, ..Rewriter::default() };
    while !rewriter.rest.is_empty() {
        rewriter.step()?;
    }
    let Rewriter { mut text, kernels, .. } = rewriter;
    text.push('\n');
    for kernel in &kernels {
        text.push_str(&EXPORTS.replace("NAME", kernel));
    }
    Ok(Rewritten { text, kernels })
}

/// Prefix that makes a kernel reachable from outside: see `cxx/simt/export.h`.
const EXPORTS: &str = r#"
extern "C" uint32_t simt_parameters_NAME(simt::Parameter* parameters, uint32_t capacity) {
  return simt::Kernel<NAME>::describe(parameters, capacity);
}
extern "C" int simt_launch_NAME(const simt::Launch* launch) { return simt::launch("NAME", simt::Kernel<NAME>::call, *launch); }
extern "C" __attribute__((no_sanitize("thread"))) int simt_NAME(const unsigned grid[3], const unsigned block[3], size_t shared, void** arguments) {
  return simt::launch_anywhere("NAME", simt::Kernel<NAME>::call, {{grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared, 0, arguments});
}
extern "C" __attribute__((no_sanitize("thread"))) int simt_cooperative_NAME(const unsigned grid[3], const unsigned block[3], size_t shared, void** arguments) {
  return simt::launch_anywhere("NAME", simt::Kernel<NAME>::call, {{grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared, 1, arguments});
}
"#;

#[derive(Default)]
struct Rewriter<'a> {
    rest: &'a str,
    text: String,
    kernels: Vec<String>,
    /// For each open brace, whether it is inside a function.
    braces: Vec<bool>,
    /// The last character that is not space, to tell a function's brace from a namespace's.
    last: char,
    shared: u32,
    file: String,
    line: usize,
}

impl<'a> Rewriter<'a> {
    /// Copies or rewrites one token.
    fn step(&mut self) -> Result<()> {
        let first = self.rest.chars().next().unwrap_or_default();
        let at_line_start = self.text.is_empty() || self.text.ends_with('\n');
        match first {
            '#' if at_line_start => self.marker(),
            '"' | '\'' => self.quoted(first),
            '{' => {
                let in_function = self.last == ')' || self.in_function();
                self.braces.push(in_function);
                self.copy(1);
            }
            '}' => {
                self.braces.pop();
                self.copy(1);
            }
            _ if is_word(first) => return self.word(),
            _ => self.copy(first.len_utf8()),
        }
        Ok(())
    }

    fn in_function(&self) -> bool {
        self.braces.last().copied().unwrap_or(false)
    }

    fn copy(&mut self, bytes: usize) {
        let piece = self.take(bytes);
        self.text.push_str(piece);
        self.last = piece.chars().rev().find(|c| !c.is_whitespace()).unwrap_or(self.last);
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (piece, rest) = self.rest.split_at(bytes);
        self.line += piece.matches('\n').count();
        self.rest = rest;
        piece
    }

    /// `# 12 "kernels.cu" 2`: the next line is line 12 of that file.
    fn marker(&mut self) {
        let end = self.rest.find('\n').map_or(self.rest.len(), |end| end + 1);
        let marker = &self.rest[..end];
        let mut words = marker.trim_start_matches("#line").trim_start_matches('#').split_whitespace();
        let line = words.next().and_then(|line| line.parse().ok());
        let file = marker.split('"').nth(1);
        self.text.push_str(marker);
        self.rest = &self.rest[end..];
        if let (Some(line), Some(file)) = (line, file) {
            self.line = line;
            file.clone_into(&mut self.file);
        }
    }

    fn quoted(&mut self, quote: char) {
        let mut escaped = false;
        let end = self.rest[1..].find(|c| {
            let closes = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            closes
        });
        self.copy(end.map_or(self.rest.len(), |end| end + 2));
    }

    fn word(&mut self) -> Result<()> {
        let word = leading_word(self.rest);
        match word {
            "__global__" => {
                self.take(word.len());
                let name = kernel_name(self.rest).ok_or_else(|| self.error("a name and `(` must follow __global__"))?;
                if !self.kernels.iter().any(|kernel| kernel == name) {
                    self.kernels.push(name.to_owned());
                }
            }
            "__shared__" => return self.shared(),
            // A digit separator, as in 1'000, is no quote.
            _ if word.starts_with(|c: char| c.is_ascii_digit()) => {
                let end = self.rest.find(|c| !is_word(c) && c != '\'' && c != '.').unwrap_or(self.rest.len());
                self.copy(end);
            }
            _ => self.copy(word.len()),
        }
        Ok(())
    }

    fn shared(&mut self) -> Result<()> {
        if !self.in_function() {
            return Err(self.error("a __shared__ variable outside a function: declare it in the kernel"));
        }
        self.take("__shared__".len());
        let end = self.rest.find(';').ok_or_else(|| self.error("a `;` must end a __shared__ declaration"))?;
        let declaration = without_attributes(&self.rest[..end]);
        let is_dynamic = self.text.trim_end().ends_with("extern");
        let rewritten = if is_dynamic { self.dynamic(&declaration) } else { self.variables(&declaration) };
        let rewritten = rewritten.ok_or_else(|| {
            self.error("a __shared__ declaration is not understood: write `__shared__ TYPE NAME[SIZE];`")
        })?;
        if is_dynamic {
            self.text.truncate(self.text.trim_end().len() - "extern".len());
        }
        let lines = self.take(end).matches('\n').count();
        self.text.push_str(&rewritten);
        self.text.extend(std::iter::repeat_n('\n', lines));
        Ok(())
    }

    fn dynamic(&self, declaration: &str) -> Option<String> {
        let (element, name) = type_and_name(declaration.trim_end().strip_suffix("[]")?)?;
        Some(format!("{element}* const {name} = ({element}*)simt::dynamic_shared(\"{name}\")"))
    }

    fn variables(&mut self, declaration: &str) -> Option<String> {
        let mut declarators = declaration.split(',').map(str::trim);
        let first = declarators.next()?;
        let (head, dimensions) = split_dimensions(first);
        let (element, name) = type_and_name(head)?;
        let mut rewritten = vec![self.variable(element, name, dimensions)];
        for declarator in declarators {
            let (name, dimensions) = split_dimensions(declarator);
            rewritten.push(self.variable(element, name, dimensions));
        }
        Some(rewritten.join("; "))
    }

    fn variable(&mut self, element: &str, name: &str, dimensions: &str) -> String {
        self.shared += 1;
        format!("{element} (&{name}){dimensions} = simt::shared<{element}{dimensions}>({}, \"{name}\")", self.shared)
    }

    fn error(&self, what: &str) -> Error {
        Error::Source { file: self.file.clone(), line: self.line, what: what.to_owned() }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn leading_word(text: &str) -> &str {
    &text[..text.find(|c| !is_word(c)).unwrap_or(text.len())]
}

/// The word before the first parenthesis that is not an attribute's.
fn kernel_name(after_keyword: &str) -> Option<&str> {
    let mut rest = after_keyword;
    loop {
        let (before, after) = rest.split_once('(')?;
        let before = before.trim_end();
        let name = &before[before.rfind(|c| !is_word(c)).map_or(0, |end| end + 1)..];
        if name != "__attribute__" && name != "alignas" {
            return (!name.is_empty()).then_some(name);
        }
        rest = &after[closing_parenthesis(after)? + 1..];
    }
}

/// Position of the parenthesis that closes the one open before `text`.
fn closing_parenthesis(text: &str) -> Option<usize> {
    let mut depth = 1;
    text.find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    })
}

/// Alignments are left out, since all shared memory is aligned to more than any asks for.
fn without_attributes(declaration: &str) -> String {
    let mut text = declaration.replace('\n', " ");
    for attribute in ["__attribute__", "alignas"] {
        while let Some(start) = text.find(attribute) {
            let Some(open) = text[start..].find('(').map(|open| start + open + 1) else { break };
            let Some(close) = closing_parenthesis(&text[open..]) else { break };
            text.replace_range(start..=open + close, "");
        }
    }
    text
}

/// `float tile` → `float`, `tile`.
fn type_and_name(head: &str) -> Option<(&str, &str)> {
    let head = head.trim();
    let start = head.rfind(|c| !is_word(c))? + 1;
    let (element, name) = (head[..start].trim(), &head[start..]);
    (!element.is_empty() && !name.is_empty()).then_some((element, name))
}

/// `tile[32][33]` → `tile`, `[32][33]`.
fn split_dimensions(declarator: &str) -> (&str, &str) {
    let (name, dimensions) = declarator.split_at(declarator.find('[').unwrap_or(declarator.len()));
    (name.trim(), dimensions.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body_of(source: &str) -> String {
        let text = rewrite(source).unwrap().text;
        text.split(EXPORTS.split("NAME").next().unwrap()).next().unwrap().trim_end().to_owned()
    }

    #[test]
    fn shared_declarations_become_memory_of_the_block() {
        let cases = [
            ("__shared__ float s[256];", r#"float (&s)[256] = simt::shared<float[256]>(1, "s");"#),
            (
                "__shared__ unsigned char t[4][33];",
                r#"unsigned char (&t)[4][33] = simt::shared<unsigned char[4][33]>(1, "t");"#,
            ),
            (
                "__shared__ int a, b[2];",
                r#"int (&a) = simt::shared<int>(1, "a"); int (&b)[2] = simt::shared<int[2]>(2, "b");"#,
            ),
            ("__shared__ __attribute__((aligned(16))) T x[N];", r#"T (&x)[N] = simt::shared<T[N]>(1, "x");"#),
            ("extern __shared__ float s[];", r#"float* const s = (float*)simt::dynamic_shared("s");"#),
            ("\"__shared__ int x;\";", "\"__shared__ int x;\";"),
            ("int n = 1'000; char c = '{';", "int n = 1'000; char c = '{';"),
        ];
        for (statement, expected) in cases {
            let rewritten = body_of(&format!("void f() {{ {statement} }}"));
            let rewritten = rewritten.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(rewritten, format!("void f() {{ {expected} }}"), "{statement}");
        }
    }

    #[test]
    fn kernels_are_found_behind_attributes_and_named_once() {
        let source = "extern \"C\" __global__ void a(int);\nextern \"C\" __global__ void __attribute__((x(1))) b (int n) {}\n__global__ void a(int n) {}";
        let rewritten = rewrite(source).unwrap();
        assert_eq!(rewritten.kernels, ["a", "b"]);
        assert!(!rewritten.text.contains("__global__"));
        assert!(rewritten.text.contains("simt_launch_b"));
    }

    #[test]
    fn what_cannot_be_rewritten_is_an_error_at_its_line() {
        let cases = [
            ("# 7 \"k.cu\"\nextern \"C\" {\n__shared__ int x;\n}", "k.cu:8: a __shared__ variable outside"),
            ("# 7 \"k.cu\"\nvoid f() {\n\n__shared__ [3];\n}", "k.cu:9: a __shared__ declaration is not understood"),
            ("# 1 \"k.cu\"\n__global__ void k;", "k.cu:1: a name and `(` must follow"),
        ];
        for (source, expected) in cases {
            let error = rewrite(source).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
