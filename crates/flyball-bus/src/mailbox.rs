//! Passes values from a thread to a task that awaits them. zbus brings a runtime but no channel
//! between threads and tasks.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Mutex, PoisonError},
    task::{Poll, Waker},
};

/// A queue with one reader.
#[derive(Debug)]
pub(crate) struct Mailbox<T>(Mutex<(VecDeque<T>, Option<Waker>)>);

impl<T> Default for Mailbox<T> {
    fn default() -> Mailbox<T> {
        Mailbox(Mutex::default())
    }
}

impl<T> Mailbox<T> {
    pub(crate) fn put(&self, value: T) {
        // Even if a thread panicked, the queue is consistent, because nothing below can fail.
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.0.push_back(value);
        if let Some(waker) = inner.1.take() {
            waker.wake();
        }
    }

    pub(crate) async fn take(&self) -> T {
        poll_fn(|context| {
            let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match inner.0.pop_front() {
                Some(value) => Poll::Ready(value),
                None => {
                    inner.1 = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn values_arrive_in_order() {
        let mailbox = Arc::new(Mailbox::default());
        let other = Arc::clone(&mailbox);
        let thread = std::thread::spawn(move || (0..100).for_each(|value| other.put(value)));
        let taken = zbus::block_on(async {
            let mut taken = Vec::new();
            while taken.len() < 100 {
                taken.push(mailbox.take().await);
            }
            taken
        });
        assert_eq!(taken, (0..100).collect::<Vec<_>>());
        thread.join().unwrap();
    }
}
