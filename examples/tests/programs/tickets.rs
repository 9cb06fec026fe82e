//! A ticket office: all customers get two seats side by side, by `when` and by `retry`.

use crate::common::output;

const TICKETS: &str = env!("CARGO_BIN_EXE_tickets");

#[test]
fn all_customers_are_served_and_no_seat_is_lost() {
    let (is_ok, text) = output(TICKETS, &[]);
    assert!(is_ok, "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    for (line, way) in lines[1..].iter().zip(["when:", "retry:"]) {
        assert!(line.starts_with(way), "{text}");
        assert!(line.contains("60 served; 1 gave up and had taken nothing; 12 seats are free; "), "{text}");
    }
}
