use super::*;
use base::rng;

fn cache(capacity: usize) -> Cache {
    Cache::new(capacity, 512)
}

fn block(byte: u8) -> Block {
    Block::from_bytes(&[byte], 512)
}

#[test]
fn a_scan_pushes_out_nothing_that_is_in_use() {
    let mut cache = cache(100);
    for at in 0..50 {
        cache.add_clean(at, block(at as u8), false);
    }
    for _ in 0..3 {
        (0..50).for_each(|at| assert!(cache.data(at).is_some()));
    }
    for at in 1000..3000 {
        cache.add_clean(at, block(1), false);
        cache.evict();
    }
    let kept = (0..50).filter(|at| cache.has(*at)).count();
    assert!(kept >= 45, "{kept} of 50 are still there");
    assert!(cache.len() <= 100);
    cache.check();
}

#[test]
fn pages_read_again_move_to_the_main_queue() {
    let mut cache = cache(100);
    for round in 0..3 {
        for at in 0..150 {
            if !cache.has(at) {
                cache.add_clean(at, block(round), false);
                cache.evict();
            }
        }
    }
    assert!(!cache.main.is_empty(), "ghosts were remembered");
}

#[test]
fn changed_and_pinned_blocks_stay() {
    let mut cache = cache(10);
    let page = cache.add_page(block(1));
    cache.add_data(5, block(2));
    let pinned = cache.add_clean(6, block(3), false);
    cache.pin(pinned);
    for at in 100..200 {
        cache.add_clean(at, block(4), false);
        cache.evict();
    }
    assert!(cache.page(Ptr::dirty(page)).is_some() && cache.has(5) && cache.has(6));
    cache.unpin(6);
    for at in 200..300 {
        cache.add_clean(at, block(4), false);
        // Newcomers in use pass to the long queue, and evict its frames.
        (0..2).for_each(|_| _ = cache.data(at));
        cache.evict();
    }
    assert!(!cache.has(6));
    assert_eq!(cache.start_data().len(), 1);
    assert_eq!(cache.unwritten(), 2);
    cache.written(5, 1);
    assert_eq!(cache.unwritten(), 1);
    cache.check();
}

#[test]
fn a_page_that_is_being_written_is_copied_before_it_is_changed() {
    let mut cache = cache(10);
    let page = cache.add_page(block(1));
    let written = cache.start_page(page, 77);
    let copy = cache.make_dirty(page);
    assert_ne!(copy, page);
    cache.change(copy)[0] = 2;
    assert_eq!((written[0], cache.block(page)[0], cache.block(copy)[0]), (1, 1, 2));
    cache.written(77, 1);
    assert_eq!(cache.state(page), State::Clean);
    cache.check();
}

/// For any sequence of operations, the counters are right and the queues do not grow without end.
#[test]
fn the_books_are_kept() {
    let mut rng = rng::seeded(2);
    let mut cache = cache(40);
    let mut pages: Vec<u32> = Vec::new();
    for _ in 0..20_000 {
        let at = rng.u64(1..120);
        let state = cache.frame_of(at).map(|frame| cache.state(frame));
        match rng.u8(0..8) {
            0 if cache.dirty() < 30 => pages.push(cache.add_page(block(1))),
            1 if cache.dirty() < 30 => cache.add_data(at, block(2)),
            2 | 3 => _ = cache.add_clean(at, block(3), false),
            4 if !pages.is_empty() && state.is_none() => {
                let page = pages.swap_remove(rng.usize(0..pages.len()));
                cache.start_page(page, at);
            }
            5 if cache.dirty() > 20 => {
                cache.start_data();
                cache.written(1, 120);
            }
            6 if state == Some(State::Clean) => cache.forget(at),
            _ => _ = cache.data(at).is_some(),
        }
        cache.evict();
        assert!(cache.small.len() + cache.main.len() <= 2 * cache.frames.len() + 65);
    }
    cache.check();
}

#[test]
fn a_pointer_of_the_other_kind_finds_nothing() {
    let mut cache = Cache::new(100, 512);
    let ptr = |at| Ptr { at, birth: 1, sum: 0 };
    cache.add_clean(5, block(1), true);
    cache.add_clean(6, block(1), false);
    cache.add_data(7, block(1));
    let dirty = cache.add_page(block(1));
    cache.start_page(dirty, 8);
    for (at, page) in [(5, true), (6, false), (7, false), (8, true)] {
        assert_eq!((cache.page(ptr(at)).is_some(), cache.data(at).is_some()), (page, !page));
        assert_eq!(cache.page_at(at).is_some(), page);
    }
}
