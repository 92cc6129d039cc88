//! A page as one HTML document. It loads nothing, runs nothing, and treats all text of the page as text.

use std::fmt::Write;

use super::chart::Chart;
use super::svg::{self, Width};
use super::table::{Cell, Table};
use super::{Block, Level, Page, palette};

/// Charts beside each other where a window is wide, below each other where it is not; a chart's drawing is chosen by
/// the room it has.
const STYLE: &str = "*{box-sizing:border-box}\
    body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.5 system-ui,sans-serif}\
    main{max-width:1560px;margin:0 auto;padding:24px clamp(12px,3vw,40px) 48px}\
    h1{font-size:1.6rem;line-height:1.25;margin:0 0 8px}h2{font-size:1.2rem;margin:36px 0 12px}\
    h3{font-size:1rem;margin:0 0 4px}.lead{font-size:1.1rem;max-width:75ch;margin:0 0 16px}\
    p{max-width:75ch;margin:0 0 12px}\
    dl{display:grid;grid-template-columns:minmax(6em,max-content) 1fr;gap:2px 16px;margin:0 0 8px;font-size:.9rem}\
    dt{color:var(--quiet)}dd{margin:0;overflow-wrap:anywhere}\
    .grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,540px),1fr));gap:16px;align-items:start}\
    .grid>p,.grid>.note,.grid>.whole{grid-column:1/-1}\
    .card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:14px 16px;min-width:0;\
    container-type:inline-size}\
    .card svg{display:block;width:100%;height:auto}.card svg.wide{display:none;max-width:860px}\
    @container (min-width:520px){.card svg.wide{display:block}.card svg.narrow{display:none}}\
    .caption,summary{color:var(--quiet);font-size:.88rem}.caption{margin:6px 0 0}details{margin-top:8px}\
    summary{cursor:pointer}.scroll{overflow-x:auto}\
    table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;width:max-content;min-width:100%}\
    td{max-width:24em}\
    th,td{padding:5px 14px 5px 0;text-align:left;border-bottom:1px solid var(--grid);vertical-align:top}\
    th{color:var(--quiet);font-weight:600;border-color:var(--line)}.number{text-align:right;white-space:nowrap}\
    tr.strong{font-weight:650}\
    .note{border-left:4px solid var(--info);background:var(--info-ground);border-radius:4px;padding:8px 12px;margin:0}\
    .note.good{border-color:var(--good);background:var(--good-ground)}\
    .note.warning{border-color:var(--warn);background:var(--warn-ground)}\
    .note b{margin-right:.4em}.note.warning b{color:var(--warn)}";

/// Tables with more columns than this get the whole width of a page.
const COLUMNS_BESIDE: usize = 5;

