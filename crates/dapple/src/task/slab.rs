//! Memory for tasks and lanes: cells of equal size in aligned chunks, with free lists per worker.
//!
//! A spawn takes a cell from its worker's list and an end puts it back, without an atomic or a
//! lock. Lists travel in *magazines*: a worker that frees more than it takes hands full ones to
//! the shared store, where others fetch them. Threads that are not workers use the shared store.
//!
//! Chunks are aligned to their size, so the address of a cell gives its chunk, and that gives the
//! runtime: no task carries a pointer to it. For the same reason all tasks can be found, by walking
//! the chunks.
//!
//! # Invariants
//!
//! * **ZEROED**: the first word of a cell is a state word as long as the chunk exists: zero, that of a task or lane,
//!   or that of a former task or lane, in which no references are counted. So a walker
//!   may look at any cell at any time (`StateWord::try_ref`).
//! * **OWNER-THREAD**: a `LocalSlab` is used only by the thread that drives its worker.
//! * **LIVE-UNTIL-EMPTY**: chunks go when the runtime's core goes. Once the workers have left,
//!   cells still in use are counted, and the last one to come back releases the core.

use std::alloc::Layout;
use std::any::Any;
use std::cell::UnsafeCell;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::Task;
use super::header::{Header, TaskPtr};
use super::memory::Memory;
use super::runtime_shared::{OwnCount, RuntimeShared};
use crate::context::with_context;
use crate::prim::{Mutex, lock};

/// Size and alignment of a chunk.
const CHUNK: usize = 64 * 1024;
/// Where the first cell of a chunk lies.
const FIRST: usize = 64;
/// Chunks that share cells are cut from regions, the first of this size, the next ones larger: of a
/// region only what is used takes memory.
const REGION: usize = 16 * CHUNK;
const LARGEST_REGION: usize = 1024 * CHUNK;
/// Cells up to this size share chunks.
const LARGEST: usize = 16 * 1024;
/// The alignment of a shared chunk's cells whose size is a multiple of it.
const SHARED_ALIGN: usize = 16;

/// The largest alignment of a cell: it must begin within the first CHUNK bytes of its chunk.
pub(super) const MAX_ALIGN: usize = 4096;

const CLASSES: usize = 41;
/// The sizes of cells: close together where tasks are many, an eighth to a quarter apart above.
const SIZES: [u16; CLASSES] = sizes();
/// Not a class: the cell has a chunk to itself.
pub(super) const LARGE: u8 = u8::MAX;

const fn sizes() -> [u16; CLASSES] {
    let mut sizes = [0; CLASSES];
    let (mut class, mut size, mut step) = (0, 32_usize, 8);
    while class < CLASSES {
        sizes[class] = size as u16;
        if size >= 128 && size.is_power_of_two() {
            step = size / 4;
        }
        size += step;
        class += 1;
    }
    assert!(sizes[CLASSES - 1] as usize == LARGEST);
    sizes
}

/// The class of cells that fit `layout`; known at compile time for each type of future.
pub(crate) const fn class_of(layout: Layout) -> u8 {
    if layout.align() > SHARED_ALIGN {
        return LARGE;
    }
    let mut class = 0;
    while class < CLASSES {
        let size = SIZES[class] as usize;
        if size >= layout.size() && size.is_multiple_of(layout.align()) {
            return class as u8;
        }
        class += 1;
    }
    LARGE
}

/// The head of a chunk.
#[repr(C)]
pub(crate) struct Chunk {
    pub(crate) runtime: *const RuntimeShared,
    class: u8,
    /// Its place among the chunks.
    index: usize,
    /// For a large one: the memory that it is.
    memory: Option<Memory>,
    /// Where the first (for a large one, the only) cell lies.
    first: usize,
}

impl Chunk {
    /// The chunk of a cell.
    #[inline]
    pub(crate) fn of<'a>(cell: TaskPtr) -> &'a Chunk {
        let chunk = cell.as_ptr().map_addr(|address| address & !(CHUNK - 1)).cast::<Chunk>();
        // SAFETY: cells lie in the first CHUNK bytes of a chunk that is aligned to CHUNK, and
        // their pointers are derived from the chunk's. LIVE-UNTIL-EMPTY
        unsafe { &*chunk }
    }

