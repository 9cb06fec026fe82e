//! The folder that is served, and how files in it are opened: by `openat2`, which lets no path out of it.
//!
//! # Invariants
//!
//! * **BENEATH**: every path is resolved by the kernel with `RESOLVE_BENEATH`, from the root's own descriptor:
//!   `..`, links that lead out and the magic links of `/proc` end in an error, also if folders are moved meanwhile. The
//!   kernel refuses every absolute link; one whose text begins with the path of the root is rewritten to a relative one
//!   ([`View::rewrite`]), and the path that results is resolved in the same way. A rewrite can be wrong, but not lead out.
//! * **REGULAR-FIRST**: what is at a path is looked at before it is opened for reading, so that no FIFO, device or
//!   socket is ever opened: opening alone can block, or have an effect. The opened file is looked at again.
//! * **NO-WAIT**: a worker asks only for what the kernel has in memory (`RESOLVE_CACHED`); else the pool does.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::clock;

/// Number of attempts for a path whose folders are moved meanwhile.
const TRIES: usize = 16;

/// The most links that are followed on the way to a file, as in the kernel.
const LINKS: usize = 40;

/// Identifies the bytes of a file: equal stamps mean equal bytes, as far as the file system can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) size: u64,
    pub(super) modified: (i64, i64),
    /// Time of the last change of any kind (ctime). Unlike `modified`, it cannot be set.
    pub(super) changed: (i64, i64),
    /// Number of names, mode and owners: they set `changed` as well.
    others: (u64, u32, u32, u32),
}

impl Stamp {
    /// Whether an open file that had this stamp, and has the stamp `now`, still has the bytes that it had, as far as
    /// stamps tell.
    ///
    /// A file that has only become longer does: logs grow by appends. An append and a change elsewhere look the same
    /// here, so a program that does both at once is not noticed. If the file was removed, renamed over or given another
    /// mode, the bytes are the same. If its time was set, they count as changed: a program that changes a file and sets
    /// its time back leaves no other trace.
    pub(super) fn has_bytes_of(&self, now: &Stamp) -> bool {
        if now.inode == self.inode && now.size > self.size {
            return true;
        }
        let is_modified = (self.inode, self.size, self.modified) != (now.inode, now.size, now.modified);
        !is_modified && (self.changed == now.changed || self.others != now.others)
    }

    fn of(stat: &Stat) -> Stamp {
        Stamp {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size as u64,
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
            others: (stat.st_nlink, stat.st_mode, stat.st_uid, stat.st_gid),
        }
    }

    /// The stamp of an open file.
    pub(super) fn of_open(file: impl AsFd) -> io::Result<Stamp> {
        Ok(Stamp::of(&rustix::fs::fstat(file)?))
    }
}

/// The file or folder at a path.
pub(super) enum PathEntry {
    /// A regular file, open to be read.
    File(OwnedFd, Stamp),
    /// A folder. The descriptor serves only to look up paths in it.
    Folder(OwnedFd),
}

/// The folder that is served.
pub(super) struct Root {
    path: Arc<Path>,
    symlinks: bool,
    /// Time for which an open folder is used, while another one may have taken its place at `path`.
    interval: Duration,
    now: Mutex<(Arc<OwnedFd>, Duration)>,
}

