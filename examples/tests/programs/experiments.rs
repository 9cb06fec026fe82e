//! The experiments find what the seeds drew. They are simulated, so the figures are the same every time.

use crate::common::output;

const EXPERIMENTS: &str = env!("CARGO_BIN_EXE_experiments");

/// The figures in the text, `name = value`, whose name begins with `prefix`: name, value, and the bound.
fn figures(text: &str, prefix: &str) -> Vec<(String, f64, f64)> {
    let parse = |line: &str| {
        let (name, value) = line.strip_prefix(prefix)?.split_once(" = ")?;
        let numbers: Vec<f64> = value.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        Some((name.to_owned(), *numbers.first()?, *numbers.last()?))
    };
    text.lines().filter_map(parse).collect()
}

#[test]
fn what_the_seeds_drew_comes_out() {
    let folder = std::env::temp_dir().join(format!("dapple-experiments-{}", std::process::id()));
    let (is_ok, text) = output(EXPERIMENTS, &["--quick", "--out", &folder.to_string_lossy()]);
    assert!(is_ok, "{text}");

    // Figure 3-4: three units, or two with a priority; and two by the policy that sees who holds all up.
    let units = figures(&text, "figure 3-4: ");
    assert_eq!(units.len(), 7, "{text}");
    for (name, units, _) in units {
        let expected = if name == "LongestLane" || name.ends_with("a priority") { 2.0 } else { 3.0 };
        assert!((units - expected).abs() < 0.005, "{name}: {units}");
    }

    // Figure 5-5: within 5% of the bound, by the policies that see the lanes, and by a priority.
    let speed_ups = figures(&text, "sfs: ");
    assert_eq!(speed_ups.len(), 7 * 5, "{text}");
    for (name, speed_up, bound) in &speed_ups {
        let is_plain = name.starts_with("Home,") || name.starts_with("ShortestQueue,");
        assert!((1.0..=2.86).contains(bound) && *speed_up <= 1.05 * bound, "{name}: {speed_up} of {bound}");
        assert!(is_plain || *speed_up >= 0.95 * bound, "{name}: {speed_up} of {bound}");
    }
    assert!(speed_ups.iter().any(|(name, speed_up, _)| name == "Home, 2 workers" && *speed_up < 1.8));

    // Figure 5-1: with each cache one color it is at its bound, and faster than that if they are read in parallel.
    let web = figures(&text, "web: ");
    assert_eq!(web.len(), 3 * 4 * 3, "{text}");
    for (name, speed_up, bound) in web {
        if name.contains("each cache one color") {
            assert!((0.94 * bound..1.06 * bound).contains(&speed_up), "{name}: {speed_up} of {bound}");
        } else if name == "0% missed, caches read in parallel (Home), 16 workers" {
            assert!(speed_up > 15.0, "{name}: {speed_up} of {bound}");
        }
    }

    let readme = std::fs::read_to_string(folder.join("README.md")).expect("it was written");
    assert!(!readme.contains("{{") && readme.contains("| 4 | 2.86 | 2.55 |"), "{readme}");
    for line in readme.lines().filter(|line| line.starts_with("![")) {
        let name = line.split_once('(').expect("a link").1.trim_end_matches(')');
        let drawing = std::fs::read_to_string(folder.join(name)).expect("it was written");
        assert!(drawing.starts_with("<svg ") && drawing.trim_end().ends_with("</svg>"), "{name}");
        assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{name}");
    }
    std::fs::remove_dir_all(folder).expect("it is ours");
}

#[test]
fn arguments_are_checked() {
    let (is_ok, text) = output(EXPERIMENTS, &["--help"]);
    assert!(is_ok && text.contains("Usage: experiments"), "{text}");
    let (is_ok, text) = output(EXPERIMENTS, &["--fast"]);
    assert!(!is_ok && text.contains("--fast"), "{text}");
}
