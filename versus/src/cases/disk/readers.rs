//! How each side of `disk` reads a block.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use dapple::fs::AlignedBuf;

use super::BLOCK;
use super::blocks::{check, direct};

/// The state that the readers of a runtime share.
pub(super) trait Source: Send + Sync + 'static {
    type Reader: Reader;

    fn open(path: PathBuf) -> impl Future<Output = Self> + Send;

    /// One more reader.
    fn reader(&self) -> impl Future<Output = Self::Reader> + Send;
}

/// The reader that one task holds.
pub(super) trait Reader: Send + 'static {
    /// Reads a block, and looks whether it is the one.
    fn read(&mut self, block: u64) -> impl Future<Output = ()> + Send;
}

fn position(block: u64) -> u64 {
    block * BLOCK as u64
}

/// A buffer that goes to the kernel or to another thread, and comes back.
struct Buffer(Option<AlignedBuf>);

impl Buffer {
    fn new() -> Self {
        Self(Some(AlignedBuf::new(BLOCK)))
    }

    fn take(&mut self) -> AlignedBuf {
        self.0.take().expect("a buffer that came back")
    }
}

/// One file, read by position.
pub(super) struct OfDapple(Arc<dapple::fs::File>);

pub(super) struct DappleReader {
    file: Arc<dapple::fs::File>,
    buffer: Buffer,
}

impl Source for OfDapple {
    type Reader = DappleReader;

    async fn open(path: PathBuf) -> Self {
        let file = dapple::fs::File::options().read(true).direct(true).open(path).await;
        Self(Arc::new(file.expect("the file")))
    }

    async fn reader(&self) -> DappleReader {
        DappleReader { file: self.0.clone(), buffer: Buffer::new() }
    }
}

impl Reader for DappleReader {
    async fn read(&mut self, block: u64) {
        let (length, buffer) = self.file.read_at(self.buffer.take(), position(block)).await;
        check(&buffer[..length.expect("a block")], block);
        self.buffer = Buffer(Some(buffer));
    }
}

/// A file for each task, with a cursor.
pub(super) struct OfTokio(PathBuf);

pub(super) struct TokioReader {
    file: tokio::fs::File,
    buffer: Vec<u8>,
}

const _: () = {
    use std::io::SeekFrom;

    use tokio::io::{AsyncReadExt, AsyncSeekExt};

    impl Source for OfTokio {
        type Reader = TokioReader;

        async fn open(path: PathBuf) -> Self {
            Self(path)
        }

        async fn reader(&self) -> TokioReader {
            let file = direct(&self.0).expect("a file descriptor");
            TokioReader { file: tokio::fs::File::from_std(file), buffer: vec![0; BLOCK] }
        }
    }

    impl Reader for TokioReader {
        async fn read(&mut self, block: u64) {
            self.file.seek(SeekFrom::Start(position(block))).await.expect("a place in the file");
            // It reads into memory of its own, which our allocator happens to align well enough.
            self.file.read_exact(&mut self.buffer).await.expect("a block");
            check(&self.buffer, block);
        }
    }
};

/// One file, read by position on the threads for blocking calls.
pub(super) struct OfTokioPread(Arc<File>);

pub(super) struct PreadReader {
    file: Arc<File>,
    buffer: Buffer,
}

impl Source for OfTokioPread {
    type Reader = PreadReader;

    async fn open(path: PathBuf) -> Self {
        Self(Arc::new(direct(&path).expect("the file")))
    }

    async fn reader(&self) -> PreadReader {
        PreadReader { file: self.0.clone(), buffer: Buffer::new() }
    }
}

impl Reader for PreadReader {
    async fn read(&mut self, block: u64) {
        let (file, mut buffer) = (self.file.clone(), self.buffer.take());
        let read = tokio::task::spawn_blocking(move || {
            file.read_exact_at(&mut buffer, position(block)).expect("a block");
            buffer
        });
        let buffer = read.await.expect("a read that ends");
        check(&buffer, block);
        self.buffer = Buffer(Some(buffer));
    }
}

/// One file, read by position on the thread that asks.
pub(super) struct OfStd {
    file: Arc<File>,
    buffer: AlignedBuf,
}

impl OfStd {
    pub(super) fn new(file: Arc<File>) -> Self {
        Self { file, buffer: AlignedBuf::new(BLOCK) }
    }

    pub(super) fn read(&mut self, block: u64) {
        self.file.read_exact_at(&mut self.buffer, position(block)).expect("a block");
        check(&self.buffer, block);
    }
}
