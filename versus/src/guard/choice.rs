//! Which cases the guard runs: the quick ones, and all but those that measure nothing more.

/// Allocations by `versus-probe`.
pub(super) const ALLOCATIONS: &str = "allocations";

/// Instructions by `versus/instructions`.
pub(super) const INSTRUCTIONS: &str = "instructions";

/// The cases of `--quick`, exactly; `memory/` stands for its variants.
const QUICK: [&str; 15] = [
    "spawn",
    "yield",
    "pingpong",
    "chain",
    "wake",
    "mpsc",
    "oneshot",
    "timers/cancel",
    "memory/",
    "hot/0",
    "fifo/0",
    "echo/64",
    "hello/64",
    ALLOCATIONS,
    INSTRUCTIONS,
];

/// Cases that are left out, by how their names begin, and why.
pub(super) const LEFT_OUT: [(&str, &str); 7] = [
    ("leaf/", "needs a second build of the probe; `instructions` counts its reads"),
    ("start/allocations", "`allocations` counts them"),
    ("disk/fio/", "the same on Dapple's side as disk/N"),
    ("disk/cpu/", "the same on Dapple's side as disk/N"),
    // One measurement is the whole curve.
    ("load/", "the same work as files/N, except for load/8000, which is kept"),
    ("overload/", "every rate is measured for each of them, and overload/4 is kept"),
    ("tls/speedup", "tls/2 by tls/1"),
];

/// Exceptions.
const KEPT: [&str; 2] = ["load/8000", "overload/4"];

/// Cases whose files are made by the first process that needs them: its sample does not count.
pub(super) const WITH_FILES: [&str; 4] = ["files/", "load/", "tls/", "disk/"];

/// Cases whose bytes are counted, once per side, by how their names begin.
const BYTES: [&str; 2] = ["memory/", "stm/parked"];

/// Whether the bytes of a case are counted.
pub(super) fn counts_bytes(case: &str) -> bool {
    BYTES.iter().any(|start| case.starts_with(start))
}

/// Why a case is left out.
pub(super) fn left_out(case: &str) -> Option<&'static str> {
    let reason = LEFT_OUT.iter().find(|(start, _)| case.starts_with(start)).map(|&(_, reason)| reason);
    reason.filter(|_| !KEPT.contains(&case))
}

fn is_quick(case: &str) -> bool {
    QUICK.iter().any(|&quick| case == quick || quick.ends_with('/') && case.starts_with(quick))
}

/// Whether an argument names a case, by its full name or by the first parts of it.
fn names(argument: &str, case: &str) -> bool {
    case.strip_prefix(argument).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The cases to run, out of all cases. An error names the unknown case, and lists the known ones.
pub(super) fn choose(all: &[&str], quick: bool, arguments: &[String]) -> Result<Vec<String>, String> {
    let all = || all.iter().copied().chain([ALLOCATIONS, INSTRUCTIONS]);
    let possible: Vec<&str> =
        all().filter(|case| left_out(case).is_none() && (!quick || is_quick(case))).collect();
    for argument in arguments {
        if possible.iter().any(|case| names(argument, case)) {
            continue;
        }
        let among = if quick { "the cases of `--quick` are" } else { "the guard's cases are" };
        let listed = possible.join(", ");
        return Err(match all().find(|case| names(argument, case)) {
            None => format!("no case is called {argument:?}; {among}: {listed}"),
            Some(case) => {
                let reason = left_out(case).unwrap_or("not one of `--quick`; leave that option out");
                format!("the guard leaves {case} out ({reason}); {among}: {listed}")
            }
        });
    }
    let wanted = |case: &&str| arguments.is_empty() || arguments.iter().any(|argument| names(argument, case));
    Ok(possible.into_iter().filter(wanted).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    fn chosen(quick: bool, arguments: &[&str]) -> Result<Vec<String>, String> {
        let contests = cases::all();
        let all: Vec<&str> = contests.iter().map(|contest| contest.name).collect();
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        choose(&all, quick, &arguments)
    }

    #[test]
    fn quick_has_each_of_its_cases() {
        let quick = chosen(true, &[]).unwrap();
        assert_eq!(quick.len(), QUICK.len() + 2, "memory has three variants: {quick:?}");
        assert!(!quick.contains(&"wake/burst".to_owned()));
    }

    #[test]
    fn all_are_without_those_that_are_left_out() {
        let all = chosen(false, &[]).unwrap();
        assert!(all.contains(&"disk/65536".to_owned()) && !all.contains(&"disk/cpu/256".to_owned()));
        assert!(all.contains(&"load/8000".to_owned()) && !all.contains(&"load/10".to_owned()));
    }

    #[test]
    fn bytes_are_counted_where_memory_is_measured() {
        let contests = cases::all();
        let counted = contests.iter().filter(|contest| counts_bytes(contest.name));
        assert!(counted.clone().all(|contest| contest.metrics[0].unit == "B"));
        assert_eq!(counted.count(), 4, "three variants of memory, and stm/parked");
    }

    #[test]
    fn every_reason_is_for_a_case_that_there_is() {
        let contests = cases::all();
        for (start, _) in LEFT_OUT {
            assert!(contests.iter().any(|contest| contest.name.starts_with(start)), "{start}");
        }
        for case in KEPT {
            assert!(contests.iter().any(|contest| contest.name == case), "{case}");
        }
    }

    #[test]
    fn a_name_means_its_variants() {
        assert_eq!(chosen(false, &["wake"]).unwrap(), ["wake", "wake/burst"]);
        assert_eq!(chosen(true, &["wake", INSTRUCTIONS]).unwrap(), ["wake", INSTRUCTIONS]);
    }

    #[test]
    fn a_name_that_means_nothing_is_refused_and_says_why() {
        let unknown = chosen(false, &["spwan"]).unwrap_err();
        assert!(
            unknown.starts_with("no case is called \"spwan\"; the guard's cases are: spawn, "),
            "{unknown}"
        );
        let left_out = chosen(false, &["disk/cpu"]).unwrap_err();
        assert!(left_out.contains("leaves disk/cpu/256 out (the same"), "{left_out}");
        let slow = chosen(true, &["bank"]).unwrap_err();
        assert!(slow.contains("not one of `--quick`"), "{slow}");
    }
}
