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

/// A part of the page with a heading, linked from the contents list.
pub(crate) struct Section {
    /// Unique in the page: letters and hyphens.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// HTML already.
    pub(crate) body: String,
}

/// A whole page: `head` is HTML that comes before the contents list.
pub(crate) fn page(title: &str, head: &str, sections: &[Section]) -> String {
    let links: String =
        sections.iter().map(|Section { id, title, .. }| format!("<li><a href=\"#{id}\">{title}</a></li>")).collect();
    let bodies: String = sections
        .iter()
        .map(|Section { id, title, body }| {
            format!("<section id=\"{id}\" aria-labelledby=\"{id}-title\">\n<h2 id=\"{id}-title\">{title}</h2>\n{body}</section>\n")
        })
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{0}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#content\">Skip to the content</a>\n\
         <header>\n{head}<nav aria-label=\"Contents\"><ul>{links}</ul></nav>\n</header>\n\
         <main id=\"content\">\n{bodies}</main>\n<footer>Written by megabatch {1}.</footer>\n</body>\n</html>\n",
        escape(title),
        env!("CARGO_PKG_VERSION")
    )
}

/// A paragraph.
pub(crate) fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", escape(text))
}

/// Size of a chart beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// Half of the page's width, where the page is wide.
    Half,
    /// As wide as [`Size::Half`], with a square between the axes, both of which have one scale.
    Square,
    /// All of the page's width.
    Wide,
    /// The same in a window that is too narrow for it.
    Slim,
}

impl Size {
    /// Width in the drawing's own units, which are about the page's pixels.
    pub(crate) fn width(self) -> f64 {
        match self {
            Size::Half | Size::Square | Size::Slim => 540.0,
            Size::Wide => 1100.0,
        }
    }

    pub(crate) fn class(self) -> &'static str {
        match self {
            Size::Half | Size::Square => "half",
            Size::Wide | Size::Slim => "wide",
        }
    }
}

/// A drawing under its title.
pub(crate) struct Figure<'a> {
    pub(crate) title: &'a str,
    pub(crate) size: Size,
    pub(crate) svg: &'a str,
    /// Classes and name of each mark.
    pub(crate) legend: &'a [(String, String)],
    /// A sentence below the drawing; may be empty.
    pub(crate) note: &'a str,
    /// The numbers that are drawn.
    pub(crate) numbers: Option<Table>,
}

/// A box labelled `label` for content that may be wider than the page. It scrolls, by keyboard
/// too.
pub(crate) fn scrolling(label: &str, content: &str) -> String {
    let label = escape(label);
    format!("<div class=\"scroll\" role=\"region\" aria-label=\"{label}\" tabindex=\"0\">{content}</div>\n")
}

impl Figure<'_> {
    pub(crate) fn to_html(&self) -> String {
        let (class, title) = (self.size.class(), escape(self.title));
        let drawing = scrolling(self.title, self.svg);
        let note =
            if self.note.is_empty() { String::new() } else { format!("<p class=\"note\">{}</p>", escape(self.note)) };
        let numbers = self.numbers.as_ref().map_or_else(String::new, |table| {
            format!("<details><summary>Numbers</summary>\n{}</details>", table.to_html())
        });
        format!(
            "<figure class=\"{class}\"><figcaption>{title}</figcaption>{}{drawing}{note}{numbers}</figure>\n",
            legend(self.legend)
        )
    }
}

fn legend(marks: &[(String, String)]) -> String {
    let entries: String = marks
        .iter()
        .map(|(class, name)| {
            let mark = match class.split(' ').nth(1) {
                Some("block") => format!("<rect class=\"{class}\" width=\"12\" height=\"12\" x=\"6\"/>"),
                Some("cloud") => format!("<path class=\"{class} key\" d=\"M12 6h0\"/>"),
                _ => format!("<path class=\"{class}\" d=\"M0 6h24\"/>"),
            };
            format!("<li><svg viewBox=\"0 0 24 12\" aria-hidden=\"true\">{mark}</svg>{}</li>", escape(name))
        })
        .collect();
    if entries.is_empty() { String::new() } else { format!("<ul class=\"legend\">{entries}</ul>") }
}

/// Figures side by side where the page is wide enough.
pub(crate) fn side_by_side(figures: &[String]) -> String {
    format!("<div class=\"pair\">\n{}</div>\n", figures.concat())
}