    /// Makes a chunk out of zeroed memory.
    ///
    /// # Safety
    ///
    /// The memory is the caller's, aligned to CHUNK, and as large as the head says.
    unsafe fn make(memory: NonNull<u8>, head: Chunk) -> NonNull<Chunk> {
        let chunk = memory.cast::<Chunk>();
        // SAFETY: handed on from the caller.
        unsafe { chunk.write(head) };
        chunk
    }

    /// Takes the memory of a chunk that has its own; dropping it ends the chunk.
    ///
    /// # Safety
    ///
    /// The chunk is not used any more.
    unsafe fn take_memory(mut chunk: NonNull<Chunk>) -> Option<Memory> {
        // SAFETY: handed on from the caller.
        unsafe { chunk.as_mut() }.memory.take()
    }

    fn cell(chunk: NonNull<Chunk>, offset: usize) -> TaskPtr {
        // SAFETY: callers stay within the chunk's layout.
        unsafe { chunk.byte_add(offset) }.cast::<Header>()
    }

    fn cells(chunk: NonNull<Chunk>) -> impl Iterator<Item = TaskPtr> {
        // SAFETY: chunks in the list are alive, and their head does not change.
        let head = unsafe { chunk.as_ref() };
        let size = if head.class == LARGE { CHUNK } else { SIZES[head.class as usize] as usize };
        let count = if head.class == LARGE { 1 } else { (CHUNK - FIRST) / size };
        let first = head.first;
        (0..count).map(move |i| Chunk::cell(chunk, first + i * size))
    }
}

/// A list of free cells of one class, linked through their headers. LINK-OWNED
struct Magazine {
    head: *mut Header,
    len: usize,
}

// SAFETY: a magazine owns its free cells.
unsafe impl Send for Magazine {}

impl Magazine {
    const EMPTY: Magazine = Magazine { head: null_mut(), len: 0 };

    #[inline]
    fn pop(&mut self) -> Option<TaskPtr> {
        let cell = NonNull::new(self.head)?;
        // SAFETY: the list holds free cells of living chunks.
        self.head = unsafe { cell.as_ref() }.next_link();
        self.len -= 1;
        Some(cell)
    }

    #[inline]
    fn push(&mut self, cell: TaskPtr) {
        // SAFETY: the caller gives us a free cell.
        unsafe { cell.as_ref() }.set_link(self.head);
        self.head = cell.as_ptr();
        self.len += 1;
    }
}

/// Free cells of one class: two magazines, and the part of a chunk that was never used.
struct Cache {
    /// Taken from and put back to.
    loaded: Magazine,
    /// Empty or full: so that a spawn and an end in turn do not both go to the shared store.
    spare: Magazine,
    fresh: *mut Chunk,
    /// Where the part that was never used begins.
    next: usize,
    /// The size of a cell.
    size: usize,
    /// How many cells a full magazine has.
    full: usize,
}

// SAFETY: a cache owns its free cells and the rest of its chunk.
unsafe impl Send for Cache {}

impl Cache {
    fn new(class: usize) -> Cache {
        let size = SIZES[class] as usize;
        let (loaded, spare) = (Magazine::EMPTY, Magazine::EMPTY);
        Cache { loaded, spare, fresh: null_mut(), next: 0, size, full: (CHUNK / 2 / size).min(256) }
    }

    fn all() -> [Cache; CLASSES] {
        std::array::from_fn(Cache::new)
    }

    #[inline]
    fn take(&mut self) -> Option<TaskPtr> {
        self.loaded.pop().or_else(|| self.take_otherwise())
    }

    #[inline(never)]
    fn take_otherwise(&mut self) -> Option<TaskPtr> {
        if self.spare.len > 0 {
            std::mem::swap(&mut self.loaded, &mut self.spare);
            return self.loaded.pop();
        }
        let chunk = NonNull::new(self.fresh)?;
        if self.next + self.size > CHUNK {
            return None;
        }
        self.next += self.size;
        Some(Chunk::cell(chunk, self.next - self.size))
    }

