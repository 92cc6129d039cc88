//! A chart as SVG. Colours come from custom properties, so that one drawing serves light and dark; text keeps its size
//! because a chart is drawn once for narrow and once for wide places instead of being shrunk.

use std::fmt::Write;

use super::axis::{Ruler, Scale};
use super::chart::{Chart, MarkAxis, Point, Shape};
use super::html::escape;
use super::number::short_text;
use super::palette;

/// Size of all text in pixels, and what a character of it takes on average.
const FONT: f64 = 13.0;
const CHARACTER: f64 = 7.6;

/// Distance of neighbouring lines of text.
const LINE: f64 = 18.0;

/// Longest name of an axis that is written out; the rest is in its tooltip.
const NAME_CHARACTERS: usize = 22;

/// How wide a drawing is, and so how high.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// For a telephone: 360 pixels.
    Narrow,
    /// For a window: 720 pixels.
    Wide,
}

impl Width {
    fn pixels(self) -> f64 {
        match self {
            Self::Narrow => 360.0,
            Self::Wide => 720.0,
        }
    }

    fn plot_height(self) -> f64 {
        match self {
            Self::Narrow => 210.0,
            Self::Wide => 280.0,
        }
    }
}

/// What drawings need of a style sheet beside the custom properties.
pub(super) const STYLE: &str = "svg{font:13px/1.3 system-ui,sans-serif;font-variant-numeric:tabular-nums}\
    svg text{fill:var(--quiet)}svg .name{fill:var(--ink)}svg .grid{stroke:var(--grid)}svg .axis{stroke:var(--line)}\
    svg .mark{stroke:var(--quiet);stroke-dasharray:5 4}svg .line{fill:none;stroke-width:2;stroke-linejoin:round}\
    svg .spread{stroke-width:1.5;opacity:.65}\
    svg .halo{paint-order:stroke;stroke:var(--card);stroke-width:4px;stroke-linejoin:round}";

/// What bars on a scale of tenfold steps stand on, which has no zero: a power of ten that is half the least value or less,
/// so that every bar can be seen.
fn ground_of_bars(chart: &Chart) -> Option<f64> {
    let values = chart.series.iter().flat_map(|series| &series.points).map(|point| point.y);
    let least = values.filter(|value| value.is_normal() && *value > 0.0).reduce(f64::min)?;
    let stands = chart.shape == Shape::Bars && chart.y.scale == Scale::Log10;
    stands.then(|| 10_f64.powf((least / 2.0).log10().floor()))
}

/// A document that stands alone.
pub(super) fn document(chart: &Chart) -> String {
    let drawing = drawing(chart, Width::Wide, "");
    let style = format!("<style>{}{STYLE}svg{{background:var(--card)}}</style>", palette::properties());
    match drawing.split_once('>') {
        Some((head, rest)) => format!("{head} xmlns=\"http://www.w3.org/2000/svg\">{style}{rest}"),
        None => drawing,
    }
}

/// A drawing to be put into a page that has the style; `class` may be empty.
pub(super) fn drawing(chart: &Chart, width: Width, class: &str) -> String {
    Drawing::new(chart, width).draw(class)
}

/// A drawing under way: the places of its parts, and what is drawn so far.
struct Drawing<'a> {
    chart: &'a Chart,
    width: f64,
    x: Ruler,
    y: Ruler,
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
    names_turned: bool,
    out: String,
}

impl<'a> Drawing<'a> {
    fn new(chart: &'a Chart, width: Width) -> Self {
        let points = || chart.series.iter().flat_map(|series| &series.points);
        let marks = |axis| chart.marks.iter().filter(move |mark| mark.axis == axis).map(|mark| mark.value);
        let x = chart.x.over(points().map(|point| point.x).chain(marks(MarkAxis::X)));
        let spread = |point: &Point| [Some(point.y), point.low, point.high].into_iter().flatten();
        let y = chart.y.over(points().flat_map(spread).chain(marks(MarkAxis::Y)).chain(ground_of_bars(chart)));
        let widest = y.ticks().iter().map(|(_, text)| text_width(text)).fold(0.0, f64::max);
        let (left, right) = (widest + 14.0, width.pixels() - 14.0);
        let longest = chart.x.names.iter().map(|name| text_width(&shortened(name))).fold(0.0, f64::max);
        let slot = (right - left) / chart.x.names.len().max(1) as f64;
        let mut drawing = Self {
            chart,
            width: width.pixels(),
            x,
            y,
            left,
            top: 0.0,
            right,
            bottom: 0.0,
            names_turned: longest + 8.0 > slot,
            out: String::new(),
        };
        drawing.top = drawing.legend() + if chart.y.label.is_empty() { 10.0 } else { LINE + 12.0 };
        drawing.bottom = drawing.top + width.plot_height();
        drawing
    }

