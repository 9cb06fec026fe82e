//! Finds the end of each body in the bytes as they come, and so the beginning of the next head. hyper, which parses the
//! same bytes, does not report it.
//!
//! For a body with a length, that is one subtraction per read; for chunks, a look at each line between them. Lines that
//! hyper refuses are refused here, and one kind more: a trailer line that ends with LF alone, after which other servers
//! may take the bytes that follow for a request.

use std::io;

/// How the body of a request is framed, as hyper has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// No body, and its head says nothing of one.
    Unsaid,
    /// No body.
    Nothing,
    Length(u64),
    Chunked,
}

/// The part of a body that is still to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BodyRemainder {
    #[default]
    Nothing,
    Length(u64),
    Chunks(Chunks),
}

/// Why a body is not received any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Its chunks are not as they should be.
    Malformed,
    /// There is more of it than may be.
    TooLarge,
}

/// Tells hyper, which ends the body with an error.
impl From<Flaw> for io::Error {
    fn from(flaw: Flaw) -> io::Error {
        let text = match flaw {
            Flaw::Malformed => "the chunks of the body are not as they should be",
            Flaw::TooLarge => "the body is too large",
        };
        io::Error::new(io::ErrorKind::InvalidData, text)
    }
}

/// A body in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunks {
    at: ChunkPosition,
    /// The bytes left of this chunk, or its size as far as it is known.
    size: u64,
    /// The bytes that may still come in other chunks.
    room: u64,
}

/// The element that comes next in a body of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkPosition {
    /// The first digit of a size.
    Size,
    /// Another digit, or a byte that may follow the size.
    Digits,
    /// A byte that may follow a blank behind the size.
    Blanks,
    Extension,
    /// The LF behind the size.
    SizeEnd,
    Data,
    /// The CR, and then the LF, behind the data.
    DataEnd,
    DataLine,
    /// A line behind the last chunk: its first byte, others, its LF.
    Line,
    Trailer,
    TrailerEnd,
    /// The LF at the very end.
    End,
}

impl BodyRemainder {
    /// The remainder of a body of which nothing has come, and which may have at most `most` bytes.
    pub(crate) fn new(framing: Framing, most: u64) -> BodyRemainder {
        match framing {
            Framing::Unsaid | Framing::Nothing | Framing::Length(0) => BodyRemainder::Nothing,
            Framing::Length(length) => BodyRemainder::Length(length),
            Framing::Chunked => {
                BodyRemainder::Chunks(Chunks { at: ChunkPosition::Size, size: 0, room: most })
            }
        }
    }

    /// Passes over what belongs to the body, and says how many bytes that are.
    #[inline]
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> Result<usize, Flaw> {
        match self {
            BodyRemainder::Nothing => Ok(0),
            BodyRemainder::Length(left) if *left > bytes.len() as u64 => {
                *left -= bytes.len() as u64;
                Ok(bytes.len())
            }
            BodyRemainder::Length(left) => {
                let count = *left as usize;
                *self = BodyRemainder::Nothing;
                Ok(count)
            }
            BodyRemainder::Chunks(chunks) => {
                let (count, is_over) = chunks.pass(bytes)?;
                if is_over {
                    *self = BodyRemainder::Nothing;
                }
                Ok(count)
            }
        }
    }
}

impl Chunks {
    /// How many of the bytes belong to the body, and whether that was its end.
    fn pass(&mut self, bytes: &[u8]) -> Result<(usize, bool), Flaw> {
        let mut next = 0;
        while let Some(&byte) = bytes.get(next) {
            if self.at == ChunkPosition::Data {
                let left = (bytes.len() - next) as u64;
                let count = left.min(self.size);
                self.size -= count;
                next += count as usize;
                if self.size == 0 {
                    self.at = ChunkPosition::DataEnd;
                }
                continue;
            }
            next += 1;
            match self.step(byte)? {
                Some(at) => self.at = at,
                None => return Ok((next, true)),
            }
        }
        Ok((next, false))
    }

