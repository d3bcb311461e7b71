use super::*;

/// Returns a place with fids of the maximum number of users; each fid is the user's number.
fn full() -> Inodes {
    let mut inodes = Inodes::new();
    for user in 0..FIDS_MAX as u32 {
        assert!(inodes.bind(ROOT, user, user).is_empty());
    }
    inodes
}

#[test]
fn the_least_recently_used_fid_is_clunked() {
    let mut inodes = full();
    assert_eq!(inodes.use_fid(ROOT, 0), Some(0));
    assert_eq!(inodes.bind(ROOT, 1000, 1000), [1]);
    assert_eq!(inodes.bind(ROOT, 1001, 1001), [2]);
    assert_eq!([0, 1, 1001].map(|user| inodes.fid_of(ROOT, user)), [Some(0), None, Some(1001)]);
}

#[test]
fn nothing_of_whom_something_is_under_way_for_is_given_back() {
    let mut inodes = full();
    (0..FIDS_MAX as u32).for_each(|user| inodes.begin(user));
    inodes.begin(0);
    for user in 1000..1010 {
        inodes.begin(user);
        assert!(inodes.bind(ROOT, user, user).is_empty());
    }
    [0, 3, 5].into_iter().for_each(|user| inodes.done(user));
    assert_eq!(inodes.bind(ROOT, 1010, 1010), [3, 5, 1010]);
    inodes.done(0);
    inodes.begin(1011);
    assert_eq!(inodes.bind(ROOT, 1011, 1011), [0]);
}

#[test]
fn a_place_has_one_fid_for_a_user_on_a_connection() {
    let mut inodes = full();
    assert_eq!(inodes.bind(ROOT, 7, 1000), [1000]);
    inodes.lose_fids();
    assert_eq!(inodes.fid_of(ROOT, 7), None);
    assert!(inodes.bind(ROOT, 7, 2000).is_empty());
    assert_eq!([7, 8].map(|user| inodes.fid_of(ROOT, user)), [Some(2000), None]);
    assert_eq!(inodes.slab[ROOT].fids.len(), 1, "those of the lost connection are forgotten");
}
