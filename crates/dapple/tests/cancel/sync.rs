//! Protocols over locks, semaphores and notifications.
