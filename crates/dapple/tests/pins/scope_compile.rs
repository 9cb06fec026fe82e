//! Programs with scopes that must compile in a task that may move between threads. That they do is the test;
//! what they compute is looked at, too.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use dapple::channel::oneshot;
use dapple::task::yield_now;
use dapple::time::{Duration, timeout};
use dapple::{ColorCell, scope::Started};
use dapple::{Scope, finish, race, shield, spawn};
use futures_util::future::{join, join_all};

/// Spawns it, which asks for `Send + 'static`.
#[track_caller]
fn spawned<F>(future: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    let rt = crate::common::runtime(2);
    rt.block_on(async { spawn(future).await.unwrap() })
}

async fn later<T>(value: T) -> T {
    yield_now().await;
    value
}

#[test]
fn nested() {
    let sum = spawned(async {
        let a = 1;
        finish(async |outer| {
            let b = outer.start(later(2)).await;
            finish(async |middle| {
                let c = middle.start(async { later(a).await }).await;
                finish(async |inner| inner.start(async { later(a).await + 3 }).await + b + c).await
            })
            .await
        })
        .await
    });
    assert_eq!(sum, 7);
}

#[test]
fn loops_over_borrowed_values() {
    let total = spawned(async {
        let names = vec!["a".to_owned(), "bc".to_owned(), "def".to_owned()];
        let (total, mut rounds) = (AtomicUsize::new(0), 0);
        while rounds < 3 {
            finish(async |s| {
                for name in &names {
                    let total = &total;
                    s.start(async move { total.fetch_add(later(name.len()).await, Ordering::Relaxed) });
                }
            })
            .await;
            rounds += 1;
        }
        total.into_inner()
    });
    assert_eq!(total, 18);
}

#[test]
fn question_marks_in_the_body_and_in_children() {
    async fn fetch(fails: bool) -> io::Result<usize> {
        if later(fails).await { Err(io::Error::other("failed")) } else { Ok(1) }
    }
    async fn sum(fails: bool) -> io::Result<usize> {
        let sum = finish(async |s| {
            let first = s.start(fetch(false));
            let second = s.start(async { Ok::<_, io::Error>(fetch(fails).await? + fetch(false).await?) });
            let (first, second) = (first.await?, second.await?);
            io::Result::Ok(first + second)
        })
        .await?;
        Ok(sum + 1)
    }
    assert_eq!(spawned(sum(false)).unwrap(), 4);
    assert!(spawned(sum(true)).is_err());
}

#[test]
fn children_that_start_children() {
    type Boxed<'s> = Pin<Box<dyn Future<Output = ()> + Send + 's>>;
    fn grow<'s>(s: &'s Scope<'s, '_>, depth: usize, count: &'s AtomicUsize) -> Boxed<'s> {
        Box::pin(async move {
            count.fetch_add(1, Ordering::Relaxed);
            if depth > 0 {
                for _ in 0..2 {
                    drop(s.start(grow(s, depth - 1, count)));
                    yield_now().await;
                }
            }
        })
    }
    let count = spawned(async {
        let count = AtomicUsize::new(0);
        finish(async |s| drop(s.start(grow(s, 3, &count)))).await;
        count.into_inner()
    });
    assert_eq!(count, 15);
}

async fn longest(words: &[String], at_least: &usize) -> Option<String> {
    let best = Mutex::new(None::<&String>);
    finish(async |s| {
        for word in words {
            let best = &best;
            drop(s.start(async move {
                let length = later(word.len()).await;
                let mut best = best.lock().unwrap();
                if length >= *at_least && best.is_none_or(|best| best.len() < length) {
                    *best = Some(word);
                }
            }));
        }
    })
    .await;
    best.into_inner().unwrap().cloned()
}

#[test]
fn borrowed_arguments_of_a_function() {
    let found = spawned(async {
        let words = ["a".to_owned(), "long".to_owned(), "bit".to_owned()];
        (longest(&words, &2).await, longest(&words[..1], &2).await)
    });
    assert_eq!(found, (Some("long".to_owned()), None));
}

#[test]
fn boxed_as_a_trait_object() {
    fn boxed(n: usize) -> Pin<Box<dyn Future<Output = usize> + Send>> {
        Box::pin(async move {
            let seen = n;
            finish(async |s| s.start(async { later(seen).await }).await).await
        })
    }
    fn borrowing<'a>(n: &'a usize) -> Pin<Box<dyn Future<Output = usize> + Send + 'a>> {
        Box::pin(finish(async move |s| s.start(async move { later(*n).await }).await))
    }
    assert_eq!(spawned(async { boxed(1).await + borrowing(&2).await }), 3);
}

