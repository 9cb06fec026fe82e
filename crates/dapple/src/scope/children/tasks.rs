//! Tasks spawned in a scope: how a cancel reaches them, and which of them are left.

use super::Children;
use crate::cancel::check::is_cancelled_in;
use crate::context::ThreadContext;
use crate::task::Task;

impl Children {
    /// Called before a poll of the scope. If a task was spawned in the scope, links the scope to the
    /// enclosing one, which the caller checks after this. SPAWNED-SEE in `cancel::item`
    #[inline]
    pub(in crate::scope) fn link_around(&self, context: &ThreadContext) {
        if self.has_spawned.get() {
            let mut around = self.around.take();
            around.register_scope(context, &self.cancel_scope);
            self.around.set(around);
        }
    }

    /// Called before a task is spawned in the scope. SPAWNED-SEE in `cancel::item`
    #[inline]
    pub(in crate::scope) fn begin_to_spawn(&self, context: &ThreadContext) {
        if !self.has_spawned.replace(true) {
            self.frame.outside(context, || {
                self.link_around(context);
                if !self.cancel_scope.is_cancelled() && is_cancelled_in(context) {
                    self.cancel_scope.cancel(); // LINK-OR-SEE
                }
            });
        }
    }

    /// Adds a task spawned in the scope.
    pub(in crate::scope) fn add_task(&self, task: Task) {
        if self.cancel_scope.is_cancelled() {
            task.cancel();
        }
        let mut tasks = self.tasks.take();
        if tasks.len() == tasks.capacity() {
            tasks.retain(|task| !task.is_finished());
            if tasks.len() > tasks.capacity() / 2 {
                tasks.reserve(tasks.len()); // or the next push would scan all tasks again
            }
        }
        tasks.push(task);
        self.tasks.set(tasks);
    }
}
