//! The medians as bars, in an SVG written by hand.
//!
//! One group per contest, one bar per side, shorter is better. Each group has
//! its own scale, since a wake costs a hundred yields. Cases whose variants are
//! numbers get a curve, too ([`crate::curve`]).

use std::fmt::Write;

use crate::contest::{Outcome, Score};
use crate::curve;
use crate::stats::Summary;

/// Height of a line: a bar or a title.
const LINE: usize = 20;
const WIDTH: usize = 760;
/// Where the bars begin.
const LEFT: usize = 110;
/// How long the longest bar is.
const LONGEST: f64 = 540.0;

/// Draws all contests, by their first metric.
pub(crate) fn svg(outcomes: &[Outcome]) -> String {
    let lines: usize = outcomes.iter().map(|o| o.scores.len() + 2).sum();
    let curves = curve::curves(outcomes);
    let height = lines * LINE + LINE + curves.len() * curve::ROOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    let mut top = LINE;
    for outcome in outcomes {
        group(&mut svg, outcome, top);
        top += (outcome.scores.len() + 2) * LINE;
    }
    for curve in curves {
        curve.draw(&mut svg, top);
        top += curve::ROOM;
    }
    svg.push_str("</svg>\n");
    svg
}

/// A title and a bar for each side.
fn group(svg: &mut String, outcome: &Outcome, top: usize) {
    let median = |score: &Score| Summary::of(&score.values(0)).median;
    let costs = outcome.scores.iter().map(median).filter(|cost| cost.is_finite());
    let longest = costs.fold(0.0, f64::max);
    let title = format!("{}: {}", outcome.name, outcome.about);
    text(svg, 10, top, &title);
    let unit = outcome.metrics[0].unit;
    for (index, score) in outcome.scores.iter().enumerate() {
        let line = top + (index + 1) * LINE;
        let cost = median(score);
        if !cost.is_finite() {
            continue; // it is in this contest for another metric, or has got nothing done
        }
        let length = LONGEST * cost / longest;
        let y = line - LINE + 7;
        let (height, color) = (LINE - 4, color(score.side));
        text(svg, 20, line, score.side);
        let _ = writeln!(
            svg,
            "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{length:.1}\" height=\"{height}\" \
             fill=\"{color}\"/>"
        );
        let end = LEFT + length as usize + 6;
        text(svg, end, line, &format!("{cost:.1} {unit}"));
    }
}

pub(crate) fn text(svg: &mut String, x: usize, y: usize, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\">{text}</text>");
}

pub(crate) fn color(side: &str) -> &'static str {
    match side {
        "dapple" => "#c0392b",
        "tokio" => "#2c6fad",
        "smol" => "#4c9a5b",
        "threads" | "pool" => "#8e6bb0",
        _ => "#aaaaaa",
    }
}