impl Root {
    pub(super) fn new(path: &Path) -> io::Result<Root> {
        let folder = open_folder(path, ResolveFlags::empty())?;
        // Looked up here, so that an error shows at the start and not with the first request.
        look(folder.as_fd(), b"", ResolveFlags::BENEATH).map_err(|errno| match errno {
            Errno::NOSYS | Errno::PERM => {
                io::Error::new(io::ErrorKind::Unsupported, "the system call openat2 is not available: use Linux 5.6 or newer, and allow the call in the sandbox (seccomp) of this process")
            }
            errno => errno.into(),
        })?;
        let now = Mutex::new((Arc::new(folder), clock::now()));
        Ok(Root { path: path.into(), symlinks: true, interval: Duration::from_secs(1), now })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The same folder with other settings.
    pub(super) fn with(&self, symlinks: bool, interval: Duration) -> Root {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Root { path: self.path.clone(), symlinks, interval, now: Mutex::new(now) }
    }

    fn how(&self) -> ResolveFlags {
        let links = if self.symlinks { ResolveFlags::empty() } else { ResolveFlags::NO_SYMLINKS };
        ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | links // BENEATH
    }

    /// The folder at the path now: sites are often updated by replacing the folder, or a link to it. If there is no
    /// folder now, the old one.
    async fn folder(&self) -> Arc<OwnedFd> {
        let now = clock::now();
        let folder = {
            let mut current = self.now.lock().unwrap_or_else(PoisonError::into_inner);
            if now.saturating_sub(current.1) < self.interval {
                return current.0.clone();
            }
            current.1 = now;
            current.0.clone()
        };
        let opened = match open_folder(&self.path, ResolveFlags::CACHED) {
            Err(Errno::AGAIN | Errno::INVAL) => {
                let path = self.path.clone();
                dapple::blocking(move || open_folder(&path, ResolveFlags::empty()))
                    .await
                    .unwrap_or(Err(Errno::AGAIN))
            }
            opened => opened,
        };
        let Ok(opened) = opened else { return folder };
        let opened = Arc::new(opened);
        self.now.lock().unwrap_or_else(PoisonError::into_inner).0 = opened.clone();
        opened
    }

    /// The folder at the path now. Blocks: for a thread that may wait.
    pub(super) async fn view(&self) -> View {
        View { folder: self.folder().await, path: self.path.clone(), how: self.how(), follows: self.symlinks }
    }

    /// Looks a path up in the kernel's memory; if that is not enough, a thread of the pool does. NO-WAIT
    async fn ask<T: Send + 'static>(
        &self,
        path: &[u8],
        ask: fn(BorrowedFd<'_>, &[u8], ResolveFlags) -> Result<T, Errno>,
    ) -> io::Result<T> {
        let view = self.view().await;
        match ask(view.folder.as_fd(), path, view.how | ResolveFlags::CACHED) {
            // INVAL: the kernel has openat2 (5.6), but not RESOLVE_CACHED (5.12).
            Err(Errno::AGAIN | Errno::INTR | Errno::INVAL) => {}
            Err(Errno::XDEV) if view.follows => {} // perhaps by an absolute link
            answer => return Ok(answer?),
        }
        let path: Box<[u8]> = path.into();
        match dapple::blocking(move || view.ask(&path, ask)).await {
            Ok(answer) => Ok(answer?),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Opens the file or folder at a path.
    pub(super) async fn open(&self, path: &[u8]) -> io::Result<PathEntry> {
        self.ask(path, open).await
    }

    /// The stamp of a regular file; `None` if there is none.
    pub(super) async fn stamp(&self, path: &[u8]) -> io::Result<Option<Stamp>> {
        match self.ask(path, look).await {
            Ok((_, stat)) => Ok(is_file(&stat).then(|| Stamp::of(&stat))),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The root at one moment, with its settings. For threads that may wait.
pub(super) struct View {
    folder: Arc<OwnedFd>,
    path: Arc<Path>,
    how: ResolveFlags,
    /// Whether links are followed.
    follows: bool,
}

impl View {
    fn ask<T>(
        &self,
        path: &[u8],
        ask: fn(BorrowedFd<'_>, &[u8], ResolveFlags) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let again = |answer: &Result<T, Errno>| matches!(answer, Err(Errno::AGAIN | Errno::INTR));
        let repeat = |path: &[u8]| {
            let mut answers = (0..TRIES).map(|_| ask(self.folder.as_fd(), path, self.how));
            answers.find(|answer| !again(answer)).unwrap_or(Err(Errno::BUSY))
        };
        match repeat(path) {
            Err(Errno::XDEV) if self.follows => repeat(&self.rewrite(path)?),
            answer => answer,
        }
    }

    /// Opens the file or folder at a path, following links.
    pub(super) fn stat(&self, path: &[u8]) -> Result<Stat, Errno> {
        self.ask(path, look).map(|(_, stat)| stat)
    }

    /// The same path without links: an absolute link that begins with the path of the root counts as relative to the
    /// root. The path of the root is the given one, or that one with its own links resolved.
    fn rewrite(&self, path: &[u8]) -> Result<Vec<u8>, Errno> {
        let roots = [std::path::absolute(&self.path), self.path.canonicalize()];
        let roots: Vec<_> = roots.iter().flatten().map(|root| root.as_os_str().as_bytes()).collect();
        let mut clean = Vec::with_capacity(path.len());
        let mut left: Vec<Vec<u8>> = parts(path).rev().map(Into::into).collect();
        let mut links = 0;
        while let Some(part) = left.pop() {
            let len = clean.len();
            clean.extend_from_slice(&part);
            if part != b".." {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let found = rustix::fs::openat2(&self.folder, &clean[..], flags, Mode::empty(), self.how)?; // BENEATH
                if FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) == FileType::Symlink {
                    links += 1;
                    if links > LINKS {
                        return Err(Errno::LOOP);
                    }
                    let link = rustix::fs::readlinkat(&found, c"", Vec::new())?.into_bytes();
                    let target = match link.starts_with(b"/") {
                        true => {
                            clean.clear();
                            roots.iter().find_map(|root| below(root, &link)).ok_or(Errno::XDEV)?
                        }
                        false => {
                            clean.truncate(len);
                            link
                        }
                    };
                    left.extend(parts(&target).rev().map(Into::into));
                    continue;
                }
            }
            clean.push(b'/');
        }
        if !path.ends_with(b"/") {
            clean.pop();
        }
        Ok(clean)
    }
}

/// The parts of a path.
fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b"."))
}

/// The rest of an absolute path that begins with the root.
fn below(root: &[u8], path: &[u8]) -> Option<Vec<u8>> {
    let mut path = parts(path);
    parts(root).all(|part| path.next() == Some(part)).then(|| path.collect::<Vec<_>>().join(&b'/'))
}

/// Whether an error says that there is no file at a path, or none that may be served.
pub(super) fn is_missing(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG | Errno::NXIO)
    )
}

fn open_folder(path: &Path, how: ResolveFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), how)
}

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Looks up the file or folder at a path, without opening it.
fn look(folder: BorrowedFd<'_>, path: &[u8], how: ResolveFlags) -> Result<(OwnedFd, Stat), Errno> {
    let path = if path.is_empty() { b"." } else { path };
    let found = rustix::fs::openat2(folder, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), how)?;
    let stat = rustix::fs::fstat(&found)?;
    Ok((found, stat))
}

fn open(folder: BorrowedFd<'_>, path: &[u8], how: ResolveFlags) -> Result<PathEntry, Errno> {
    let (found, stat) = look(folder, path, how)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {} // REGULAR-FIRST
        FileType::Directory => return Ok(PathEntry::Folder(found)),
        _ => return Err(Errno::NOENT),
    }
    // Non-blocking, in case another program has just replaced the file by a FIFO.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat2(folder, path, flags, Mode::empty(), how)?;
    let stat = rustix::fs::fstat(&file)?;
    if is_file(&stat) { Ok(PathEntry::File(file, Stamp::of(&stat))) } else { Err(Errno::NOENT) }
}
