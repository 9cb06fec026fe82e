//! How urgent something is.

/// How urgent a task, a callback or a color is: a hint to the scheduler.
///
/// What is more urgent goes first, where there is a choice: within a color everything still runs in
/// line, so a color is as urgent as the most urgent that waits in it. Nothing waits for ever: while there
/// is always something more urgent, of what a worker picks one in four is `High`, one in sixteen
/// `Normal` and one in sixty-four `Low`, if there is any.
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
    /// When there is nothing else to do, mostly.
    Low,
    /// As everything that nobody says anything about.
    #[default]
    Normal,
    /// Ahead of the ordinary.
    High,
    /// Ahead of all else.
    Urgent,
}

impl Priority {
    /// All of them, the least urgent first.
    pub const ALL: [Priority; 4] = [Priority::Low, Priority::Normal, Priority::High, Priority::Urgent];

    /// What was turned into a number with `as u8`.
    pub(crate) fn from_u8(number: u8) -> Priority {
        Priority::ALL[usize::from(number)]
    }
}