    /// How many cells it holds, those of its chunk that were never used included.
    fn free(&self) -> usize {
        let fresh = if self.fresh.is_null() { 0 } else { (CHUNK - self.next) / self.size };
        self.loaded.len + self.spare.len + fresh
    }

    /// Puts a cell back; a full magazine comes out if there are two.
    fn put(&mut self, cell: TaskPtr) -> Option<Magazine> {
        self.loaded.push(cell);
        if self.loaded.len < self.full { None } else { self.unload() }
    }

    /// Sets a full magazine aside; one comes out if there are two.
    #[inline(never)]
    fn unload(&mut self) -> Option<Magazine> {
        std::mem::swap(&mut self.loaded, &mut self.spare);
        let full = std::mem::replace(&mut self.loaded, Magazine::EMPTY);
        (full.len > 0).then_some(full)
    }
}

/// A worker's own store of cells, and its count of tasks. OWNER-THREAD
pub(crate) struct LocalSlab {
    caches: UnsafeCell<[Cache; CLASSES]>,
    pub(crate) spawned: OwnCount,
    pub(crate) finished: OwnCount,
}

// SAFETY: the counts are atomic; the caches are used by one thread alone. OWNER-THREAD
unsafe impl Sync for LocalSlab {}
// SAFETY: as above; a worker is handed to its thread before it is used.
unsafe impl Send for LocalSlab {}

impl Default for LocalSlab {
    fn default() -> LocalSlab {
        LocalSlab {
            caches: UnsafeCell::new(Cache::all()),
            spawned: OwnCount::default(),
            finished: OwnCount::default(),
        }
    }
}

/// The store of a runtime.
#[derive(Default)]
pub(crate) struct Slab {
    shared: Mutex<SlabShared>,
}

/// Full magazines by class.
struct Full([Vec<Magazine>; CLASSES]);

impl Default for Full {
    fn default() -> Full {
        Full([const { Vec::new() }; CLASSES])
    }
}

#[derive(Default)]
struct SlabShared {
    /// Where chunks come from, and how much of the last of it has been used.
    regions: Vec<Memory>,
    used: usize,
    /// All chunks; `None` where a large one has been freed.
    chunks: Vec<Option<NonNull<Chunk>>>,
    holes: Vec<usize>,
    full: Full,
    /// The store of threads that are not workers; empty until the first use.
    foreign: Vec<Cache>,
    /// The stores of workers that have ended.
    left_behind: Vec<(u8, Cache)>,
    closed: bool,
    /// Cells in use; counted from `close` on.
    live: usize,
    /// Set while the slab is closed and cells are in use. LIVE-UNTIL-EMPTY
    keepalive: Option<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: chunks and free cells belong to the slab, wherever it is.
unsafe impl Send for SlabShared {}

impl SlabShared {
    /// Adds a chunk to the list.
    ///
    /// # Safety
    ///
    /// As for [`Chunk::make`].
    unsafe fn add(&mut self, memory: NonNull<u8>, mut head: Chunk) -> NonNull<Chunk> {
        head.index = self.holes.pop().unwrap_or_else(|| {
            self.chunks.push(None);
            self.chunks.len() - 1
        });
        let index = head.index;
        // SAFETY: handed on from the caller.
        let chunk = unsafe { Chunk::make(memory, head) };
        self.chunks[index] = Some(chunk);
        chunk
    }

    /// A chunk of cells that share it.
    fn add_shared(&mut self, runtime: *const RuntimeShared, class: u8) -> NonNull<Chunk> {
        if self.regions.last().is_none_or(|region| self.used == region.size()) {
            let size = self.regions.last().map_or(REGION, |region| (2 * region.size()).min(LARGEST_REGION));
            self.regions.push(Memory::map(size, CHUNK));
            self.used = 0;
        }
        let region = self.regions.last().expect("just seen to").start();
        // SAFETY: the region is larger than its used part, by whole chunks.
        let memory = unsafe { region.add(self.used) };
        self.used += CHUNK;
        // SAFETY: this part of the region was not used before, and is as large as a chunk.
        unsafe { self.add(memory, Chunk { runtime, class, index: 0, memory: None, first: FIRST }) }
    }

