//! The two-phase commit, simulated and real.

use crate::common::output;

const COMMIT: &str = env!("CARGO_BIN_EXE_commit");

fn commit(arguments: &[&str]) -> String {
    let (is_ok, text) = output(COMMIT, arguments);
    assert!(is_ok && text.ends_with("all nodes agree"), "{arguments:?}: {text}");
    text
}

/// Nodes, and the microseconds of Seq, Event and Async.
fn rows(text: &str) -> Vec<[f64; 4]> {
    let numbers =
        |line: &str| line.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>();
    text.lines().filter_map(|line| numbers(line).try_into().ok()).collect()
}

#[test]
fn the_shapes_decide_the_same_and_differ_in_what_they_take() {
    let text = commit(&["--sim", "1"]);
    let rows = rows(&text);
    assert_eq!(rows.iter().map(|row| row[0]).collect::<Vec<_>>(), [2.0, 4.0, 8.0, 16.0], "{text}");
    // In virtual time: one after the other takes as long as there are nodes, the others do not.
    let [first, .., last] = rows[..] else { panic!("{text}") };
    assert!(last[1] > 7.5 * first[1], "{text}");
    assert!(last[2] < 2.0 * first[2] && last[3] < 2.0 * first[3], "{text}");
    assert!(rows.iter().all(|row| row[3] < 1.1 * row[2]), "Async keeps up with Event: {text}");
    for nodes in [2, 4, 8, 16] {
        assert!(text.contains("VotesNo(1): [Refused, Refused, Refused]"), "{text}");
        let lost = format!("IsNotReached({}): [OutOfTime, OutOfTime, OutOfTime]", nodes - 1);
        assert!(text.contains(&lost), "{text}");
    }
}

#[test]
fn a_seed_gives_the_same_times_and_another_one_others() {
    assert_eq!(commit(&["--sim", "7"]), commit(&["--sim", "7"]));
    assert_ne!(rows(&commit(&["--sim", "7"])), rows(&commit(&["--sim", "8"])));
}

#[test]
fn the_nodes_agree_whatever_the_seed() {
    for seed in 10..15 {
        commit(&["--sim", &seed.to_string()]);
    }
}

#[test]
fn the_nodes_agree_on_real_workers() {
    let text = commit(&[]);
    assert_eq!(rows(&text).len(), 4, "{text}");
    assert!(text.contains("IsNotReached(15): [OutOfTime, OutOfTime, OutOfTime]"), "{text}");
}

#[test]
fn arguments_are_checked() {
    let (is_ok, text) = output(COMMIT, &["--help"]);
    assert!(is_ok && text.contains("Usage: commit"), "{text}");
    for (arguments, complaint) in [(&["--sim", "x"][..], "\"x\""), (&["--slow"], "--slow")] {
        let (is_ok, text) = output(COMMIT, arguments);
        assert!(!is_ok && text.contains(complaint), "{arguments:?}: {text}");
    }
}
