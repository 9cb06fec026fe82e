//! A million callbacks on 64 virtual workers: what a simulation costs.

use std::sync::Arc;

use dapple::sim::{self, Sim};
use dapple::time::Instant;
use dapple::{Color, ColorCell};

use crate::{join, micros};

pub(crate) fn million() {
    const COLORS: u64 = 500;
    const TASKS: u64 = 1_000;
    const CALLS: u64 = 1_000;
    let begun = std::time::Instant::now();
    let (counted, took) = Sim::new(1).workers(64).run(async {
        let begun = Instant::now();
        let cells = (0..COLORS).map(|_| {
            let color = Color::new();
            let cell = ColorCell::in_color(&color, 0_u64);
            (color, Arc::new(cell))
        });
        let cells: Arc<[_]> = cells.collect();
        let tasks = (0..TASKS).map(|i| {
            let cells = cells.clone();
            dapple::spawn(async move {
                for j in 0..CALLS {
                    let (color, cell) = &cells[((i * 7 + j) % COLORS) as usize];
                    let cell = cell.clone();
                    let call = move || {
                        sim::work(micros(1));
                        cell.with(|count| *count += 1);
                    };
                    match j % 50 {
                        49 => color.call(call).await.expect("it counts"),
                        _ => color.call(call).detach(),
                    }
                }
            })
        });
        join(tasks.collect::<Vec<_>>()).await;
        let counts = cells.iter().map(|(color, cell)| {
            let cell = cell.clone();
            color.call(move || cell.with(|count| *count))
        });
        (join(counts.collect::<Vec<_>>()).await.iter().sum::<u64>(), begun.elapsed())
    });
    assert_eq!(counted, TASKS * CALLS);
    let real = begun.elapsed();
    let each = real.as_nanos() as u64 / counted;
    println!("{counted} callbacks of 1 us in {COLORS} colors, by {TASKS} tasks on 64 virtual workers");
    println!("took {took:.1?} of virtual time, {real:.2?} of real time: {each} ns for each callback");
}
