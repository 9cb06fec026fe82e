//! `when`: a producer and a consumer that wait for conditions over two states.
//!
//! One state is the stock, the other the credit: how many more may be produced. The producer waits for credit, takes one
//! and adds a number to the stock, both in the same moment; the consumer waits for stock, takes the number out and gives the
//! credit back. In `when/1` there is credit for one, so both wait each time; in `when/64` they may run side by side.
//!
//! Dapple's side is `when` over both states. The other sides lock both, in the same order everywhere, look, and wait for a
//! signal between their looks: a `Notify` for each condition, which keeps a signal that comes before its waiter. With one
//! producer and one consumer that misses nothing and wakes no task in vain, which is the best that can be done by hand.
//! `tokio` has its own mutex around each state. `tokio-std`, a reference, has the standard library's, which tokio's
//! documentation advises for sections without an await.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::{Arc, PoisonError};

use dapple::Shared;
use dapple::shared::when;
use tokio::sync::Notify;

use crate::contest::{Contest, Role};
use crate::sides::{Dapple, Side, Tokio};
use crate::work::{self, Work};

pub(crate) fn contests() -> Vec<Contest> {
    vec![
        contest::<1>("when/1", "a producer and a consumer move one number through two states; per number"),
        contest::<64>("when/64", "the same with up to 64 numbers under way; per number"),
    ]
}

fn contest<const CREDIT: usize>(name: &'static str, about: &'static str) -> Contest {
    let entries = vec![
        work::contended_entry::<Dapple, Trade<OfDapple, CREDIT>>("dapple", Role::Ours),
        work::contended_entry::<Tokio, Trade<OfTokio, CREDIT>>("tokio", Role::Rival),
        work::contended_entry::<Tokio, Trade<OfStd, CREDIT>>("tokio-std", Role::Reference),
    ];
    work::contended(name, about, entries)
}

type Stock = VecDeque<u64>;

/// Moves a number into the stock, for a credit. The same on all sides, with exclusive access to both states.
#[inline]
fn produced(credit: &mut usize, stock: &mut Stock, number: u64) -> bool {
    let may = *credit > 0;
    if may {
        *credit -= 1;
        stock.push_back(number);
    }
    may
}

/// Takes a number out of the stock, and gives its credit back.
#[inline]
fn consumed(credit: &mut usize, stock: &mut Stock) -> Option<u64> {
    let number = stock.pop_front()?;
    *credit += 1;
    Some(number)
}

/// Two states, and how to wait for a condition over both.
trait States: Send + Sync + 'static {
    fn open(credit: usize) -> Self;
    fn produce(&self, number: u64) -> impl Future<Output = ()> + Send;
    fn consume(&self) -> impl Future<Output = u64> + Send;
    /// At the end: the credit and the length of the stock.
    fn left(&self) -> impl Future<Output = (usize, usize)> + Send;
}

struct Trade<T, const CREDIT: usize>(PhantomData<T>);

impl<T: States, const CREDIT: usize> Work for Trade<T, CREDIT> {
    const BATCHES: usize = 500;
    const OPERATIONS: usize = 1000;

    async fn run<S: Side>(side: S, batches: usize) {
        let numbers = (batches * Self::OPERATIONS) as u64;
        let states = Arc::new(T::open(CREDIT));
        let consumer = side.spawn({
            let states = states.clone();
            async move {
                for number in 0..numbers {
                    assert_eq!(states.consume().await, number, "a number was lost, or came twice");
                }
            }
        });
        let producer = side.spawn({
            let states = states.clone();
            async move {
                for number in 0..numbers {
                    states.produce(number).await;
                }
            }
        });
        S::join(producer).await;
        S::join(consumer).await;
        assert_eq!(states.left().await, (CREDIT, 0), "credit was lost, or made");
    }
}

struct OfDapple {
    credit: Shared<usize>,
    stock: Shared<Stock>,
}

impl States for OfDapple {
    fn open(credit: usize) -> Self {
        Self { credit: Shared::new(credit), stock: Shared::new(Stock::with_capacity(credit)) }
    }

    #[inline]
    async fn produce(&self, number: u64) {
        let both = (self.credit.writing(), self.stock.writing());
        let done = when(both, |(credit, stock)| produced(credit, stock, number).then_some(()));
        done.await.expect("nobody cancels");
    }

    #[inline]
    async fn consume(&self) -> u64 {
        let both = (self.credit.writing(), self.stock.writing());
        when(both, |(credit, stock)| consumed(credit, stock)).await.expect("nobody cancels")
    }

    async fn left(&self) -> (usize, usize) {
        let credit = self.credit.read(|credit| *credit).await.expect("nobody cancels");
        (credit, self.stock.read(|stock| stock.len()).await.expect("nobody cancels"))
    }
}

#[derive(Default)]
struct OfTokio {
    credit: tokio::sync::Mutex<usize>,
    stock: tokio::sync::Mutex<Stock>,
    credited: Notify,
    stocked: Notify,
}

impl States for OfTokio {
    fn open(credit: usize) -> Self {
        let stock = tokio::sync::Mutex::new(Stock::with_capacity(credit));
        Self { credit: tokio::sync::Mutex::new(credit), stock, ..Self::default() }
    }

    #[inline]
    async fn produce(&self, number: u64) {
        loop {
            let mut credit = self.credit.lock().await;
            let mut stock = self.stock.lock().await;
            let done = produced(&mut credit, &mut stock, number);
            drop((credit, stock));
            if done {
                return self.stocked.notify_one();
            }
            self.credited.notified().await;
        }
    }

    #[inline]
    async fn consume(&self) -> u64 {
        loop {
            let mut credit = self.credit.lock().await;
            let mut stock = self.stock.lock().await;
            let taken = consumed(&mut credit, &mut stock);
            drop((credit, stock));
            if let Some(number) = taken {
                self.credited.notify_one();
                return number;
            }
            self.stocked.notified().await;
        }
    }

    async fn left(&self) -> (usize, usize) {
        (*self.credit.lock().await, self.stock.lock().await.len())
    }
}

#[derive(Default)]
struct OfStd {
    credit: std::sync::Mutex<usize>,
    stock: std::sync::Mutex<Stock>,
    credited: Notify,
    stocked: Notify,
}

impl OfStd {
    /// With both states locked.
    fn with<R>(&self, f: impl FnOnce(&mut usize, &mut Stock) -> R) -> R {
        let mut credit = self.credit.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stock = self.stock.lock().unwrap_or_else(PoisonError::into_inner);
        f(&mut credit, &mut stock)
    }
}

impl States for OfStd {
    fn open(credit: usize) -> Self {
        let stock = std::sync::Mutex::new(Stock::with_capacity(credit));
        Self { credit: std::sync::Mutex::new(credit), stock, ..Self::default() }
    }

    #[inline]
    async fn produce(&self, number: u64) {
        while !self.with(|credit, stock| produced(credit, stock, number)) {
            self.credited.notified().await;
        }
        self.stocked.notify_one();
    }

    #[inline]
    async fn consume(&self) -> u64 {
        loop {
            if let Some(number) = self.with(consumed) {
                self.credited.notify_one();
                return number;
            }
            self.stocked.notified().await;
        }
    }

    async fn left(&self) -> (usize, usize) {
        self.with(|credit, stock| (*credit, stock.len()))
    }
}
