//! How busy the machine is with other things, by `/proc`.

use std::fs;

use super::verdict::Noise;

/// Ticks since the machine started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Machine {
    /// Of all cores, whatever they did.
    total: u64,
    /// In which processes ran; without interrupts, which are charged to no process.
    busy: u64,
    steal: u64,
    /// Of this process and of all its children that have ended.
    own: u64,
}

impl Machine {
    pub(super) fn now() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let (total, busy, steal) = of_cores(&read("/proc/stat")).unwrap_or_default();
        Self { total, busy, steal, own: of_process(&read("/proc/self/stat")).unwrap_or_default() }
    }

    /// The noise from then until now, in percent of all cores.
    pub(super) fn since(then: Self) -> Noise {
        Self::now().after(then)
    }

    fn after(self, then: Self) -> Noise {
        let total = (self.total - then.total).max(1) as f64;
        let others = (self.busy - then.busy).saturating_sub(self.own - then.own);
        let percent = |ticks: u64| 100.0 * ticks as f64 / total;
        Noise { others: percent(others), steal: percent(self.steal - then.steal) }
    }
}

/// All, busy and stolen ticks, of the first line of `/proc/stat`.
fn of_cores(text: &str) -> Option<(u64, u64, u64)> {
    let numbers = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let numbers: Vec<u64> = numbers.map_while(|number| number.parse().ok()).collect();
    // The time of guests is in that of users as well.
    let &[user, nice, system, .., steal] = numbers.get(..8)? else { return None };
    Some((numbers[..8].iter().sum(), user + nice + system, steal))
}

/// User and system ticks of a process and of its children, of `/proc/PID/stat`.
fn of_process(text: &str) -> Option<u64> {
    // The name, in parentheses, may have spaces in it.
    let (_, rest) = text.rsplit_once(')')?;
    let fields = rest.split_whitespace().skip(11).take(4);
    fields.map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read_as_the_kernel_writes_them() {
        let text = "cpu  10 1 5 100 3 2 1 7 4 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(of_cores(text), Some((129, 16, 7)));
        let text = "42 (a (strange) name) S 1 42 42 0 -1 4 0 0 0 0 11 12 13 14 20 0 3 0 5";
        assert_eq!(of_process(text), Some(50));
    }

    #[test]
    fn children_of_ours_are_no_noise() {
        let then = Machine { total: 1000, busy: 500, steal: 3, own: 100 };
        let now = Machine { total: 1200, busy: 640, steal: 5, own: 220 };
        let Noise { others, steal } = now.after(then);
        assert_eq!((others, steal), (10.0, 1.0));
    }

    #[test]
    fn this_machine_can_be_read() {
        let now = Machine::now();
        assert!(now.total > now.busy && now.busy > 0);
    }
}
