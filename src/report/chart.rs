//! A chart: series of points over two axes, with lines that mark values. It holds numbers and names; drawing is for
//! `svg`.

use serde::{Deserialize, Serialize};

use super::axis::{Axis, Scale};
use super::palette::COLORS;
use super::table::{Cell, Column, Table};
use crate::error::{Error, ErrorKind, Result};

/// Points of a chart at most, all series together.
const POINTS_MAX: usize = 100_000;

/// Series over two axes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// Points joined by lines, or bars; lines unless given.
    #[serde(default)]
    pub shape: Shape,
    /// From left to right.
    pub x: Axis,
    /// From bottom to top.
    pub y: Axis,
    /// What is drawn, at most eight: more cannot be told apart.
    pub series: Vec<Series>,
    /// Values that are marked by a line across the chart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
    /// How to read it; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub caption: String,
}

/// How series are drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Points joined by lines, in the order given.
    #[default]
    Lines,
    /// Bars beside each other over the names of the x axis.
    Bars,
}

/// A row of points with a name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The points, in the order in which they are joined.
    pub points: Vec<Point>,
}

/// A point, and how far its value is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Place on the x axis; on an axis of names the number of the name.
    pub x: f64,
    /// Place on the y axis; a value that has none (NaN, 0 on a logarithmic axis) leaves a gap.
    #[serde(default = "nothing", deserialize_with = "number_or_nothing")]
    pub y: f64,
    /// The low end of its spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// The high end of its spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
}

/// A value that is marked by a line across the chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// The axis that the value is on.
    pub axis: MarkAxis,
    /// The value; one outside of the axis widens it.
    pub value: f64,
    /// What the value is.
    pub label: String,
}

/// The axis of a marked value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkAxis {
    /// The line goes from bottom to top.
    X,
    /// The line goes from left to right.
    Y,
}

impl Chart {
    /// A chart of lines without any.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        let (series, marks) = (Vec::new(), Vec::new());
        Self { title: title.into(), shape: Shape::Lines, x, y, series, marks, caption: String::new() }
    }

    /// A chart of bars over `names` without any.
    pub fn bars(title: impl Into<String>, names: impl IntoIterator<Item = impl Into<String>>, y: Axis) -> Self {
        Self { shape: Shape::Bars, ..Self::new(title, Axis::names(names), y) }
    }

    /// The same with one series more.
    #[must_use]
    pub fn with(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// The same with a marked value.
    #[must_use]
    pub fn mark(mut self, mark: Mark) -> Self {
        self.marks.push(mark);
        self
    }

    /// The same with a sentence on how to read it.
    #[must_use]
    pub fn caption(mut self, caption: impl Into<String>) -> Self {
        self.caption = caption.into();
        self
    }

    /// The chart as an SVG document of its own, light and dark as the reader's system asks.
    #[must_use]
    pub fn to_svg(&self) -> String {
        super::svg::document(self)
    }

    /// All its numbers as a table: a row a point, spreads and marks included.
    #[must_use]
    pub fn numbers(&self) -> Table {
        let x = if self.x.label.is_empty() { "x" } else { &self.x.label };
        let y = if self.y.label.is_empty() { "y" } else { &self.y.label };
        let columns = ["series", x, y, "low", "high"].map(Column::text);
        let mut table = Table::new(self.title.clone(), columns);
        for column in &mut table.columns[1..] {
            column.kind = super::table::Kind::Number(0);
        }
        let short = |value: f64| match value.is_finite() {
            true => Cell::Text(super::number::short_text(value)),
            false => Cell::Empty,
        };
        let ranged = |value: Option<f64>| value.map_or(Cell::Empty, short);
        for series in &self.series {
            for point in &series.points {
                let place = match self.x.names.get(point.x.max(0.0) as usize) {
                    Some(name) if self.x.scale == Scale::Names => Cell::Text(name.clone()),
                    _ => short(point.x),
                };
                table.push([series.name.clone().into(), place, short(point.y), ranged(point.low), ranged(point.high)]);
            }
        }
        for mark in &self.marks {
            let (x, y) = match mark.axis {
                MarkAxis::X => (short(mark.value), Cell::Empty),
                MarkAxis::Y => (Cell::Empty, short(mark.value)),
            };
            table.push([mark.label.clone().into(), x, y, Cell::Empty, Cell::Empty]);
        }
        if self.series.iter().flat_map(|series| &series.points).all(|point| point.low.is_none() && point.high.is_none())
        {
            table.columns.truncate(3);
            table.rows.iter_mut().for_each(|row| row.truncate(3));
        }
        table
    }

    pub(super) fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::new(ErrorKind::InvalidOption, format!("chart '{}' {what}", self.title)));
        let is_bars = self.shape == Shape::Bars;
        if is_bars != (self.x.scale == Scale::Names) {
            return wrong("needs an x axis of names for bars, and of numbers for lines".into());
        }
        if self.y.scale == Scale::Names {
            return wrong("has names on its y axis".into());
        }
        if self.series.len() > COLORS.len() {
            return wrong(format!(
                "has {} series, and more than {} cannot be told apart",
                self.series.len(),
                COLORS.len()
            ));
        }
        let points: usize = self.series.iter().map(|series| series.points.len()).sum();
        if points > POINTS_MAX {
            return Err(Error::new(ErrorKind::Limit, format!("a chart of {points} points, more than {POINTS_MAX}")));
        }
        let numbers = self.series.iter().flat_map(|series| &series.points).map(|point| point.x);
        let odd = |x: &f64| match is_bars {
            true => !(x.fract() == 0.0 && *x >= 0.0 && *x < self.x.names.len() as f64),
            false => !x.is_finite(),
        };
        match numbers.into_iter().find(odd) {
            Some(x) => wrong(format!("has a point at x = {x}, which is not on its axis")),
            None => Ok(()),
        }
    }
}

