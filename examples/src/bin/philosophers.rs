//! Dining philosophers in five ways: mutexes in order, `together`, transactions, a color, channels.
//!
//! You learn how one problem looks with each tool for shared state, and why none of the five can deadlock. There is one fork
//! between each two neighbours at a table. A philosopher needs both forks beside the plate to eat.
//!
//! Run it: `cargo run --release -p examples --bin philosophers`, or with some of the ways: `-- stm colors`. It prints:
//!
//! ```text
//! way       meals  most at once  time
//! mutexes     500             2  38.1ms
//! together    500             1  1.1ms
//! stm         500             2  36.9ms
//! colors      500             2  36.2ms
//! channels    500             2  37.4ms
//! ```

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex as StdMutex};

use dapple::channel::{mpmc, oneshot};
use dapple::stm::{TVar, atomically};
use dapple::sync::Mutex;
use dapple::time::{Duration, Instant, sleep};
use dapple::{Color, ColorCell, JoinHandle, Shared, spawn, together};

const WAYS: [&str; 5] = ["mutexes", "together", "stm", "colors", "channels"];
const SEATS: usize = 5;
const MEALS: usize = 100;
const MEAL: Duration = Duration::from_micros(50);

type Anything = Box<dyn std::error::Error + Send + Sync>;
type ForkChannel = (mpmc::Sender<()>, mpmc::Receiver<()>);
type Hungry = ((usize, usize), oneshot::Sender<()>);
/// The color of the waiter's data, and the data.
type Service = (Color, Arc<ColorCell<Waiter>>);

/// Sees that neighbours never eat at the same time.
#[derive(Default)]
struct Table {
    eating: StdMutex<[bool; SEATS]>,
    most: AtomicUsize,
    meals: AtomicUsize,
}

/// The forks to the left and to the right of a seat: their numbers.
fn forks_of(seat: usize) -> (usize, usize) {
    (seat, (seat + 1) % SEATS)
}

impl Table {
    fn set(&self, seat: usize, eats: bool) {
        let mut eating = self.eating.lock().expect("no neighbours eat");
        eating[seat] = eats;
        assert!(
            !eats || !eating[(seat + 1) % SEATS] && !eating[(seat + SEATS - 1) % SEATS],
            "two use one fork"
        );
        self.most.fetch_max(eating.iter().filter(|eats| **eats).count(), SeqCst);
        self.meals.fetch_add(usize::from(eats), SeqCst);
    }

    async fn eat(&self, seat: usize) -> Result<(), Anything> {
        self.set(seat, true);
        sleep(MEAL).await?;
        self.set(seat, false);
        Ok(())
    }
}

/// A lock can be held across an await. The one with the lower number comes first: no cycle of waiting can form.
async fn mutexes(table: &Table, forks: &[Mutex<()>], seat: usize) -> Result<(), Anything> {
    let (left, right) = forks_of(seat);
    let _first = forks[left.min(right)].lock().await?;
    let _second = forks[left.max(right)].lock().await?;
    table.eat(seat).await
}

/// The closure runs when both forks can be had at once. It cannot await: the meal is a step.
async fn in_closure(table: &Table, forks: &[Shared<u64>], seat: usize) -> Result<(), Anything> {
    let (left, right) = forks_of(seat);
    let meal = together((forks[left].writing(), forks[right].writing()), |(left, right)| {
        table.set(seat, true);
        (*left, *right) = (*left + 1, *right + 1); // a fork counts its meals
        table.set(seat, false);
    });
    Ok(meal.await?)
}

/// A transaction takes both forks, or sleeps until one of them is put back. The meal is between two transactions.
async fn transactions(table: &Table, forks: &[TVar<bool>], seat: usize) -> Result<(), Anything> {
    let (left, right) = forks_of(seat);
    atomically(|tx| {
        for fork in [&forks[left], &forks[right]] {
            let is_there = tx.read(fork)?;
            tx.check(is_there)?;
            tx.write(fork, false)?;
        }
        Ok(())
    })
    .await?;
    table.eat(seat).await?;
    Ok(atomically(|tx| tx.write(&forks[left], true).and_then(|()| tx.write(&forks[right], true))).await?)
}

