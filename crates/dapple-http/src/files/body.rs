//! The body of an answer: bytes from the cache, or pieces of a file, one after the other.
//!
//! # Invariants
//!
//! * **SAME-BYTES**: bytes that were read are handed out only if the file's stamp, asked for after the read, is that of
//!   the look before, or of a file that has only grown since (`Stamp::has_bytes_of`). A write stamps the file before it
//!   changes a byte, so a file that was cut, or changed at the same size, between two looks gives no byte to the answer.
//!   The headers of the answer were made from the first look. During an append the file has a new stamp and still the old
//!   size for a moment, so a look that finds this is repeated for some milliseconds. If the stamps differ even then, the
//!   body ends with an error, and the server cuts the connection: the client sees that bytes are missing.
//! * **AS-LONG-AS-TOLD**: the body has exactly as many bytes as its size hint said, or ends with an error. A file that
//!   grows is sent up to the length that it had when the answer began.

use std::fmt;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use dapple::fs::{Buffer, File};
use http_body::{Frame, SizeHint};

use super::buffers;
use super::pace::Pace;
use super::root::Stamp;
use crate::connection::send_queue::piece_limit;

/// The body of an answer of [`FileService`](super::FileService).
///
/// Its size is known from the start. A file that grows meanwhile is sent up to that size. The body ends with an error if
/// the file was cut, or changed at the same size, while it was being sent. The server then cuts the connection, so that
/// the client does not take the received bytes for the whole file.
///
/// # Examples
///
/// ```
/// use http_body_util::BodyExt;
/// use tower_service::Service;
///
/// # fn main() -> std::io::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("dapple-file-body-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # std::fs::write(folder.join("seats.txt"), "100 left")?;
/// dapple::run(async {
///     let mut files = dapple_http::files(&folder)?;
///     let request = http::Request::get("/seats.txt").body(()).unwrap();
///     let body = files.call(request).await.unwrap().into_body();
///     assert_eq!(body.collect().await.unwrap().to_bytes(), "100 left");
/// #     std::fs::remove_dir_all(&folder)?;
///     Ok(())
/// })
/// # }
/// ```
pub struct FileBody(BodyContent);

enum BodyContent {
    Bytes(Bytes),
    File(Box<FilePieces>),
}

impl FileBody {
    pub(super) fn empty() -> FileBody {
        FileBody(BodyContent::Bytes(Bytes::new()))
    }

    pub(super) fn of(bytes: Bytes) -> FileBody {
        FileBody(BodyContent::Bytes(bytes))
    }

    /// Parts of a file, with texts between them.
    pub(super) fn pieces(source: StampedFile, parts: impl IntoIterator<Item = BodyPart>) -> FileBody {
        let mut parts: Vec<_> = parts.into_iter().collect();
        parts.reverse();
        let left = parts.iter().map(BodyPart::len).sum();
        let pace = Pace::default();
        FileBody(BodyContent::File(Box::new(FilePieces {
            source,
            parts,
            left,
            next: Next::Idle,
            waits: false,
            pace,
        })))
    }
}

impl fmt::Debug for FileBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = http_body::Body::size_hint(self).exact();
        f.debug_struct("FileBody").field("left", &left.unwrap_or_default()).finish_non_exhaustive()
    }
}

impl http_body::Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut self.0 {
            BodyContent::Bytes(bytes) if bytes.is_empty() => Poll::Ready(None),
            BodyContent::Bytes(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            BodyContent::File(pieces) => {
                pieces.poll_next(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodyContent::Bytes(bytes) => bytes.is_empty(),
            BodyContent::File(pieces) => pieces.left == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match &self.0 {
            BodyContent::Bytes(bytes) => bytes.len() as u64,
            BodyContent::File(pieces) => pieces.left,
        })
    }
}

/// A file with another time and the size it had may be in the middle of an append: the kernel stamps a file before it
/// writes, and sets its size after that. So it is looked at again, after these times, before it counts as changed.
const APPENDING: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(5), Duration::from_millis(25)];

/// An open file, in a certain state.
#[derive(Clone)]
pub(super) struct StampedFile {
    pub(super) file: Arc<File>,
    /// The stamp at the last look.
    pub(super) stamp: Stamp,
}

impl StampedFile {
    /// Reads a part into newly allocated memory.
    pub(super) async fn read(&mut self, range: Range<u64>) -> io::Result<Bytes> {
        let len = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
        let begin = if len < buffers::SIZE { 0 } else { buffers::BEGIN };
        let bytes = self.fill(vec![0; begin + len], begin, range.start).await?;
        Ok(Bytes::from(bytes).slice(begin..))
    }

    /// Reads a part that fits into a buffer. Also returns the stamp that the file has now.
    async fn read_piece(mut self, range: Range<u64>) -> io::Result<(Bytes, Stamp)> {
        let bytes = match usize::try_from(range.end - range.start) {
            Ok(len @ (buffers::SIZE | buffers::LARGE)) => {
                buffers::lend(self.fill(buffers::take(len), buffers::BEGIN, range.start).await?)
            }
            _ => self.read(range).await?, // as much memory as it needs
        };
        Ok((bytes, self.stamp))
    }

