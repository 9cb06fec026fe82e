//! `bank`: 64 tasks that transfer money between 10,000 accounts.
//!
//! A transfer takes two accounts at random and moves an amount from one to the other, if it is there. Dapple
//! takes both `together`; the others have a mutex for each account, and take the one with the lower number
//! first, which is the care that one must not forget. The sum of all accounts is checked after every round:
//! a wrong one ends the run. `tokio` must be beaten; `parking_lot` is for the goal.

use std::sync::Arc;

use dapple::{Shared, together};

use crate::contest::Contest;
use crate::crowd::{self, Client, Fight};
use crate::scatter::{below, scatter};
use crate::sides::{Dapple, Side, Tokio};

pub(crate) fn contest() -> Contest {
    let entries = vec![
        crowd::ours::<Dapple, Transfers<OfDapple>>(),
        crowd::rival::<Tokio, Transfers<OfTokio>>("tokio"),
        crowd::rival::<Tokio, Transfers<OfParkingLot>>("parking_lot"),
    ];
    crowd::contest("bank", "64 tasks transfer money between 10,000 accounts; per transfer", entries)
}

const ACCOUNTS: usize = 10_000;

/// The balance of each account at the start. Small, so that some accounts are empty at times.
const BALANCE: u64 = 100;

/// The most that is transferred at a time.
const MOST: u64 = 50;

/// All accounts, and a way to get at two of them at once.
trait Bank: Send + Sync + 'static {
    fn open() -> Self;

    /// [`Bank::move_money`] between two accounts that are not the same.
    fn transfer(&self, from: usize, to: usize, amount: u64) -> impl Future<Output = bool> + Send;

    /// The sum of all accounts, while no transfer is under way.
    fn sum(&self) -> impl Future<Output = u64> + Send;

    /// The transfer itself, the same on all sides, with exclusive access to both accounts. Returns whether `from` held
    /// enough.
    #[inline]
    fn move_money(from: &mut u64, to: &mut u64, amount: u64) -> bool {
        let enough = *from >= amount;
        if enough {
            *from -= amount;
            *to += amount;
        }
        enough
    }
}

struct Transfers<B>(Arc<B>);

impl<B> Clone for Transfers<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B: Bank> Client for Transfers<B> {
    #[inline]
    async fn once(&self, number: u64) -> u64 {
        let scattered = scatter(number);
        let from = below(scattered, ACCOUNTS as u64) as usize;
        // One of the others, by how far it is from there.
        let distance = 1 + below(scattered << 32, ACCOUNTS as u64 - 1) as usize;
        let to = (from + distance) % ACCOUNTS;
        let amount = 1 + scattered % MOST;
        self.0.transfer(from, to, amount).await.into()
    }
}

impl<B: Bank> Fight for Transfers<B> {
    const NANOS: u64 = 80;

    fn open<S: Side>(_: &S) -> Self {
        Self(Arc::new(B::open()))
    }

    async fn check(&self, transfers: u64) {
        assert!(transfers > 0, "no transfer was made");
        assert_eq!(self.0.sum().await, ACCOUNTS as u64 * BALANCE, "money was lost, or made");
    }
}

struct OfDapple(Vec<Shared<u64>>);

impl Bank for OfDapple {
    fn open() -> Self {
        Self((0..ACCOUNTS).map(|_| Shared::new(BALANCE)).collect())
    }

    #[inline]
    async fn transfer(&self, from: usize, to: usize, amount: u64) -> bool {
        let both = (self.0[from].writing(), self.0[to].writing());
        together(both, |(from, to)| Self::move_money(from, to, amount)).await.expect("nobody cancels")
    }

    async fn sum(&self) -> u64 {
        let mut sum = 0;
        for account in &self.0 {
            sum += account.read(|balance| *balance).await.expect("nobody cancels");
        }
        sum
    }
}

struct OfTokio(Vec<tokio::sync::Mutex<u64>>);

impl Bank for OfTokio {
    fn open() -> Self {
        Self((0..ACCOUNTS).map(|_| tokio::sync::Mutex::new(BALANCE)).collect())
    }

    #[inline]
    async fn transfer(&self, from: usize, to: usize, amount: u64) -> bool {
        if from < to {
            let mut from = self.0[from].lock().await;
            let mut to = self.0[to].lock().await;
            Self::move_money(&mut from, &mut to, amount)
        } else {
            let mut to = self.0[to].lock().await;
            let mut from = self.0[from].lock().await;
            Self::move_money(&mut from, &mut to, amount)
        }
    }

    async fn sum(&self) -> u64 {
        let mut sum = 0;
        for account in &self.0 {
            sum += *account.lock().await;
        }
        sum
    }
}

struct OfParkingLot(Vec<parking_lot::Mutex<u64>>);

impl Bank for OfParkingLot {
    fn open() -> Self {
        Self((0..ACCOUNTS).map(|_| parking_lot::Mutex::new(BALANCE)).collect())
    }

    #[inline]
    async fn transfer(&self, from: usize, to: usize, amount: u64) -> bool {
        if from < to {
            let mut from = self.0[from].lock();
            let mut to = self.0[to].lock();
            Self::move_money(&mut from, &mut to, amount)
        } else {
            let mut to = self.0[to].lock();
            let mut from = self.0[from].lock();
            Self::move_money(&mut from, &mut to, amount)
        }
    }

    async fn sum(&self) -> u64 {
        self.0.iter().map(|account| *account.lock()).sum()
    }
}
