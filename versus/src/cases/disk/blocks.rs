//! The file that `disk` reads.
//!
//! It has no name: it is removed from its folder as soon as it is there, so that nothing is left of it however
//! the run ends, and is opened by way of this process's descriptor. A prepared one ([`prepared`]) keeps its name,
//! for the processes that come after.

use std::cell::OnceCell;
use std::env;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;

use dapple::fs::AlignedBuf;
use rustix::fs::{Advice, OFlags, fadvise};

use super::BLOCK;
use crate::contest::{Failure, Scale};
use crate::prepared;
use crate::scatter::scatter;

/// Bytes of the file.
const SIZE: usize = 1 << 30;

/// The file, made when the first side needs it.
#[derive(Default)]
pub(super) struct Made(OnceCell<Blocks>);

impl Made {
    pub(super) fn blocks(&self, scale: Scale) -> Result<&Blocks, Failure> {
        if let Some(blocks) = self.0.get() {
            return Ok(blocks);
        }
        let count = SIZE / BLOCK / if scale.quick { 16 } else { 1 };
        let blocks = Blocks::make(count)?;
        Ok(self.0.get_or_init(|| blocks))
    }
}

/// A file of blocks that begin with their number.
pub(super) struct Blocks {
    file: File,
    count: usize,
}

impl Blocks {
    /// In the folder for temporary files, or beside this program if that one is in memory.
    fn make(count: usize) -> Result<Self, Failure> {
        if let Some(path) = prepared::path(&format!("blocks-{count}")) {
            return Self::prepare(&path, count);
        }
        let program = env::current_exe().ok().and_then(|path| path.parent().map(Path::to_owned));
        let mut failure = String::new();
        for folder in [Some(env::temp_dir()), program].into_iter().flatten() {
            match Self::make_in(&folder, count) {
                Ok(blocks) => return Ok(blocks),
                Err(error) => failure = format!("{failure}{}: {error}\n", folder.display()),
            }
        }
        Err(format!("no folder for a file of {} bytes with O_DIRECT:\n{failure}", count * BLOCK))
    }

    /// With a name, unless an earlier process has done so.
    fn prepare(path: &Path, count: usize) -> Result<Self, Failure> {
        let failed = |error| format!("{}: {error}", path.display());
        prepared::once(path, |path| {
            let file = File::options().read(true).write(true).create_new(true).open(path).map_err(failed)?;
            Self { file, count }.fill().map_err(failed)
        })?;
        Ok(Self { file: File::open(path).map_err(failed)?, count })
    }

    fn make_in(folder: &Path, count: usize) -> io::Result<Self> {
        let path = folder.join(format!("versus-disk-{}", process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        fs::remove_file(&path)?;
        let blocks = Self { file, count };
        blocks.fill()?;
        Ok(blocks)
    }

    fn fill(&self) -> io::Result<()> {
        self.write(0..CHUNK.min(self.count))?;
        self.try_read()?;
        for first in (CHUNK..self.count).step_by(CHUNK) {
            self.write(first..self.count.min(first + CHUNK))?;
        }
        self.file.sync_all()?;
        // Evict the file from the page cache: otherwise every direct read would look for its block there first.
        fadvise(&self.file, 0, None, Advice::DontNeed)?;
        Ok(())
    }

    fn write(&self, blocks: Range<usize>) -> io::Result<()> {
        let at = blocks.start * BLOCK;
        let mut bytes = Vec::with_capacity(blocks.len() * BLOCK);
        for block in blocks {
            bytes.extend((block as u64).to_le_bytes());
            // No disk can make less of it.
            let words = (1..BLOCK / size_of::<u64>()).map(|word| scatter((block << 9 | word) as u64));
            bytes.extend(words.flat_map(u64::to_le_bytes));
        }
        self.file.write_all_at(&bytes, at as u64)
    }

    /// Whether this file system has `O_DIRECT`.
    fn try_read(&self) -> io::Result<()> {
        self.file.sync_all()?;
        let file = direct(&self.path())?;
        file.read_exact_at(&mut AlignedBuf::new(BLOCK), 0)
    }

    /// A way to open it, as long as it is there.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", process::id(), self.file.as_raw_fd()).into()
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.count as u64
    }

    /// Opens it for threads.
    pub(super) fn open(&self) -> Result<File, Failure> {
        direct(&self.path()).map_err(|error| error.to_string())
    }
}

/// Blocks that are written at a time.
const CHUNK: usize = 256;

/// Opens a file for reading past the page cache.
pub(super) fn direct(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path)
}

/// Looks whether it is this block.
pub(super) fn check(bytes: &[u8], block: u64) {
    assert_eq!(bytes.len(), BLOCK, "a whole block");
    assert_eq!(bytes[..size_of::<u64>()], block.to_le_bytes(), "the block that was asked for");
}