    /// A chunk for one cell that is too large to share one.
    fn add_large(&mut self, runtime: *const RuntimeShared, layout: Layout) -> TaskPtr {
        let first = FIRST.next_multiple_of(layout.align());
        let memory = Memory::map(first + layout.size(), CHUNK);
        let start = memory.start();
        // SAFETY: the memory is new, and large enough for the head and the cell.
        let chunk = unsafe {
            self.add(start, Chunk { runtime, class: LARGE, index: 0, memory: Some(memory), first })
        };
        Chunk::cell(chunk, first)
    }

    /// The store of threads that are not workers.
    fn foreign(&mut self, class: u8) -> &mut Cache {
        if self.foreign.is_empty() {
            self.foreign.extend(Cache::all());
        }
        &mut self.foreign[class as usize]
    }

    /// Counts the cells that are not free. For when no worker is left.
    fn in_use(&self) -> usize {
        let left_behind = self.left_behind.iter().map(|(_, cache)| cache);
        let cached: usize = left_behind.chain(&self.foreign).map(Cache::free).sum();
        let full: usize = self.full.0.iter().flatten().map(|magazine| magazine.len).sum();
        let all: usize = self.chunks.iter().flatten().map(|chunk| Chunk::cells(*chunk).count()).sum();
        all - cached - full
    }

    /// Fills an empty cache.
    fn refill(&mut self, runtime: *const RuntimeShared, class: u8, cache: &mut Cache) {
        if let Some(full) = self.full.0[class as usize].pop() {
            cache.loaded = full;
        } else if let Some(i) = self.left_behind.iter().position(|(c, _)| *c == class) {
            *cache = self.left_behind.swap_remove(i).1;
        } else {
            cache.fresh = self.add_shared(runtime, class).as_ptr();
            cache.next = FIRST;
        }
    }
}

impl LocalSlab {
    /// The free cells of a class. For the thread that drives the worker; the caller lets go of one
    /// before it asks for another.
    #[expect(clippy::mut_from_ref, reason = "the owner's thread alone, one at a time: OWNER-THREAD")]
    #[inline]
    fn cache(&self, class: u8) -> &mut Cache {
        // SAFETY: OWNER-THREAD, and nothing that uses it calls out.
        unsafe { &mut (*self.caches.get())[class as usize] }
    }
}

impl RuntimeShared {
    /// A cell for `layout`, whose class the caller knows, and with `slab` from
    /// [`ThreadContext::slab_of`](crate::context::ThreadContext::slab_of); `None` once the runtime is gone.
    #[inline]
    pub(crate) fn take_cell(&self, slab: Option<&LocalSlab>, class: u8, layout: Layout) -> Option<TaskPtr> {
        match slab {
            Some(slab) if class != LARGE => {
                let cache = slab.cache(class);
                cache.take().or_else(|| self.take_after_refill(class, cache))
            }
            _ => self.take_shared(class, layout),
        }
    }

    #[cold]
    fn take_after_refill(&self, class: u8, cache: &mut Cache) -> Option<TaskPtr> {
        let mut shared = lock(&self.slab.shared);
        if shared.closed {
            return None;
        }
        shared.refill(self.whole(), class, cache);
        cache.take()
    }

