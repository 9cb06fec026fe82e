//! Callbacks without a color: in the main color, one after the other, on the thread that called `run` or `block_on`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use crate::common::{Event, eventually, in_both_worlds, panic_of, runtime, watched};
use dapple::event::{self, Callback, Registration};
use dapple::time::{Duration, sleep};
use dapple::{Color, Runtime};

const MS: Duration = Duration::from_millis(1);

/// Says on which thread it was called, and in which color.
async fn where_called(submit: impl FnOnce(Box<dyn FnOnce() + Send>)) -> (thread::ThreadId, Color) {
    let here = dapple::suspend(|resume| {
        submit(Box::new(move || drop(resume.resume((thread::current().id(), Color::current())))));
        || {}
    });
    here.await.unwrap()
}

#[test]
fn callbacks_run_in_the_main_color_wherever_they_are_registered() {
    watched(|| {
        dapple::run(async {
            let main = (thread::current().id(), Color::main());
            let now = |f: Box<dyn FnOnce() + Send>| event::now(Callback::new(f)).detach();
            let later = |f: Box<dyn FnOnce() + Send>| event::after(MS, Callback::new(f)).detach();
            // In the main color, in a task elsewhere, in another color's callback, and in a blocking call.
            assert_eq!(where_called(now).await, main);
            assert_eq!(where_called(later).await, main);
            for _ in 0..20 {
                assert_eq!(where_called(|f| dapple::spawn(async move { now(f) }).detach()).await, main);
                assert_eq!(where_called(|f| dapple::spawn(async move { later(f) }).detach()).await, main);
                let color = Color::new();
                let in_color = |f| event::now(Callback::new(move || now(f)).color(&color)).detach();
                assert_eq!(where_called(in_color).await, main);
                assert_eq!(where_called(|f| dapple::blocking(move || now(f)).detach()).await, main);
            }
        });
    });
}

#[test]
fn callbacks_run_in_the_main_color_of_block_on() {
    watched(|| {
        let rt = runtime(2);
        rt.block_on(async {
            let main = (thread::current().id(), Color::main());
            let now = |f: Box<dyn FnOnce() + Send>| event::now(Callback::new(f)).detach();
            assert_eq!(where_called(now).await, main);
            assert_eq!(where_called(|f| dapple::spawn(async move { now(f) }).detach()).await, main);
        });
        // The innermost, on one thread.
        rt.block_on(async {
            let outer = Color::main();
            thread::scope(|scope| {
                scope
                    .spawn(|| {
                        rt.block_on(async {
                            let main = (thread::current().id(), Color::main());
                            assert_ne!(main.1, outer);
                            let now = |f: Box<dyn FnOnce() + Send>| event::now(Callback::new(f)).detach();
                            assert_eq!(where_called(now).await, main);
                        });
                    })
                    .join()
                    .unwrap();
            });
        });
    });
}

#[test]
fn without_a_main_color_the_panic_message_gives_advice() {
    watched(|| {
        let outside = panic_of(|| event::now(Callback::new(|| ())));
        assert!(outside.starts_with("event::now needs a runtime"), "{outside}");
        let rt = runtime(1);
        let in_a_task = |rt: &Runtime| {
            let (tell, told) = std::sync::mpsc::channel();
            rt.spawn(async move { tell.send(panic_of(|| event::after(MS, Callback::new(|| ())))) }).detach();
            told.recv().unwrap()
        };
        let none = in_a_task(&rt);
        assert!(
            none.contains("event::after with a callback without a color, and there is no main color"),
            "{none}"
        );
        assert!(none.contains("Callback::color"), "{none}");
        // One is enough, two are too many.
        let (begun, end) = (Event::default(), Event::default());
        thread::scope(|scope| {
            scope.spawn(|| {
                rt.block_on(async {
                    begun.set();
                    end.happened().await;
                })
            });
            begun.wait();
            let many = rt.block_on(async { in_a_task(&rt) });
            assert!(many.contains("more than one main color"), "{many}");
            end.set();
        });
    });
}

#[test]
fn what_is_local_must_be_registered_in_the_main_color() {
    watched(|| {
        let local = || panic_of(|| event::now(Callback::local(|| ())));
        let expected = "event::now called outside of a main color with a `Callback::local`";
        assert!(local().starts_with(expected), "{}", local());
        dapple::run(async {
            assert!(dapple::spawn(async move { local() }).await.unwrap().starts_with(expected));
            let every = || panic_of(|| event::every(MS, Callback::local(|| ())));
            let in_color = Color::new().call(every).await.unwrap();
            assert!(in_color.starts_with("event::every called outside of a main color"), "{in_color}");
            event::now(Callback::local(local_rc())).await.unwrap();
        });
    });
}

fn local_rc() -> impl FnOnce() {
    let rc = Rc::new(());
    move || drop(rc)
}

/// Calls something when it is dropped.
struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0.take().unwrap()();
    }
}

