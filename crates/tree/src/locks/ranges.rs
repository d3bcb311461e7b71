//! An interval tree: closed byte ranges with their owners.
//!
//! A weight-balanced tree (Adams, 1993) ordered by first byte and owner. Each node stores the
//! largest last byte below it, and the largest of any other owner, so that a range which overlaps a
//! given one and has *another owner* is found in O(log n), however many ranges one owner holds.

use std::cmp::Ordering;

/// Number of an owner in the lock table.
pub(super) type OwnerId = u64;

/// A held range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) start: u64,
    /// Last byte, inclusive.
    pub(super) last: u64,
    pub(super) owner: OwnerId,
}

impl Range {
    fn key(&self) -> (u64, OwnerId) {
        (self.start, self.owner)
    }
}

type Link = Option<Box<Node>>;

#[derive(Debug)]
struct Node {
    range: Range,
    size: usize,
    /// The largest last byte, with its owner.
    far: (u64, OwnerId),
    /// The largest last byte of any other owner.
    far_other: Option<u64>,
    left: Link,
    right: Link,
}

/// Ranges of one file with the same lock type. Those of one owner do not overlap.
#[derive(Debug, Default)]
pub(super) struct Ranges(Link);

/// Maximum ratio of the weights of sibling subtrees.
const DELTA: usize = 3;
/// Ratio of the inner to the outer grandchild's weight below which a single rotation suffices.
const GAMMA: usize = 2;

fn size(link: &Link) -> usize {
    link.as_ref().map_or(0, |node| node.size)
}

/// Returns the largest last byte of ranges with another owner.
fn far_except(link: &Link, owner: OwnerId) -> Option<u64> {
    let node = link.as_ref()?;
    if node.far.1 == owner { node.far_other } else { Some(node.far.0) }
}

impl Node {
    fn update(&mut self) {
        self.size = size(&self.left) + size(&self.right) + 1;
        let mut far = (self.range.last, self.range.owner);
        for child in [&self.left, &self.right].into_iter().flatten() {
            far = far.max(child.far);
        }
        let own = (self.range.owner != far.1).then_some(self.range.last);
        self.far_other = own.max(far_except(&self.left, far.1)).max(far_except(&self.right, far.1));
        self.far = far;
    }
}

fn node(range: Range, left: Link, right: Link) -> Box<Node> {
    let far = (range.last, range.owner);
    let mut node = Box::new(Node { range, size: 1, far, far_other: None, left, right });
    node.update();
    node
}

/// Returns whether a subtree is too heavy compared to its sibling.
fn outweighs(heavy: &Link, light: &Link) -> bool {
    size(heavy) + 1 > DELTA * (size(light) + 1)
}

/// Restores the balance after one insertion or removal below.
fn balance(mut top: Box<Node>) -> Box<Node> {
    if outweighs(&top.right, &top.left) {
        let right = top.right.as_ref().expect("it is heavy");
        if size(&right.left) + 1 >= GAMMA * (size(&right.right) + 1) {
            top.right = top.right.take().map(rotate_right);
        }
        return rotate_left(top);
    }
    if outweighs(&top.left, &top.right) {
        let left = top.left.as_ref().expect("it is heavy");
        if size(&left.right) + 1 >= GAMMA * (size(&left.left) + 1) {
            top.left = top.left.take().map(rotate_left);
        }
        return rotate_right(top);
    }
    top.update();
    top
}

fn rotate_left(mut top: Box<Node>) -> Box<Node> {
    let mut right = top.right.take().expect("something to rotate");
    top.right = right.left.take();
    top.update();
    right.left = Some(top);
    right.update();
    right
}

fn rotate_right(mut top: Box<Node>) -> Box<Node> {
    let mut left = top.left.take().expect("something to rotate");
    top.left = left.right.take();
    top.update();
    left.right = Some(top);
    left.update();
    left
}

fn insert(link: Link, range: Range) -> Box<Node> {
    let Some(mut top) = link else { return node(range, None, None) };
    match range.key().cmp(&top.range.key()) {
        Ordering::Less => top.left = Some(insert(top.left.take(), range)),
        Ordering::Greater => top.right = Some(insert(top.right.take(), range)),
        Ordering::Equal => unreachable!("one owner's ranges do not overlap"),
    }
    balance(top)
}

fn remove(link: Link, key: (u64, OwnerId)) -> Link {
    let mut top = link.expect("only what is there is removed");
    match key.cmp(&top.range.key()) {
        Ordering::Less => top.left = remove(top.left.take(), key),
        Ordering::Greater => top.right = remove(top.right.take(), key),
        Ordering::Equal => {
            let (left, right) = (top.left.take(), top.right.take());
            return match (left, right) {
                (None, one) | (one, None) => one,
                (left, Some(right)) => {
                    let (range, right) = pop_first(right);
                    Some(balance(node(range, left, right)))
                }
            };
        }
    }
    Some(balance(top))
}

