//! A ticket office whose customers wait for two seats side by side: by `when` over one state, and by `retry` over seats.
//!
//! You learn the two ways to wait for a condition over shared state. There is no polling and no signalling: a customer
//! that returns seats does not know which customers wait for them.
//!
//! Run it: `cargo run --release -p examples --bin tickets`. No second terminal is needed. It prints (with other times, and
//! other numbers of looks):
//!
//! ```text
//! 60 customers, 12 seats in a row; each customer takes two seats side by side, and returns them
//! when:  60 served; 1 gave up and had taken nothing; 12 seats are free; 982 looks, 53.4ms
//! retry: 60 served; 1 gave up and had taken nothing; 12 seats are free; 582 looks, 61.3ms
//! ```
//!
//! * **when**: the row is one `Shared`. The closure finds seats and takes them in one step, or returns `None` and has
//!   changed nothing. It runs again only after the row was written, for one customer after the other.
//! * **retry**: each seat is a `TVar`. The transaction finds seats and takes them, or calls `retry`: the task sleeps until
//!   one of the seats that it has looked at is written. Customers at different seats do not disturb each other.
//! * **Exact cancellation**: a customer whose time is up has taken both seats, or none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use dapple::stm::{TVar, atomically};
use dapple::time::{Duration, Instant, sleep, timeout};
use dapple::{Cancelled, Shared, spawn};

const SEATS: usize = 12;
const CUSTOMERS: usize = 60;
/// How long a customer keeps the seats.
const STAY: Duration = Duration::from_millis(1);

type Anything = Box<dyn std::error::Error + Send + Sync>;

/// The customer on a seat.
type Seat = Option<usize>;

/// A row of seats, and how often a customer has looked for two that are free.
trait Office: Clone + Send + Sync + 'static {
    /// Waits for two free seats side by side, and takes them. Returns the first.
    fn take_two(&self, customer: usize) -> impl Future<Output = Result<usize, Cancelled>> + Send;

    /// Returns the two seats of a customer.
    fn give_back(&self, customer: usize, at: usize) -> impl Future<Output = Result<(), Cancelled>> + Send;

    /// How many seats are free.
    fn free(&self) -> impl Future<Output = Result<usize, Cancelled>> + Send;

    fn looks(&self) -> &AtomicU32;
}

/// The row is one state.
#[derive(Clone)]
struct ByWhen(Shared<[Seat; SEATS]>, Arc<AtomicU32>);

impl Office for ByWhen {
    async fn take_two(&self, customer: usize) -> Result<usize, Cancelled> {
        self.0
            .when(|row: &mut [Seat; SEATS]| {
                self.looks().fetch_add(1, Relaxed);
                let at = row.windows(2).position(|two| two == [None, None])?;
                row[at..at + 2].fill(Some(customer));
                Some(at)
            })
            .await
    }

    async fn give_back(&self, customer: usize, at: usize) -> Result<(), Cancelled> {
        self.0
            .write(|row| {
                assert_eq!(row[at..at + 2], [Some(customer); 2], "a seat was sold twice");
                row[at..at + 2].fill(None);
            })
            .await
    }

    async fn free(&self) -> Result<usize, Cancelled> {
        self.0.read(|row| row.iter().filter(|seat| seat.is_none()).count()).await
    }

    fn looks(&self) -> &AtomicU32 {
        &self.1
    }
}

/// Each seat is a variable.
#[derive(Clone)]
struct ByRetry(Arc<[TVar<Seat>]>, Arc<AtomicU32>);

impl Office for ByRetry {
    async fn take_two(&self, customer: usize) -> Result<usize, Cancelled> {
        atomically(|tx| {
            self.looks().fetch_add(1, Relaxed); // runs of the closure: not a part of the transaction
            let mut is_left_free = false;
            for at in 0..SEATS {
                let is_free = tx.read(&self.0[at])?.is_none();
                if is_left_free && is_free {
                    tx.write(&self.0[at - 1], Some(customer))?;
                    tx.write(&self.0[at], Some(customer))?;
                    return Ok(at - 1);
                }
                is_left_free = is_free;
            }
            tx.retry()
        })
        .await
    }

    async fn give_back(&self, customer: usize, at: usize) -> Result<(), Cancelled> {
        atomically(|tx| {
            for seat in &self.0[at..at + 2] {
                assert_eq!(tx.read(seat)?, Some(customer), "a seat was sold twice");
                tx.write(seat, None)?;
            }
            Ok(())
        })
        .await
    }

    async fn free(&self) -> Result<usize, Cancelled> {
        atomically(|tx| {
            let mut free = 0;
            for seat in self.0.iter() {
                free += usize::from(tx.read(seat)?.is_none());
            }
            Ok(free)
        })
        .await
    }

    fn looks(&self) -> &AtomicU32 {
        &self.1
    }
}

async fn sell(way: &str, office: impl Office) -> Result<(), Anything> {
    let begun = Instant::now();
    let customers: Vec<_> = (0..CUSTOMERS)
        .map(|customer| {
            let office = office.clone();
            spawn(async move {
                let at = office.take_two(customer).await?;
                sleep(STAY).await?;
                office.give_back(customer, at).await
            })
        })
        .collect();
    for customer in customers {
        customer.await??;
    }
    // The row is full: one more customer gives up after a while.
    for customer in 0..SEATS / 2 {
        office.take_two(customer).await?;
    }
    let late = timeout(STAY, office.take_two(CUSTOMERS)).await;
    assert!(late.is_err(), "there were no two free seats");
    for customer in 0..SEATS / 2 {
        office.give_back(customer, 2 * customer).await?;
    }
    let (free, looks) = (office.free().await?, office.looks().load(Relaxed));
    println!(
        "{way:6} {CUSTOMERS} served; 1 gave up and had taken nothing; {free} seats are free; {looks} looks, {:.1?}",
        begun.elapsed()
    );
    Ok(())
}

#[dapple::main]
async fn main() -> Result<(), Anything> {
    println!(
        "{CUSTOMERS} customers, {SEATS} seats in a row; each customer takes two seats side by side, and returns them"
    );
    sell("when:", ByWhen(Shared::new([None; SEATS]), Arc::default())).await?;
    let seats = (0..SEATS).map(|_| TVar::new(None)).collect();
    sell("retry:", ByRetry(seats, Arc::default())).await
}
