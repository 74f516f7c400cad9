//! Reading records before they are needed, in another thread than the one that takes the result.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::projector::Projector;
use crate::kernels::rows::Rows;

/// What reads rows ahead; the result is whatever it is.
pub trait ReadsAhead: Send + Sync {
    /// Reads the rows, and keeps the result until it is dropped. `None`: another batch is kept.
    fn read_ahead(self: Arc<Self>, rows: &Rows) -> Option<Box<dyn Any + Send>>;
}

struct State<T> {
    projector: Projector<T>,
    /// Whether it holds a batch that is not taken.
    held: bool,
}

/// A projector that threads share. It holds one batch at a time.
pub struct SharedProjector<T>(Mutex<State<T>>);

impl<T> SharedProjector<T> {
    pub fn new(projector: Projector<T>) -> Self {
        Self(Mutex::new(State { projector, held: false }))
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // The next batch replaces what a panic left behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the projector to `use_it`. `None`: it holds a batch.
    pub fn used<R>(&self, use_it: impl FnOnce(&mut Projector<T>) -> R) -> Option<R> {
        let mut state = self.state();
        (!state.held).then(|| use_it(&mut state.projector))
    }
}

impl<T: Send + 'static> ReadsAhead for SharedProjector<T> {
    /// Gives a `Kept<T>`.
    fn read_ahead(self: Arc<Self>, rows: &Rows) -> Option<Box<dyn Any + Send>> {
        let mut state = self.state();
        if state.held {
            return None;
        }
        let status = state.projector.read(rows);
        state.held = true;
        drop(state);
        Some(Box::new(Kept { by: self, status }))
    }
}

/// A batch that was read ahead.
pub struct Kept<T> {
    pub by: Arc<SharedProjector<T>>,
    /// Of each row: see `Projector::read`.
    pub status: Vec<u8>,
}

impl<T> Kept<T> {
    /// Takes what was read out of the projector.
    pub fn taken<R>(&self, take: impl FnOnce(&mut Projector<T>) -> R) -> R {
        take(&mut self.by.state().projector)
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        self.by.state().held = false;
    }
}

#[cfg(test)]
mod tests {
    use super::super::projector::Output;
    use super::super::record::{Field, Found, Kind};
    use super::*;

    fn shared() -> Arc<SharedProjector<String>> {
        let name = (*b"i").into();
        let (kind, default) = (Kind::Int, Found::Absent);
        let field = Field { name, kind, nullable: false, required: true, needed: true, default, inner: None };
        Arc::new(SharedProjector::new(Projector::new(vec![(field, Output::of(kind, None, 0))], true).unwrap()))
    }

    fn numbers(projector: &mut Projector<String>) -> Vec<i64> {
        let Output::Int(numbers) = &projector.needed[0].output else { panic!("not integers") };
        numbers.clone()
    }

    #[test]
    fn one_batch_is_kept_until_it_is_dropped() {
        let (shared, data) = (shared(), br#"{"i":4}{"i":x}"#);
        let rows = Rows::of(data, &[0, 7, 14], None).unwrap();
        let kept = shared.clone().read_ahead(&rows).unwrap().downcast::<Kept<String>>().unwrap();
        assert!(shared.clone().read_ahead(&rows).is_none());
        assert!(shared.used(|_| ()).is_none());
        assert_eq!((kept.taken(numbers), &kept.status[..]), (vec![4, 0], &[0, 1][..]));
        drop(kept);
        assert!(shared.used(|_| ()).is_some());
        assert!(shared.clone().read_ahead(&rows).is_some());
    }
}
