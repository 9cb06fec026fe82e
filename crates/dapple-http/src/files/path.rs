//! From the path of a request to the name of a file: decoded once, without anything that could climb.
//!
//! This is the first of two checks; the second is by the kernel (`root`). The resulting path is relative, has no empty,
//! `.` or `..` part and no zero byte, and ends with a slash if the path of the request does. It is also the key of the
//! caches, so that `/a%62` and `//ab` are the same page as `/ab`.

use std::borrow::Cow;

/// Why a path names no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathRefusal {
    /// It is not a path at all: 400.
    Malformed,
    /// No file can have this name, or none that is served: 404.
    Nowhere,
}

/// The name of a file, relative to the root. Empty for the root itself.
pub(super) fn clean(path: &str, hidden: bool) -> Result<Cow<'_, [u8]>, PathRefusal> {
    let Some(path) = path.as_bytes().strip_prefix(b"/") else { return Err(PathRefusal::Nowhere) };
    // Nearly all paths are clean already, and are borrowed.
    let mut before = b'/';
    for &byte in path {
        if byte == b'%' || (before == b'/' && matches!(byte, b'/' | b'.')) {
            return cleaned(path, hidden).map(Cow::Owned);
        }
        before = byte;
    }
    Ok(Cow::Borrowed(path))
}

#[cold]
fn cleaned(path: &[u8], hidden: bool) -> Result<Vec<u8>, PathRefusal> {
    let mut clean = Vec::with_capacity(path.len());
    for part in path.split(|&byte| byte == b'/') {
        if part.is_empty() {
            continue;
        }
        let start = clean.len();
        decode(part, &mut clean)?;
        let part = &clean[start..];
        let climbs = matches!(part, b"." | b"..") || part.contains(&b'/');
        let is_hidden = part.first() == Some(&b'.') && part != b".well-known";
        if climbs || (is_hidden && !hidden) {
            return Err(PathRefusal::Nowhere);
        }
        clean.push(b'/');
    }
    if !path.ends_with(b"/") {
        clean.pop();
    }
    Ok(clean)
}

/// Decodes a part, once: a part that is encoded twice is the name of a file with a percent sign in it.
fn decode(part: &[u8], clean: &mut Vec<u8>) -> Result<(), PathRefusal> {
    let mut bytes = part.iter();
    while let Some(&byte) = bytes.next() {
        let byte = match byte {
            b'%' => digit(bytes.next())? << 4 | digit(bytes.next())?,
            byte => byte,
        };
        if byte == 0 {
            return Err(PathRefusal::Malformed);
        }
        clean.push(byte);
    }
    Ok(())
}

fn digit(byte: Option<&u8>) -> Result<u8, PathRefusal> {
    let digit = byte.and_then(|&byte| char::from(byte).to_digit(16)).ok_or(PathRefusal::Malformed)?;
    Ok(digit as u8)
}

/// Encodes a part of a path for an address.
pub(super) fn encode(part: &[u8], address: &mut String) {
    for &byte in part {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => address.push(byte.into()),
            byte => {
                const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
                address.push('%');
                address.push(DIGITS[usize::from(byte >> 4)].into());
                address.push(DIGITS[usize::from(byte & 15)].into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_clean(path: &str, wanted: Result<&str, PathRefusal>) {
        let wanted = wanted.map(str::as_bytes);
        assert_eq!(clean(path, false).as_deref(), wanted.as_ref().copied(), "{path}");
    }

    #[test]
    fn plain_paths_stay_as_they_are() {
        for path in ["/", "/a", "/a/b.css", "/a/", "/a.b/c..d", "/a\\b"] {
            assert!(matches!(clean(path, false), Ok(Cow::Borrowed(clean)) if clean == &path.as_bytes()[1..]));
        }
    }

    #[test]
    fn what_is_encoded_is_decoded_once() {
        assert_clean("/%61%20b/c%C3%A4", Ok("a b/cä"));
        assert_clean("/100%25", Ok("100%"));
        assert_clean("/%252e%252e/x", Ok("%2e%2e/x"));
    }

    #[test]
    fn empty_parts_are_left_out() {
        assert_clean("//a///b//", Ok("a/b/"));
        assert_clean("//", Ok(""));
    }

    #[test]
    fn nothing_climbs() {
        for path in
            ["/..", "/../a", "/a/..", "/a/../b", "/./a", "/.", "/%2e%2e/a", "/.%2E/a", "/a/%2e", "/a%2fb"]
        {
            assert_clean(path, Err(PathRefusal::Nowhere));
            assert_eq!(clean(path, true), Err(PathRefusal::Nowhere), "{path}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for path in ["/%", "/%2", "/%zz", "/a%00b", "/%+1"] {
            assert_clean(path, Err(PathRefusal::Malformed));
        }
        assert_clean("*", Err(PathRefusal::Nowhere));
        assert_clean("", Err(PathRefusal::Nowhere));
    }

    #[test]
    fn hidden_names_are_not_there_unless_wanted() {
        assert_clean("/.git/config", Err(PathRefusal::Nowhere));
        assert_clean("/a/%2eenv", Err(PathRefusal::Nowhere));
        assert_clean("/.well-known/acme-challenge/x", Ok(".well-known/acme-challenge/x"));
        assert_eq!(clean("/.git/config", true).as_deref(), Ok(&b".git/config"[..]));
    }

    #[test]
    fn encoding_is_undone_by_decoding() {
        let name: Vec<u8> = (1..=255).filter(|&byte| byte != b'/').collect();
        let mut address = String::from("/x");
        encode(&name, &mut address);
        assert_eq!(clean(&address, false).unwrap()[1..], name);
    }

    #[test]
    fn no_path_leads_outside() {
        let letters = [
            ".", "..", "/", "%2e", "%2E", "%2f", "%5c", "\\", "%00", "%", "%25", "a", "%c0%ae", "2", "e", "f",
        ];
        let mut random = 1_u64;
        let mut accepted = 0;
        for _ in 0..100_000 {
            let mut path = String::from("/");
            for _ in 0..8 {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                path.push_str(letters[(random >> 33) as usize % letters.len()]);
            }
            for hidden in [false, true] {
                let Ok(clean) = clean(&path, hidden) else { continue };
                accepted += 1;
                let whole = clean.strip_suffix(b"/").unwrap_or(&clean);
                let mut parts = whole.split(|&byte| byte == b'/');
                let is_fine = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && !part.contains(&0);
                assert!(clean.is_empty() || parts.all(is_fine), "{path}: {clean:?}");
            }
        }
        assert!(accepted > 1000, "most were refused: {accepted}");
    }
}
