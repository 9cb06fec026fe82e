//! Demonstration jobs of the built-in site: a visitor starts work that blocks a thread, in one of four colors, and every
//! visitor sees the results.
//!
//! The jobs show what a color is, and that a job that blocks does not delay other colors. The load is bounded: a color
//! runs one job at a time, so at most four threads are blocked, and the line of each color is short.

use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use dapple::Color;

/// Names of the four colors, as in the page.
const NAMES: [&str; 4] = ["red", "yellow", "green", "blue"];

/// Time for which a job blocks its thread.
const WORK: Duration = Duration::from_millis(250);

/// Maximum number of jobs in one color that wait or run; further ones are refused.
const IN_LINE: usize = 9;

/// Time for which the page shows a job that is done.
const SHOWN: Duration = Duration::from_secs(6);

/// The colors, made at the first job.
static COLORS: OnceLock<[Color; 4]> = OnceLock::new();

static LIST: Mutex<WorkList> = Mutex::new(WorkList { begun: 0, pieces: Vec::new() });

struct WorkList {
    /// Number of jobs so far.
    begun: u64,
    /// Jobs that wait, run, or were done within [`SHOWN`].
    pieces: Vec<WorkItem>,
}

/// A job: its number, its color, and when it came, began and ended.
struct WorkItem {
    id: u64,
    color: usize,
    came: Instant,
    begun: Option<Instant>,
    ended: Option<Instant>,
}

fn list() -> MutexGuard<'static, WorkList> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Result of a request for a job.
pub(crate) enum Submission {
    /// The job is queued, and has this number.
    InLine(u64),
    /// The queue of the color is full.
    Refused,
    /// No color has this name.
    NoColor,
}

/// Queues a job in the color of this name.
pub(crate) fn begin(name: &str) -> Submission {
    let Some(color) = NAMES.iter().position(|other| *other == name) else { return Submission::NoColor };
    let mut list = list();
    list.forget();
    if list.pieces.iter().filter(|piece| piece.color == color && piece.ended.is_none()).count() >= IN_LINE {
        return Submission::Refused;
    }
    list.begun += 1;
    let id = list.begun;
    list.pieces.push(WorkItem { id, color, came: Instant::now(), begun: None, ended: None });
    // In the list's order, so that they are begun in it.
    COLORS.get_or_init(|| std::array::from_fn(|_| Color::new()))[color].call(move || work(id)).detach();
    Submission::InLine(id)
}

fn work(id: u64) {
    let note =
        |note: fn(&mut WorkItem)| list().pieces.iter_mut().filter(|piece| piece.id == id).for_each(note);
    note(|piece| piece.begun = Some(Instant::now()));
    thread::sleep(WORK);
    note(|piece| piece.ended = Some(Instant::now()));
}

impl WorkList {
    fn forget(&mut self) {
        self.pieces.retain(|piece| piece.ended.is_none_or(|ended| ended.elapsed() < SHOWN));
    }
}

/// Returns the jobs that the page shows, as JSON. Times are ages in milliseconds.
pub(crate) fn json() -> String {
    let mut list = list();
    list.forget();
    let now = Instant::now();
    let ago = |time: Option<Instant>| match time {
        Some(time) => format!("{:.1}", (now - time).as_secs_f64() * 1000.0),
        None => "null".to_owned(),
    };
    let mut text = String::from("[");
    for piece in &list.pieces {
        let comma = if text.len() > 1 { "," } else { "" };
        let (came, begun, ended) = (ago(Some(piece.came)), ago(piece.begun), ago(piece.ended));
        let (id, color) = (piece.id, NAMES[piece.color]);
        let _ = write!(
            text,
            "{comma}{{\"id\":{id},\"color\":\"{color}\",\"came\":{came},\"begun\":{begun},\"ended\":{ended}}}"
        );
    }
    text.push(']');
    text
}
