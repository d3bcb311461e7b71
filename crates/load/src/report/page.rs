//! Self-contained HTML page: no script, no font, no other file.

use super::plot::{COLOURS, GRID, INK, Plot};
use std::fmt::Write;

/// Escapes external text.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

/// Table; the first column labels the rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these column heads.
    pub(crate) fn new<const N: usize>(head: [&str; N]) -> Table {
        Table { head: head.map(str::to_owned).to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }

    fn html(&self) -> String {
        let cells = |tag: &str, cells: &[String]| {
            let cell = |(index, cell): (usize, &String)| {
                let tag = if index == 0 { "th" } else { tag };
                format!("<{tag}>{}</{tag}>", escape(cell))
            };
            cells.iter().enumerate().map(cell).collect::<String>()
        };
        let rows: String =
            self.rows.iter().map(|row| format!("<tr>{}</tr>\n", cells("td", row))).collect();
        let head = cells("th", &self.head);
        format!("<div class=scroll><table>\n<tr>{head}</tr>\n{rows}</table></div>\n")
    }
}

/// Page under construction.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    title: String,
    body: String,
}

impl Page {
    /// Creates an empty page.
    pub(crate) fn new(title: &str) -> Page {
        let title = escape(title);
        Page { body: format!("<h1>{title}</h1>\n"), title }
    }

    /// Adds the verdict: a word, whether it is good, and sentences with a mark each.
    pub(crate) fn verdict<'a>(
        &mut self,
        word: &str,
        good: bool,
        sentences: impl Iterator<Item = (bool, &'a str)>,
    ) {
        let class = if good { "good" } else { "bad" };
        let sentences = sentences.map(|(holds, sentence)| {
            let (mark, class) = if holds { ("✓", "holds") } else { ("✗", "broken") };
            format!("<li class={class}><b>{mark}</b> {}</li>\n", escape(sentence))
        });
        let sentences: String = sentences.collect();
        let word = escape(word);
        self.put(&format!(
            "<section class=\"verdict {class}\"><h2>{word}</h2>\n<ul>{sentences}</ul></section>\n"
        ));
    }

    /// Adds a paragraph.
    pub(crate) fn paragraph(&mut self, text: &str) {
        self.put(&format!("<p>{}</p>\n", escape(text)));
    }

    /// Adds a table with a headline.
    pub(crate) fn table(&mut self, headline: &str, table: &Table) {
        self.put(&format!("<h2>{}</h2>\n{}", escape(headline), table.html()));
    }

    /// Opens a group of plots, which stand side by side where there is room.
    pub(crate) fn begin_plots(&mut self) {
        self.put("<div class=plots>\n");
    }

    /// Closes a group of plots.
    pub(crate) fn end_plots(&mut self) {
        self.put("</div>\n");
    }

    /// Adds a plot with its headline, legend and table.
    pub(crate) fn plot(&mut self, headline: &str, plot: &Plot<'_>, table: Option<&Table>) {
        let name = |(index, line): (usize, &super::Line)| {
            format!("<span class=s{index}>{}</span> ", escape(&line.name))
        };
        let names: String = plot.lines.iter().enumerate().map(name).collect();
        let headline = escape(headline);
        let label = format!("<svg role=\"img\" aria-label=\"{headline}\" ");
        let svg = plot.svg().replacen("<svg ", &label, 1);
        let table = table.map(Table::html).unwrap_or_default();
        self.put(&format!(
            "<figure><figcaption>{headline}</figcaption>\n<p class=names>{names}</p>\n{svg}\
             {table}</figure>\n"
        ));
    }

    /// Returns the whole page.
    pub(crate) fn html(&self) -> String {
        let Page { title, body } = self;
        let (light, dark) = (colours(LIGHT), colours(DARK));
        format!(
            "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n\
             <meta name=viewport content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n:root{{{light}}}\n\
             @media (prefers-color-scheme: dark){{:root{{{dark}}}}}\n{STYLE}{}</style>\n</head>\n\
             <body>\n{body}</body>\n</html>\n",
            replacements()
        )
    }

    fn put(&mut self, html: &str) {
        self.body.push_str(html);
    }
}

/// Background, text, grid, good, bad, and the series.
const LIGHT: [&str; 9] = [
    "#ffffff", "#1c1c1c", "#dddddd", "#e3f2e5", "#fbe3e0", "#1f5fa8", "#c05a1c", "#3c8246",
    "#7a3e9d",
];
const DARK: [&str; 9] = [
    "#15181c", "#e4e4e4", "#3a3f46", "#1c3a22", "#4a1f1c", "#6fa8e8", "#f09a5c", "#7cc487",
    "#c08fe0",
];

fn colours(colours: [&str; 9]) -> String {
    let names = ["ground", "ink", "grid", "good", "bad", "s0", "s1", "s2", "s3"];
    names.iter().zip(colours).fold(String::new(), |mut all, (name, colour)| {
        write!(all, "--{name}:{colour};").expect("a string takes whatever is written to it");
        all
    })
}

/// Returns the CSS rules that replace the plots' fixed colours by those of the page.
fn replacements() -> String {
    let fixed = [INK, GRID].into_iter().chain(COLOURS);
    let rule = |(colour, name): (plotters::style::RGBColor, &str)| {
        let hex = format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2);
        format!(
            "svg [fill=\"{hex}\"]{{fill:var(--{name})}}\n\
             svg [stroke=\"{hex}\"]{{stroke:var(--{name})}}\n"
        )
    };
    fixed.zip(["ink", "grid", "s0", "s1", "s2", "s3"]).map(rule).collect()
}

const STYLE: &str = "\
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--ground);\
max-width:1200px;margin:0 auto;padding:12px}
h1{font-size:1.4em}
h2{font-size:1.1em;margin:1.2em 0 .4em}
.verdict{border-radius:8px;padding:4px 16px}
.verdict h2{font-size:1.5em;margin:.3em 0}
.verdict ul{list-style:none;padding:0}
.good{background:var(--good)}
.bad{background:var(--bad)}
.broken{font-weight:600}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));\
gap:16px;margin-top:16px}
figure{margin:0;border:1px solid var(--grid);border-radius:8px;padding:10px;min-width:0}
figcaption{font-weight:600}
.names{margin:.2em 0}
.names span::before{content:\"\";display:inline-block;width:1.2em;height:.25em;\
margin:0 .4em .25em 0;background:var(--c)}
.names span{margin-right:1em;display:inline-block}
.s0{--c:var(--s0)}
.s1{--c:var(--s1)}
.s2{--c:var(--s2)}
.s3{--c:var(--s3)}
svg{width:100%;height:auto}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.92em}
th,td{padding:2px 10px;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}
th:first-child{text-align:left}
";
