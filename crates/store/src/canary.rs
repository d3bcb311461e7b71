//! A mistake that can be planted, for the simulation, which must find it.

use std::cell::Cell;

thread_local! {
    static BELIEVE: Cell<bool> = const { Cell::new(false) };
}

/// From now on this thread takes every page and every block for what was wanted, or no longer.
pub fn believe_everything(believe: bool) {
    BELIEVE.set(believe);
}

pub(crate) fn believes() -> bool {
    BELIEVE.get()
}
