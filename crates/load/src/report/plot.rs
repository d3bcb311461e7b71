//! Plot as an SVG without fonts, scripts or colours of its own.
//!
//! Both axes are drawn linearly; for a logarithmic one the values are transformed first, so that
//! ticks can be placed freely. The page replaces [`COLOURS`] by its own for light and dark
//! backgrounds.

use super::units;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::ops::Range;

/// Colours of the series, in order; the page has a class for each.
pub(crate) const COLOURS: [RGBColor; 4] = [
    RGBColor(0x1f, 0x5f, 0xa8),
    RGBColor(0xc0, 0x5a, 0x1c),
    RGBColor(0x3c, 0x82, 0x46),
    RGBColor(0x7a, 0x3e, 0x9d),
];
/// Colour of text and axes.
pub(crate) const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
/// Colour of grid lines.
pub(crate) const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);

const WIDTH: u32 = 560;
const HEIGHT: u32 = 300;

/// Unit of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Nanoseconds, displayed in a suitable unit.
    Time,
    /// Seconds since the start.
    Seconds,
    /// Fraction of one.
    Share,
    /// Number of things.
    Count,
    /// Bytes.
    Bytes,
}

/// Axis: name, unit, and whether it is logarithmic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis<'a> {
    pub(crate) name: &'a str,
    pub(crate) unit: Unit,
    pub(crate) logarithmic: bool,
}

/// Appearance of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Line.
    Line,
    /// Wide, pale line, so that another one over it is visible.
    Under,
    /// Dots.
    Dot,
}

/// Series.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) mark: Mark,
}

/// Plot.
#[derive(Clone, Debug)]
pub(crate) struct Plot<'a> {
    pub(crate) x: Axis<'a>,
    pub(crate) y: Axis<'a>,
    pub(crate) lines: Vec<Line>,
}

/// Displayed range of an axis and its ticks; in logarithms for a logarithmic axis.
struct Scale {
    from: f64,
    to: f64,
    marks: Vec<f64>,
    unit: Unit,
    logarithmic: bool,
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.from..self.to).map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.marks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Scale {
    /// Formats the label of a tick.
    fn format(drawn: &f64) -> String {
        drawn.to_string()
    }

    fn format_ext(&self, drawn: &f64) -> String {
        let value = if self.logarithmic { 10f64.powf(*drawn).round() } else { *drawn };
        match self.unit {
            Unit::Time => units::time(value),
            Unit::Bytes => units::bytes(value),
            Unit::Share => format!("{:.0} %", value * 100.0),
            Unit::Seconds => format!("{value:.3} s").replace(".000", ""),
            Unit::Count if value >= 1000.0 => units::count(value as u64),
            Unit::Count => units::digits(value),
        }
    }
}

impl Plot<'_> {
    /// Renders the plot as SVG.
    pub(crate) fn svg(&self) -> String {
        let mut svg = String::new();
        self.draw(&mut svg).expect("a string takes whatever is drawn on it");
        svg
    }

    fn draw(&self, svg: &mut String) -> Result<(), Box<dyn std::error::Error + '_>> {
        let (x, y) = (self.x.scale(self.values(|p| p.0)), self.y.scale(self.values(|p| p.1)));
        let root = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
        let font = ("sans-serif", 15).into_font().color(&INK);
        let mut chart = ChartBuilder::on(&root)
            .margin(6)
            .margin_right(22)
            .x_label_area_size(42)
            .y_label_area_size(68)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .x_desc(self.x.name)
            .y_desc(self.y.name)
            .axis_desc_style(font.clone())
            .label_style(font)
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .max_light_lines(0)
            .draw()?;
        for (line, colour) in self.lines.iter().zip(COLOURS) {
            let drawn = |point: &(f64, f64)| (self.x.drawn(point.0), self.y.drawn(point.1));
            let points = line.points.iter().map(drawn);
            match line.mark {
                Mark::Line => {
                    chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
                }
                Mark::Under => {
                    let pale = colour.mix(0.5).stroke_width(5);
                    chart.draw_series(LineSeries::new(points, pale))?;
                }
                Mark::Dot => {
                    chart
                        .draw_series(points.map(|point| Circle::new(point, 3, colour.filled())))?;
                }
            }
        }
        root.present()?;
        Ok(())
    }

    fn values(&self, of: fn(&(f64, f64)) -> f64) -> impl Iterator<Item = f64> {
        self.lines.iter().flat_map(|line| &line.points).map(of)
    }
}

impl Axis<'_> {
    /// Returns the position of a value on the axis.
    fn drawn(&self, value: f64) -> f64 {
        if self.logarithmic { value.max(1.0).log10() } else { value }
    }

    fn scale(&self, values: impl Iterator<Item = f64>) -> Scale {
        let (least, most) = values
            .map(|value| self.drawn(value))
            .fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
        let (least, most) = if least > most { (0.0, 1.0) } else { (least, most) };
        if self.logarithmic && self.unit == Unit::Bytes {
            return self.of_bytes(least, most);
        }
        if self.logarithmic {
            let (from, to) = (least.floor(), most.ceil().max(least.floor() + 1.0));
            let every = (((to - from) / 7.0).ceil() as usize).max(1);
            let marks = (from as i64..=to as i64).step_by(every).map(|mark| mark as f64);
            return self.scaled(from, to, marks.collect());
        }
        let to = match self.unit {
            Unit::Share => 1.0,
            Unit::Seconds => most.max(1e-3),
            Unit::Time | Unit::Count | Unit::Bytes => most.max(1.0) * 1.05,
        };
        let step = nice(to / 5.0);
        let marks = (0..=(to / step + 1e-9) as i64).map(|mark| mark as f64 * step);
        self.scaled(0.0, to, marks.collect())
    }

    /// Returns a logarithmic scale of bytes with ticks at 1, 1 KiB, 1 MiB, …, and between them if
    /// these are few.
    fn of_bytes(&self, least: f64, most: f64) -> Scale {
        let (from, to) = (least.floor(), most.ceil().max(least.floor() + 1.0));
        let every = if to - from > 7.0 { 10 } else { 5 };
        let marks = (0..=60).step_by(every).map(|power| f64::from(power) * 2f64.log10());
        self.scaled(from, to, marks.filter(|mark| (from..=to).contains(mark)).collect())
    }

    fn scaled(&self, from: f64, to: f64, marks: Vec<f64>) -> Scale {
        Scale { from, to, marks, unit: self.unit, logarithmic: self.logarithmic }
    }
}

/// Returns the next round number: 1, 2 or 5 with zeros.
fn nice(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    let step = steps.into_iter().find(|step| step * power >= value).unwrap_or(10.0);
    step * power
}
