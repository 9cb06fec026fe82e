//! The few statistics that a table of rounds needs.

/// The middle of some values, and how far they spread.
#[derive(Clone, Copy)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// Sums up at least one value.
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Self { median, min: sorted[0], max: sorted[sorted.len() - 1] }
    }
}

/// How many times as much the rival cost: the median over the rounds of the
/// ratio within a round, so that noise that hits a whole round cancels out.
pub(crate) fn paired_ratio(ours: &[f64], rival: &[f64]) -> f64 {
    let ratios: Vec<f64> = ours.iter().zip(rival).map(|(o, r)| r / o).collect();
    Summary::of(&ratios).median
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even_counts() {
        assert_eq!(Summary::of(&[3.0, 1.0, 2.0]).median, 2.0);
        assert_eq!(Summary::of(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
    }

    #[test]
    fn ratio_is_above_one_when_the_rival_costs_more() {
        assert_eq!(paired_ratio(&[1.0, 2.0, 1.0], &[3.0, 4.0, 3.0]), 3.0);
    }
}
