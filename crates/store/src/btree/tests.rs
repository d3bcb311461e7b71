use super::*;
use base::rng;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

fn all(cache: &Cache, root: Ptr) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    let bounds = look::Bounds { from: b"", to: None, reverse: false, ahead: 0 };
    look::leaves(cache, root, &bounds, &mut |leaf, cells| {
        let entry = |index| (page::key(leaf, index).to_vec(), page::value(leaf, index).0.to_vec());
        found.extend(cells.map(entry));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    found
}

/// Returns the number of leaves and of bytes used in them.
fn leaves(cache: &Cache, ptr: Ptr) -> (usize, usize) {
    let page = cache.page(ptr).unwrap();
    if page::level(page) == 0 {
        return (1, page::used(page));
    }
    let children = (0..page::count(page)).map(|index| leaves(cache, page::child(page, index)));
    children.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Checks that all leaves are at the same depth, no page but the root is empty, and keys are in
/// their pages.
fn expect_well_formed(cache: &Cache, ptr: Ptr, level: Option<u8>, from: &[u8], to: Option<&[u8]>) {
    let page = cache.page(ptr).unwrap();
    assert!(page::is_sound(page));
    assert!(level.is_none_or(|level| page::level(page) == level));
    assert!(level.is_none() || page::count(page) > 0);
    let start = usize::from(page::level(page) > 0);
    for index in start..page::count(page) {
        let key = page::key(page, index);
        assert!(key >= from && to.is_none_or(|to| key < to));
    }
    if let Some(below) = page::level(page).checked_sub(1) {
        for index in 0..page::count(page) {
            let next = (index + 1 < page::count(page)).then(|| page::key(page, index + 1));
            let first = if index == 0 { from } else { page::key(page, index) };
            let child = page::child(page, index);
            expect_well_formed(cache, child, Some(below), first, next.or(to));
        }
    }
}

#[test]
fn it_is_a_sorted_map_whatever_the_order() {
    for seed in 0..40 {
        let mut rng = rng::seeded(seed);
        let mut cache = Cache::new(10_000, 512);
        let mut tree = Tree::empty(&mut cache);
        let mut model = BTreeMap::new();
        let (keys, longest) = (rng.u32(10..3000), rng.usize(1..100));
        for step in 0..3000 {
            let mut key = rng.u32(0..keys).to_be_bytes().to_vec();
            key.extend(vec![b'x'; rng.usize(0..3)]);
            // At first it grows, later it shrinks.
            if rng.u32(0..3000) > step {
                let value = vec![rng.u8(..); rng.usize(0..longest)];
                tree.put(&mut cache, &key, &value, false);
                model.insert(key, value);
            } else {
                let taken = tree.take(&mut cache, &key);
                assert_eq!(taken.map(|(value, _)| value), model.remove(&key));
                tree.tidy(&mut cache);
            }
            if step % 100 == 0 {
                expect_well_formed(&cache, tree.root, None, b"", None);
                assert_eq!(all(&cache, tree.root), model);
            }
        }
        for key in model.keys().cloned().collect::<Vec<_>>() {
            assert!(tree.take(&mut cache, &key).is_some());
            tree.tidy(&mut cache);
        }
        assert_eq!(leaves(&cache, tree.root), (1, 0));
        assert_eq!(cache.len(), 1, "one empty page is left");
    }
}

#[test]
fn pages_are_well_filled() {
    let filled = |keys: &mut dyn Iterator<Item = u64>| {
        let mut cache = Cache::new(100_000, 4096);
        let mut tree = Tree::empty(&mut cache);
        for key in keys {
            tree.put(&mut cache, &key.to_be_bytes(), &[7; 100], false);
        }
        let (count, used) = leaves(&cache, tree.root);
        used * 100 / (count * page::capacity(4096))
    };
    let mut rng = rng::seeded(1);
    let in_order = filled(&mut (0..20_000));
    let at_random = filled(&mut (0..20_000).map(|_| rng.u64(..)));
    assert!(in_order >= 95, "{in_order} %");
    assert!(at_random >= 75, "{at_random} %");
}

#[test]
fn looking_in_every_direction_agrees() {
    let mut rng = rng::seeded(6);
    let mut cache = Cache::new(10_000, 512);
    let mut tree = Tree::empty(&mut cache);
    let mut model = BTreeMap::new();
    for _ in 0..800 {
        let key = rng.u16(..).to_be_bytes().to_vec();
        tree.put(&mut cache, &key, &key, false);
        model.insert(key.clone(), key);
    }
    let key_at =
        |place: Option<(&[u8], usize)>| place.map(|(page, index)| page::key(page, index).to_vec());
    for _ in 0..2000 {
        let (key, end) = (rng.u16(..).to_be_bytes().to_vec(), rng.u16(..).to_be_bytes().to_vec());
        let next = model.range(key.clone()..).next().map(|(key, _)| key.clone());
        assert_eq!(key_at(seek(&cache, tree.root, &key).unwrap()), next);
        let last = model.range(..=key.clone()).next_back().map(|(key, _)| key.clone());
        assert_eq!(key_at(last_at_or_before(&cache, tree.root, &key).unwrap()), last);
        assert_eq!(find(&cache, tree.root, &key).unwrap().is_some(), model.contains_key(&key));
        let mut found = 0;
        look::scan_range(&cache, tree.root, (&key, &end), &mut |_, _| found += 1).unwrap();
        let wanted = if key < end { model.range(key..end).count() } else { 0 };
        assert_eq!(found, wanted);
    }
}

/// Each leaf is visited if it has keys within the bounds, with all such cells; no other is needed.
#[test]
fn a_stretch_needs_the_leaves_between_its_bounds() {
    let mut cache = Cache::new(10_000, 512);
    let mut tree = Tree::empty(&mut cache);
    for key in 0..400u16 {
        tree.put(&mut cache, &key.to_be_bytes(), &[7; 20], false);
    }
    let batch = |from: &[u8], to: Option<&[u8]>, reverse: bool| {
        let (mut keys, mut edges) = (Vec::new(), Vec::new());
        let bounds = look::Bounds { from, to, reverse, ahead: 0 };
        look::leaves(&cache, tree.root, &bounds, &mut |leaf, cells| {
            let mut found: Vec<_> = cells.map(|index| page::key(leaf, index).to_vec()).collect();
            edges.push((found[0].clone(), found[found.len() - 1].clone()));
            if reverse {
                found.reverse();
            }
            keys.append(&mut found);
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        (keys, edges)
    };
    let (all, edges) = batch(b"", None, false);
    assert!(all.len() == 400 && all.is_sorted() && edges.len() > 20);
    for (first, last) in &edges {
        let behind = [last, &b"\0"[..]].concat();
        for reverse in [false, true] {
            let (mut keys, seen) = batch(first, Some(&behind), reverse);
            if reverse {
                keys.reverse();
            }
            assert_eq!(seen, [(first.clone(), last.clone())]);
            assert!(keys.iter().eq(all.iter().filter(|key| first <= key && *key <= last)));
        }
        assert_eq!(batch(first, Some(first), false), (Vec::new(), Vec::new()));
        let (back, _) = batch(b"", Some(last), true);
        assert!(back.iter().rev().eq(all.iter().filter(|key| *key < last)));
    }
}