#[test]
fn generic_in_the_child_and_in_its_value() {
    async fn all<T, F, I>(futures: I) -> Vec<T>
    where
        I: IntoIterator<Item = F> + Send,
        I::IntoIter: Send,
        F: Future<Output = T> + Send,
        T: Send,
    {
        let futures = futures.into_iter();
        finish(async move |s| {
            let started: Vec<Started<'_, T>> = futures.map(|future| s.start(future)).collect();
            let mut values = Vec::new();
            for child in started {
                values.push(child.await);
            }
            values
        })
        .await
    }
    let values = spawned(async {
        let word = "abc".to_owned();
        (all([later(1), later(2)]).await, all((0..2).map(|i| later(&word[i..]))).await.concat())
    });
    assert_eq!(values, (vec![1, 2], "abcbc".to_owned()));
}

struct Server {
    name: String,
    hits: AtomicUsize,
    log: Vec<usize>,
}

impl Server {
    async fn serve(&self, requests: &[usize]) -> usize {
        finish(async |s| {
            for request in requests {
                drop(s.start(self.one(*request)));
            }
            self.name.len()
        })
        .await
            + self.hits.load(Ordering::Relaxed)
    }

    async fn one(&self, request: usize) {
        self.hits.fetch_add(later(request).await, Ordering::Relaxed);
    }

    /// Changes what it has before, in one child, and after.
    async fn note(&mut self, requests: &[usize]) {
        self.log.push(0);
        let (log, hits) = (&mut self.log, &self.hits);
        finish(async |s| {
            drop(s.start(async move {
                for request in requests {
                    log.push(later(*request).await);
                }
            }));
            drop(s.start(async { hits.fetch_add(1, Ordering::Relaxed) }));
        })
        .await;
        self.log.push(9);
    }
}

#[test]
fn methods_with_shared_and_exclusive_receivers() {
    let mut server = Server { name: "x".to_owned(), hits: AtomicUsize::new(0), log: Vec::new() };
    let log = spawned(async move {
        server.note(&[1, 2]).await;
        assert_eq!(server.serve(&[3, 4]).await, 9);
        server.note(&[]).await;
        server.log
    });
    assert_eq!(log, [0, 1, 2, 9, 0, 9]);
}

#[test]
fn closures_by_reference() {
    let sum = spawned(async {
        let (offset, table) = (10, HashMap::from([(1, 2), (3, 4)]));
        let compute = |n: usize| offset + table.get(&n).copied().unwrap_or(0);
        let fetch = async |n: usize| compute(later(n).await);
        finish(async |s| {
            let children: Vec<_> = [1, 3, 5].into_iter().map(|n| s.start(fetch(n))).collect();
            join_all(children).await.into_iter().sum::<usize>() + compute(1)
        })
        .await
    });
    assert_eq!(sum, 48);
}

#[test]
fn a_mutable_variable_in_one_child_and_afterwards_outside() {
    let values = spawned(async {
        let (mut first, mut second) = (Vec::new(), String::new());
        finish(async |s| {
            drop(s.start(async { first.push(later(1).await) }));
            drop(s.start(async { second.push(later('x').await) }));
        })
        .await;
        first.push(2);
        second.push('y');
        (first, second)
    });
    assert_eq!(values, (vec![1, 2], "xy".to_owned()));
}

#[test]
fn values_that_borrow_from_outside() {
    let longest = spawned(async {
        let text = "one two three".to_owned();
        let word = finish(async |s| {
            let words: Vec<Started<'_, &str>> = text.split(' ').map(|word| s.start(later(word))).collect();
            let mut longest = "";
            for word in words {
                longest = Some(word.await).filter(|word| word.len() > longest.len()).unwrap_or(longest);
            }
            longest
        })
        .await;
        word.to_owned()
    });
    assert_eq!(longest, "three");
}

#[test]
fn children_that_await_each_other() {
    let value = spawned(async {
        finish(async |s| {
            let first = s.start(later(1));
            let second = s.start(async move { first.await + 1 });
            let third = s.start(async move { later(second).await.await + 1 });
            third.await
        })
        .await
    });
    assert_eq!(value, 3);
}

