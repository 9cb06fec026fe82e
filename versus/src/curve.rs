//! Medians of a case whose variants are numbers, as a curve for each side: in an SVG written by hand.
//!
//! `fifo/0`, `fifo/100`, ... are points of one drawing, and so are those of any case that has at least three
//! such variants. Where they span more than two powers of ten the axis is logarithmic. Cost goes up, from 0.

use std::fmt::Write;

use crate::contest::Outcome;
use crate::plot::{color, text};
use crate::stats::Summary;

/// How many points make a curve.
const POINTS: usize = 3;

/// The axes.
const LEFT: f64 = 90.0;
const RIGHT: f64 = 640.0;
const HEIGHT: f64 = 240.0;
/// Room for the title and the numbers below.
const MARGIN: f64 = 40.0;

/// How much room a drawing takes.
pub(crate) const ROOM: usize = (HEIGHT + 2.0 * MARGIN) as usize;

/// The outcomes of one case, with the descriptions of its variants.
pub(crate) struct Curve<'a> {
    case: &'a str,
    points: Vec<(f64, &'a Outcome)>,
}

/// All curves that there are in some outcomes.
pub(crate) fn curves(outcomes: &[Outcome]) -> Vec<Curve<'_>> {
    let mut curves: Vec<Curve<'_>> = Vec::new();
    for outcome in outcomes {
        let Some((case, variant)) = outcome.name.split_once('/') else { continue };
        let Ok(x) = variant.parse() else { continue };
        match curves.iter_mut().find(|curve| curve.case == case) {
            Some(curve) => curve.points.push((x, outcome)),
            None => curves.push(Curve { case, points: vec![(x, outcome)] }),
        }
    }
    curves.retain(|curve| curve.points.len() >= POINTS);
    curves
}

impl Curve<'_> {
    /// Draws it, by the first metric, below a line.
    pub(crate) fn draw(&self, svg: &mut String, top: usize) {
        let (_, first) = self.points[0];
        let most = self.values().fold(0.0, f64::max);
        let (above, bottom) = (top as f64 + MARGIN, top as f64 + MARGIN + HEIGHT);
        text(
            svg,
            10,
            top + 20,
            &format!("{}: {} {}", self.case, first.metrics[0].name, first.metrics[0].unit),
        );
        let _ =
            writeln!(svg, "<path d=\"M{LEFT} {above} V{bottom} H{RIGHT}\" fill=\"none\" stroke=\"black\"/>");
        text(svg, 10, above as usize + 5, &format!("{most:.1}"));
        text(svg, 10, bottom as usize, "0");
        for &(x, _) in &self.points {
            text(svg, (LEFT + self.place(x)) as usize, bottom as usize + 16, &x.to_string());
        }
        for (index, score) in first.scores.iter().enumerate() {
            let mut path = String::new();
            let mut end = bottom;
            for &(x, outcome) in &self.points {
                // A side need not be in all of them.
                let Some(score) = outcome.scores.iter().find(|other| other.side == score.side) else {
                    continue;
                };
                let cost = Summary::of(&score.values(0)).median;
                if !cost.is_finite() {
                    continue; // a side that has got nothing done
                }
                let command = if path.is_empty() { 'M' } else { 'L' };
                end = bottom - HEIGHT * cost / most;
                let _ = write!(path, "{command}{:.1} {end:.1} ", LEFT + self.place(x));
            }
            let color = color(score.side);
            let dashes = if index == 0 { "none" } else { "6 2" };
            let _ = writeln!(
                svg,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>"
            );
            text(svg, RIGHT as usize + 8, end as usize + 4, score.side);
        }
    }

    /// The medians of all sides.
    fn values(&self) -> impl Iterator<Item = f64> {
        let scores = self.points.iter().flat_map(|(_, outcome)| &outcome.scores);
        scores.map(|score| Summary::of(&score.values(0)).median).filter(|cost| cost.is_finite())
    }

    /// How far to the right a variant is.
    fn place(&self, x: f64) -> f64 {
        let (least, most) = (self.points[0].0, self.points[self.points.len() - 1].0);
        let share = if least > 0.0 && most / least > 100.0 {
            (x / least).ln() / (most / least).ln()
        } else {
            (x - least) / (most - least)
        };
        share * (RIGHT - LEFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contest::{Role, Score, TIMES};

    fn outcome(name: &'static str, sides: &[(&'static str, f64)]) -> Outcome {
        let score = |&(side, cost)| Score { side, role: Role::Rival, rounds: vec![vec![cost, cost]] };
        Outcome { name, about: "", metrics: TIMES, scores: sides.iter().map(score).collect() }
    }

    #[test]
    fn variants_that_are_numbers_make_a_curve() {
        let outcomes: Vec<Outcome> = ["a/0", "b/1", "a/50", "c", "a/100", "b/2", "d/x"]
            .map(|name| outcome(name, &[("tokio", 1.0)]))
            .into();
        let curves = curves(&outcomes);
        assert_eq!(curves.iter().map(|curve| curve.case).collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn points_are_where_they_belong() {
        let outcomes = [("a/0", 50.0), ("a/50", 100.0), ("a/100", 25.0)]
            .map(|(name, cost)| outcome(name, &[("tokio", cost)]));
        let mut svg = String::new();
        curves(&outcomes)[0].draw(&mut svg, 0);
        assert!(svg.contains("M90.0 160.0 L365.0 40.0 L640.0 220.0"), "{svg}");
    }

    #[test]
    fn a_side_that_got_nothing_done_has_no_point() {
        let outcomes = [("a/0", 50.0), ("a/50", f64::INFINITY), ("a/100", 100.0)]
            .map(|(name, cost)| outcome(name, &[("tokio", cost)]));
        let mut svg = String::new();
        curves(&outcomes)[0].draw(&mut svg, 0);
        assert!(svg.contains("M90.0 160.0 L640.0 40.0"), "{svg}");
    }

    #[test]
    fn many_powers_of_ten_are_a_logarithmic_axis() {
        let outcomes = ["a/1", "a/100", "a/10000"].map(|name| outcome(name, &[("tokio", 1.0)]));
        assert_eq!(curves(&outcomes)[0].place(100.0), (RIGHT - LEFT) / 2.0);
    }
}
