//! Curves and schedules, in an SVG written by hand.
//!
//! A [`Chart`] has a panel for each setting; the number of workers is on the x axis, each twice as many as the
//! one before at the same distance. A [`schedule`] has a row for each worker and a box for each callback.

use std::fmt::Write;

const FONT: &str = "font-family=\"sans-serif\" font-size=\"13\"";
/// Told apart also by those who do not see all colors.
const PALETTE: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// One drawing, of panels side by side.
pub(crate) struct Chart {
    pub(crate) x_label: &'static str,
    pub(crate) y_label: &'static str,
    /// Whether y has the scale of x, where a speed-up that is as good as it can be is a straight line.
    pub(crate) is_log: bool,
    pub(crate) panels: Vec<Panel>,
}

/// Curves with a title.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) curves: Vec<Curve>,
}

/// A name, and a line through points.
#[derive(Clone)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) points: Vec<(f64, f64)>,
}

/// How a curve is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Results, with a mark for each point.
    Found,
    /// An upper bound: a line without marks.
    Bound,
    /// Measurements of others: marks without a line.
    Reported,
}

/// Where a panel's axes are, in pixels, and how a value becomes one.
struct Frame {
    left: f64,
    x_most: f64,
    y_most: f64,
    is_log: bool,
}

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 300.0;
const TOP: f64 = 40.0;
/// Room for the numbers and the label of the y axis.
const MARGIN: f64 = 60.0;
/// The height of a line in the legend.
const LINE: f64 = 20.0;

impl Frame {
    fn x(&self, value: f64) -> f64 {
        self.left + WIDTH * value.log2() / self.x_most.log2()
    }

    fn y(&self, value: f64) -> f64 {
        let part = if self.is_log { value.max(1.0).log2() / self.y_most.log2() } else { value / self.y_most };
        TOP + HEIGHT * (1.0 - part)
    }

    fn y_ticks(&self) -> Vec<f64> {
        if self.is_log {
            return (0..).map(|power| 2.0_f64.powi(power)).take_while(|tick| *tick <= self.y_most).collect();
        }
        let step = [0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0];
        let step = step.into_iter().find(|step| self.y_most / step <= 8.0).unwrap_or(self.y_most / 8.0);
        (0..=8).map(|count| f64::from(count) * step).take_while(|tick| *tick <= self.y_most).collect()
    }
}

impl Chart {
    pub(crate) fn svg(&self) -> String {
        let most = |value: fn(&(f64, f64)) -> f64| {
            let curves = self.panels.iter().flat_map(|panel| &panel.curves);
            curves.flat_map(|curve| &curve.points).map(value).fold(1.0, f64::max)
        };
        let (x_most, y_most) = (most(|point| point.0).max(2.0), most(|point| point.1));
        let y_most = if self.is_log { y_most.max(2.0) } else { y_most * 1.1 };
        let names = self.panels.iter().map(|panel| panel.curves.len()).max().unwrap_or(0);
        let width = (WIDTH + MARGIN) * self.panels.len() as f64 + MARGIN / 2.0;
        let height = TOP + HEIGHT + 55.0 + LINE * names as f64;
        let mut svg = begin(width, height);
        for (index, panel) in self.panels.iter().enumerate() {
            let left = MARGIN + (WIDTH + MARGIN) * index as f64;
            self.panel(&mut svg, panel, &Frame { left, x_most, y_most, is_log: self.is_log });
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn panel(&self, svg: &mut String, panel: &Panel, frame: &Frame) {
        let (left, bottom) = (frame.left, TOP + HEIGHT);
        text(svg, left, TOP - 14.0, "start", &panel.title);
        for tick in frame.y_ticks() {
            let y = frame.y(tick);
            line(svg, (left, y), (left + WIDTH, y), "#dddddd");
            text(svg, left - 6.0, y + 4.0, "end", &tick.to_string());
        }
        for tick in (0..).map(|power| f64::from(1_u32 << power)).take_while(|tick| *tick <= frame.x_most) {
            let x = frame.x(tick);
            line(svg, (x, bottom), (x, bottom + 5.0), "black");
            text(svg, x, bottom + 19.0, "middle", &tick.to_string());
        }
        line(svg, (left, bottom), (left + WIDTH, bottom), "black");
        text(svg, left + WIDTH / 2.0, bottom + 36.0, "middle", self.x_label);
        let (x, y) = (left - 38.0, TOP + HEIGHT / 2.0);
        let label = escaped(self.y_label);
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 {x:.1} {y:.1})\">{label}</text>"
        );
        let all_found = panel.curves.iter().filter(|curve| curve.kind == Kind::Found).count();
        let mut found = 0;
        for (index, curve) in panel.curves.iter().enumerate() {
            let color = match curve.kind {
                Kind::Found => PALETTE[found % PALETTE.len()],
                Kind::Bound | Kind::Reported => "black",
            };
            found += usize::from(curve.kind == Kind::Found);
            // Those drawn later are thinner: where they are the same, all can be seen.
            let width = if curve.kind == Kind::Found { 2.0 * (all_found - found) as f64 + 2.0 } else { 1.5 };
            let points: Vec<_> = curve.points.iter().map(|(x, y)| (frame.x(*x), frame.y(*y))).collect();
            draw(svg, &points, curve.kind, color, width);
            // The legend, under the axis.
            let y = bottom + 55.0 + LINE * index as f64;
            draw(svg, &[(left, y), (left + 14.0, y), (left + 28.0, y)], curve.kind, color, width);
            text(svg, left + 40.0, y + 4.0, "start", &curve.name);
        }
    }
}

