//! Range requests: the parts of a file that a request asks for. RFC 9110, section 14.

use std::ops::Range;

/// The most parts of a request. A request for more gets the whole file: such requests are only made to overload a server.
const MOST: usize = 16;

/// Result of a `Range` header, for a file of some length.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The whole file: the header is ignored, since it is malformed, has another unit, or asks for too many parts.
    Whole,
    /// These parts: at least one, none of them empty, in the order of the request.
    Parts(Vec<Range<u64>>),
    /// No requested part exists in the file.
    Nothing,
}

/// Reads a `Range` header.
pub(super) fn parse(header: &[u8], len: u64) -> Wanted {
    let Some(specs) = str::from_utf8(header).ok().and_then(after_unit) else { return Wanted::Whole };
    let mut parts = Vec::new();
    let mut specified = false;
    for spec in specs.split(',').map(|spec| spec.trim_matches([' ', '\t'])) {
        if spec.is_empty() {
            continue; // the grammar of lists allows empty elements
        }
        specified = true;
        match part(spec, len) {
            None => return Wanted::Whole,
            Some(part) if part.is_empty() => {}
            Some(_) if parts.len() == MOST => return Wanted::Whole,
            Some(part) => parts.push(part),
        }
    }
    match (specified, parts.is_empty()) {
        (false, _) => Wanted::Whole,
        (true, true) => Wanted::Nothing,
        (true, false) if overlap(&parts) => Wanted::Whole,
        (true, false) => Wanted::Parts(parts),
    }
}

fn after_unit(header: &str) -> Option<&str> {
    let (unit, specs) = header.split_once('=')?;
    unit.trim_matches([' ', '\t']).eq_ignore_ascii_case("bytes").then_some(specs)
}

/// One part; empty if the file has no byte of it; `None` if it is malformed.
fn part(spec: &str, len: u64) -> Option<Range<u64>> {
    let (first, last) = spec.split_once('-')?;
    match (first, last) {
        ("", last) => Some(len.saturating_sub(number(last)?)..len),
        (first, "") => Some(number(first)?.min(len)..len),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then(|| first.min(len)..last.saturating_add(1).min(len))
        }
    }
}

/// A number of digits only. A number that is too large for `u64` is larger than any file.
fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

/// Whether parts overlap, so that a byte would be sent twice.
fn overlap(parts: &[Range<u64>]) -> bool {
    let mut sorted: Vec<_> = parts.iter().map(|part| (part.start, part.end)).collect();
    sorted.sort_unstable();
    sorted.windows(2).any(|two| two[1].0 < two[0].1)
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of parts")]
mod tests {
    use super::*;

    #[track_caller]
    fn parts(header: &str, len: u64) -> Vec<Range<u64>> {
        match parse(header.as_bytes(), len) {
            Wanted::Parts(parts) => parts,
            other => panic!("{header} of {len}: {other:?}"),
        }
    }

    #[test]
    fn one_part_in_its_three_forms() {
        assert_eq!(parts("bytes=0-0", 10), [0..1]);
        assert_eq!(parts("bytes=2-5", 10), [2..6]);
        assert_eq!(parts("bytes=7-", 10), [7..10]);
        assert_eq!(parts("bytes=-3", 10), [7..10]);
        assert_eq!(parts("Bytes = 2-5", 10), [2..6]);
    }

    #[test]
    fn what_is_beyond_the_end_is_cut_off() {
        assert_eq!(parts("bytes=5-99999999999999999999999", 10), [5..10]);
        assert_eq!(parts("bytes=-11", 10), [0..10]);
        assert_eq!(parts("bytes=0-18446744073709551615", 10), [0..10]);
    }

    #[test]
    fn several_parts_keep_their_order() {
        assert_eq!(parts("bytes=8-9, 0-1,\t4-4", 10), [8..10, 0..2, 4..5]);
        assert_eq!(parts("bytes=,0-1,,", 10), [0..2]);
        // A part that the file does not have is left out, if there is another one.
        assert_eq!(parts("bytes=20-30,0-1", 10), [0..2]);
    }

    #[test]
    fn what_the_file_does_not_have_cannot_be_satisfied() {
        for header in ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=99-,-0"] {
            assert_eq!(parse(header.as_bytes(), 10), Wanted::Nothing, "{header}");
        }
        for header in ["bytes=0-", "bytes=0-0", "bytes=-5"] {
            assert_eq!(parse(header.as_bytes(), 0), Wanted::Nothing, "{header}");
        }
    }

    #[test]
    fn what_is_malformed_is_ignored() {
        for header in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=5-2",
            "bytes=a-b",
            "bytes=0-1,x",
            "bytes=+1-2",
            "bytes=1 - 2",
            "lines=0-1",
            "bytes=0--1",
            "\u{fc}=0-1",
        ] {
            assert_eq!(parse(header.as_bytes(), 10), Wanted::Whole, "{header}");
        }
        assert_eq!(parse(b"bytes=0-\xff", 10), Wanted::Whole);
    }

    #[test]
    fn too_many_and_overlapping_parts_are_declined() {
        let many = |n: usize| (0..n).map(|i| format!("{}-{}", i * 2, i * 2)).collect::<Vec<_>>().join(",");
        assert_eq!(parts(&format!("bytes={}", many(MOST)), 100).len(), MOST);
        assert_eq!(parse(format!("bytes={}", many(MOST + 1)).as_bytes(), 100), Wanted::Whole);
        assert_eq!(parse(b"bytes=0-5,5-6", 10), Wanted::Whole);
        assert_eq!(parse(b"bytes=0-,0-,0-", 10), Wanted::Whole);
        assert_eq!(parts("bytes=5-9,0-4", 10), [5..10, 0..5]);
    }

    #[test]
    fn whatever_is_asked_for_parts_are_inside_and_apart() {
        let letters = ["0", "1", "5", "9", "18446744073709551615", "-", ",", " ", "-", ","];
        let mut random = 1_u64;
        let mut answered = 0;
        for _ in 0..100_000 {
            let mut header = String::from("bytes=");
            for _ in 0..9 {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                header.push_str(letters[(random >> 33) as usize % letters.len()]);
            }
            let len = random % 100;
            if let Wanted::Parts(parts) = parse(header.as_bytes(), len) {
                answered += 1;
                assert!(!parts.is_empty() && parts.len() <= MOST);
                assert!(
                    parts.iter().all(|part| part.start < part.end && part.end <= len),
                    "{header} of {len}"
                );
                let sum: u64 = parts.iter().map(|part| part.end - part.start).sum();
                assert!(sum <= len, "{header} of {len}: no more than the whole is sent");
            }
        }
        assert!(answered > 100, "nearly all were malformed: {answered}");
    }
}
