//! The kernels of `stateful`: small scientific computations, each of ten microseconds or so.
//!
//! The five kinds of work that SciMark is made of, written anew: what they have in common is that they
//! compute and touch memory, and that each result depends on all of the work and on a seed alone.

use std::f64::consts::TAU;

use crate::scatter::scatter;

/// One of the five.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kernel {
    /// A fast Fourier transform, there and back.
    Fourier,
    /// Successive over-relaxation of a plate.
    Relaxation,
    /// An integral by drawing points.
    MonteCarlo,
    /// A sparse matrix and a vector, multiplied several times.
    Sparse,
    /// A matrix in its lower and upper part.
    Factors,
}

impl Kernel {
    pub(crate) const ALL: [Kernel; 5] =
        [Kernel::Fourier, Kernel::Relaxation, Kernel::MonteCarlo, Kernel::Sparse, Kernel::Factors];

    /// Does the work.
    pub(crate) fn compute(self, seed: u64) -> f64 {
        match self {
            Kernel::Fourier => fourier(seed),
            Kernel::Relaxation => relaxation(seed),
            Kernel::MonteCarlo => monte_carlo(seed),
            Kernel::Sparse => sparse(seed),
            Kernel::Factors => factors(seed),
        }
    }
}

/// The `index`-th number of a seed, between 0 and 1.
#[inline]
fn uniform(seed: u64, index: usize) -> f64 {
    (scatter(seed << 20 | index as u64) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Points of a transform: a power of two.
const POINTS: usize = 256;

/// A real and an imaginary part.
type Complex = (f64, f64);

/// Transforms numbers and transforms them back: how much the first of them has changed, and a coefficient.
fn fourier(seed: u64) -> f64 {
    let mut points = [(0.0, 0.0); POINTS];
    for (index, point) in points.iter_mut().enumerate() {
        *point = (uniform(seed, index), 0.0);
    }
    let before = points[0].0;
    transform(&mut points, -1.0);
    let coefficient = points[1].0;
    transform(&mut points, 1.0);
    coefficient + (points[0].0 / POINTS as f64 - before)
}

/// Without the division by the number of points. The sign says in which direction.
fn transform(points: &mut [Complex; POINTS], sign: f64) {
    let shift = usize::BITS - POINTS.trailing_zeros();
    for index in 0..POINTS {
        let mirrored = index.reverse_bits() >> shift;
        if index < mirrored {
            points.swap(index, mirrored);
        }
    }
    let mut half = 1;
    while half < POINTS {
        let (sine, cosine) = (sign * TAU / (2 * half) as f64).sin_cos();
        for pair in points.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            let mut root = (1.0, 0.0);
            for (a, b) in low.iter_mut().zip(high) {
                let turned = (root.0 * b.0 - root.1 * b.1, root.0 * b.1 + root.1 * b.0);
                *b = (a.0 - turned.0, a.1 - turned.1);
                *a = (a.0 + turned.0, a.1 + turned.1);
                root = (root.0 * cosine - root.1 * sine, root.0 * sine + root.1 * cosine);
            }
        }
        half *= 2;
    }
}

/// Points of a side of the plate, and how often all are gone over.
const SIDE: usize = 32;
const SWEEPS: usize = 4;

/// Lets a plate settle, each point towards the mean of its neighbours and a little further: its middle.
fn relaxation(seed: u64) -> f64 {
    const FURTHER: f64 = 1.25;
    let mut plate = [[0.0; SIDE]; SIDE];
    for (index, point) in plate.as_flattened_mut().iter_mut().enumerate() {
        *point = uniform(seed, index);
    }
    for _ in 0..SWEEPS {
        for row in 1..SIDE - 1 {
            for column in 1..SIDE - 1 {
                let across = plate[row][column - 1] + plate[row][column + 1];
                let along = plate[row - 1][column] + plate[row + 1][column];
                let point = &mut plate[row][column];
                *point += FURTHER * ((across + along) / 4.0 - *point);
            }
        }
    }
    plate[SIDE / 2][SIDE / 2]
}

/// Points that are drawn.
const DRAWN: usize = 2048;

/// Four times the part of the points in a square that are in the quarter of a circle: about pi.
fn monte_carlo(seed: u64) -> f64 {
    let inside = |index: &usize| {
        let (x, y) = (uniform(seed, 2 * index), uniform(seed, 2 * index + 1));
        x * x + y * y <= 1.0
    };
    4.0 * (0..DRAWN).filter(inside).count() as f64 / DRAWN as f64
}

/// Rows of the sparse matrix, entries in each, and how often it is applied.
const ROWS: usize = 256;
const ENTRIES: usize = 5;
const TIMES: usize = 8;

/// Multiplies a sparse matrix, in rows of columns and values, with a vector. Returns the mean of the product.
fn sparse(seed: u64) -> f64 {
    let mut columns = [[0_u16; ENTRIES]; ROWS];
    let mut values = [[0.0; ENTRIES]; ROWS];
    for row in 0..ROWS {
        for entry in 0..ENTRIES {
            // Scattered over the row, none twice.
            columns[row][entry] = ((row * 7 + entry * (ROWS / ENTRIES)) % ROWS) as u16;
            values[row][entry] = uniform(seed, row) / ENTRIES as f64;
        }
    }
    let mut vector = [1.0; ROWS];
    for _ in 0..TIMES {
        let mut product = [0.0; ROWS];
        for (row, sum) in product.iter_mut().enumerate() {
            let entries = columns[row].iter().zip(values[row]);
            *sum = entries.map(|(&column, value)| value * vector[usize::from(column)]).sum();
        }
        vector = product;
    }
    vector.iter().sum::<f64>() / ROWS as f64
}

/// Rows and columns of the matrix that is factored.
const SIZE: usize = 28;

/// Factors a matrix, the largest of each column first: the logarithm of its determinant's size.
fn factors(seed: u64) -> f64 {
    let mut matrix = [[0.0; SIZE]; SIZE];
    for (index, value) in matrix.as_flattened_mut().iter_mut().enumerate() {
        *value = uniform(seed, index) - 0.5;
    }
    factor(&mut matrix);
    (0..SIZE).map(|pivot| matrix[pivot][pivot].abs().ln()).sum()
}

/// Leaves the upper part on and above the diagonal and the lower one, without its ones, below it. Where each
/// row came from.
fn factor(matrix: &mut [[f64; SIZE]; SIZE]) -> [usize; SIZE] {
    let mut origin: [usize; SIZE] = std::array::from_fn(|row| row);
    for pivot in 0..SIZE {
        let size = |row: &usize| matrix[*row][pivot].abs();
        let largest = (pivot..SIZE).max_by(|a, b| size(a).total_cmp(&size(b))).expect("a row");
        matrix.swap(pivot, largest);
        origin.swap(pivot, largest);
        let (upper, lower) = matrix.split_at_mut(pivot + 1);
        let top = &upper[pivot];
        for row in lower {
            let share = row[pivot] / top[pivot];
            row[pivot] = share;
            for (value, above) in row[pivot + 1..].iter_mut().zip(&top[pivot + 1..]) {
                *value -= share * above;
            }
        }
    }
    origin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transform_and_back_changes_nothing() {
        let original: [Complex; POINTS] = std::array::from_fn(|i| (uniform(1, i), uniform(2, i)));
        let mut points = original;
        transform(&mut points, -1.0);
        transform(&mut points, 1.0);
        for (point, original) in points.iter().zip(original) {
            assert!((point.0 / POINTS as f64 - original.0).abs() < 1e-9);
            assert!((point.1 / POINTS as f64 - original.1).abs() < 1e-9);
        }
    }

    #[test]
    fn the_transform_of_a_wave_is_its_frequency() {
        let mut points: [Complex; POINTS] = std::array::from_fn(|i| {
            let (sine, cosine) = (3.0 * TAU * i as f64 / POINTS as f64).sin_cos();
            (cosine, sine)
        });
        transform(&mut points, -1.0);
        for (frequency, point) in points.iter().enumerate() {
            let expected = if frequency == 3 { POINTS as f64 } else { 0.0 };
            assert!((point.0 - expected).abs() < 1e-9 && point.1.abs() < 1e-9, "{frequency}: {point:?}");
        }
    }

    #[test]
    fn factors_multiply_to_the_matrix() {
        let original: [[f64; SIZE]; SIZE] =
            std::array::from_fn(|row| std::array::from_fn(|column| uniform(3, row * SIZE + column) - 0.5));
        let mut matrix = original;
        let origin = factor(&mut matrix);
        for row in 0..SIZE {
            for column in 0..SIZE {
                let lower = |k| if k == row { 1.0 } else { matrix[row][k] };
                let product: f64 = (0..=row.min(column)).map(|k| lower(k) * matrix[k][column]).sum();
                assert!((product - original[origin[row]][column]).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn drawn_points_give_about_pi() {
        let mean = (0..100).map(monte_carlo).sum::<f64>() / 100.0;
        assert!((mean - std::f64::consts::PI).abs() < 0.02, "{mean}");
    }

    #[test]
    fn a_kernel_depends_on_its_seed_alone() {
        for kernel in Kernel::ALL {
            let results: Vec<u64> = (0..10).map(|seed| kernel.compute(seed).to_bits()).collect();
            let again: Vec<u64> = (0..10).map(|seed| kernel.compute(seed).to_bits()).collect();
            assert_eq!(results, again);
            assert!(results.iter().any(|&result| result != results[0]));
            assert!(results.iter().all(|&result| f64::from_bits(result).is_finite()));
        }
    }
}
