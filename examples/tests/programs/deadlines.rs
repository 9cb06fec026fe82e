//! A policy of the program's own keeps its deadlines.

use crate::common::output;

const DEADLINES: &str = env!("CARGO_BIN_EXE_deadlines");

/// The percentages in a line.
fn percentages(line: &str) -> Vec<f64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.windows(2).filter(|pair| pair[1] == "%").filter_map(|pair| pair[0].parse().ok()).collect()
}

#[test]
fn in_virtual_time_all_deadlines_are_met_that_can_be() {
    let (is_ok, text) = output(DEADLINES, &["--simulated"]);
    assert!(is_ok, "{text}");
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with("load ")).map(percentages).collect();
    assert_eq!(rows.len(), 6, "{text}");
    for row in &rows {
        let [load, default, .., earliest, pages, reports] = row[..] else { panic!("{text}") };
        assert!(earliest > 99.9 && pages > 99.9 && reports > 99.9, "{text}");
        assert!(default <= earliest && (load < 95.0 || default < 95.0), "{text}");
    }
    assert_eq!(output(DEADLINES, &["--simulated"]).1, text, "it is the same every time");
}

#[test]
fn for_real_all_are_answered() {
    let (is_ok, text) = output(DEADLINES, &[]);
    assert!(is_ok, "{text}");
    assert_eq!(text.matches("answered 1000 and 1000").count(), 2, "{text}");
}

#[test]
fn arguments_are_checked() {
    let (is_ok, text) = output(DEADLINES, &["--slow"]);
    assert!(!is_ok && text.contains("Usage: deadlines"), "{text}");
}