#[test]
fn spawned_and_cancelled_in_the_same_scope() {
    let ended = spawned(async {
        let ended = AtomicUsize::new(0);
        finish(async |s| {
            let canceller = s.canceller();
            let (send, receive) = oneshot::channel::<u8>();
            let task = s.spawn(async move {
                drop(later(send).await);
                canceller.cancel();
            });
            drop(s.start(async {
                ended.fetch_add(usize::from(receive.await.is_err()), Ordering::Relaxed);
            }));
            drop(task.await);
            s.is_cancelled()
        })
        .await
            && ended.into_inner() == 1
    });
    assert!(ended);
}

#[test]
fn with_races_timeouts_shields_and_joins() {
    let value = spawned(async {
        let base = 1;
        let scope = finish(async |s| {
            let raced = s.start(race((later(base), later(base))));
            let timed = s.start(timeout(Duration::from_secs(1000), async { later(base).await }));
            let shielded = s.start(shield(finish(async |inner| inner.start(later(base)).await)));
            let (raced, timed) = join(raced, timed).await;
            raced + timed.unwrap() + shielded.await
        });
        timeout(Duration::from_secs(1000), scope).await.unwrap()
    });
    assert_eq!(value, 3);
}

#[test]
fn a_match_an_early_return_and_a_break() {
    async fn first_even(numbers: &[u32]) -> Option<u32> {
        finish(async |s| {
            for number in numbers {
                match s.start(async { later(*number).await }).await {
                    even if even % 2 == 0 => return Some(even),
                    7 => break,
                    _ => {}
                }
            }
            None
        })
        .await
    }
    assert_eq!(spawned(async { first_even(&[1, 4, 6]).await }), Some(4));
    assert_eq!(spawned(async { first_even(&[1, 7, 6]).await }), None);
}

#[test]
fn children_share_a_cell_of_their_color() {
    let sum = spawned(async {
        let cell = ColorCell::new(0);
        finish(async |s| {
            for i in 0..4 {
                let cell = &cell;
                drop(s.start(async move {
                    let i = later(i).await;
                    cell.with(|sum| *sum += i);
                }));
            }
        })
        .await;
        cell.with(|sum| *sum)
    });
    assert_eq!(sum, 6);
}

/// A trait whose implementors start children.
trait Handler: Sync {
    fn handle(&self, n: usize) -> impl Future<Output = usize> + Send;
}

impl Handler for usize {
    async fn handle(&self, n: usize) -> usize {
        finish(async |s| {
            let twice = s.start(async { later(n).await * *self });
            twice.await
        })
        .await
    }
}

#[test]
fn behind_a_trait() {
    async fn both(handler: &impl Handler) -> usize {
        finish(async |s| {
            let (first, second) = (s.start(handler.handle(1)), s.start(handler.handle(2)));
            first.await + second.await
        })
        .await
    }
    assert_eq!(spawned(async { both(&5).await }), 15);
}

/// The outputs contain references: a race that is awaited in a task is `Send` all the same.
#[test]
fn races_of_references() {
    let word = spawned(async { race((later("a"), later("a"))).await });
    assert_eq!(word, "a");
    let lengths = spawned(async {
        let text = String::from("text");
        let (word, number) = (text.as_str(), text.len());
        let two = race((later((word, &number)), later((word, &number)))).await;
        let three = race((later(&number), later(&number), later(&number))).await;
        let four = race((later(word), later(word), later(word), later(word))).await;
        let five = race((later(word), later(word), later(word), later(word), later(word))).await;
        let six = race((later(word), later(word), later(word), later(word), later(word), later(word))).await;
        let seven =
            race((later(word), later(word), later(word), later(word), later(word), later(word), async {
                later(word).await
            }))
            .await;
        let eight = race((
            later(Some(word)),
            later(Some(word)),
            later(Some(word)),
            later(Some(word)),
            later(Some(word)),
            later(Some(word)),
            later(Some(word)),
            async { later(Some(word)).await },
        ))
        .await;
        let others = [four, five, six, seven, eight.unwrap_or_default()];
        (two.0.len(), *two.1, *three, others.map(str::len))
    });
    assert_eq!(lengths, (4, 4, 4, [4; 5]));
}

/// Also as a field, behind a reference, and inside of a scope and a timeout.
#[test]
fn races_of_references_inside_of_others() {
    let sum = spawned(async {
        let numbers = [1, 2, 3];
        finish(async |s| {
            let first = s.start(async { *race((later(&numbers[0]), later(&numbers[0]))).await });
            let mut again = Box::pin(race((later(&numbers), later(&numbers))));
            let limited = timeout(Duration::from_secs(1000), again.as_mut()).await;
            first.await + limited.unwrap().iter().sum::<i32>()
        })
        .await
    });
    assert_eq!(sum, 7);
}
