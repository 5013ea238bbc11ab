//! The page around the charts: one file, no script, nothing loaded from elsewhere.

/// `text` with the characters that HTML gives a meaning written as entities.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// A whole page; `body` is HTML already.
pub(crate) fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{0}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{0}</h1>\n{body}</main>\n</body>\n</html>\n",
        escape(title)
    )
}

/// A table; the first column holds names, the others numbers.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let cells = |tag: &str, cells: &mut dyn Iterator<Item = &str>| -> String {
        cells.map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect()
    };
    let body: String =
        rows.iter().map(|row| format!("<tr>{}</tr>\n", cells("td", &mut row.iter().map(String::as_str)))).collect();
    format!(
        "<div class=\"scroll\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n",
        cells("th", &mut head.iter().copied())
    )
}

/// Line colours are Okabe and Ito's, which colour-blind readers can tell apart.
const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --faint: #d9dee4; --soft: #57606a }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --paper: #14181c; --faint: #343b43; --soft: #9aa4ae } }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
svg { width: 100%; height: auto; display: block }
.grid { stroke: var(--faint); fill: none } .line { fill: none; stroke-width: 1.8 }
.tick { fill: var(--soft); font-size: 11px } .label { fill: var(--ink); font-size: 12px }
.c0 { stroke: #0072b2 } .c1 { stroke: #e69f00 } .c2 { stroke: #009e73 } .c3 { stroke: #cc79a7 } .c4 { stroke: #56b4e9 } .c5 { stroke: #d55e00 }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .8rem .2rem 0; text-align: right; border-bottom: 1px solid var(--faint) }
th:first-child, td:first-child { text-align: left }
.verdict { font-weight: 600 }
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<a href=\"x\">&</a>"), "&lt;a href=&quot;x&quot;&gt;&amp;&lt;/a&gt;");
        let table = table(&["<b>"], &[vec!["<i>".into()]]);
        assert!(!table.contains("<b>") && !table.contains("<i>"));
    }
}
