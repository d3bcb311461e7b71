//! Figures as SVG.

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use std::path::Path;

/// A figure: labels of its axes, and its lines.
pub(crate) struct Figure<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    /// Names and points.
    pub(crate) lines: Vec<(&'a str, Vec<(f64, f64)>)>,
    pub(crate) axes: Axes,
}

impl Figure<'_> {
    /// Returns whether lines begin higher than they end: then the legend is on the right.
    fn falls(&self) -> bool {
        let sides = |(_, points): &(&str, Vec<(f64, f64)>)| {
            let leftmost = points.iter().min_by(|a, b| a.0.total_cmp(&b.0));
            let rightmost = points.iter().max_by(|a, b| a.0.total_cmp(&b.0));
            leftmost.zip(rightmost).map_or(0.0, |(left, right)| left.1 - right.1)
        };
        self.lines.iter().map(sides).sum::<f64>() > 0.0
    }
}

/// Scales of the axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axes {
    /// Linear, from zero on.
    Linear,
    /// Logarithmic, so that a proportional relation has slope one.
    Logarithmic,
    /// Logarithmic x axis: for cumulative percentages of times.
    LogarithmicX,
}

/// Number of points of a line from which on they are not drawn as dots.
const DOTS_MAX: usize = 30;

const COLOURS: [RGBColor; 7] = [
    RGBColor(0x1f, 0x5f, 0xa8),
    RGBColor(0xc0, 0x5a, 0x1c),
    RGBColor(0x3c, 0x82, 0x46),
    BLACK,
    RGBColor(0x8a, 0x4f, 0x9e),
    RGBColor(0xa8, 0x8b, 0x1f),
    RGBColor(0x7a, 0x7a, 0x7a),
];

/// Draws it.
pub(crate) fn draw(figure: &Figure<'_>, path: &Path) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| anyhow!("draw {}: {error}", path.display());
    let all = || figure.lines.iter().flat_map(|(_, points)| points);
    let (x_max, y_max) =
        all().fold((f64::MIN_POSITIVE, 0.0_f64), |(x, y), p| (x.max(p.0), y.max(p.1)));
    let (x_min, y_min) = all().fold((f64::MAX, f64::MAX), |(x, y), p| (x.min(p.0), y.min(p.1)));
    let root = SVGBackend::new(path, (640, 400)).into_drawing_area();
    root.fill(&WHITE).map_err(|error| failed(&error))?;
    let mut builder = ChartBuilder::on(&root);
    builder.caption(figure.title, ("sans-serif", 18)).margin(12);
    builder.x_label_area_size(40).y_label_area_size(64);
    let place = match figure.axes {
        Axes::LogarithmicX => SeriesLabelPosition::LowerRight,
        Axes::Linear if figure.falls() => SeriesLabelPosition::UpperRight,
        Axes::Linear | Axes::Logarithmic => SeriesLabelPosition::UpperLeft,
    };
    macro_rules! lines {
        ($chart:expr) => {{
            let mut chart = $chart.map_err(|error| failed(&error))?;
            let mut mesh = chart.configure_mesh();
            mesh.x_desc(figure.x).y_desc(figure.y).light_line_style(WHITE.mix(0.0));
            mesh.draw().map_err(|error| failed(&error))?;
            for ((name, points), colour) in figure.lines.iter().zip(COLOURS) {
                let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2));
                let series = chart.draw_series(line).map_err(|error| failed(&error))?;
                series.label(*name).legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2))
                });
                let dots = points.iter().filter(|_| points.len() < DOTS_MAX);
                let dots = dots.map(|point| Circle::new(*point, 3, colour.filled()));
                chart.draw_series(dots).map_err(|error| failed(&error))?;
            }
            let mut labels = chart.configure_series_labels();
            labels
                .position(place.clone())
                .border_style(BLACK.mix(0.2))
                .background_style(WHITE.mix(0.8));
            labels.draw().map_err(|error| failed(&error))?;
        }};
    }
    match figure.axes {
        Axes::Logarithmic => {
            let x = (x_min..x_max * 1.2).log_scale();
            let y = (y_min * 0.8..y_max * 1.5).log_scale();
            lines!(builder.build_cartesian_2d(x, y));
        }
        Axes::LogarithmicX => {
            let x = (x_min..x_max * 1.2).log_scale();
            lines!(builder.build_cartesian_2d(x, 0.0..102.0));
        }
        Axes::Linear => {
            lines!(builder.build_cartesian_2d(0.0..x_max * 1.05, 0.0..y_max * 1.2));
        }
    }
    root.present().map_err(|error| failed(&error))
}