    fn draw(mut self, class: &str) -> String {
        self.axes();
        self.marks();
        match self.chart.shape {
            Shape::Lines => self.lines(),
            Shape::Bars => self.bars(),
        }
        let height = self.height();
        let label = escape(&self.chart.title);
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let (width, body) = (self.width, self.out);
        format!("<svg{class} viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{label}\">{body}</svg>")
    }

    fn height(&self) -> f64 {
        let longest = self.chart.x.names.iter().map(|name| text_width(&shortened(name))).fold(0.0, f64::max);
        let below = if self.names_turned { 16.0 + longest * 0.6 } else { 24.0 };
        let label = if self.chart.x.label.is_empty() { 4.0 } else { LINE };
        self.bottom + below + label
    }

    /// Draws the names of the series, in as many lines as they need; returns where they end.
    fn legend(&mut self) -> f64 {
        let (mut x, mut y) = (4.0, 6.0);
        if self.chart.series.len() < 2 && self.chart.series.iter().all(|series| series.name.is_empty()) {
            return 0.0;
        }
        for (number, series) in self.chart.series.iter().enumerate() {
            let wide = 26.0 + text_width(&series.name);
            if x > 4.0 && x + wide > self.width - 4.0 {
                (x, y) = (4.0, y + LINE);
            }
            let middle = y + LINE / 2.0;
            if self.chart.shape == Shape::Bars {
                let _ = write!(
                    self.out,
                    "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" rx=\"2\" fill=\"var(--s{number})\"/>",
                    middle - 6.0
                );
            } else {
                let marker = marker(number, x + 7.0, middle);
                let _ = write!(self.out, "<g fill=\"var(--s{number})\">{marker}</g>");
            }
            let name = escape(&series.name);
            let _ =
                write!(self.out, "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\">{name}</text>", x + 18.0, middle + 4.5);
            x += wide + 10.0;
        }
        y + LINE
    }