/// A table. The first column has the names of rows, indented if they begin with a blank. Columns of
/// numbers are flush right.
pub(crate) struct Table {
    pub(crate) caption: String,
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// Rows of a table that are shown at once. The others unfold.
const ROWS_SHOWN: usize = 24;

impl Table {
    /// A table whose columns are named by `head`, or by none where all of these are empty.
    pub(crate) fn new(
        caption: impl Into<String>,
        head: impl IntoIterator<Item = impl Into<String>>,
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Self {
        let head = head.into_iter().map(Into::into).collect();
        Table { caption: caption.into(), head, rows: rows.into_iter().collect() }
    }

    pub(crate) fn to_html(&self) -> String {
        let Table { caption, head, rows } = self;
        let is_numeric: Vec<bool> = (0..head.len())
            .map(|k| k > 0 && rows.iter().all(|row| row.get(k).is_none_or(|cell| is_number(cell))))
            .collect();
        let class = |k: usize| if is_numeric.get(k) == Some(&true) { " class=\"n\"" } else { "" };
        let head: String = head
            .iter()
            .enumerate()
            .map(|(k, cell)| format!("<th scope=\"col\"{}>{}</th>", class(k), escape(cell)))
            .collect();
        let named = self.head.iter().any(|cell| !cell.is_empty());
        let head = if named { format!("<thead><tr>{head}</tr></thead>\n") } else { String::new() };
        let row = |cells: &Vec<String>| -> String {
            let cell = |(k, cell): (usize, &String)| match k {
                0 if cell.starts_with(' ') => {
                    format!("<th scope=\"row\" class=\"sub\">{}</th>", escape(cell.trim_start()))
                }
                0 => format!("<th scope=\"row\">{}</th>", escape(cell)),
                _ if cell.len() > SENTENCE_MIN => format!("<td class=\"sentence\">{}</td>", escape(cell)),
                _ => format!("<td{}>{}</td>", class(k), escape(cell)),
            };
            format!("<tr>{}</tr>\n", cells.iter().enumerate().map(cell).collect::<String>())
        };
        let table = |caption: &str, rows: &[Vec<String>]| {
            let body = rows.iter().map(row).collect::<String>();
            scrolling(
                caption,
                &format!("<table><caption>{}</caption>\n{head}<tbody>\n{body}</tbody></table>", escape(caption)),
            )
        };
        let (shown, rest) = rows.split_at(if rows.len() > ROWS_SHOWN + 8 { ROWS_SHOWN } else { rows.len() });
        let mut html = table(caption, shown);
        if !rest.is_empty() {
            let more = table(&format!("{caption}, continued"), rest);
            html.push_str(&format!("<details><summary>{} more rows</summary>\n{more}</details>\n", rest.len()));
        }
        html
    }
}

/// True if a cell holds a number, with or without units, or a dash.
fn is_number(cell: &str) -> bool {
    let digits = cell.strip_prefix('-').unwrap_or(cell);
    let is_date = cell.as_bytes().get(4) == Some(&b'-');
    digits.is_empty() || (digits.starts_with(|c: char| c.is_ascii_digit()) && !is_date && cell.len() <= NUMBER_MAX)
}

/// Length above which a cell may break its lines.
const SENTENCE_MIN: usize = 30;
/// Characters of the longest number with its units: `59 min 59 s`, and more. Longer cells are
/// sentences that begin with a number.
const NUMBER_MAX: usize = 16;

/// Line colours are Okabe and Ito's, which colour-blind readers can tell apart, lighter on dark
/// paper.
pub(crate) const STYLE: &str = include_str!("style.css");

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: Vec<Vec<String>>) -> String {
        Table { caption: "c".into(), head: vec!["<b>".into(), "h".into()], rows }.to_html()
    }

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<a href=\"x\">&</a>"), "&lt;a href=&quot;x&quot;&gt;&amp;&lt;/a&gt;");
        let html = table(vec![vec!["<i>".into(), "<u>".into()]]);
        assert!(!html.contains("<b>") && !html.contains("<i>") && !html.contains("<u>"));
        assert!(paragraph("<p>").contains("&lt;p&gt;"));
    }

    #[test]
    fn columns_of_numbers_are_known_by_their_cells() {
        for (cell, expected) in [
            ("1.5", true),
            ("-3 ms", true),
            ("-", true),
            ("12,345", true),
            ("", true),
            ("2018-01-02 00:00 UTC", false),
            ("fast", false),
            ("52 of 52 weeks close on Friday", false),
        ] {
            assert_eq!(is_number(cell), expected, "{cell:?}");
        }
        assert!(table(vec![vec!["1".into(), "2".into()]]).contains("<td class=\"n\">2</td>"));
        assert!(table(vec![vec!["1".into(), "x".into()]]).contains("<td>x</td>"));
        assert!(table(vec![vec!["  x".into(), "1".into()]]).contains("<th scope=\"row\" class=\"sub\">x</th>"));
    }

    #[test]
    fn rows_beyond_a_screenful_are_folded_and_none_is_lost() {
        let rows = |count: usize| (0..count).map(|k| vec![format!("row{k}."), String::new()]).collect::<Vec<_>>();
        assert!(!table(rows(ROWS_SHOWN + 8)).contains("<details>"));
        let html = table(rows(100));
        assert!(html.contains("76 more rows"));
        assert!((0..100).all(|k| html.contains(&format!("row{k}."))));
    }
}
