//! Draws colors over workers in time: docs/guide/src/colors.svg, from a simulated run.
//!
//! You learn how to run a program in virtual time and read its trace: which worker ran which task, when, in which color.
//!
//! Run it: `cargo run -p examples --bin color_picture > docs/guide/src/colors.svg`. No second terminal is needed. A
//! simulation is the same on every machine, so the picture changes only if the program or the scheduler does;
//! `cargo test -p examples` compares the file with a run.

use std::fmt::Write;

use dapple::Color;
use dapple::sim::{self, Sim, Trace};
use dapple::time::{Duration, sleep};

const NAMES: [&str; 3] = ["bach", "verdi", "wagner"];
/// The palette of Okabe and Ito: distinguishable with the common kinds of color blindness.
const FILLS: [&str; 3] = ["#0072b2", "#e69f00", "#009e73"];
const WORKERS: usize = 2;
const TASKS: u64 = 2;
const STEPS: u64 = 3;

/// A customer: computes for some milliseconds, then waits, three times.
async fn customer(number: u64) {
    for step in 0..STEPS {
        sim::work(Duration::from_millis(2 + (number * 3 + step * 5) % 4));
        let _ = sleep(Duration::from_millis(1 + (number + step) % 3)).await;
    }
}

fn run() -> Trace {
    let program = async {
        let mut customers = Vec::new();
        for number in 0..TASKS * NAMES.len() as u64 {
            let color = Color::keyed(NAMES[number as usize % NAMES.len()]);
            let builder = dapple::task::Builder::new().color(&color);
            let name = NAMES[number as usize % NAMES.len()];
            customers.push(builder.name(name).spawn(customer(number)));
        }
        for customer in customers {
            customer.await.expect("a customer does not panic");
        }
    };
    Sim::new(1).workers(WORKERS).steady().run_traced(program).1
}

/// One poll, as it is drawn.
struct DrawnPoll {
    begun: f64,
    took: f64,
    worker: usize,
    color: usize,
}

fn blocks(trace: &Trace) -> Vec<DrawnPoll> {
    let block = |poll: sim::Poll<'_>| {
        let color = NAMES.iter().position(|name| *name == poll.task)?;
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let (begun, took) = (millis(poll.begun), millis(poll.took));
        (took > 0.1).then_some(DrawnPoll { begun, took, worker: poll.worker?, color })
    };
    trace.polls().filter_map(block).collect()
}

const LEFT: f64 = 90.0;
const WIDTH: f64 = 640.0;
const ROW: f64 = 30.0;
const GAP: f64 = 34.0;

fn draw(blocks: &[DrawnPoll]) -> String {
    let end = blocks.iter().map(|block| block.begun + block.took).fold(0.0, f64::max).ceil();
    let x = |time: f64| LEFT + WIDTH * time / end;
    let by_color = 34.0 + ROW * WORKERS as f64 + GAP;
    let axis = by_color + ROW * NAMES.len() as f64 + 8.0;
    let (width, height) = (LEFT + WIDTH + 20.0, axis + 40.0);
    let mut svg = String::new();
    let mut line = |text: String| writeln!(svg, "{text}").expect("a string takes it");
    line(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" font-family=\"sans-serif\" font-size=\"13\">"
    ));
    line("<title>Colors over workers in time</title>".to_owned());
    line(format!("<rect width=\"{width:.0}\" height=\"{height:.0}\" rx=\"6\" fill=\"#ffffff\"/>"));
    line(format!(
        "<text x=\"{LEFT}\" y=\"22\" font-weight=\"bold\">By worker: each runs whatever color has work</text>"
    ));
    let title = "By color: never two boxes at the same time (the letter is the worker)";
    line(format!("<text x=\"{LEFT}\" y=\"{:.0}\" font-weight=\"bold\">{title}</text>", by_color - 12.0));
    for worker in 0..WORKERS {
        let y = 34.0 + ROW * worker as f64 + 18.0;
        line(format!(
            "<text x=\"{:.0}\" y=\"{y:.0}\" text-anchor=\"end\">worker {}</text>",
            LEFT - 8.0,
            letter(worker)
        ));
    }
    for (color, name) in NAMES.iter().enumerate() {
        let y = by_color + ROW * color as f64 + 18.0;
        line(format!("<text x=\"{:.0}\" y=\"{y:.0}\" text-anchor=\"end\">{name}</text>", LEFT - 8.0));
    }
    for block in blocks {
        let (left, width, fill) = (x(block.begun), WIDTH * block.took / end, FILLS[block.color]);
        for (top, text) in [
            (34.0 + ROW * block.worker as f64, NAMES[block.color]),
            (by_color + ROW * block.color as f64, letter(block.worker)),
        ] {
            line(format!(
                "<rect x=\"{left:.1}\" y=\"{:.0}\" width=\"{width:.1}\" height=\"{:.0}\" rx=\"3\" fill=\"{fill}\" \
                 stroke=\"#ffffff\"/>",
                top + 1.0,
                ROW - 4.0
            ));
            let (middle, base) = (left + width / 2.0, top + 18.0);
            line(format!(
                "<text x=\"{middle:.1}\" y=\"{base:.0}\" fill=\"#ffffff\" font-size=\"11\" text-anchor=\"middle\">{text}</text>"
            ));
        }
    }
    line(format!("<path d=\"M{LEFT} {axis:.0}H{:.0}\" stroke=\"#444444\"/>", LEFT + WIDTH));
    for tick in (0..=end as u32).step_by(5) {
        let at = x(f64::from(tick));
        line(format!("<path d=\"M{at:.1} {axis:.0}v5\" stroke=\"#444444\"/>"));
        line(format!(
            "<text x=\"{at:.1}\" y=\"{:.0}\" font-size=\"11\" text-anchor=\"middle\">{tick} ms</text>",
            axis + 18.0
        ));
    }
    line("</svg>".to_owned());
    svg
}

fn letter(worker: usize) -> &'static str {
    ["A", "B"][worker % 2]
}

fn main() {
    print!("{}", draw(&blocks(&run())));
}