    /// Returns the position after a byte that is not data; `None` if that byte was the last one.
    fn step(&mut self, byte: u8) -> Result<Option<ChunkPosition>, Flaw> {
        let next = match (self.at, byte) {
            (ChunkPosition::Size | ChunkPosition::Digits, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                let size = self.size.checked_mul(16).ok_or(Flaw::Malformed)? + digit;
                self.size = size;
                ChunkPosition::Digits
            }
            (ChunkPosition::Digits | ChunkPosition::Blanks, b' ' | b'\t') => ChunkPosition::Blanks,
            (ChunkPosition::Digits | ChunkPosition::Blanks, b';') => ChunkPosition::Extension,
            (ChunkPosition::Digits | ChunkPosition::Blanks | ChunkPosition::Extension, b'\r') => {
                ChunkPosition::SizeEnd
            }
            (ChunkPosition::SizeEnd, b'\n') if self.size == 0 => ChunkPosition::Line,
            (ChunkPosition::SizeEnd, b'\n') => {
                self.room = self.room.checked_sub(self.size).ok_or(Flaw::TooLarge)?;
                ChunkPosition::Data
            }
            (ChunkPosition::DataEnd, b'\r') => ChunkPosition::DataLine,
            (ChunkPosition::DataLine, b'\n') => ChunkPosition::Size,
            (ChunkPosition::Line, b'\r') => ChunkPosition::End,
            (ChunkPosition::Trailer, b'\r') => ChunkPosition::TrailerEnd,
            (ChunkPosition::TrailerEnd, b'\n') => ChunkPosition::Line,
            (ChunkPosition::End, b'\n') => return Ok(None),
            (_, b'\n') => return Err(Flaw::Malformed),
            (ChunkPosition::Extension, _) => ChunkPosition::Extension,
            (ChunkPosition::Line | ChunkPosition::Trailer, _) => ChunkPosition::Trailer,
            _ => return Err(Flaw::Malformed),
        };
        Ok(Some(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes over a body in chunks, in two pieces, and says how long it was.
    fn pass(body: &[u8], split: usize, most: u64) -> Result<Option<usize>, Flaw> {
        let mut rest = BodyRemainder::new(Framing::Chunked, most);
        let (first, second) = body.split_at(split);
        let mut count = rest.pass(first)?;
        if count == first.len() {
            count += rest.pass(second)?;
        }
        Ok((rest == BodyRemainder::Nothing).then_some(count))
    }

    #[test]
    fn chunks_end_where_they_end_however_they_come() {
        let good = [
            "0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
            "5;a=b;c\r\nhel\n\r\r\n000;x\r\na: b\r\nc:\r\n\r\n",
            "1\t \r\nx\r\n1 ;\r\ny\r\n0\r\n\r\n",
            "10\r\n0123456789abcdef\r\n00\r\nx: y\r\n\r\n",
        ];
        for body in good {
            let bytes = format!("{body}GET / HTTP/1.1\r\n\r\n").into_bytes();
            for split in 0..bytes.len() {
                assert_eq!(pass(&bytes, split, 100), Ok(Some(body.len())), "{body:?} at {split}");
            }
            for cut in 0..body.len() {
                assert_eq!(pass(&bytes[..cut], 0, 100), Ok(None), "{body:?} to {cut}");
            }
        }
    }

    #[test]
    fn what_hyper_refuses_is_refused_and_trailers_by_lf_as_well() {
        let bad = [
            "\r\n",
            "x\r\n",
            "5\nhello\r\n0\r\n\r\n",
            "5\r\r\nhello",
            "5\r\nhelloX",
            "5\r\nhello\n0\r\n\r\n",
            "5\r\nhello\rX",
            "5 5\r\nhello",
            "5;a\nb\r\nhello",
            "ffffffffffffffff1\r\n",
            "0\r\n\rX",
            "0\r\n\n",
            "0\r\na: b\n\nGET / HTTP/1.1\r\n\r\n",
            "0\r\na: b\rc\r\n\r\n",
        ];
        for body in bad {
            for split in 0..body.len() {
                assert_eq!(
                    pass(body.as_bytes(), split, u64::MAX),
                    Err(Flaw::Malformed),
                    "{body:?} at {split}"
                );
            }
        }
    }

    #[test]
    fn too_much_is_noticed_by_what_is_declared() {
        assert_eq!(pass(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", 0, 5), Ok(Some(20)));
        assert_eq!(pass(b"3\r\nabc\r\n3\r\n", 0, 5), Err(Flaw::TooLarge));
        assert_eq!(pass(b"ffffffffffffffff\r\n", 0, u64::MAX - 1), Err(Flaw::TooLarge));
    }

    #[test]
    fn a_length_is_counted_down() {
        let mut rest = BodyRemainder::new(Framing::Length(5), 0);
        assert_eq!((rest.pass(b"abc"), rest), (Ok(3), BodyRemainder::Length(2)));
        assert_eq!((rest.pass(b"deGET"), rest), (Ok(2), BodyRemainder::Nothing));
        assert_eq!(rest.pass(b"GET"), Ok(0));
        assert_eq!(BodyRemainder::new(Framing::Length(0), 0), BodyRemainder::Nothing);
        let mut rest = BodyRemainder::new(Framing::Length(3), 0);
        assert_eq!((rest.pass(b"abc"), rest), (Ok(3), BodyRemainder::Nothing));
    }
}
