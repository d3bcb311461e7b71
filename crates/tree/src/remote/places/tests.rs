use super::*;

/// Returns a place with fids of the maximum number of users; each fid is the user's number.
fn full() -> Places {
    let mut places = Places::new();
    for user in 0..TIES_MAX as u32 {
        assert!(places.bind(ROOT, user, 1, user).is_empty());
    }
    places
}

#[test]
fn what_was_used_longest_ago_is_given_back() {
    let mut places = full();
    assert_eq!(places.use_tie(ROOT, 0, 1), Some(0));
    assert_eq!(places.bind(ROOT, 1000, 1, 1000), [1]);
    assert_eq!(places.bind(ROOT, 1001, 1, 1001), [2]);
    assert_eq!([0, 1, 1001].map(|user| places.tie(ROOT, user, 1)), [Some(0), None, Some(1001)]);
}

#[test]
fn nothing_of_whom_something_is_under_way_for_is_given_back() {
    let mut places = full();
    (0..TIES_MAX as u32).for_each(|user| places.begin(user));
    places.begin(0);
    for user in 1000..1010 {
        places.begin(user);
        assert!(places.bind(ROOT, user, 1, user).is_empty());
    }
    [0, 3, 5].into_iter().for_each(|user| places.done(user));
    assert_eq!(places.bind(ROOT, 1010, 1, 1010), [3, 5, 1010]);
    places.done(0);
    places.begin(1011);
    assert_eq!(places.bind(ROOT, 1011, 1, 1011), [0]);
}

#[test]
fn a_place_has_one_fid_for_a_user_on_a_connection() {
    let mut places = full();
    assert_eq!(places.bind(ROOT, 7, 1, 1000), [1000]);
    assert_eq!(places.tie(ROOT, 7, 2), None);
    assert!(places.bind(ROOT, 7, 2, 2000).is_empty());
    assert_eq!([7, 8].map(|user| places.tie(ROOT, user, 2)), [Some(2000), None]);
    assert_eq!(places.tie(ROOT, 8, 1), None);
}
