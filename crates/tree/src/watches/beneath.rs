//! Watched directories beneath others, by path.

use std::collections::BTreeSet;
use std::ops::Bound;

/// A directory that is gone: the watches at and beneath its path end step by step.
#[derive(Debug)]
pub(super) struct Leaving {
    path: Vec<u8>,
    /// Places that were added later are of another directory with this path.
    pub(super) before: u64,
    /// The last place that was found.
    last: Option<(Vec<u8>, usize)>,
}

impl Leaving {
    pub(super) fn new(path: Vec<u8>, before: u64) -> Leaving {
        Leaving { path, before, last: None }
    }
}

/// Places by path.
#[derive(Debug, Default)]
pub(super) struct Beneath(BTreeSet<(Vec<u8>, usize)>);

impl Beneath {
    pub(super) fn insert(&mut self, path: Vec<u8>, place: usize) {
        self.0.insert((path, place));
    }

    pub(super) fn remove(&mut self, path: Vec<u8>, place: usize) {
        self.0.remove(&(path, place));
    }

    /// Returns the next place at or beneath the path of a directory that is gone.
    pub(super) fn next(&self, leaving: &mut Leaving) -> Option<usize> {
        let Leaving { path, last, .. } = leaving;
        let below = [path, &b"/"[..]].concat();
        let from = match last.take() {
            Some(last) => Bound::Excluded(last),
            None => Bound::Included((path.clone(), 0)),
        };
        let itself = self.0.range((from.clone(), Bound::Unbounded)).next();
        let found = itself.filter(|(of, _)| of == path).or_else(|| {
            // Those between, such as `a-b` for `a`, are not beneath it.
            let from = match from {
                Bound::Excluded((of, place)) if of >= below => Bound::Excluded((of, place)),
                Bound::Excluded(_) | Bound::Included(_) | Bound::Unbounded => {
                    Bound::Included((below.clone(), 0))
                }
            };
            let inside = self.0.range((from, Bound::Unbounded)).next();
            inside.filter(|(of, _)| of.starts_with(&below))
        });
        *last = found.cloned();
        found.map(|(_, place)| *place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_at_and_beneath_a_path_are_found_in_steps() {
        let mut beneath = Beneath::default();
        let paths = ["/a", "/a", "/a-b", "/a/b", "/a/b/c", "/a/d", "/a0", "/b"];
        for (place, path) in paths.iter().enumerate() {
            beneath.insert(path.as_bytes().to_vec(), place);
        }
        let mut leaving = Leaving::new(b"/a".to_vec(), 0);
        for place in [0, 1, 3, 4, 5] {
            assert_eq!(beneath.next(&mut leaving), Some(place));
            // Only some of them are removed.
            if place % 2 == 1 {
                beneath.remove(paths[place].as_bytes().to_vec(), place);
            }
        }
        assert_eq!(beneath.next(&mut leaving), None);
        assert_eq!(beneath.next(&mut Leaving::new(b"/c".to_vec(), 0)), None);
    }
}
