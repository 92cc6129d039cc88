//! Pages and tables as plain text for a terminal. It draws no charts and uses no colours; control characters in names
//! are written out, so that no name can move a cursor.

use super::{Block, Level, Page, Table};

/// Blanks between two columns.
const GAP: &str = "  ";

/// A page as text, blocks apart by an empty line.
pub(super) fn page(page: &Page) -> String {
    let mut parts = vec![printable(&page.title)];
    if !page.lead.is_empty() {
        parts.push(printable(&page.lead));
    }
    let facts: Vec<String> = page.facts.iter().map(|(name, value)| printable(&format!("{name}: {value}"))).collect();
    if !facts.is_empty() {
        parts.push(facts.join("\n"));
    }
    for section in &page.sections {
        if !section.heading.is_empty() {
            parts.push(printable(&section.heading));
        }
        parts.extend(section.blocks.iter().map(block));
    }
    parts.join("\n\n") + "\n"
}

fn block(block: &Block) -> String {
    match block {
        Block::Text(text) => printable(text),
        Block::Note(note) => match note.level {
            Level::Warning => printable(&format!("warning: {}", note.text)),
            Level::Info | Level::Good => printable(&note.text),
        },
        Block::Table(found) => titled(found),
        Block::Chart(chart) => titled(&chart.numbers()),
    }
}

fn titled(found: &Table) -> String {
    match found.title.is_empty() {
        true => table(found),
        false => format!("{}\n{}", printable(&found.title), table(found)),
    }
}

/// Headings and rows, each column as wide as its widest cell, without a line break at the end.
pub(super) fn table(table: &Table) -> String {
    let headings = table.columns.iter().map(|column| printable(&column.name)).collect();
    let shown = table.rows.iter().map(|row| {
        table.columns.iter().zip(row).map(|(column, cell)| printable(&cell.shown(column))).collect::<Vec<_>>()
    });
    let lines: Vec<Vec<String>> = std::iter::once(headings).chain(shown).collect();
    let widths: Vec<usize> = (0..table.columns.len())
        .map(|place| lines.iter().filter_map(|line| line.get(place)).map(|cell| width(cell)).max().unwrap_or(0))
        .collect();
    let written: Vec<String> = lines
        .iter()
        .map(|line| {
            let cells = line.iter().zip(&widths).zip(&table.columns).map(|((cell, &wide), column)| {
                let blanks = " ".repeat(wide - width(cell).min(wide));
                if column.is_number() { format!("{blanks}{cell}") } else { format!("{cell}{blanks}") }
            });
            cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
        })
        .collect();
    written.join("\n")
}

/// Columns of a terminal that a text takes; wide characters are not told apart.
fn width(text: &str) -> usize {
    text.chars().count()
}

fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => printable.extend(character.escape_default()),
            false => printable.push(character),
        }
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::super::{Cell, Column, example};
    use super::*;

    #[test]
    fn numbers_lean_to_the_right_and_text_to_the_left() {
        let mut table = Table::new("", [Column::text("method"), Column::number("MB/s", 1), Column::text("cache")]);
        table.push(["mmap".into(), 12345.67.into(), "cold".into()]);
        table.push(["a\u{1b}[2J".into(), Cell::Empty, "".into()]);
        let expected = "method          MB/s  cache\n\
                        mmap        12,345.7  cold\n\
                        a\\u{1b}[2J         –";
        assert_eq!(table.to_text(), expected);
    }

    #[test]
    fn a_page_is_text_with_all_its_numbers() {
        let text = example::page().to_text();
        for part in ["Feeds 3 GPUs.", "warning: Runs & runs disagree.", "12,345.7", "910", "one H100", "pread"] {
            assert!(text.contains(part), "no '{part}' in {text}");
        }
        assert!(!text.contains('\t') && !text.contains("\n\n\n"));
    }
}
