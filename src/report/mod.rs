//! Results for people: tables, charts and notes, as text for a terminal, as JSON, and as one HTML page that needs
//! nothing but itself.
//!
//! It knows numbers, not where they come from: whoever measured chooses titles, units and what stands beside what.
//!
//! ```
//! use brimful::report::{Axis, Chart, Column, Note, Page, Section, Series, Table};
//!
//! let mut rates = Series::new("pread");
//! rates.push(1.0, 480.0).spread(470.0, 495.0);
//! rates.push(2.0, 910.0);
//! let mut table = Table::new("Rates", [Column::text("method"), Column::number("MB/s", 0)]);
//! table.push(["pread".into(), 910.0.into()]);
//!
//! let mut page = Page::new("How fast is it?");
//! page.lead = "Two threads read 910 MB/s.".into();
//! let mut section = Section::new("Throughput");
//! section.push(Chart::new("Throughput", Axis::new("threads").log2(), Axis::new("MB/s")).with(rates));
//! section.push(table);
//! section.push(Note::warning("Two runs are few."));
//! page.push(section);
//! page.check()?;
//! assert!(page.to_html().starts_with("<!doctype html>"));
//! # Ok::<(), brimful::Error>(())
//! ```

mod number;
mod text;
mod table;
mod axis;
mod chart;
mod palette;
mod svg;
mod html;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

pub use axis::{Axis, Scale};
pub use chart::{Chart, Mark, MarkAxis, Point, Series, Shape};
pub use number::number_text;
pub use table::{Cell, Column, Kind, Table};

/// Parts of a page at most, its sections' parts counted together.
const BLOCKS_MAX: usize = 10_000;

/// A page: what was found, in sections.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Page {
    /// The heading, and the title of the window.
    pub title: String,
    /// The answer in one or two sentences.
    pub lead: String,
    /// What the numbers hold for, as names and values: machine, file system, version, command.
    pub facts: Vec<(String, String)>,
    /// The sections in reading order.
    pub sections: Vec<Section>,
}

/// A part of a page with a heading of its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Section {
    /// The heading.
    pub heading: String,
    /// What stands below it, in order.
    pub blocks: Vec<Block>,
}

/// What a section is made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// A paragraph of plain text.
    Text(String),
    /// A sentence that stands out.
    Note(Note),
    /// Rows and columns.
    Table(Table),
    /// A drawing of numbers.
    Chart(Chart),
}

/// A sentence that stands out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// How it stands out.
    pub level: Level,
    /// The sentence.
    pub text: String,
}

/// How a note stands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Something to know.
    Info,
    /// Something that is as it should be, or advice.
    Good,
    /// Something that makes numbers doubtful, or a fault.
    Warning,
}

impl Page {
    /// An empty page.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Adds what the numbers hold for.
    pub fn fact(&mut self, name: impl Into<String>, value: impl Into<String>) -> &mut Self {
        self.facts.push((name.into(), value.into()));
        self
    }

    /// Adds a section.
    pub fn push(&mut self, section: Section) -> &mut Self {
        self.sections.push(section);
        self
    }

    /// Reads a page from JSON, as [`to_json`](Self::to_json) writes it, and checks it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for what is no such JSON, and as [`check`](Self::check).
    pub fn from_json(json: &str) -> Result<Self> {
        let read = serde_json::from_str::<Self>(json);
        let page = read.map_err(|error| Error::new(ErrorKind::InvalidOption, format!("this is no page: {error}")))?;
        page.check()?;
        Ok(page)
    }

    /// The page as JSON. Numbers that JSON does not know (NaN, infinities) become `null`.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Nothing in a page can fail to be written: keys are text, and memory is the only limit.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Makes sure that every table has cells for its columns and every chart something to stand on.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] that names the table or chart and what is wrong with it; [`ErrorKind::Limit`] for
    /// more parts than anybody reads.
    pub fn check(&self) -> Result<()> {
        let blocks: usize = self.sections.iter().map(|section| section.blocks.len()).sum();
        if blocks > BLOCKS_MAX {
            let message = format!("a page of {blocks} parts, more than {BLOCKS_MAX}");
            return Err(Error::new(ErrorKind::Limit, message));
        }
        for block in self.sections.iter().flat_map(|section| &section.blocks) {
            match block {
                Block::Table(table) => table.check()?,
                Block::Chart(chart) => chart.check()?,
                Block::Text(_) | Block::Note(_) => {}
            }
        }
        Ok(())
    }

