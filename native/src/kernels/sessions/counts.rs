//! Sessions that count their records.

use super::{Fold, Held};

impl Held for i64 {
    fn show(&self, out: &mut Vec<i64>) {
        out.push(*self);
    }
}

/// Records that count what these numbers say; without them 1 each.
pub struct Counted<'a>(pub Option<&'a [i64]>);

impl Fold for Counted<'_> {
    type Held = i64;

    fn begin(&self, row: usize) -> i64 {
        self.0.map_or(1, |counts| counts[row])
    }

    fn add(&self, to: &mut i64, row: usize) {
        *to += self.begin(row);
    }

    fn absorb(&self, to: &mut i64, later: i64) {
        *to += later;
    }

    fn has(&self, rows: usize) -> bool {
        self.0.is_none_or(|counts| counts.len() == rows)
    }
}
