//! Figure 3-4: four callbacks, two of them of one color, on two workers.
//!
//! Callbacks 1 and 2 have colors of their own, 3 and 4 have color zero; each takes one unit. First come, first
//! served, 1 and 2 run side by side, and then 3 and 4 one after the other. If color zero goes first, there is
//! always something to run beside it.

use dapple::Color;
use dapple::sim;
use dapple::task::Builder;
use dapple::time::Duration;

use crate::choice::Choice;
use crate::plot::{self, Ran};
use crate::report::Report;
use crate::{Bar, Scale};

const UNIT: Duration = Duration::from_millis(1);
const WORKERS: usize = 2;

/// The rows of the figure: as in the seed, and the new policies.
const DRAWN: [(&str, Choice); 3] = [
    ("without priorities (FirstLanes)", Choice::FIRST),
    ("with a priority for color zero (FirstLanes)", Choice::FIRST_WITH),
    ("without priorities (LongestLane)", Choice::LONGEST),
];

/// The callbacks of a run, with their workers and times in units.
fn schedule(choice: Choice, seed: u64) -> Vec<Ran> {
    let (_, trace) = choice.sim(seed, WORKERS).run_traced(async move {
        let zero = choice.color();
        let callbacks = [("1", Color::new()), ("2", Color::new()), ("3", zero.clone()), ("4", zero)];
        // All are in line before any can begin: this is one poll.
        let callbacks = callbacks
            .map(|(name, color)| Builder::new().name(name).color(&color).spawn(async { sim::work(UNIT) }));
        for callback in callbacks {
            callback.await.expect("it does not panic");
        }
    });
    let units = |time: Duration| time.as_secs_f64() / UNIT.as_secs_f64();
    let worked: Vec<_> = trace.polls().filter(|poll| poll.took >= UNIT).collect();
    let begun = worked.iter().map(|poll| poll.begun).min().expect("there are four");
    let ran = worked.iter().map(|poll| Ran {
        name: poll.task.to_owned(),
        color: poll.task.parse().ok().filter(|number| *number < 3).unwrap_or(0),
        worker: poll.worker.expect("it is no blocking call"),
        begun: units(poll.begun - begun),
        ended: units(poll.begun - begun + poll.took),
    });
    ran.collect()
}

/// The shortest and the longest time of the four callbacks, over `seeds` seeds.
fn units(choice: Choice, seeds: u64) -> (f64, f64) {
    let all = (0..seeds).map(|seed| schedule(choice, seed).iter().map(|ran| ran.ended).fold(0.0, f64::max));
    all.fold((f64::MAX, 0.0), |(least, most), units| (units.min(least), units.max(most)))
}

pub(crate) fn runs() -> u64 {
    Choice::ALL.len() as u64
}

pub(crate) fn run(scale: &Scale, bar: &Bar, report: &mut Report) {
    let mut table = String::from("| policy | units |\n|---|---|\n");
    for choice in Choice::ALL {
        bar.begin(format!("Figure 3-4, {}", choice.name()));
        let (least, most) = units(choice, scale.seeds);
        let span =
            if most - least < 0.01 { format!("{most:.2}") } else { format!("{least:.2} to {most:.2}") };
        table += &format!("| `{}` | {span} |\n", choice.name());
        report.line(&format!("figure 3-4: {} = {most:.2} units", choice.name()));
        bar.done();
    }
    let parts = DRAWN.map(|(title, choice)| (title.to_owned(), schedule(choice, 0)));
    report.file("figure-3-4.svg", plot::schedule(&parts, WORKERS));
    report.text("figure_3_4", table);
    report.text("seeds", scale.seeds.to_string());
}
