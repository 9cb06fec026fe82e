//! Six colors at work, live: they share two workers or more, and no lock guards their state.
//!
//! You learn how colors share the workers, and that no update is lost.
//!
//! Run it: `cargo run --release -p examples --bin colors`. It ends by itself after three seconds; no second terminal is
//! needed.
//!
//! Each line is a tenth of a second. A column is a color: its letter is the thread that ran it when the line was drawn,
//! the bar is how much it got done. In the end every count must be right: a lost update would show that two runnables of
//! one color had overlapped.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dapple::{Color, ColorCell};

const COLORS: usize = 6;
const TASKS: usize = 100;
const SECONDS: u64 = 3;

/// The data of one color: plain, no lock, no atomics.
#[derive(Default)]
struct Ledger {
    entries: u64,
    thread: String,
}

/// Makes entries in the ledger of its color until told to stop; says how many it made.
async fn clerk(ledger: Arc<ColorCell<Ledger>>, end: Instant) -> u64 {
    let mut made = 0;
    while Instant::now() < end {
        for _ in 0..100 {
            ledger.with(|ledger| ledger.entries += 1);
            made += 1;
            dapple::task::yield_now().await; // another clerk of this color has its turn
        }
        ledger.with(|ledger| {
            ledger.thread.clear();
            ledger.thread.push_str(std::thread::current().name().unwrap_or("?"));
        });
    }
    made
}

/// A cell of the drawing: the last letter of the thread's name, and a bar.
fn cell(thread: &str, done: u64, most: u64, colorful: bool, hue: usize) -> String {
    let who = thread.chars().last().map_or('.', |c| if c.is_ascii_digit() { c } else { 'm' });
    let bar = "#".repeat((8 * done).div_ceil(most.max(1)) as usize);
    match colorful {
        true => format!("\x1b[{}m{who} {bar:8}\x1b[0m", 31 + hue),
        false => format!("{who} {bar:8}"),
    }
}

#[dapple::main]
async fn main() {
    let colorful = std::io::stdout().is_terminal();
    let started = Instant::now();
    let end = started + Duration::from_secs(SECONDS);
    let colors: Vec<Color> = (0..COLORS).map(|i| Color::keyed(&("ledger", i))).collect();
    let ledgers: Vec<_> =
        colors.iter().map(|c| Arc::new(ColorCell::in_color(c, Ledger::default()))).collect();
    let mut clerks = Vec::new();
    for (color, ledger) in colors.iter().zip(&ledgers) {
        clerks.extend((0..TASKS).map(|_| color.spawn(clerk(ledger.clone(), end))));
    }

    println!("{COLORS} colors, {TASKS} tasks in each; the letter is the worker that had the color's turn\n");
    let mut before = [0; COLORS];
    while Instant::now() < end {
        dapple::blocking(|| std::thread::sleep(Duration::from_millis(100))).await.expect("it sleeps");
        let mut seen = Vec::new();
        for (color, ledger) in colors.iter().zip(&ledgers) {
            let ledger = ledger.clone();
            let look = color.call(move || ledger.with(|ledger| (ledger.entries, ledger.thread.clone())));
            seen.push(look.await.expect("the color answers"));
        }
        let done: Vec<u64> = seen.iter().zip(before).map(|((entries, _), before)| entries - before).collect();
        let most = done.iter().copied().max().unwrap_or(1);
        for (i, (entries, thread)) in seen.iter().enumerate() {
            print!("  {}", cell(thread, done[i], most, colorful, i));
            before[i] = *entries;
        }
        println!("  {:6.1} M/s", done.iter().sum::<u64>() as f64 / 100_000.0);
        std::io::stdout().flush().expect("stdout takes it");
    }

    let mut made = 0;
    for clerk in clerks {
        made += clerk.await.expect("a clerk does not panic");
    }
    let mut kept = 0;
    for (color, ledger) in colors.iter().zip(ledgers) {
        kept += color.call(move || ledger.with(|ledger| ledger.entries)).await.expect("the color answers");
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("\n{made} entries made, {kept} kept, {} lost, in {seconds:.1} s, without a lock", made - kept);
    assert_eq!(made, kept, "two runnables of one color overlapped");
}
