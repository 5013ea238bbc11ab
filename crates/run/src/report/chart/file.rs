//! A drawing as a file of its own, with the style and the legend that the page has around it.

use crate::report::html::{STYLE, escape};

/// Width of the legend's entries beside their words, and of a character.
const KEY: f64 = 36.0;
const CHARACTER: f64 = 6.8;
const LINE: f64 = 22.0;

/// `svg`, a drawing of the width and height `extent`, below its `legend` of (classes, name).
pub(crate) fn standalone(svg: &str, width: f64, height: f64, legend: &[(String, String)]) -> String {
    let (mut x, mut y) = (12.0, 18.0);
    let mut entries = String::new();
    for (class, name) in legend {
        let wide = KEY + CHARACTER * name.chars().count() as f64;
        if x + wide > width {
            (x, y) = (12.0, y + LINE);
        }
        entries.push_str(&format!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\"/><text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
            y - 10.0,
            x + 18.0,
            escape(name)
        ));
        x += wide;
    }
    let top = if legend.is_empty() { 0.0 } else { y + 14.0 };
    let inner = svg.replacen("<svg ", &format!("<svg y=\"{top}\" width=\"{width}\" height=\"{height}\" "), 1);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {0}\" font-family=\"system-ui, sans-serif\">\
         <style>{STYLE}</style><rect width=\"{width}\" height=\"{0}\" fill=\"var(--paper)\"/>{entries}{inner}</svg>\n",
        height + top
    )
}