    #[cold]
    fn take_shared(&self, class: u8, layout: Layout) -> Option<TaskPtr> {
        let mut shared = lock(&self.slab.shared);
        if shared.closed {
            return None;
        }
        if class == LARGE {
            return Some(shared.add_large(self.whole(), layout));
        }
        let mut cache = std::mem::replace(shared.foreign(class), Cache::new(class as usize));
        let cell = cache.take().or_else(|| {
            shared.refill(self.whole(), class, &mut cache);
            cache.take()
        });
        *shared.foreign(class) = cache;
        cell
    }
}

/// Puts a cell back.
///
/// # Safety
///
/// The caller gave up the last reference to the task or lane in it (so no walker can get one), and does not use it again.
#[inline]
pub(crate) unsafe fn put_cell(cell: TaskPtr) {
    let Chunk { runtime, class, .. } = *Chunk::of(cell);
    match with_context(|context| context.slab_of::<_, LocalSlab>(runtime)) {
        // SAFETY: handed on from the caller.
        Some(slab) if class != LARGE => unsafe { slab.put(runtime, class, cell) },
        // SAFETY: handed on from the caller.
        _ => unsafe { put_shared(runtime, class, cell) },
    }
}

impl LocalSlab {
    /// Puts a cell of `runtime`, whose worker this is, back.
    ///
    /// # Safety
    ///
    /// As for [`put_cell`]; the class is the cell's, and not LARGE.
    #[inline]
    pub(super) unsafe fn put(&self, runtime: *const RuntimeShared, class: u8, cell: TaskPtr) {
        let cache = self.cache(class);
        cache.loaded.push(cell);
        if cache.loaded.len >= cache.full
            && let Some(full) = cache.unload()
        {
            // SAFETY: the runtime of a worker is alive.
            unsafe { &*runtime }.slab.take_back(class, full);
        }
    }
}

impl Slab {
    #[cold]
    fn take_back(&self, class: u8, full: Magazine) {
        lock(&self.shared).full.0[class as usize].push(full);
    }
}

/// # Safety
///
/// As for [`put_cell`].
#[cold]
unsafe fn put_shared(runtime: *const RuntimeShared, class: u8, cell: TaskPtr) {
    // SAFETY: the runtime outlives its cells. LIVE-UNTIL-EMPTY
    let slab = unsafe { &(*runtime).slab };
    let mut shared = lock(&slab.shared);
    if class == LARGE {
        let index = Chunk::of(cell).index;
        let chunk = shared.chunks[index].take().expect("a large chunk is in the list");
        shared.holes.push(index);
        // SAFETY: it is off the list, and its only cell is free.
        drop(unsafe { Chunk::take_memory(chunk) });
    } else {
        if let Some(full) = shared.foreign(class).put(cell) {
            shared.full.0[class as usize].push(full);
        }
    }
    if shared.closed {
        shared.live -= 1;
        if shared.live == 0 {
            let keepalive = shared.keepalive.take();
            drop(shared);
            drop(keepalive); // the runtime may end with it, and this slab with the runtime
        }
    }
}

impl Slab {
    /// Takes over what a worker leaves behind. For the thread that drives it, as its last act.
    pub(crate) fn take_over(&self, local: &LocalSlab) {
        let caches = local.caches.get();
        // SAFETY: the caller drives the worker. OWNER-THREAD
        let caches = std::mem::replace(unsafe { &mut *caches }, Cache::all());
        let mut shared = lock(&self.shared);
        for (class, cache) in caches.into_iter().enumerate() {
            if cache.loaded.len + cache.spare.len > 0 || !cache.fresh.is_null() {
                shared.left_behind.push((class as u8, cache));
            }
        }
    }

    /// Gives out no more cells, and keeps `keepalive` until the last cell in use is back: what the slab lies in.
    /// For when no worker is left.
    pub(crate) fn close(&self, keepalive: Arc<dyn Any + Send + Sync>) {
        let mut shared = lock(&self.shared);
        shared.closed = true;
        shared.live = shared.in_use();
        if shared.live > 0 {
            shared.keepalive = Some(keepalive);
        }
    }

    /// The task at an address, if there is one that is not done. Whatever the address.
    pub(super) fn task_at(&self, address: usize) -> Option<Task> {
        let shared = lock(&self.shared);
        let chunk =
            shared.chunks.iter().flatten().find(|chunk| chunk.addr().get() == address & !(CHUNK - 1))?;
        Chunk::cells(*chunk).find(|cell| cell.addr().get() == address).and_then(Task::of_cell)
    }

    /// References to the tasks in one chunk that are not done; `None` past the last chunk.
    pub(super) fn tasks_in_chunk(&self, index: usize) -> Option<Vec<Task>> {
        let shared = lock(&self.shared);
        let Some(chunk) = *shared.chunks.get(index)? else { return Some(Vec::new()) };
        Some(Chunk::cells(chunk).filter_map(Task::of_cell).collect())
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let mut shared = lock(&self.shared);
        // The others go with their regions.
        for chunk in std::mem::take(&mut shared.chunks).into_iter().flatten() {
            // SAFETY: a chunk in the list is alive, and no cell is in use any more.
            drop(unsafe { Chunk::take_memory(chunk) });
        }
    }
}
