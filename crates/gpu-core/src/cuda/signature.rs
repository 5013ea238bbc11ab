//! Parameters of a kernel, read from its PTX: the driver does not tell, and reads past the end of
//! its arguments.
//!
//! Source: PTX ISA, "Kernel Function Parameters" and ".entry".

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

/// Sizes in bytes of a kernel's parameters, in order.
pub(super) type Signature = Vec<usize>;

/// The signature of each kernel of a PTX text, by name.
pub(super) fn signatures(ptx: &str) -> BTreeMap<String, Signature> {
    let text = without_comments(ptx);
    text.split(".entry").skip(1).filter_map(signature).collect()
}

/// From what follows `.entry`: a name, and in parentheses the parameters. A kernel without
/// parameters may go without parentheses.
fn signature(text: &str) -> Option<(String, Signature)> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_alphanumeric() && !"_$%".contains(c))?;
    let (name, rest) = text.split_at(end);
    let parameters = match rest.trim_start().strip_prefix('(') {
        Some(list) => {
            let (list, _) = list.split_once(')')?;
            list.split(',').filter(|parameter| !parameter.trim().is_empty()).map(size).collect::<Option<_>>()?
        }
        None => Vec::new(),
    };
    Some((name.to_owned(), parameters))
}

/// The size of `.param .align 8 .b8 name[24]` or `.param .u64 .ptr .global .align 4 name`: that of
/// its type, times the number in brackets.
fn size(parameter: &str) -> Option<usize> {
    let bits = parameter.split_whitespace().find_map(|word| {
        let kind = word.strip_prefix(['.'])?;
        kind.strip_prefix(['b', 'u', 's', 'f'])?.parse::<usize>().ok()
    })?;
    let count = match parameter.split_once('[') {
        Some((_, rest)) => rest.split_once(']')?.0.trim().parse().ok()?,
        None => 1,
    };
    (bits / 8).checked_mul(count)
}

fn without_comments(ptx: &str) -> String {
    let mut text = String::with_capacity(ptx.len());
    let mut rest = ptx;
    while let Some(start) = rest.find("/*") {
        text.push_str(&rest[..start]);
        rest = rest[start..].split_once("*/").map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_the_sizes_of_their_types() {
        let cases: &[(&str, &str, &[usize])] = &[
            (".visible .entry fill(\n\t.param .u64 fill_param_0,\n\t.param .u32 fill_param_1\n)\n{", "fill", &[8, 4]),
            (".entry none()\n{ ret; }", "none", &[]),
            (".entry bare { ret; }", "bare", &[]),
            (".entry packed(.param .align 8 .b8 packed_param_0[24], .param .f32 x)", "packed", &[24, 4]),
            (".entry tagged (.param .u64 .ptr .global .align 4 p, .param .u8 q, .param .b16 r)", "tagged", &[8, 1, 2]),
            (".entry _Z3addPf(.param .f64 a)", "_Z3addPf", &[8]),
            ("// .entry old(.param .u32 a)\n/* .entry older() */ .entry now(.param .s32 a) // b", "now", &[4]),
        ];
        for (ptx, name, sizes) in cases {
            let found = signatures(ptx);
            assert_eq!(found.len(), 1, "{ptx}");
            assert_eq!(found.get(*name).map(Vec::as_slice), Some(*sizes), "{ptx}");
        }
    }

    #[test]
    fn several_kernels_stand_in_one_text() {
        let ptx = ".version 7.0\n.target sm_80\n.visible .entry a(.param .u32 x)\n{\nret;\n}\n.visible .entry b()\n{\nret;\n}\n";
        assert_eq!(signatures(ptx).into_keys().collect::<Vec<_>>(), ["a", "b"]);
    }
}
