//! Content negotiation: the form of a file that a client accepts best. `Accept-Encoding`, RFC 9110, section 12.5.3.

/// A coding in which a file may lie beside the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Brotli,
    Zstd,
    Gzip,
}

impl Coding {
    /// All codings. Among those that a client prefers equally, the shortest file is sent, and the first of equal ones.
    pub(super) const ALL: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

    /// The name of the coding in a header.
    pub(super) fn name(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    /// The ending that is appended to the name of the file.
    pub(super) fn suffix(self) -> &'static [u8] {
        match self {
            Coding::Brotli => b".br",
            Coding::Zstd => b".zst",
            Coding::Gzip => b".gz",
        }
    }
}

/// The client's weights, in thousandths. 0: not accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    codings: [Option<u16>; 3],
    plain: Option<u16>,
    other: Option<u16>,
}

impl Taken {
    /// Adds the weights of a header.
    pub(super) fn read(&mut self, header: &[u8]) {
        let Ok(header) = str::from_utf8(header) else { return };
        for item in header.split(',') {
            let mut pieces = item.split(';').map(|piece| piece.trim_matches([' ', '\t']));
            let name = pieces.next().unwrap_or_default();
            let weight = pieces.find_map(weight).unwrap_or(1000);
            let slot = match name {
                "*" => &mut self.other,
                name if name.eq_ignore_ascii_case("identity") => &mut self.plain,
                name if name.eq_ignore_ascii_case("x-gzip") => &mut self.codings[Coding::Gzip as usize],
                name => match Coding::ALL.iter().find(|coding| name.eq_ignore_ascii_case(coding.name())) {
                    Some(&coding) => &mut self.codings[coding as usize],
                    None => continue,
                },
            };
            *slot = Some(weight);
        }
    }

    /// The weight of a coding.
    pub(super) fn coding(self, coding: Coding) -> u16 {
        self.codings[coding as usize].or(self.other).unwrap_or(0)
    }

    /// The weight of the original. If the client does not name it, the original is accepted, but any named coding is
    /// preferred.
    pub(super) fn plain(self) -> u16 {
        self.plain.unwrap_or(if self.other == Some(0) { 0 } else { 1 })
    }
}

/// The weight in `q=0.5`, in thousandths. `None` if it is malformed.
fn weight(piece: &str) -> Option<u16> {
    let (name, digits) = piece.split_once('=')?;
    if !name.trim_end().eq_ignore_ascii_case("q") {
        return None;
    }
    let digits = digits.trim_start();
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = part.len() <= 3 && part.bytes().all(|byte| byte.is_ascii_digit());
    match whole {
        "0" if is_number => Some(format!("{part:0<3}").parse().expect("three digits")),
        "1" if is_number && part.bytes().all(|byte| byte == b'0') => Some(1000),
        _ => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(header: &str) -> Taken {
        let mut taken = Taken::default();
        taken.read(header.as_bytes());
        taken
    }

    fn weights(header: &str) -> [u16; 4] {
        let taken = taken(header);
        let [br, zstd, gzip] = Coding::ALL.map(|coding| taken.coding(coding));
        [br, zstd, gzip, taken.plain()]
    }

    #[test]
    fn what_is_named_is_taken() {
        assert_eq!(weights("gzip, deflate, br"), [1000, 0, 1000, 1]);
        assert_eq!(weights("GZIP;Q=0.5 , zstd ; q=0.25"), [0, 250, 500, 1]);
        assert_eq!(weights("x-gzip"), [0, 0, 1000, 1]);
    }

    #[test]
    fn without_a_header_the_original_is_taken() {
        assert_eq!(weights(""), [0, 0, 0, 1]);
    }

    #[test]
    fn a_star_is_all_that_is_not_named() {
        assert_eq!(weights("*"), [1000, 1000, 1000, 1]);
        assert_eq!(weights("br;q=0, *;q=0.1"), [0, 100, 100, 1]);
        assert_eq!(weights("gzip, *;q=0"), [0, 0, 1000, 0]);
        assert_eq!(weights("gzip;q=0.2, identity;q=0.7, *;q=0"), [0, 0, 200, 700]);
    }

    #[test]
    fn malformed_weights_are_none() {
        for header in ["br;q=2", "br;q=0.1234", "br;q=x", "br;q=", "br;q=1.5", "br;q=-1", "br;q=0.-1"] {
            assert_eq!(weights(header)[0], 0, "{header}");
        }
        assert_eq!(weights("br;q=1.000")[0], 1000);
        assert_eq!(weights("br;q=0.")[0], 0);
        assert_eq!(weights("br;level=4;q=0.3")[0], 300);
    }
}