    fn axes(&mut self) {
        let Self { left, top, right, bottom, .. } = *self;
        for (value, text) in self.y.ticks() {
            let Some(y) = self.y_at(value) else { continue };
            let class = if (y - bottom).abs() < 0.5 { "axis" } else { "grid" };
            let _ = write!(
                self.out,
                "<line class=\"{class}\" x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 6.0,
                y + 4.5,
                escape(&text)
            );
        }
        let _ = write!(
            self.out,
            "<line class=\"axis\" x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{bottom:.1}\" y2=\"{bottom:.1}\"/>"
        );
        if !self.chart.y.label.is_empty() {
            let _ = write!(self.out, "<text x=\"4\" y=\"{:.1}\">{}</text>", top - 13.0, escape(&self.chart.y.label));
        }
        if self.chart.x.scale == Scale::Names {
            self.names()
        } else {
            self.numbers()
        }
        if !self.chart.x.label.is_empty() {
            let (x, y) = ((left + right) / 2.0, self.height() - 5.0);
            let label = escape(&self.chart.x.label);
            let _ = write!(self.out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{label}</text>");
        }
    }

    /// Numbers below the x axis, as many as have room.
    fn numbers(&mut self) {
        let mut free_from = f64::NEG_INFINITY;
        for (value, text) in self.x.ticks() {
            let Some(x) = self.x_at(value) else { continue };
            let half = text_width(&text) / 2.0;
            let bottom = self.bottom;
            let _ = write!(
                self.out,
                "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom:.1}\" y2=\"{:.1}\"/>",
                bottom + 4.0
            );
            // The last ones end at the edge of the drawing.
            let middle = x.min(self.width - half - 1.0);
            if middle - half < free_from {
                continue;
            }
            free_from = middle + half + 8.0;
            let _ = write!(
                self.out,
                "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 18.0,
                escape(&text)
            );
        }
    }

    fn names(&mut self) {
        for (number, name) in self.chart.x.names.iter().enumerate() {
            let Some(x) = self.x_at(number as f64) else { continue };
            let shown = escape(&shortened(name));
            let y = self.bottom + if self.names_turned { 14.0 } else { 18.0 };
            let place = match self.names_turned {
                true => format!("transform=\"translate({x:.1} {y:.1}) rotate(-35)\" text-anchor=\"end\""),
                false => format!("x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\""),
            };
            let _ = write!(self.out, "<text class=\"name\" {place}>{shown}<title>{}</title></text>", escape(name));
        }
    }

    fn marks(&mut self) {
        let Self { left, top, right, bottom, .. } = *self;
        let mut horizontal = Vec::new();
        for mark in &self.chart.marks {
            match mark.axis {
                MarkAxis::Y => horizontal.extend(self.y_at(mark.value).map(|y| (y, &mark.label))),
                MarkAxis::X => {
                    let Some(x) = self.x_at(mark.value) else { continue };
                    let is_left = x < (left + right) / 2.0;
                    let (anchor, text_x) = if is_left { ("start", x + 6.0) } else { ("end", x - 6.0) };
                    let _ = write!(
                        self.out,
                        "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"/>\
                         <text class=\"halo\" x=\"{text_x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
                        top + 12.0,
                        escape(&mark.label)
                    );
                }
            }
        }
        horizontal.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut free_above = f64::INFINITY;
        for (y, label) in horizontal {
            // From the lowest up, so that labels of close lines stand above each other.
            let text_y = (y - 5.0).min(free_above);
            free_above = text_y - 15.0;
            let _ = write!(
                self.out,
                "<line class=\"mark\" x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"halo\" x=\"{:.1}\" y=\"{text_y:.1}\" text-anchor=\"end\">{}</text>",
                right - 2.0,
                escape(label)
            );
        }
    }

    fn lines(&mut self) {
        for (number, series) in self.chart.series.iter().enumerate() {
            let places: Vec<Option<(f64, f64)>> =
                series.points.iter().map(|point| Some((self.x_at(point.x)?, self.y_at(point.y)?))).collect();
            let _ = write!(self.out, "<g fill=\"var(--s{number})\" stroke=\"var(--s{number})\">");
            for run in places.split(Option::is_none).filter(|run| run.len() > 1) {
                let path: Vec<String> = run.iter().flatten().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
                let _ = write!(self.out, "<polyline class=\"line\" points=\"{}\"/>", path.join(" "));
            }
            for (point, place) in series.points.iter().zip(&places) {
                let Some((x, y)) = *place else { continue };
                self.spread(point, x);
                let told = format!("{}: {} at {}", series.name, value_text(point), short_text(point.x));
                let shape = marker(number, x, y);
                let _ = write!(self.out, "<g stroke=\"none\"><title>{}</title>{shape}</g>", escape(&told));
            }
            self.out.push_str("</g>");
        }
    }

    fn bars(&mut self) {
        let count = self.chart.series.len().max(1) as f64;
        let slot = (self.right - self.left) / self.chart.x.names.len().max(1) as f64;
        let wide = (slot * 0.76 / count).min(56.0);
        let base = self.y_at(0.0).unwrap_or(self.bottom);
        for (number, series) in self.chart.series.iter().enumerate() {
            let _ = write!(self.out, "<g fill=\"var(--s{number})\" stroke=\"var(--s{number})\">");
            for point in &series.points {
                let (Some(middle), Some(y)) = (self.x_at(point.x), self.y_at(point.y)) else { continue };
                let x = middle + wide * (number as f64 - count / 2.0);
                let (upper, lower) = (y.min(base), y.max(base));
                let name = self.chart.x.names.get(point.x as usize).map_or("", String::as_str);
                let told = format!("{}, {name}: {}", series.name, value_text(point));
                let _ = write!(
                    self.out,
                    "<rect stroke=\"none\" x=\"{:.1}\" y=\"{upper:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\">\
                     <title>{}</title></rect>",
                    x + 0.5,
                    (wide - 1.0).max(1.0),
                    (lower - upper).max(1.0),
                    escape(&told)
                );
                self.spread(point, x + wide / 2.0);
                let value = short_text(point.y);
                if text_width(&value) <= wide + 2.0 {
                    let top = point.high.and_then(|high| self.y_at(high)).unwrap_or(upper).min(upper);
                    let _ = write!(
                        self.out,
                        "<text class=\"halo\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{value}</text>",
                        x + wide / 2.0,
                        top - 5.0
                    );
                }
            }
            self.out.push_str("</g>");
        }
    }

    fn spread(&mut self, point: &Point, x: f64) {
        let (Some(low), Some(high)) = (point.low, point.high) else { return };
        let (Some(low), Some(high)) = (self.y_at(low), self.y_at(high)) else { return };
        let _ = write!(
            self.out,
            "<path class=\"spread\" style=\"stroke:var(--ink)\" fill=\"none\" d=\"M{:.1} {low:.1}h8m-4 0V{high:.1}m-4 0h8\"/>",
            x - 4.0
        );
    }

    fn x_at(&self, value: f64) -> Option<f64> {
        self.x.at(value).map(|share| self.left + share * (self.right - self.left))
    }

    fn y_at(&self, value: f64) -> Option<f64> {
        self.y.at(value).map(|share| self.bottom - share * (self.bottom - self.top))
    }
}

/// The shape of a series' points, so that colours are not all that tells series apart.
fn marker(number: usize, x: f64, y: f64) -> String {
    match number % 4 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"),
        1 => format!("<rect x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\"/>", x - 4.0, y - 4.0),
        2 => format!("<path d=\"M{x:.1} {:.1}l5 9h-10z\"/>", y - 5.5),
        _ => format!("<path d=\"M{x:.1} {:.1}l5 5l-5 5l-5-5z\"/>", y - 5.0),
    }
}

