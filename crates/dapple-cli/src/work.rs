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

/// The colors that there are.
const NAMES: [&str; 4] = ["red", "yellow", "green", "blue"];

/// How long a thread is blocked.
const WORK: Duration = Duration::from_millis(250);

/// How many may be in line in one color, with the one that is at work.
const IN_LINE: usize = 9;

/// For how long it is shown what was done.
const SHOWN: Duration = Duration::from_secs(6);

/// One for each name, from when the first is asked for.
static COLORS: OnceLock<[Color; 4]> = OnceLock::new();

static LIST: Mutex<WorkList> = Mutex::new(WorkList { begun: 0, pieces: Vec::new() });

struct WorkList {
    /// How many there were.
    begun: u64,
    /// Those that are in line, at work, or done not long ago.
    pieces: Vec<WorkItem>,
}

/// A piece of work.
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

/// What came of the wish to have work done.
pub(crate) enum Submission {
    /// It is in line, by this number.
    InLine(u64),
    /// There is too much in line in that color.
    Refused,
    /// There is no such color.
    NoColor,
}

/// Puts work in line.
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

/// All that is shown, with how long ago everything was, in milliseconds.
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