/// The whole document.
pub(super) fn page(page: &Page) -> String {
    let mut out = String::with_capacity(64 << 10);
    let title = escape(&page.title);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>{title}</title>\n\
         <style>{}{STYLE}{}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n",
        palette::properties(),
        svg::STYLE
    );
    if !page.lead.is_empty() {
        let _ = writeln!(out, "<p class=\"lead\">{}</p>", escape(&page.lead));
    }
    if !page.facts.is_empty() {
        out.push_str("<dl>");
        for (name, value) in &page.facts {
            let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
        }
        out.push_str("</dl>\n");
    }
    for section in &page.sections {
        out.push_str("<section>\n");
        if !section.heading.is_empty() {
            let _ = writeln!(out, "<h2>{}</h2>", escape(&section.heading));
        }
        out.push_str("<div class=\"grid\">\n");
        section.blocks.iter().for_each(|found| block(found, &mut out));
        out.push_str("</div>\n</section>\n");
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn block(block: &Block, out: &mut String) {
    let _ = match block {
        Block::Text(text) => writeln!(out, "<p>{}</p>", escape(text)),
        Block::Note(note) => {
            let (class, word) = match note.level {
                Level::Info => ("", ""),
                Level::Good => (" good", ""),
                Level::Warning => (" warning", "<b>Warning</b>"),
            };
            writeln!(out, "<p class=\"note{class}\">{word}{}</p>", escape(&note.text))
        }
        Block::Table(found) => {
            let class = if found.columns.len() > COLUMNS_BESIDE { "card whole" } else { "card" };
            let _ = write!(out, "<div class=\"{class}\">");
            heading(&found.title, out);
            table(found, out);
            writeln!(out, "</div>")
        }
        Block::Chart(found) => {
            chart(found, out);
            Ok(())
        }
    };
}

fn chart(chart: &Chart, out: &mut String) {
    out.push_str("<div class=\"card\">");
    heading(&chart.title, out);
    out.push_str(&svg::drawing(chart, Width::Narrow, "narrow"));
    out.push_str(&svg::drawing(chart, Width::Wide, "wide"));
    if !chart.caption.is_empty() {
        let _ = write!(out, "<p class=\"caption\">{}</p>", escape(&chart.caption));
    }
    out.push_str("<details><summary>Numbers</summary>");
    table(&chart.numbers(), out);
    out.push_str("</details></div>\n");
}

fn heading(title: &str, out: &mut String) {
    if !title.is_empty() {
        let _ = write!(out, "<h3>{}</h3>", escape(title));
    }
}

fn table(table: &Table, out: &mut String) {
    let class = |is_number: bool| if is_number { " class=\"number\"" } else { "" };
    out.push_str("<div class=\"scroll\"><table><thead><tr>");
    for column in &table.columns {
        let _ = write!(out, "<th scope=\"col\"{}>{}</th>", class(column.is_number()), escape(&column.name));
    }
    out.push_str("</tr></thead><tbody>");
    for (number, row) in table.rows.iter().enumerate() {
        out.push_str(if table.strong.contains(&number) { "<tr class=\"strong\">" } else { "<tr>" });
        for (cell, column) in row.iter().zip(&table.columns) {
            let is_number = column.is_number() && !matches!(cell, Cell::Text(text) if text.contains(' '));
            let _ = write!(out, "<td{}>{}</td>", class(is_number), escape(&cell.shown(column)));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
}

/// Text as HTML and SVG write it, in elements and in attributes with double quotes. Characters that neither may hold
/// are left out.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + text.len() / 8);
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(' '),
            '\u{fffe}' | '\u{ffff}' => {}
            character if character.is_control() => {}
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;
    use proptest::prelude::*;

    /// Names of the elements that are open at each place of a document, checked to be closed in order.
    fn check_nesting(html: &str) {
        let mut open: Vec<&str> = Vec::new();
        for part in html.split('<').skip(1) {
            let (tag, _) = part.split_once('>').expect("a tag ends");
            let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
            match name {
                "!doctype" | "meta" => {}
                _ if tag.ends_with('/') => {}
                _ if tag.starts_with('/') => assert_eq!(open.pop(), Some(name)),
                _ => open.push(name),
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn a_page_is_closed_and_fetches_nothing() {
        let html = example::page().to_html();
        check_nesting(&html);
        for banned in ["http:", "https:", "url(", "src=", "href", "@import", "<script", "<link", "<i>", "<img"] {
            assert!(!html.contains(banned), "{banned}");
        }
        for part in ["&lt;script&gt;", "prefers-color-scheme:dark", "Feeds 3 GPUs.", "12,345.7", "one H100", "viewport"]
        {
            assert!(html.contains(part), "{part}");
        }
        assert_eq!(html.matches("<svg").count(), 4);
    }

    proptest! {
        #[test]
        fn no_text_breaks_out_of_the_document(text in "\\PC{0,40}|[<>&\"'a/\u{0}\n]{0,40}") {
            let mut page = example::page();
            page.title.clone_from(&text);
            page.facts.push((text.clone(), text.clone()));
            page.sections[0].push(text.as_str());
            if let Block::Chart(chart) = &mut page.sections[0].blocks[1] {
                chart.x.names[0].clone_from(&text);
                chart.series[0].name.clone_from(&text);
                chart.caption = text;
            }
            check_nesting(&page.to_html());
        }
    }
}
