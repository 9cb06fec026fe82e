//! Requests at times fixed in advance: an open loop, which does not wait for answers.
//!
//! The measure is the time from when a request was *due*, so that a server that holds up one request is not forgiven
//! the next (no coordinated omission). The report also has the lateness of the load itself, from when a request was due
//! to when it was handed to the kernel, or to a connection that was begun for it: a load that was late measures itself.
//!
//! The times between two requests are exponential, as if many clients came independently, and the same for all
//! sides. When the most connections are all busy, a request is not sent: it counts as not answered.

use std::str::FromStr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::fleet::Fleet;
use crate::scatter::{below, scatter};

/// The schedule of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Plan {
    /// Requests a second.
    pub(crate) rate: f64,
    /// The time before the measurement, and the length of the measurement.
    pub(crate) settle: Duration,
    pub(crate) window: Duration,
    /// The time for which requests still come afterwards, so that those of the window are not alone at the end.
    pub(crate) tail: Duration,
    /// The heavy requests in a hundred.
    pub(crate) heavy: u32,
}

/// The measurements of the requests that were due in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Report {
    /// All of them.
    pub(crate) due: f64,
    /// Those that were answered with 200 in the end, light and heavy.
    pub(crate) answered: f64,
    /// Those of them that were answered soon enough.
    pub(crate) good: f64,
    /// Those that were answered with 503.
    pub(crate) refused: f64,
    /// Answers that came before the end of the window.
    pub(crate) within: f64,
    /// Of the light ones that were answered with 200, in milliseconds from when they were due; what was not answered
    /// in the end has taken until then.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// How late the load was itself, at the 99th percentile, in milliseconds.
    pub(crate) late: f64,
}

/// An answer that takes longer is of no use to a client.
pub(crate) const SOON: Duration = Duration::from_millis(500);

/// How long to wait for answers after the last request.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest time that a histogram holds, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;

/// The record of a request under way.
pub(crate) struct Sent {
    due: Instant,
    heavy: bool,
    counts: bool,
}

/// Does what is planned, with the two kinds of requests.
pub(crate) fn run(fleet: &mut Fleet<Sent>, plan: &Plan, light: &[u8], heavy: &[u8]) -> Report {
    let mut seen = Seen::new();
    let begin = Instant::now();
    let (counted, end) = (begin + plan.settle, begin + plan.settle + plan.window);
    let last = end + plan.tail;
    let (mut number, mut due) = (0, begin + plan.gap(0));
    loop {
        let mut now = Instant::now();
        // Not for ever: what has been answered meanwhile has connections free.
        for _ in 0..16 {
            if due > now || due > last {
                break;
            }
            let counts = (counted..end).contains(&due);
            let sent = Sent { due, heavy: plan.is_heavy(number), counts };
            seen.sent(&sent, now);
            let _ = fleet.send(if sent.heavy { heavy } else { light }, sent);
            number += 1;
            due += plan.gap(number);
            now = Instant::now();
        }
        let over = due > last;
        if over && (fleet.busy() == 0 || now > last + PATIENCE) {
            break;
        }
        let most = if over { last + PATIENCE } else { due };
        fleet.wait(most.saturating_duration_since(now), |(sent, answer)| {
            if let Some(answer) = answer {
                seen.answered(&sent, answer.status, Instant::now(), end);
            }
        });
    }
    let now = Instant::now();
    for sent in fleet.give_up() {
        seen.given_up(&sent, now);
    }
    seen.report()
}

impl Plan {
    /// The time from one request to the next: the same in every round.
    fn gap(&self, number: u64) -> Duration {
        let uniform = (scatter(number) >> 11) as f64 / (1_u64 << 53) as f64;
        Duration::from_secs_f64(-(1.0 - uniform).ln() / self.rate)
    }

    /// Which requests are heavy depends on nothing but their number.
    fn is_heavy(&self, number: u64) -> bool {
        below(scatter(number ^ HEAVY), 100) < u64::from(self.heavy)
    }
}

/// Makes other numbers of the same ones, so that heavy requests have nothing to do with the gaps.
const HEAVY: u64 = 0x6865_6176_7900_0000;

