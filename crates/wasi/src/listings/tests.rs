//! Prediction of directories and files in a tree.

use super::*;
use base::Name;

fn listing(path: &str, names: &[(&str, Kind)]) -> Listing {
    let entry = |(name, kind): &(&str, Kind)| Entry {
        cookie: 1,
        inode: 1,
        device: None,
        kind: *kind,
        name: Name::new(name.as_bytes()).expect("a name"),
        stat: None,
        handle: None,
    };
    Listing { path: path.as_bytes().to_vec(), entries: names.iter().map(entry).collect() }
}

#[test]
fn directories_behind_the_one_that_is_needed_come_along() {
    let (dir, file) = (Kind::Directory, Kind::File);
    let seen = Seen::default();
    let mut listings = Listings::default();
    assert_eq!(listings.wanted(b"", seen), (vec![b"".to_vec()], FIRST));
    listings.add(vec![listing("", &[("a", dir), ("b", dir), ("f", file), ("c", dir)])], seen);
    listings.add(vec![listing("c", &[])], seen);
    assert_eq!(listings.wanted(b"a", seen).0, [b"a".to_vec(), b"b".to_vec()]);
    listings.add(vec![listing("a", &[("x", dir), ("y", dir)])], seen);
    let wanted = listings.wanted(b"a/x", seen).0;
    assert_eq!(wanted, [b"a/x".to_vec(), b"a/y".to_vec(), b"b".to_vec()]);
    assert_eq!(listings.kind(b"f", seen), Some(file));
    assert_eq!(listings.kind(b"a/q", seen), None);
    let late = Seen { at: BELIEVED_NS, ..seen };
    assert_eq!(listings.kind(b"f", late), None);
    assert_eq!(listings.kind(b"f", Seen { changes: 1, ..seen }), None);
}

#[test]
fn ancestor_listings_are_kept_and_others_dropped() {
    let (seen, mut listings) = (Seen::default(), Listings::default());
    listings.add(vec![listing("", &[("d", Kind::Directory)])], seen);
    let names: Vec<String> = (0..50).map(|number| format!("{number:02}")).collect();
    let names: Vec<_> = names.iter().map(|name| (name.as_str(), Kind::File)).collect();
    for number in 0..1000 {
        let path = format!("d/{number}");
        listings.add(vec![listing(&path, &names)], seen);
        assert!(listings.visit(path.as_bytes(), seen).is_some());
    }
    assert!(listings.bytes <= BYTES_MAX && listings.by_path.len() > 200);
    assert!(listings.get(b"", seen).is_some() && listings.get(b"d/999", seen).is_some());
    assert!(listings.get(b"d/0", seen).is_none());
    assert_eq!(listings.unvisited, 1, "the root");
}

#[test]
fn where_a_guest_is_stays_known_when_much_is_prefetched() {
    let (seen, mut listings) = (Seen::default(), Listings::default());
    listings.add(vec![listing("", &[("d", Kind::Directory)])], seen);
    listings.add(vec![listing("d", &[("1", Kind::File), ("2", Kind::File)])], seen);
    listings.visit(b"", seen);
    listings.visit(b"d", seen);
    let names: Vec<String> = (0..50).map(|number| format!("{number:02}")).collect();
    let names: Vec<_> = names.iter().map(|name| (name.as_str(), Kind::File)).collect();
    let prefetch = (0..1000).map(|number| listing(&format!("e/{number}"), &names));
    listings.add(prefetch.collect(), seen);
    assert!(listings.bytes <= BYTES_MAX && listings.unvisited < 1000);
    assert!(listings.is_next(b"d/1", b"d/2"), "it goes on there");
}

