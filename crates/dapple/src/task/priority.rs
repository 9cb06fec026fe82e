//! The priority of a task, a callback or a color.

/// How urgent a task, a callback or a color is: a hint to the scheduler.
///
/// The more urgent goes first, where there is a choice: within a color tasks still run in order, so a color is as urgent
/// as the most urgent task that waits in it. Nothing waits for ever: while there is always more urgent work, one in four
/// picks of a worker is `High`, one in sixteen `Normal` and one in sixty-four `Low`, if there is any.
///
/// # Examples
///
/// ```
/// use dapple::sched::Priority;
/// use dapple::task::Builder;
///
/// dapple::run(async {
///     let report = Builder::new().priority(Priority::Low).spawn(async { "later" });
///     assert_eq!(report.await.unwrap(), "later");
///     assert!(Priority::Low < Priority::default() && Priority::High < Priority::Urgent);
/// });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Priority {
    /// Behind all other work, except for one in sixty-four picks: for work that may wait, such as a report.
    Low,
    /// Behind `High` and `Urgent`. The default.
    #[default]
    Normal,
    /// Ahead of `Normal` and `Low`.
    High,
    /// Ahead of all other work, except for the share that each lower priority has.
    Urgent,
}

impl Priority {
    /// All priorities, the least urgent first.
    pub const ALL: [Priority; 4] = [Priority::Low, Priority::Normal, Priority::High, Priority::Urgent];

    /// The priority that `as u8` made this number of.
    pub(crate) fn from_u8(number: u8) -> Priority {
        Priority::ALL[usize::from(number)]
    }
}