fn pop_first(mut top: Box<Node>) -> (Range, Link) {
    match top.left.take() {
        None => (top.range, top.right.take()),
        Some(left) => {
            let (range, left) = pop_first(left);
            top.left = left;
            (range, Some(balance(top)))
        }
    }
}

fn each(link: &Link, want: &Range, show: &mut impl FnMut(&Range) -> bool) -> bool {
    let Some(node) = link else { return true };
    if far_except(link, want.owner).is_none_or(|far| far < want.start) {
        return true;
    }
    let range = &node.range;
    let is_one = range.owner != want.owner && range.last >= want.start && range.start <= want.last;
    each(&node.left, want, show)
        && (!is_one || show(range))
        && (range.start > want.last || each(&node.right, want, show))
}

impl Ranges {
    pub(super) fn insert(&mut self, range: Range) {
        self.0 = Some(insert(self.0.take(), range));
    }

    /// Removes an owner's range with this first byte, which must exist.
    pub(super) fn remove(&mut self, start: u64, owner: OwnerId) {
        self.0 = remove(self.0.take(), (start, owner));
    }

    /// Returns the first range with a byte in `start..=last` and another owner than `owner`.
    pub(super) fn overlapping(&self, start: u64, last: u64, owner: OwnerId) -> Option<&Range> {
        let mut link = &self.0;
        while let Some(node) = link {
            // If no range on the left with another owner reaches `start` and begins early enough,
            // all that reach it begin behind `last`, like everything on the right.
            if far_except(&node.left, owner).is_some_and(|far| far >= start) {
                link = &node.left;
                continue;
            }
            let range = &node.range;
            if range.owner != owner && range.start <= last && range.last >= start {
                return Some(range);
            }
            if range.start > last {
                return None;
            }
            link = &node.right;
        }
        None
    }

    /// Passes all ranges that overlap this one and have another owner to `show`, in order, until it
    /// returns `false`; returns whether all were passed.
    pub(super) fn each_overlapping(
        &self,
        want: &Range,
        show: &mut impl FnMut(&Range) -> bool,
    ) -> bool {
        each(&self.0, want, show)
    }

    #[cfg(test)]
    pub(super) fn check(&self) -> usize {
        fn below(link: &Link, all: &mut Vec<Range>) {
            let Some(node) = link else { return };
            assert!(!outweighs(&node.left, &node.right) && !outweighs(&node.right, &node.left));
            let from = all.len();
            below(&node.left, all);
            all.push(node.range);
            below(&node.right, all);
            let here = &all[from..];
            assert_eq!(node.size, here.len());
            let far = here.iter().map(|range| (range.last, range.owner)).max();
            assert_eq!(Some(node.far), far);
            let others = here.iter().filter(|range| range.owner != node.far.1);
            assert_eq!(node.far_other, others.map(|range| range.last).max());
        }
        let mut all = Vec::new();
        below(&self.0, &mut all);
        assert!(all.is_sorted_by_key(Range::key));
        all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::seeded;

    /// The tree finds an overlapping range of another owner exactly if a list has one.
    #[test]
    fn the_tree_finds_what_a_list_has() {
        for seed in 0..50 {
            let mut rng = seeded(seed);
            let (mut tree, mut list) = (Ranges::default(), Vec::<Range>::new());
            for _ in 0..400 {
                let (start, owner) = (rng.u64(..60), rng.u64(..4));
                let last = start + rng.u64(..10);
                let mine = |range: &Range| {
                    range.owner == owner && range.start <= last && start <= range.last
                };
                if list.iter().any(mine) {
                    list.retain(|range| {
                        let gone = mine(range);
                        if gone {
                            tree.remove(range.start, range.owner);
                        }
                        !gone
                    });
                } else {
                    tree.insert(Range { start, last, owner });
                    list.push(Range { start, last, owner });
                }
                assert_eq!(tree.check(), list.len());
                let (start, owner) = (rng.u64(..60), rng.u64(..5));
                let last = start + rng.u64(..10);
                let others = |range: &&Range| {
                    range.owner != owner && range.start <= last && start <= range.last
                };
                let wanted = list.iter().filter(others).min_by_key(|range| range.key());
                let found = tree.overlapping(start, last, owner);
                assert_eq!(found.is_some(), wanted.is_some(), "seed {seed}");
                assert!(found.is_none_or(|range| others(&range)));
                let mut all = Vec::new();
                let mut show = |range: &Range| {
                    all.push(*range);
                    true
                };
                assert!(tree.each_overlapping(&Range { start, last, owner }, &mut show));
                let mut wanted: Vec<Range> = list.iter().filter(others).copied().collect();
                wanted.sort_by_key(Range::key);
                assert_eq!(all, wanted);
            }
        }
    }
}