impl Series {
    /// A series without points.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), points: Vec::new() }
    }

    /// Adds a point; its spread can be given at once.
    pub fn push(&mut self, x: f64, y: f64) -> &mut Point {
        self.points.push(Point { x, y, low: None, high: None });
        let last = self.points.len() - 1;
        &mut self.points[last]
    }
}

impl Point {
    /// Says how far the value is known.
    pub fn spread(&mut self, low: f64, high: f64) {
        (self.low, self.high) = (Some(low), Some(high));
    }
}

impl Mark {
    /// A value on the x axis.
    pub fn vertical(value: f64, label: impl Into<String>) -> Self {
        Self { axis: MarkAxis::X, value, label: label.into() }
    }

    /// A value on the y axis.
    pub fn horizontal(value: f64, label: impl Into<String>) -> Self {
        Self { axis: MarkAxis::Y, value, label: label.into() }
    }
}

fn nothing() -> f64 {
    f64::NAN
}

/// JSON has no word for NaN: `null` stands for it.
fn number_or_nothing<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(points: &[(f64, f64)]) -> Chart {
        let mut series = Series::new("a");
        for &(x, y) in points {
            series.push(x, y);
        }
        Chart::new("C", Axis::new("x"), Axis::new("y")).with(series)
    }

    #[test]
    fn a_chart_that_cannot_be_drawn_is_refused_by_name() {
        let check = |chart: Chart, part: &str| {
            let error = chart.check().unwrap_err().to_string();
            assert!(error.contains("chart 'C'") && error.contains(part), "{error}");
        };
        lines(&[(1.0, f64::NAN)]).check().unwrap();
        check(lines(&[(f64::NAN, 1.0)]), "x = NaN");
        check(Chart { shape: Shape::Bars, ..lines(&[]) }, "names for bars");
        let bars = |x| {
            let mut series = Series::new("a");
            series.push(x, 1.0);
            Chart::bars("C", ["one", "two"], Axis::new("y")).with(series)
        };
        bars(1.0).check().unwrap();
        check(bars(2.0), "x = 2");
        check(bars(0.5), "x = 0.5");
        check(bars(-1.0), "x = -1");
        check((0..9).fold(lines(&[]), |chart, _| chart.with(Series::new("b"))), "10 series");
    }

    #[test]
    fn its_numbers_are_a_table() {
        let mut chart = lines(&[(1.0, 1234.6), (2.0, f64::NAN)]).mark(Mark::horizontal(3.0, "goal"));
        let expected = "series  x      y\n\
                        a       1  1,235\n\
                        a       2      –\n\
                        goal    –      3";
        assert_eq!(chart.numbers().to_text(), expected);
        chart.series[0].points[0].spread(1000.0, 2000.0);
        assert!(chart.numbers().to_text().contains("1,000  2,000"));
    }

    #[test]
    fn a_gap_goes_through_json() {
        let json = serde_json::to_string(&lines(&[(1.0, f64::NAN)])).unwrap();
        let chart: Chart = serde_json::from_str(&json).unwrap();
        assert!(chart.series[0].points[0].y.is_nan());
    }
}