#[test]
fn negative_entries_expire_with_their_listing() {
    let (seen, mut listings) = (Seen::default(), Listings::default());
    listings.add(vec![listing("", &[("d", Kind::Directory)])], seen);
    listings.add(vec![listing("d", &[("File", Kind::File)])], seen);
    listings.add(vec![listing("u", &[("\u{212a}", Kind::File)])], seen);
    for absent in ["d/.gitignore", "d/other", "nothing", "d/Fil"] {
        assert!(listings.is_absent(absent.as_bytes(), seen, None), "{absent}");
    }
    for below in ["d/.git/info/exclude", "e/x", "e/x/y"] {
        assert!(listings.is_absent(below.as_bytes(), seen, None), "{below}: its directory is");
        assert!(!listings.is_absent(below.as_bytes(), seen, Some(0)), "{below}");
    }
    let unsure =
        ["d/File", "d/file", "d/LONGNA~1", "d/\u{212a}", ".upcall", "d/File/x", "d/a~/x", ""];
    for unsure in unsure.into_iter().chain(["d/.snapshot", "u/k"]) {
        assert!(!listings.is_absent(unsure.as_bytes(), seen, None), "{unsure}");
    }
    assert!(!listings.is_absent(b"d/other", Seen { at: BELIEVED_NS, ..seen }, None));
    assert!(!listings.is_absent(b"d/other", Seen { changes: 1, ..seen }, None));
    assert!(!listings.is_absent(b"d/other", seen, Some(0)), "it may know of it");
}

#[test]
fn a_directory_is_expected_while_those_that_came_are_listed() {
    let (dir, seen, mut listings) = (Kind::Directory, Seen::default(), Listings::default());
    listings.add(vec![listing("", &[("a", dir), ("b", dir), ("f", Kind::File)])], seen);
    listings.visit(b"", seen);
    assert!(!listings.is_expected(b"a", seen), "one listing is no traversal");
    listings.add(vec![listing("a", &[])], seen);
    listings.visit(b"a", seen);
    assert!(listings.is_expected(b"b", seen));
    for other in ["", "a", "f", "none", "b/below"] {
        assert!(!listings.is_expected(other.as_bytes(), seen), "{other}");
    }
    listings.add(vec![listing("c", &[]), listing("d", &[])], seen);
    assert!(!listings.is_expected(b"b", seen), "two came that it does not look at");
}

#[test]
fn the_listing_cache_is_bounded_by_bytes() {
    let (seen, mut listings) = (Seen::default(), Listings::default());
    let long = "x".repeat(200);
    for number in 0..20_000 {
        let path = format!("{long}/{long}/{long}/{number}");
        listings.add(vec![listing(&path, &[])], seen);
    }
    assert!(listings.bytes <= BYTES_MAX && listings.by_path.len() < 6000);
}

#[test]
fn access_order_is_detected() {
    let (dir, file, seen) = (Kind::Directory, Kind::File, Seen::default());
    let mut listings = Listings::default();
    listings.add(vec![listing("", &[("d", dir), ("c", file), ("a", file), ("b", file)])], seen);
    listings
        .add(vec![listing("d", &[("y", file), ("x", dir)]), listing("d/x", &[("q", file)])], seen);
    let behind = |listings: &mut Listings, path: &str| {
        let text = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
        listings.files_behind(path.as_bytes(), 9).iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(behind(&mut listings, "d/y"), ["d/x/q", "c", "a", "b"]);
    assert!(!listings.is_next(b"d/y", b"a"), "in neither way");
    assert!(listings.is_next(b"a", b"b") && listings.is_next(b"c", b"a"), "as they are listed");
    assert!(listings.is_next(b"b", b"c"));
    assert_eq!(behind(&mut listings, "a"), ["b", "c", "d/x/q", "d/y"]);
    assert!(listings.is_next(b"c", b"d/x/q") && listings.is_next(b"d/x/q", b"d/y"));
    let late = Seen { at: BELIEVED_NS, ..seen };
    assert_eq!(listings.wanted(b"d", late).0, [b"d".to_vec()], "nothing is behind it");
    assert!(listings.is_next(b"c", b"a"));
    assert_eq!(behind(&mut listings, "d/y"), ["d/x/q", "c", "a", "b"]);
}

#[test]
fn paths_are_put_together_and_taken_apart() {
    assert_eq!(plain(b"./a//b/"), Some(b"a/b".to_vec()));
    assert_eq!(plain(b"."), Some(Vec::new()));
    assert_eq!((plain(b"/a"), plain(b"a/../b")), (None, None));
    assert_eq!(joined(b"a", b"b/c"), b"a/b/c");
    assert_eq!(joined(b"", b"b"), b"b");
    assert_eq!(parted(b"a/b/c"), (&b"a/b"[..], &b"c"[..]));
}