    /// Fills the memory from `begin` on with the bytes of the file from `at` on: SAME-BYTES.
    async fn fill(&mut self, mut bytes: Vec<u8>, begin: usize, at: u64) -> io::Result<Vec<u8>> {
        let mut filled = begin;
        while filled < bytes.len() {
            let (read, rest) = self.file.read_at(bytes.slice(filled..), at + (filled - begin) as u64).await;
            bytes = rest.into_inner();
            match read? {
                0 => return Err(changed()),
                count => filled += count,
            }
        }
        let mut now = Stamp::of_open(&*self.file)?;
        for wait in APPENDING {
            if self.stamp.has_bytes_of(&now) || self.stamp.size != now.size {
                break;
            }
            dapple::time::sleep(wait).await?;
            now = Stamp::of_open(&*self.file)?;
        }
        if !self.stamp.has_bytes_of(&now) {
            return Err(changed());
        }
        self.stamp = now;
        Ok(bytes)
    }
}

fn changed() -> io::Error {
    io::Error::new(io::ErrorKind::StaleNetworkFileHandle, "the file was changed while it was being sent")
}

/// Whether a read failed because the file has changed.
pub(super) fn is_changed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::StaleNetworkFileHandle
}

/// The next part of a body: a text, or a range of the file.
pub(super) enum BodyPart {
    Text(Bytes),
    File(Range<u64>),
}

impl BodyPart {
    fn len(&self) -> u64 {
        match self {
            BodyPart::Text(text) => text.len() as u64,
            BodyPart::File(range) => range.end - range.start,
        }
    }
}

type FileRead = Pin<Box<dyn Future<Output = io::Result<(Bytes, Stamp)>> + Send>>;

/// Where the next piece is.
enum Next {
    Idle,
    Reading(FileRead),
    Read(io::Result<Bytes>),
}

/// Parts of a file, in pieces.
struct FilePieces {
    source: StampedFile,
    /// The remaining parts, in reverse order.
    parts: Vec<BodyPart>,
    /// Number of remaining bytes.
    left: u64,
    next: Next,
    /// The last read had to wait for the disk, so one piece is read ahead. Without a wait there is no need for that.
    waits: bool,
    pace: Pace,
}

impl FilePieces {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        self.pace.note_asked();
        loop {
            let piece = match std::mem::replace(&mut self.next, Next::Idle) {
                Next::Idle => match self.begin() {
                    None => return Poll::Ready(None),
                    Some(Ok(text)) => Ok(text),
                    Some(Err(reading)) => {
                        self.next = Next::Reading(reading);
                        self.waits = self.push_on(cx);
                        continue;
                    }
                },
                Next::Reading(reading) => {
                    self.next = Next::Reading(reading);
                    if self.push_on(cx) {
                        return Poll::Pending;
                    }
                    continue;
                }
                Next::Read(piece) => {
                    let goes_on = piece.is_ok() && matches!(self.parts.last(), Some(BodyPart::File(_)));
                    if self.waits
                        && goes_on
                        && piece_limit() >= buffers::SIZE
                        && let Some(Err(reading)) = self.begin()
                    {
                        self.next = Next::Reading(reading);
                        self.waits = self.push_on(cx);
                    }
                    piece
                }
            };
            match &piece {
                Ok(piece) => {
                    self.left -= piece.len() as u64;
                    self.pace.note_handed_out(piece.len());
                }
                Err(_) => {
                    // AS-LONG-AS-TOLD: nothing comes after an error.
                    self.parts.clear();
                    self.next = Next::Idle;
                }
            }
            return Poll::Ready(Some(piece));
        }
    }

    /// Takes the next part: returns a text, or begins to read a piece.
    fn begin(&mut self) -> Option<Result<Bytes, FileRead>> {
        match self.parts.pop()? {
            BodyPart::Text(text) => Some(Ok(text)),
            BodyPart::File(range) => {
                let size = self.pace.size().min(piece_limit());
                let end = range.end.min(range.start + size as u64);
                if end < range.end {
                    self.parts.push(BodyPart::File(end..range.end));
                }
                Some(Err(Box::pin(self.source.clone().read_piece(range.start..end))))
            }
        }
    }

    /// Polls the read that is under way. Returns whether it is still pending.
    fn push_on(&mut self, cx: &mut Context<'_>) -> bool {
        let Next::Reading(reading) = &mut self.next else { return false };
        match reading.as_mut().poll(cx) {
            Poll::Ready(piece) => {
                let piece = piece.map(|(piece, stamp)| {
                    self.source.stamp = stamp;
                    piece
                });
                self.next = Next::Read(piece);
                false
            }
            Poll::Pending => true,
        }
    }
}