/// The counts of a run in progress.
struct Seen {
    report: Report,
    times: Histogram<u64>,
    late: Histogram<u64>,
}

impl Seen {
    fn new() -> Self {
        let histogram = || Histogram::new_with_max(LONGEST, 3).expect("three digits up to a minute");
        Self { report: Report::default(), times: histogram(), late: histogram() }
    }

    fn sent(&mut self, sent: &Sent, now: Instant) {
        if sent.counts {
            self.report.due += 1.0;
            self.late.saturating_record((now - sent.due).as_nanos() as u64);
        }
    }

    fn answered(&mut self, sent: &Sent, status: u16, now: Instant, end: Instant) {
        if !sent.counts {
            return;
        }
        if status == 503 {
            self.report.refused += 1.0;
            return;
        }
        assert_eq!(status, 200, "a wrong answer");
        let took = now - sent.due;
        self.report.answered += 1.0;
        if took <= SOON {
            self.report.good += 1.0;
        }
        if now <= end {
            self.report.within += 1.0;
        }
        if !sent.heavy {
            self.times.saturating_record(took.as_nanos() as u64);
        }
    }

    fn given_up(&mut self, sent: &Sent, now: Instant) {
        if sent.counts && !sent.heavy {
            self.times.saturating_record((now - sent.due).as_nanos() as u64);
        }
    }

    fn report(mut self) -> Report {
        let millis = |times: &Histogram<u64>, share| times.value_at_quantile(share) as f64 / 1e6;
        self.report.p50 = millis(&self.times, 0.5);
        self.report.p99 = millis(&self.times, 0.99);
        self.report.late = millis(&self.late, 0.99);
        self.report
    }
}

impl Report {
    /// As a line between two processes.
    pub(crate) fn line(&self) -> String {
        let Self { due, answered, good, refused, within, p50, p99, late } = self;
        format!("{due} {answered} {good} {refused} {within} {p50} {p99} {late}")
    }
}

impl FromStr for Report {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let numbers: Vec<f64> = line.split(' ').map(str::parse).collect::<Result<_, _>>().map_err(drop)?;
        let &[due, answered, good, refused, within, p50, p99, late] = &numbers[..] else { return Err(()) };
        Ok(Self { due, answered, good, refused, within, p50, p99, late })
    }
}

impl Plan {
    /// As a line between two processes.
    pub(crate) fn line(&self) -> String {
        let [settle, window, tail] = [self.settle, self.window, self.tail].map(|time| time.as_millis());
        format!("open {} {settle} {window} {tail} {}", self.rate, self.heavy)
    }

    /// Reads it again, without its first word.
    pub(crate) fn of(words: &[&str]) -> Option<Self> {
        let &[rate, settle, window, tail, heavy] = words else { return None };
        let millis = |text: &str| Some(Duration::from_millis(text.parse().ok()?));
        Some(Self {
            rate: rate.parse().ok()?,
            settle: millis(settle)?,
            window: millis(window)?,
            tail: millis(tail)?,
            heavy: heavy.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(heavy: u32) -> Plan {
        let [settle, window, tail] = [1500, 4000, 200].map(Duration::from_millis);
        Plan { rate: 123.5, settle, window, tail, heavy }
    }

    #[test]
    fn a_plan_and_a_report_are_read_as_they_were_written() {
        let line = plan(15).line();
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(Plan::of(&words[1..]), Some(plan(15)));
        let report = Report { due: 5.0, p99: 1.25, late: 0.001, ..Report::default() };
        assert_eq!(report.line().parse(), Ok(report));
    }

    #[test]
    fn the_schedule_has_its_rate_and_its_share() {
        let requests = 100_000;
        let time: Duration = (0..requests).map(|number| plan(0).gap(number)).sum();
        let rate = requests as f64 / time.as_secs_f64();
        assert!((rate / 123.5 - 1.0).abs() < 0.02, "{rate}");
        for share in [0, 5, 10, 15, 50] {
            let heavy = (0..requests).filter(|&number| plan(share).is_heavy(number)).count();
            let percent = heavy as f64 * 100.0 / requests as f64;
            assert!((percent - f64::from(share)).abs() <= 1.0, "{percent} of {share}");
        }
    }
}
