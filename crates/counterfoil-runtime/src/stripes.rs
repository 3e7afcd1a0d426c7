//! What every call looks at and hardly anything changes, so that calls do not meet in it.
//!
//! A lock that all threads take, if only to read, is a line of memory that each core must have to itself for a moment: with two cores at work that costs
//! more than what the lock guards. So there are several, each in a place of its own, and a thread comes to the same one each time. Handles that a call
//! clones and drops belong to one stripe for the same reason: their counters are such lines too.
//!
//! What must stay true: all copies are alike but for the moment in which one of them is changed. Whoever changes waits for no reader of another stripe
//! while holding one.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

/// More than the cores that most programs of this kind have; threads beyond it share.
const STRIPES: usize = 16;

/// As far apart as no core reads ahead.
#[repr(align(128))]
struct Apart<T>(T);

/// One for each thread, as far as they go round.
pub struct Stripes<T>([Apart<T>; STRIPES]);

impl<T: Default> Default for Stripes<T> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

impl<T> Stripes<T> {
    pub fn new(one: impl Fn() -> T) -> Self {
        Self(std::array::from_fn(|_| Apart(one())))
    }

    /// This thread's.
    pub fn own(&self) -> &T {
        &self.0[own_stripe()].0
    }

    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|apart| &apart.0)
    }
}

/// Copies of what is read by all.
#[derive(Default)]
pub struct Copies<T> {
    copies: Stripes<RwLock<T>>,
    changing: Mutex<()>,
}

impl<T> Copies<T> {
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        // What is kept here is whole at every moment.
        self.copies.own().read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same change to each copy, the next begun when this one is through: what `change` says of the last is what holds.
    pub fn change<R>(&self, mut change: impl FnMut(&mut T) -> R) -> R {
        let _one_after_another = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut told = None;
        for copy in self.copies.all() {
            told = Some(change(&mut copy.write().unwrap_or_else(PoisonError::into_inner)));
        }
        told.expect("there is more than none")
    }
}

/// Which stripe this thread comes to.
fn own_stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static OWN: Cell<Option<usize>> = const { Cell::new(None) });
    OWN.with(|own| match own.get() {
        Some(stripe) => stripe,
        None => {
            let stripe = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
            own.set(Some(stripe));
            stripe
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_thread_changes_all_read() {
        let copies: Copies<Vec<u32>> = Copies::default();
        assert_eq!(copies.change(|list| list.len()), 0);
        let shared = &copies;
        std::thread::scope(|scope| {
            for n in 0..2 * STRIPES as u32 {
                scope.spawn(move || shared.change(|list| list.push(n))).join().unwrap();
                scope.spawn(move || assert_eq!(shared.read().last(), Some(&n))).join().unwrap();
            }
        });
        let each: Vec<Vec<u32>> = copies.copies.all().map(|copy| copy.read().unwrap().clone()).collect();
        assert!(each.windows(2).all(|two| two[0] == two[1]), "in the same order: {each:?}");
    }
}
