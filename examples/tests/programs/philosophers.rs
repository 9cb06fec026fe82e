//! Philosophers that eat in five ways: all get all their meals, and neighbours never eat at the same time.

use crate::common::output;

const PHILOSOPHERS: &str = env!("CARGO_BIN_EXE_philosophers");

/// The way, the meals, and the most that ate at once, of each line below the heading.
fn rows(text: &str) -> Vec<(String, u32, u32)> {
    let lines = text.lines().skip(1).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words[0].to_owned(), words[1].parse().expect("meals"), words[2].parse().expect("a number"))
    });
    lines.collect()
}

#[test]
fn all_are_fed_in_all_five_ways() {
    let (is_ok, text) = output(PHILOSOPHERS, &[]);
    assert!(is_ok, "{text}");
    let rows = rows(&text);
    let ways: Vec<&str> = rows.iter().map(|(way, ..)| way.as_str()).collect();
    assert_eq!(ways, ["mutexes", "together", "stm", "colors", "channels"]);
    for (way, meals, most) in rows {
        assert_eq!(meals, 500, "{way}");
        assert!((1..=2).contains(&most), "{way}: five forks are enough for two, not for {most}");
    }
}

#[test]
fn a_way_is_named_or_refused() {
    let (is_ok, text) = output(PHILOSOPHERS, &["stm", "colors"]);
    let ways: Vec<String> = rows(&text).into_iter().map(|(way, ..)| way).collect();
    assert!(is_ok && ways == ["stm", "colors"], "{text}");
    let (is_ok, text) = output(PHILOSOPHERS, &["spoons"]);
    assert!(!is_ok && text.contains("there is no way") && text.contains("spoons"), "{text}");
}