struct Waiter {
    forks: [Cell<bool>; SEATS],
    hungry: Vec<Hungry>,
}

/// Tells the waiter something. Then all philosophers that can have both forks get them, first come first served.
fn tell((color, cell): &Service, f: impl FnOnce(&mut Waiter) + Send + 'static) -> JoinHandle<()> {
    let cell = cell.clone();
    let serve = |Waiter { forks, hungry }: &mut Waiter| {
        let are_there = |(both, _): &mut Hungry| forks[both.0].get() && forks[both.1].get();
        for ((left, right), served) in hungry.extract_if(.., are_there) {
            let has_left = served.send(()).is_err();
            [left, right].iter().for_each(|fork| forks[*fork].set(has_left));
        }
    };
    color.call(move || cell.with(|waiter| (f(waiter), serve(waiter)).1))
}

/// A waiter keeps a list of the forks and of the hungry. It is plain data, which calls in its color change one by one.
async fn one_color(table: &Table, service: &Service, seat: usize) -> Result<(), Anything> {
    let (left, right) = forks_of(seat);
    let (served, is_served) = oneshot::channel();
    tell(service, move |waiter| waiter.hungry.push(((left, right), served))).await?;
    is_served.await?;
    table.eat(seat).await?;
    Ok(tell(service, move |waiter| [left, right].iter().for_each(|fork| waiter.forks[*fork].set(true)))
        .await?)
}

/// A fork is a message in a channel of its own, and is taken by one. The lower number comes first, as with mutexes.
async fn channels(table: &Table, forks: &[ForkChannel], seat: usize) -> Result<(), Anything> {
    let (left, right) = forks_of(seat);
    let (first, second) = (&forks[left.min(right)], &forks[left.max(right)]);
    first.1.recv().await?;
    second.1.recv().await?;
    table.eat(seat).await?;
    first.0.send(()).await?;
    Ok(second.0.send(()).await?)
}

/// All philosophers eat all their meals, each in a task.
macro_rules! dine {
    ($table:expr, $way:path, $forks:expr) => {{
        let forks = Arc::new($forks);
        let mut philosophers = Vec::new();
        for seat in 0..SEATS {
            let (table, forks) = ($table.clone(), forks.clone());
            philosophers.push(spawn(async move {
                for _ in 0..MEALS {
                    $way(&table, &forks, seat).await?;
                }
                Ok::<(), Anything>(())
            }));
        }
        for philosopher in philosophers {
            philosopher.await??;
        }
    }};
}

async fn show(way: &str) -> Result<(), Anything> {
    let (table, begun, each) = (Arc::new(Table::default()), Instant::now(), 0..SEATS);
    match way {
        "mutexes" => dine!(table, mutexes, each.map(|_| Mutex::new(())).collect::<Vec<_>>()),
        "together" => dine!(table, in_closure, each.map(|_| Shared::new(0)).collect::<Vec<_>>()),
        "stm" => dine!(table, transactions, each.map(|_| TVar::new(true)).collect::<Vec<_>>()),
        "colors" => {
            let (color, waiter) =
                (Color::new(), Waiter { forks: [true; SEATS].map(Cell::new), hungry: Vec::new() });
            let cell = Arc::new(ColorCell::in_color(&color, waiter));
            dine!(table, one_color, (color, cell));
        }
        "channels" => {
            let forks: Vec<_> = each.map(|_| mpmc::bounded(1)).collect();
            for fork in &forks {
                fork.0.send(()).await?;
            }
            dine!(table, channels, forks);
        }
        _ => return Err(format!("there is no way {way:?}: name some of {}, or none", WAYS.join(", ")).into()),
    }
    let (all, most) = (table.meals.load(SeqCst), table.most.load(SeqCst));
    println!("{way:9} {all:5} {most:13}  {:.1?}", begun.elapsed());
    Ok(())
}

#[dapple::main]
async fn main() -> Result<(), Anything> {
    let ways: Vec<String> = std::env::args().skip(1).collect();
    println!("way       meals  most at once  time");
    for way in if ways.is_empty() { WAYS.map(String::from).to_vec() } else { ways } {
        show(&way).await?;
    }
    Ok(())
}
