//! Callbacks that are called all the time, and withdrawn from real threads at any moment.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::common::{Drops, Random, foreign_block_on, runtime, watched};
use dapple::event::{self, Callback, Registration};
use dapple::{Color, Handle};

/// Marks a callback as running, with relaxed stores: a callback that runs after its withdrawal, or two at a time, shows a
/// race.
#[derive(Clone, Default)]
struct Inside(Arc<(AtomicBool, AtomicUsize)>);

impl Inside {
    fn visit(&self) {
        assert!(!self.0.0.swap(true, Ordering::Relaxed), "two at a time");
        self.0.1.store(self.0.1.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.0.0.store(false, Ordering::Relaxed);
    }

    fn is_inside(&self) -> bool {
        self.0.0.load(Ordering::Relaxed)
    }

    fn visits(&self) -> usize {
        self.0.1.load(Ordering::Relaxed)
    }
}

/// One that is called as often as its color has its turn.
fn always(handle: &Handle, color: &Color, inside: &Inside, drops: &Drops) -> Registration {
    let (inside, guard, color) = (inside.clone(), drops.guard(), color.clone());
    let callback = Callback::new(move || {
        let _owned = &guard;
        inside.visit();
    });
    let null = File::open("/dev/null").unwrap();
    handle.block_on(async { event::readable(&null, callback.color(&color)).unwrap() })
}

#[test]
fn a_withdrawn_callback_is_never_called_again() {
    watched(|| {
        let rt = runtime(2);
        let handle = rt.handle();
        thread::scope(|scope| {
            for seed in 1..=3 {
                let handle = handle.clone();
                scope.spawn(move || {
                    let (mut random, shared) = (Random(seed), handle.color());
                    for round in 0..300 {
                        // In a color of its own, or beside another of the kind.
                        let color = if round % 2 == 0 { handle.color() } else { shared.clone() };
                        let (inside, drops) = (Inside::default(), Drops::default());
                        let registration = always(&handle, &color, &inside, &drops);
                        while random.below(4) > 0 && inside.visits() < 100 {
                            thread::yield_now();
                        }
                        match random.below(3) {
                            0 => foreign_block_on(registration.withdraw()).unwrap(),
                            1 => handle.block_on(handle.spawn(registration.withdraw())).unwrap().unwrap(),
                            _ => {
                                // From the callback's own color, where the dropping thread need not wait.
                                let inside = inside.clone();
                                let dropped = color.call(move || {
                                    drop(registration);
                                    let visits = inside.visits();
                                    thread::yield_now();
                                    assert_eq!(
                                        inside.visits(),
                                        visits,
                                        "it was called after it was withdrawn"
                                    );
                                });
                                handle.block_on(dropped).unwrap();
                                handle.block_on(color.call(|| ())).unwrap(); // what it owned is dropped by then
                            }
                        }
                        let visits = inside.visits();
                        assert!(!inside.is_inside(), "it is still running");
                        assert_eq!(drops.count(), 1, "what it owned is not gone");
                        thread::yield_now();
                        assert_eq!(inside.visits(), visits, "it was called after it was withdrawn");
                    }
                });
            }
        });
    });
}

/// Bytes through many sockets at once, read by callbacks of a few colors: none is lost, and none read twice.
#[test]
fn every_byte_is_read_once() {
    watched(|| {
        let rt = runtime(2);
        rt.block_on(async {
            const SOCKETS: usize = 50;
            const BYTES: usize = 200;
            let colors: Vec<_> = (0..4).map(|_| Color::new()).collect();
            let (done, mut all) = dapple::channel::mpsc::unbounded();
            let mut far = Vec::new();
            let mut registrations = Vec::new();
            for i in 0..SOCKETS {
                let (near, other) = UnixStream::pair().unwrap();
                far.push(other);
                let (near, done, mut next) = (Arc::new(near), done.clone(), 0_u8);
                let socket = near.clone();
                let callback = move || {
                    let mut buffer = [0; 3];
                    let n = (&*socket).read(&mut buffer).unwrap();
                    for byte in &buffer[..n] {
                        assert_eq!(*byte, next);
                        next = next.wrapping_add(1);
                    }
                    if usize::from(next) == BYTES {
                        done.try_send(i).unwrap();
                    }
                };
                let callback = Callback::new(callback).color(&colors[i % colors.len()]);
                registrations.push(event::readable(&near, callback).unwrap());
            }
            let writing = thread::spawn(move || {
                let mut random = Random(7);
                let mut sent = [0; SOCKETS];
                while sent.iter().any(|&n| n < BYTES) {
                    let i = random.below(SOCKETS as u64) as usize;
                    let n = (BYTES - sent[i]).min(random.below(10) as usize);
                    let bytes: Vec<_> = (sent[i]..sent[i] + n).map(|byte| byte as u8).collect();
                    far[i].write_all(&bytes).unwrap();
                    sent[i] += n;
                }
                far
            });
            let mut ended = Vec::new();
            while ended.len() < SOCKETS {
                ended.push(all.recv().await.unwrap());
            }
            ended.sort_unstable();
            assert_eq!(ended, (0..SOCKETS).collect::<Vec<_>>());
            writing.join().unwrap();
            for registration in registrations {
                registration.withdraw().await.unwrap();
            }
        });
    });
}
