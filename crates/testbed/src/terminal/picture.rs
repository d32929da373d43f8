//! A screen as an SVG: each run of cells that look the same is one text, as wide as its cells.

use std::fmt::Write as _;

use vt100::{Cell, Color, Screen};

/// Units: pixels.
const CELL: [usize; 2] = [8, 17];
const MARGIN: usize = 12;
/// From the top of a line to the foot of its letters.
const BASELINE: usize = 13;
const PAPER: &str = "#0d1117";
const INK: &str = "#d0d7de";
/// The first sixteen colours of xterm.
const NAMED: [&str; 16] = [
    "#000000", "#cd0000", "#00cd00", "#cdcd00", "#1e90ff", "#cd00cd", "#00cdcd", "#e5e5e5", "#7f7f7f", "#ff0000",
    "#00ff00", "#ffff00", "#5c9cff", "#ff00ff", "#00ffff", "#ffffff",
];

/// How a cell looks.
#[derive(Clone, PartialEq, Eq)]
struct Look {
    ink: String,
    paper: Option<String>,
    bold: bool,
}

/// Cells beside each other that look the same.
struct Run {
    column: usize,
    cells: usize,
    text: String,
    look: Look,
}

/// Draws a screen. `description` is for those who do not see it.
pub(super) fn drawn(screen: &Screen, description: &str) -> String {
    let (rows, columns) = screen.size();
    let (rows, columns) = (usize::from(rows.get()), usize::from(columns.get()));
    let (width, height) = (columns * CELL[0] + 2 * MARGIN, rows * CELL[1] + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n\
         <style>text {{ font: 13px ui-monospace, Menlo, Consolas, monospace; white-space: pre; }}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{PAPER}\"/>\n",
        escaped(description)
    );
    for row in 0..rows {
        for run in runs(screen, row, columns) {
            draw(&mut svg, row, &run);
        }
    }
    svg + "</svg>\n"
}

fn draw(svg: &mut String, row: usize, Run { column, cells, text, look }: &Run) {
    let (x, y, width) = (MARGIN + column * CELL[0], MARGIN + row * CELL[1], cells * CELL[0]);
    // Writing to a string has no way to fail.
    if let Some(paper) = &look.paper {
        let _ = writeln!(svg, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{}\" fill=\"{paper}\"/>", CELL[1]);
    }
    if text.trim().is_empty() {
        return;
    }
    let weight = if look.bold { " font-weight=\"bold\"" } else { "" };
    let (baseline, text) = (y + BASELINE, escaped(text));
    let _ = writeln!(
        svg,
        "<text x=\"{x}\" y=\"{baseline}\" textLength=\"{width}\" fill=\"{}\"{weight} xml:space=\"preserve\">{text}</text>",
        look.ink
    );
}

fn runs(screen: &Screen, row: usize, columns: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for column in 0..columns {
        let at = |index: usize| u16::try_from(index).ok();
        let Some(cell) = at(row).zip(at(column)).and_then(|(row, column)| screen.cell(row, column)) else { continue };
        if cell.is_wide_continuation() {
            runs.iter_mut().next_back().into_iter().for_each(|run| run.cells += 1);
            continue;
        }
        let look = look(cell);
        let text = if cell.has_contents() { cell.contents() } else { " " };
        match runs.last_mut().filter(|run| run.look == look) {
            Some(run) => {
                run.cells += 1;
                run.text.push_str(text);
            }
            None => runs.push(Run { column, cells: 1, text: text.to_owned(), look }),
        }
    }
    runs
}

fn look(cell: &Cell) -> Look {
    let (ink, paper) = (coloured(cell.fgcolor()), coloured(cell.bgcolor()));
    if cell.inverse() {
        let (ink, paper) = (paper.unwrap_or_else(|| PAPER.to_owned()), ink.unwrap_or_else(|| INK.to_owned()));
        return Look { ink, paper: Some(paper), bold: cell.bold() };
    }
    Look { ink: ink.unwrap_or_else(|| INK.to_owned()), paper, bold: cell.bold() }
}

/// `None` is the default.
fn coloured(color: Color) -> Option<String> {
    match color {
        Color::Default => None,
        Color::Rgb(red, green, blue) => Some(format!("#{red:02x}{green:02x}{blue:02x}")),
        Color::Idx(index) => Some(indexed(index)),
    }
}

/// xterm's 256 colours: sixteen, a cube of six to the third, and 24 greys.
fn indexed(index: u8) -> String {
    const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    if let Some(named) = NAMED.get(usize::from(index)) {
        return (*named).to_owned();
    }
    let Some(grey) = index.checked_sub(232) else {
        let place = usize::from(index) - NAMED.len();
        let [red, green, blue] = [place / 36, place / 6 % 6, place % 6].map(|level| LEVELS[level]);
        return format!("#{red:02x}{green:02x}{blue:02x}");
    };
    let level = 8 + 10 * grey;
    format!("#{level:02x}{level:02x}{level:02x}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_the_text_and_colours_of_its_screen() {
        let size = |size: u16| std::num::NonZeroU16::new(size).unwrap();
        let mut parser = vt100::Parser::new(size(1), size(9), 0);
        parser.process(b"a<\x1b[1;38;5;208mbc\x1b[0m \x1b[48;5;235md\x1b[0m\x1b[31;7me");
        let svg = drawn(parser.screen(), "\"x\"");
        for part in [
            "aria-label=\"&quot;x&quot;\"",
            "<text x=\"12\" y=\"25\" textLength=\"16\" fill=\"#d0d7de\" xml:space=\"preserve\">a&lt;</text>",
            "<text x=\"28\" y=\"25\" textLength=\"16\" fill=\"#ff8700\" font-weight=\"bold\" xml:space=\"preserve\">bc</text>",
            "<rect x=\"52\" y=\"12\" width=\"8\" height=\"17\" fill=\"#262626\"/>",
            "<rect x=\"60\" y=\"12\" width=\"8\" height=\"17\" fill=\"#cd0000\"/>",
            "fill=\"#0d1117\" xml:space=\"preserve\">e</text>",
        ] {
            assert!(svg.contains(part), "no {part} in {svg}");
        }
    }
}
