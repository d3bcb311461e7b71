use super::*;
use base::rng;
use std::collections::BTreeMap;

fn leaf(size: usize) -> Vec<u8> {
    let mut page = vec![0; size];
    clear(&mut page, 0);
    page
}

#[test]
fn the_bytes_of_a_leaf() {
    let mut page = leaf(64);
    assert!(insert(&mut page, 0, &leaf_cell(b"b", b"two", false)));
    assert!(insert(&mut page, 0, &leaf_cell(b"a", b"1", false)));
    set_birth(&mut page, 7);
    let mut golden = vec![0, 0, 2, 0, 50, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
    golden.extend([50, 0, 0, 0, 0, b'a', 56, 0, 0, 0, 0, b'b']);
    golden.resize(50, 0);
    golden.extend([1, 0, 1, 0, b'a', b'1', 1, 0, 3, 0, b'b', b't', b'w', b'o']);
    assert_eq!(page, golden);
}

#[test]
fn a_page_is_a_sorted_map_as_long_as_there_is_room() {
    let mut rng = rng::seeded(3);
    for _ in 0..50 {
        let mut page = leaf(512);
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for _ in 0..300 {
            let mut key = b"prefix"[..rng.usize(0..7)].to_vec();
            key.extend(vec![rng.u8(0..40); rng.usize(0..6)]);
            let place = search(&page, &key);
            assert_eq!(place.is_ok(), model.contains_key(&key));
            assert_eq!(find(&page, &key), place.ok());
            let before = model.range(..key.clone()).count();
            assert_eq!(place.unwrap_or_else(|index| index), before);
            if let Ok(index) = place {
                assert_eq!(value(&page, index), (&model[&key][..], false));
                remove(&mut page, index);
                model.remove(&key);
            } else if let Err(index) = place {
                let value = vec![rng.u8(..); rng.usize(0..60)];
                let fits = room(&page) >= SLOT + 4 + key.len() + value.len();
                assert_eq!(insert(&mut page, index, &leaf_cell(&key, &value, false)), fits);
                if fits {
                    model.insert(key, value);
                }
            }
            assert!(is_sound(&page));
            assert_eq!(count(&page), model.len());
            assert_eq!(used(&page) + room(&page), capacity(512));
        }
    }
}

#[test]
fn no_bytes_make_it_panic() {
    let mut rng = rng::seeded(4);
    let mut sound = 0;
    for round in 0..20_000 {
        let mut page = leaf(512);
        if round % 2 == 1 {
            clear(&mut page, 1);
            insert(&mut page, 0, &inner_cell(b"", Ptr { at: 9, birth: 1, sum: 2 }));
        }
        while rng.u8(0..8) > 0 {
            let key = vec![rng.u8(..); rng.usize(1..9)];
            let cell = if level(&page) == 0 {
                leaf_cell(&key, &[1; 9], rng.bool())
            } else {
                inner_cell(&key, Ptr { at: 9, birth: 1, sum: 2 })
            };
            if let Err(index) = search(&page, &key) {
                insert(&mut page, index, &cell);
            }
        }
        for _ in 0..rng.usize(0..3) {
            let at = rng.usize(0..48);
            page[at] = rng.u8(..);
        }
        if is_sound(&page) {
            sound += 1;
            let _ = search(&page, b"abc");
            for index in 0..count(&page) {
                key(&page, index);
                cell(&page, index);
                let _ = if level(&page) == 0 { value(&page, index).0.len() } else { 0 };
            }
        }
    }
    assert!(sound > 1000, "{sound}");
}