fn draw(svg: &mut String, points: &[(f64, f64)], kind: Kind, color: &str, width: f64) {
    if kind != Kind::Reported {
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let dashes = if kind == Kind::Bound { " stroke-dasharray=\"6 4\"" } else { "" };
        let path = path.join(" ");
        let _ = writeln!(
            svg,
            "<polyline points=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\"{dashes}/>"
        );
    }
    if kind == Kind::Bound {
        return;
    }
    for (x, y) in points {
        let radius = if kind == Kind::Reported { 6.0 } else { 1.5 + width / 2.0 };
        let fill = if kind == Kind::Reported { "none" } else { color };
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\" stroke=\"{color}\" stroke-width=\"1.5\"/>"
        );
    }
}

/// One callback in a [`schedule`]: its worker, its start and its end, in units.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ran {
    pub(crate) name: String,
    pub(crate) color: usize,
    pub(crate) worker: usize,
    pub(crate) begun: f64,
    pub(crate) ended: f64,
}

/// Draws schedules: for each title, a row per worker with its callbacks.
pub(crate) fn schedule(parts: &[(String, Vec<Ran>)], workers: usize) -> String {
    const UNIT: f64 = 110.0;
    const ROW: f64 = 36.0;
    let part_height = ROW * workers as f64 + 66.0;
    let units = parts.iter().flat_map(|(_, ran)| ran).map(|ran| ran.ended).fold(1.0, f64::max);
    let units = (units - 0.01).ceil(); // what a poll itself takes is not a unit
    let width = 1.5 * MARGIN + (UNIT * units).max(WIDTH);
    let mut svg = begin(width, part_height * parts.len() as f64);
    for (index, (title, ran)) in parts.iter().enumerate() {
        let top = part_height * index as f64 + 32.0;
        let bottom = top + ROW * workers as f64;
        text(&mut svg, 10.0, top - 10.0, "start", title);
        for unit in 0..=units as usize {
            let x = MARGIN * 1.2 + UNIT * unit as f64;
            line(&mut svg, (x, top), (x, bottom + 4.0), "#bbbbbb");
            text(&mut svg, x, bottom + 18.0, "middle", &unit.to_string());
        }
        for worker in 0..workers {
            text(&mut svg, 10.0, top + ROW * (worker as f64 + 0.6), "start", &format!("worker {worker}"));
        }
        for Ran { name, color, worker, begun, ended } in ran {
            let (x, y) = (MARGIN * 1.2 + UNIT * begun, top + ROW * *worker as f64 + 3.0);
            let (width, height, fill) = (UNIT * (ended - begun), ROW - 6.0, PALETTE[color % PALETTE.len()]);
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{fill}\" \
                 fill-opacity=\"0.45\" stroke=\"black\"/>"
            );
            text(&mut svg, x + width / 2.0, y + height / 2.0 + 5.0, "middle", name);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn begin(width: f64, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" {FONT}>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    )
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), color: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        svg,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{color}\"/>"
    );
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = escaped(text);
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