/// A callback that is registered while the runtime ends is called, or its drop closure is called: none is lost, and
/// nothing panics.
#[test]
fn late_callbacks_are_called_or_refused() {
    in_both_worlds(100, || {
        for waits_for_ever in [false, true] {
            // Of each callback, how often it was called, and how often its drop closure.
            let counts: Arc<[[AtomicUsize; 2]; 2]> = Arc::default();
            let registered = Event::default();
            let register = {
                let (counts, registered) = (counts.clone(), registered.clone());
                move || {
                    for (i, later) in [false, true].into_iter().enumerate() {
                        let count = |what: usize| {
                            let counts = counts.clone();
                            move || {
                                counts[i][what].fetch_add(1, SeqCst);
                            }
                        };
                        let callback = Callback::new(count(0)).or_else(count(1));
                        match later {
                            false => event::now(callback).detach(),
                            true => event::after(Duration::from_secs(3600), callback).detach(),
                        }
                    }
                    registered.set(); // none of it has panicked
                }
            };
            dapple::run(async {
                let begun = Event::default();
                let begins = begun.clone();
                dapple::spawn(async move {
                    let _late = OnDrop(Some(register));
                    begins.set();
                    match waits_for_ever {
                        true => std::future::pending().await,
                        false => drop(sleep(Duration::from_secs(3600)).await),
                    }
                })
                .detach();
                begun.happened().await;
            });
            eventually("each was called, or its drop closure", || {
                counts.iter().all(|[called, refused]| called.load(SeqCst) + refused.load(SeqCst) == 1)
            });
            assert!(registered.is_set());
            assert_eq!(counts[1][0].load(SeqCst), 0, "its time has not come");
        }
    });
}

/// A program as it is written for an event loop: its state is in `Rc`s and `RefCell`s, everything is a callback, and
/// nothing is `Send`.
struct Loop {
    lines: RefCell<VecDeque<String>>,
    answered: Cell<usize>,
    ticks: Cell<usize>,
    registrations: RefCell<Vec<Registration>>,
    done: RefCell<Option<dapple::scope::Resume<()>>>,
    thread: thread::ThreadId,
}

impl Loop {
    fn check(&self) {
        assert_eq!(thread::current().id(), self.thread);
    }

    fn connection(self: &Rc<Loop>, stream: UnixStream) {
        let (this, stream, mut line) = (self.clone(), Rc::new(stream), Vec::new());
        let socket = stream.clone();
        let on_input = move || {
            this.check();
            let mut byte = [0];
            if (&*socket).read(&mut byte).unwrap() == 0 {
                return ControlFlow::Break(());
            }
            line.extend(byte);
            if byte == *b"\n" {
                this.lines.borrow_mut().push_back(String::from_utf8(std::mem::take(&mut line)).unwrap());
                this.answer(&socket);
            }
            ControlFlow::Continue(())
        };
        let reading = event::readable(&stream, Callback::local(on_input)).unwrap();
        self.registrations.borrow_mut().push(reading);
    }

    fn answer(self: &Rc<Loop>, socket: &Rc<UnixStream>) {
        let (this, socket) = (self.clone(), socket.clone());
        let fd = socket.clone();
        let on_room = move || {
            this.check();
            let line = this.lines.borrow_mut().pop_front().unwrap();
            (&*socket).write_all(line.to_uppercase().as_bytes()).unwrap();
            this.answered.set(this.answered.get() + 1);
            let this = this.clone();
            event::now(Callback::local(move || this.look())).detach();
            ControlFlow::Break(())
        };
        event::writable(&fd, Callback::local(on_room)).unwrap().detach();
    }

    fn look(&self) {
        self.check();
        if self.answered.get() == 30
            && let Some(done) = self.done.take()
        {
            self.registrations.borrow_mut().clear();
            done.resume(()).unwrap();
        }
    }
}

#[test]
fn a_program_for_one_thread_runs_unchanged() {
    watched(|| {
        let clients: Vec<_> = (0..10).map(|_| UnixStream::pair().unwrap()).collect();
        thread::scope(|scope| {
            let (near, far): (Vec<_>, Vec<_>) = clients.into_iter().unzip();
            for (i, mut client) in far.into_iter().enumerate() {
                scope.spawn(move || {
                    for j in 0..3 {
                        let line = format!("line {j} of {i}\n");
                        client.write_all(line.as_bytes()).unwrap();
                        let mut answer = vec![0; line.len()];
                        client.read_exact(&mut answer).unwrap();
                        assert!(answer.starts_with(b"LINE ") && answer.ends_with(b"\n"));
                    }
                });
            }
            dapple::run(async {
                let program = Rc::new(Loop {
                    lines: RefCell::default(),
                    answered: Cell::new(0),
                    ticks: Cell::new(0),
                    registrations: RefCell::default(),
                    done: RefCell::default(),
                    thread: thread::current().id(),
                });
                let ticking = program.clone();
                let tick = Callback::local(move || ticking.ticks.set(ticking.ticks.get() + 1));
                program.registrations.borrow_mut().push(event::every(MS, tick));
                near.into_iter().for_each(|stream| program.connection(stream));
                let waiting = program.clone();
                let all_done = dapple::suspend(move |done| {
                    *waiting.done.borrow_mut() = Some(done);
                    waiting.look();
                    || {}
                });
                all_done.await.unwrap();
                assert_eq!(program.answered.get(), 30);
            });
        });
    });
}
