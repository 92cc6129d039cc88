//! Rows and columns of text and numbers. It lays nothing out: that is for the terminal and the page to do.

use serde::{Deserialize, Serialize};

use super::number::number_text;
use crate::error::{Error, ErrorKind, Result};

/// Cells of a table at most.
const CELLS_MAX: usize = 1_000_000;

/// Rows below named columns.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// What it shows; may be empty where the section says it.
    #[serde(default)]
    pub title: String,
    /// The columns, in order.
    pub columns: Vec<Column>,
    /// The rows; each has a cell for each column.
    pub rows: Vec<Vec<Cell>>,
    /// Numbers of rows, from 0, that stand out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strong: Vec<usize>,
}

/// A column's name and how its cells are written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Its heading, with the unit of numbers.
    pub name: String,
    /// How its cells are written; text unless given.
    #[serde(default)]
    pub kind: Kind,
}

/// How the cells of a column are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Leaning to the left.
    #[default]
    Text,
    /// Leaning to the right, with so many digits behind the point.
    Number(usize),
}

/// One cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// Something that was not measured: a dash.
    #[default]
    Empty,
    /// A number, written as its column says; one that is none becomes a dash.
    Number(f64),
    /// Text, written as it is.
    Text(String),
}

impl Table {
    /// A table without rows.
    pub fn new(title: impl Into<String>, columns: impl IntoIterator<Item = Column>) -> Self {
        Self { title: title.into(), columns: columns.into_iter().collect(), ..Self::default() }
    }

    /// Adds a row.
    pub fn push(&mut self, row: impl IntoIterator<Item = Cell>) -> &mut Self {
        self.rows.push(row.into_iter().collect());
        self
    }

    /// Adds a row that stands out.
    pub fn push_strong(&mut self, row: impl IntoIterator<Item = Cell>) -> &mut Self {
        self.strong.push(self.rows.len());
        self.push(row)
    }

    /// The table as aligned plain text: a line of headings, a line a row.
    #[must_use]
    pub fn to_text(&self) -> String {
        super::text::table(self)
    }

    pub(super) fn check(&self) -> Result<()> {
        let wrong = |what: String| {
            Err(Error::new(ErrorKind::InvalidOption, format!("table '{}' {what}", self.title))
                .with_hint("give each row a cell for each column; an empty cell is null"))
        };
        if let Some(place) = self.rows.iter().position(|row| row.len() != self.columns.len()) {
            let (cells, columns) = (self.rows[place].len(), self.columns.len());
            return wrong(format!("has {cells} cells in row {place} and {columns} columns"));
        }
        if let Some(row) = self.strong.iter().find(|row| **row >= self.rows.len()) {
            return wrong(format!("lets row {row} stand out, and it has {}", self.rows.len()));
        }
        let cells = self.rows.len().saturating_mul(self.columns.len());
        if cells > CELLS_MAX {
            return Err(Error::new(ErrorKind::Limit, format!("a table of {cells} cells, more than {CELLS_MAX}")));
        }
        Ok(())
    }
}

impl Column {
    /// A column of text.
    pub fn text(name: impl Into<String>) -> Self {
        Self { name: name.into(), kind: Kind::Text }
    }

    /// A column of numbers with so many digits behind the point.
    pub fn number(name: impl Into<String>, digits: usize) -> Self {
        Self { name: name.into(), kind: Kind::Number(digits) }
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self.kind, Kind::Number(_))
    }
}

impl Cell {
    /// The cell as `column` writes it.
    pub(super) fn shown(&self, column: &Column) -> String {
        match (self, column.kind) {
            (Self::Empty, _) => "–".into(),
            (Self::Text(text), _) => text.clone(),
            (Self::Number(value), Kind::Number(digits)) => number_text(*value, digits),
            (Self::Number(value), Kind::Text) => super::number::short_text(*value),
        }
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

impl From<Option<f64>> for Cell {
    fn from(value: Option<f64>) -> Self {
        value.map_or(Self::Empty, Self::Number)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_another_width_is_refused() {
        let mut table = Table::new("Rates", [Column::text("a"), Column::number("b", 0)]);
        table.push(["x".into(), 1.0.into()]);
        table.check().unwrap();
        table.push(["x".into()]);
        assert!(table.check().unwrap_err().to_string().contains("table 'Rates' has 1 cells in row 1 and 2 columns"));
        table.rows.pop();
        table.strong.push(1);
        assert!(table.check().unwrap_err().to_string().contains("row 1"));
    }

    #[test]
    fn a_cell_is_written_as_its_column_says() {
        let check = |cell: Cell, column: Column, expected: &str| assert_eq!(cell.shown(&column), expected);
        check(1234.56.into(), Column::number("a", 1), "1,234.6");
        check(1234.56.into(), Column::text("a"), "1,235");
        check("as it is".into(), Column::number("a", 1), "as it is");
        check(None.into(), Column::number("a", 1), "–");
        check(f64::NAN.into(), Column::number("a", 1), "–");
    }
}
