//! The policies that the experiments are run with.

use dapple::Color;
use dapple::sched::{FirstLanes, Home, LongestLane, Priority, ShortestQueue};
use dapple::sim::Sim;

/// A policy, and whether the bottleneck color has a higher priority than others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) policy: Named,
    pub(crate) has_priority: bool,
}

/// A policy of the crate, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Home,
    ShortestQueue,
    LongestLane,
    FirstLanes,
}

/// How many lanes the seed's policy looks at: "a small integer".
const FIRST: usize = 8;

impl Choice {
    pub(crate) const HOME: Choice = Choice::without(Named::Home);
    pub(crate) const SHORTEST: Choice = Choice::without(Named::ShortestQueue);
    pub(crate) const LONGEST: Choice = Choice::without(Named::LongestLane);
    pub(crate) const FIRST: Choice = Choice::without(Named::FirstLanes);
    pub(crate) const FIRST_WITH: Choice = Choice { policy: Named::FirstLanes, has_priority: true };

    /// Each policy, without priorities.
    pub(crate) const POLICIES: [Choice; 4] = [Choice::HOME, Choice::SHORTEST, Choice::FIRST, Choice::LONGEST];

    pub(crate) const ALL: [Choice; 7] = [
        Choice::HOME,
        Choice::SHORTEST,
        Choice::FIRST,
        Choice::LONGEST,
        Choice { policy: Named::Home, has_priority: true },
        Choice { policy: Named::ShortestQueue, has_priority: true },
        Choice::FIRST_WITH,
    ];

    const fn without(policy: Named) -> Choice {
        Choice { policy, has_priority: false }
    }

    pub(crate) fn name(self) -> String {
        let policy = format!("{:?}", self.policy);
        if self.has_priority { policy + " and a priority" } else { policy }
    }

    /// A simulation by this policy, in which nothing takes time but work.
    pub(crate) fn sim(self, seed: u64, workers: usize) -> Sim {
        let sim = Sim::new(seed).workers(workers).steady();
        match self.policy {
            Named::Home => sim.policy(Home),
            Named::ShortestQueue => sim.policy(ShortestQueue),
            Named::LongestLane => sim.policy(LongestLane),
            Named::FirstLanes => sim.policy(FirstLanes::new(FIRST)),
        }
    }

    /// Makes the bottleneck color: the one that all others wait for.
    pub(crate) fn color(self) -> Color {
        let color = Color::new();
        if self.has_priority {
            color.set_priority(Priority::High);
        }
        color
    }
}