fn value_text(point: &Point) -> String {
    match (point.low, point.high) {
        (Some(low), Some(high)) => format!("{} ({} to {})", short_text(point.y), short_text(low), short_text(high)),
        _ => short_text(point.y),
    }
}

fn shortened(name: &str) -> String {
    match name.chars().count() <= NAME_CHARACTERS {
        true => name.to_owned(),
        false => name.chars().take(NAME_CHARACTERS - 1).chain(['…']).collect(),
    }
}

fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER * FONT / 13.0
}

#[cfg(test)]
mod tests {
    use super::super::axis::Axis;
    use super::super::chart::{Mark, Series};
    use super::*;

    fn sweep(axis: Axis, values: &[(f64, f64)]) -> Chart {
        let mut series = Series::new("a");
        values.iter().for_each(|&(x, y)| {
            series.push(x, y);
        });
        Chart::new("T", axis, Axis::new("MB/s")).with(series)
    }

    #[test]
    fn a_gap_parts_the_line() {
        let chart = sweep(Axis::new("x"), &[(1.0, 1.0), (2.0, 2.0), (3.0, f64::NAN), (4.0, 1.0), (5.0, 2.0)]);
        let svg = drawing(&chart, Width::Wide, "");
        assert_eq!((svg.matches("<polyline").count(), svg.matches("<title>").count()), (2, 4));
    }

    #[test]
    fn no_number_leaves_the_drawing() {
        let values = [(0.0, 0.0), (1e300, 1e300), (-1e300, f64::INFINITY), (f64::MAX, f64::MIN), (3.0, -7.0)];
        for axis in [Axis::new("x"), Axis::new("x").log2(), Axis::new("x").log10()] {
            for width in [Width::Narrow, Width::Wide] {
                let mut chart = sweep(axis.clone(), &values).mark(Mark::horizontal(f64::NAN, "none"));
                chart.series[0].points[4].spread(f64::NAN, 1e9);
                let svg = drawing(&chart, width, "wide");
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }

    #[test]
    fn the_least_bar_on_a_logarithmic_scale_can_be_seen() {
        let height = |least: f64| {
            let mut series = Series::new("cold");
            series.push(0.0, least);
            series.push(1.0, 45_000.0);
            let chart = Chart::bars("T", ["a", "b"], Axis::new("MB/s").log10()).with(series);
            let svg = drawing(&chart, Width::Wide, "");
            let bar = svg.split("<rect stroke=\"none\"").nth(1).unwrap();
            bar.split("height=\"").nth(1).unwrap().split('"').next().unwrap().parse::<f64>().unwrap()
        };
        for least in [541.0, 999.0, 1000.0, 1001.0] {
            assert!(height(least) > 20.0, "{least}: {}", height(least));
        }
    }

    #[test]
    fn a_document_stands_alone() {
        let svg = sweep(Axis::new("x"), &[(1.0, 1.0)]).to_svg();
        assert!(svg.starts_with("<svg viewBox=") && svg.ends_with("</svg>"));
        assert_eq!(svg.matches("xmlns").count(), 1);
        assert!(svg.contains("prefers-color-scheme"));
    }

    #[test]
    fn the_same_chart_is_drawn_the_same() {
        let chart = sweep(Axis::new("threads").log2(), &[(1.0, 100.0), (2.0, 190.0), (4.0, 200.0)]);
        assert_eq!(chart.to_svg(), chart.to_svg());
        // The last and highest point lies in the upper right corner of the plot.
        assert!(chart.to_svg().contains("<circle cx=\"706.0\" cy=\"54.0\""), "{}", chart.to_svg());
    }
}
