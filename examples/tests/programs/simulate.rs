//! The simulations tell the same every time.

use crate::common::output;

const SIMULATE: &str = env!("CARGO_BIN_EXE_simulate");

fn simulate(arguments: &[&str]) -> String {
    let (is_ok, text) = output(SIMULATE, arguments);
    assert!(is_ok, "{arguments:?}: {text}");
    text
}

#[test]
fn more_workers_take_less_time() {
    let text = simulate(&[]);
    let rows = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let workers = words.first()?.parse::<u32>().ok()?;
        Some((workers, words.get(1)?.parse::<f64>().ok()?))
    });
    let rows: Vec<(u32, f64)> = rows.collect();
    assert_eq!(rows.iter().map(|row| row.0).collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 64], "{text}");
    assert!(rows.windows(2).all(|pair| pair[1].1 < pair[0].1), "{text}");
    assert!(rows[0].1 / rows[3].1 > 7.0, "eight workers are nearly eight times as fast: {text}");
    assert_eq!(simulate(&["plan"]), text);
}

#[test]
fn a_seed_gives_the_same_trace_each_time_and_another_one_another() {
    for program in [&[][..], &["long"]] {
        let trace = |seed| simulate(&[&["trace", seed], program].concat());
        let first = trace("1");
        assert!(first.starts_with("# seed 1, ") && first.contains(" main, in the main color"), "{first}");
        assert_eq!(trace("1"), first);
        let polls = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        assert_ne!(polls(&trace("2")), polls(&first));
    }
}

#[test]
fn arguments_are_checked() {
    assert!(simulate(&["--help"]).contains("Usage: simulate"));
    for (arguments, complaint) in [
        (&["trace", "x"][..], "SEED is a number"),
        (&["trace"], "what is \"trace\"?"),
        (&["trace", "1", "longer"], "longer"),
        (&["--fast"], "--fast"),
    ] {
        let (is_ok, text) = output(SIMULATE, arguments);
        assert!(!is_ok && text.contains(complaint), "{arguments:?}: {text}");
    }
}