    /// The page as one HTML document: light and dark as the reader's system asks, for narrow and wide windows, without
    /// scripts and without anything from a network.
    #[must_use]
    pub fn to_html(&self) -> String {
        html::page(self)
    }

    /// The page as plain text for a terminal; charts become the tables of their numbers.
    #[must_use]
    pub fn to_text(&self) -> String {
        text::page(self)
    }
}

impl Section {
    /// An empty section.
    pub fn new(heading: impl Into<String>) -> Self {
        Self { heading: heading.into(), blocks: Vec::new() }
    }

    /// Adds a paragraph, note, table or chart.
    pub fn push(&mut self, block: impl Into<Block>) -> &mut Self {
        self.blocks.push(block.into());
        self
    }
}

impl Note {
    /// Something to know.
    pub fn info(text: impl Into<String>) -> Self {
        Self { level: Level::Info, text: text.into() }
    }

    /// Something that is as it should be, or advice.
    pub fn good(text: impl Into<String>) -> Self {
        Self { level: Level::Good, text: text.into() }
    }

    /// Something that makes numbers doubtful, or a fault.
    pub fn warning(text: impl Into<String>) -> Self {
        Self { level: Level::Warning, text: text.into() }
    }
}

impl From<&str> for Block {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Block {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Note> for Block {
    fn from(note: Note) -> Self {
        Self::Note(note)
    }
}

impl From<Table> for Block {
    fn from(table: Table) -> Self {
        Self::Table(table)
    }
}

impl From<Chart> for Block {
    fn from(chart: Chart) -> Self {
        Self::Chart(chart)
    }
}

#[cfg(test)]
pub(crate) mod example {
    use super::*;

    /// A page with one of each part, and text that would break out of a careless document.
    pub(crate) fn page() -> Page {
        let mut page = Page::new("Disk & <script>alert(1)</script>");
        page.lead = "Feeds 3 GPUs.".into();
        page.fact("file system", "ext4 \"quoted\"");
        let mut section = Section::new("Throughput");
        let mut read = Series::new("pread <b>");
        read.push(1.0, 480.0).spread(470.0, 495.0);
        read.push(2.0, 910.0);
        read.push(4.0, f64::NAN);
        let chart = Chart::new("Throughput", Axis::new("threads").log2(), Axis::new("MB/s")).with(read);
        section.push(chart.mark(Mark::horizontal(700.0, "one H100")));
        let mut cold = Series::new("cold");
        cold.push(0.0, 3.0);
        cold.push(1.0, 5.0);
        section.push(Chart::bars("Cold", ["mmap", "pread"], Axis::new("MB/s")).with(cold));
        let mut table = Table::new("Rates", [Column::text("method"), Column::number("MB/s", 1)]);
        table.push(["mmap".into(), 12345.678.into()]);
        table.push(["a | <i>".into(), Cell::Empty]);
        section.push(table);
        section.push(Note::warning("Runs & runs disagree."));
        section.push("A paragraph.");
        page.push(section);
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_through_json_and_comes_back() {
        let mut page = example::page();
        // JSON has no word for a number that is none.
        let Block::Chart(chart) = &mut page.sections[0].blocks[0] else { panic!() };
        chart.series[0].points.pop();
        page.check().unwrap();
        assert_eq!(Page::from_json(&page.to_json()).unwrap(), page);
        assert_eq!(Page::from_json("{}").unwrap(), Page::default());
    }

    #[test]
    fn what_is_no_page_is_refused_by_name() {
        let check = |json: &str, part: &str| {
            let error = Page::from_json(json).unwrap_err();
            assert!(error.to_string().contains(part), "{error} lacks {part}");
        };
        check("[", "no page");
        check(r#"{"titel": "x"}"#, "titel");
        let table = r#"{"title":"T","columns":[{"name":"a"}],"rows":[["x","y"]]}"#;
        check(&format!(r#"{{"sections":[{{"blocks":[{{"table":{table}}}]}}]}}"#), "table 'T'");
    }
}
