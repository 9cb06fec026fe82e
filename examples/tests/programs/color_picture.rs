//! The picture in the README and in the guide is the one that its program draws.

use crate::common::output;

const COLOR_PICTURE: &str = env!("CARGO_BIN_EXE_color_picture");

/// The number in an attribute of an SVG element.
fn number(element: &str, attribute: &str) -> f64 {
    let at = element.find(&format!(" {attribute}=\"")).expect("the attribute is there");
    let value = element[at..].split('"').nth(1).expect("it has a value");
    value.parse().expect("it is a number")
}

#[test]
fn the_committed_picture_is_up_to_date() {
    let (is_ok, drawn) = output(COLOR_PICTURE, &[]);
    assert!(is_ok, "{drawn}");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide/src/colors.svg");
    let committed = std::fs::read_to_string(path).expect("docs/guide/src/colors.svg is there");
    assert!(
        committed.trim_end() == drawn.trim_end(),
        "run: cargo run -p examples --bin color_picture > docs/guide/src/colors.svg"
    );
}

#[test]
fn no_two_boxes_of_a_row_overlap() {
    let (_, drawn) = output(COLOR_PICTURE, &[]);
    let boxes = drawn.lines().filter(|line| line.starts_with("<rect x="));
    let mut rows: std::collections::BTreeMap<String, Vec<(f64, f64)>> = Default::default();
    for element in boxes {
        let row = number(element, "y").to_string();
        rows.entry(row).or_default().push((number(element, "x"), number(element, "width")));
    }
    assert_eq!(rows.len(), 5, "two workers and three colors");
    for (row, mut boxes) in rows {
        boxes.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert!(boxes.len() > 3, "row {row} has few boxes");
        for pair in boxes.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0 + 0.11, "row {row}: {pair:?} overlap");
        }
    }
}
