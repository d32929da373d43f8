//! Plots as SVG, in the colours of the page's style sheet.

use std::fmt::Write as _;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 34.0;
/// How many colours the style sheet has.
const COLOURS: usize = 6;

/// One line of a plot.
pub(super) struct Line {
    pub(super) name: String,
    /// Shares of the width, 0 to 1, and values.
    pub(super) points: Vec<[f64; 2]>,
}

/// A mark on an axis.
pub(super) struct Tick {
    /// The share of the length, 0 to 1.
    pub(super) at: f64,
    pub(super) text: String,
}

/// How values are spread over the height.
#[derive(Clone, Copy)]
pub(super) enum Scale {
    Linear,
    /// By powers of ten, which are the marks.
    Log,
}

/// A plot with its legend, as XML.
pub(super) fn plot(title: &str, lines: &[Line], across: &[Tick], scale: Scale, unit: &str) -> String {
    let values = || lines.iter().flat_map(|line| &line.points).map(|[_, value]| *value);
    let axis = Axis::over(scale, values());
    let mut out = format!(
        "<figure><figcaption>{}</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
        escape(title),
        escape(title)
    );
    for tick in axis.ticks(unit) {
        let y = height(tick.at);
        let _infallible = writeln!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            escape(&tick.text)
        );
    }
    for tick in across {
        let x = width(tick.at);
        let _infallible = writeln!(
            out,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/><text x=\"{x:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{}</text>",
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 18.0,
            escape(&tick.text)
        );
    }
    for (index, line) in lines.iter().enumerate() {
        let points: Vec<String> = line
            .points
            .iter()
            .map(|[at, value]| format!("{:.1},{:.1}", width(*at), height(axis.share(*value))))
            .collect();
        let _infallible = writeln!(out, "<polyline class=\"c{}\" points=\"{}\"/>", index % COLOURS, points.join(" "));
    }
    out.push_str("</svg><p class=\"legend\">");
    for (index, line) in lines.iter().enumerate() {
        let _infallible = write!(out, "<span class=\"b{}\">{}</span> ", index % COLOURS, escape(&line.name));
    }
    out + "</p></figure>\n"
}

/// Text between tags and in attributes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

fn width(share: f64) -> f64 {
    LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
}

fn height(share: f64) -> f64 {
    HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - BOTTOM - TOP)
}

/// The vertical axis.
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Axis {
    fn over(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Self {
        let most = values.clone().fold(0.0, f64::max);
        match scale {
            Scale::Linear => Self { scale, low: 0.0, high: if most > 0.0 { most * 1.1 } else { 1.0 } },
            Scale::Log => {
                let least = values.filter(|value| *value > 0.0).fold(f64::MAX, f64::min).min(most.max(0.01));
                let low = least.max(0.001).log10().floor();
                Self { scale, low, high: most.max(0.001).log10().ceil().max(low + 1.0) }
            }
        }
    }

    fn share(&self, value: f64) -> f64 {
        let value = match self.scale {
            Scale::Linear => value,
            Scale::Log => value.max(0.001).log10(),
        };
        (value - self.low) / (self.high - self.low)
    }

    fn ticks(&self, unit: &str) -> Vec<Tick> {
        match self.scale {
            Scale::Linear => {
                let tick = |quarter: u32| {
                    let at = f64::from(quarter) / 4.0;
                    Tick { at, text: format!("{:.0} {unit}", self.high * at) }
                };
                (0..=4).map(tick).collect()
            }
            Scale::Log => {
                let powers = self.low as i32..=self.high as i32;
                powers
                    .map(|power| {
                        let value = 10_f64.powi(power);
                        Tick { at: self.share(value), text: format!("{value} {unit}") }
                    })
                    .collect()
            }
        }
    }
}
