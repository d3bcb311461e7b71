//! Batches of directories and small files.

use super::*;
use base::op::{Content, Listing};

const MANY: u32 = 1 << 20;

impl Lab {
    pub(super) fn list_all(&mut self, paths: &[&str], bytes_max: u32) -> Vec<Listing> {
        let paths = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        let from = self.volume.root();
        let Ok(Reply::Listings(all, 0)) = self.ask(Ask::ListAll { from, paths, bytes_max }) else {
            panic!("it lists")
        };
        all
    }

    pub(super) fn read_all(
        &mut self,
        paths: &[&str],
        (size_max, bytes_max): (u32, u32),
    ) -> Vec<Content> {
        let paths = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        let ask = Ask::ReadAll { from: self.volume.root(), paths, size_max, bytes_max };
        let Ok(Reply::Contents(all, 0)) = self.ask(ask) else { panic!("it reads") };
        all
    }
}

pub(super) fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// Returns every directory with its names.
fn shown(all: &[Listing]) -> Vec<(String, Vec<String>)> {
    let names = |listing: &Listing| listing.entries.iter().map(|it| it.name.to_string()).collect();
    all.iter().map(|listing| (text(&listing.path), names(listing))).collect()
}

/// Returns three directories of three, with ten files each; and entries that are no directories.
fn forest() -> Lab {
    let mut lab = Lab::new();
    for dir in 0..3 {
        lab.make_dir(&format!("/d{dir}"), 0o755).unwrap();
        for below in 0..3 {
            lab.make_dir(&format!("/d{dir}/{below}"), 0o755).unwrap();
            for file in 0..10 {
                let path = format!("/d{dir}/{below}/f{file}");
                lab.create(&path, 0o644).unwrap();
                lab.write(&path, 0, path.repeat(file * 100).as_bytes()).unwrap();
            }
        }
    }
    lab.symlink("/link", "d0").unwrap();
    lab
}

#[test]
fn whole_directories_are_listed_with_those_beneath_them_also_from_the_disk() {
    // After reopening, few pages are in memory.
    for mut lab in [forest(), forest().reopen()] {
        let all = lab.list_all(&[""], MANY);
        assert_eq!(all.len(), 13);
        let listings = shown(&all);
        for (path, names) in &listings {
            let mut wanted = lab.list(&format!("/{path}"));
            let mut names = names.clone();
            wanted.sort();
            names.sort();
            assert_eq!(names, wanted, "{path}");
        }
        // In depth-first order.
        let mut way = vec![String::new()];
        for first in &listings[0].1 {
            if first != "link" {
                way.push(first.clone());
                let (_, below) = listings.iter().find(|(path, _)| path == first).unwrap();
                way.extend(below.iter().map(|second| format!("{first}/{second}")));
            }
        }
        assert_eq!(listings.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>(), way);
        lab.verify();
    }
}

#[test]
fn unlistable_directories_are_left_out_of_a_batch() {
    let mut lab = forest();
    let paths = |all: Vec<Listing>| all.iter().map(|it| text(&it.path)).collect::<Vec<_>>();
    // Ten names of two bytes, and 24 for each and for the directory.
    assert_eq!(paths(lab.list_all(&["d0/0", "d1/1"], 284)), ["d0/0"]);
    assert_eq!(paths(lab.list_all(&["d0/0", "d1/1"], 568)), ["d0/0", "d1/1"]);
    assert!(lab.list_all(&["d0/0"], 283).is_empty());
    let odd = ["nowhere", "d0/0/f1", "link", "link/0", "d0/../d1", "d1/2"];
    assert_eq!(paths(lab.list_all(&odd, MANY)), ["d1/2"]);
    lab.chmod("/d1", 0o700).unwrap();
    lab.chmod("/d2", 0o744).unwrap();
    lab.chmod("/d0/0", 0o711).unwrap();
    lab.caller = user(5, &[]);
    let seen = ["d1", "d1/0", "d2", "d2/0", "d0/0", "d0/1"];
    assert_eq!(paths(lab.list_all(&seen, MANY)), ["d2", "d0/1"]);
    assert_eq!(lab.read_all(&["d1/0/f1", "d2/0/f1", "d0/0/f1"], (MANY, MANY)).len(), 1);
    // A large listing takes several requests.
    lab.caller = root();
    for dir in 0..5 {
        lab.make_dir(&format!("/wide{dir}"), 0o755).unwrap();
        for file in 0..400 {
            lab.create(&format!("/wide{dir}/file{file}"), 0o644).unwrap();
        }
    }
    let wide: Vec<String> = (0..5).map(|dir| format!("wide{dir}")).collect();
    let wide: Vec<&str> = wide.iter().map(String::as_str).collect();
    assert_eq!(paths(lab.list_all(&wide, MANY)), wide[..3]);
    lab.verify();
}

#[test]
fn small_files_are_read_as_wholes_also_from_the_disk() {
    for mut lab in [forest(), forest().reopen()] {
        let paths: Vec<String> = (0..10).map(|file| format!("d1/2/f{file}")).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let all = lab.read_all(&paths, (MANY, MANY));
        assert_eq!(all.len(), 10);
        for content in &all {
            let path = format!("/{}", text(&content.path));
            assert_eq!(&content.data[..], lab.read(&path).unwrap(), "{path}");
            assert_eq!(content.stat.size, content.data.len() as u64);
            assert_eq!(content.stat.inode, lab.stat(&path).unwrap().inode);
        }
        // Eight bytes, a hundred times as often in each.
        let sizes = |all: Vec<Content>| all.iter().map(|it| it.data.len()).collect::<Vec<_>>();
        assert_eq!(sizes(lab.read_all(&paths, (2000, MANY))), [0, 800, 1600]);
        assert_eq!(sizes(lab.read_all(&paths, (MANY, 3000))), [0, 800, 1600]);
        let odd = ["d0", "link", "link/0/f1", "nowhere", "d0/0/f1/x", "", "d0/0/f1"];
        assert_eq!(sizes(lab.read_all(&odd, (MANY, MANY))), [800]);
        lab.verify();
    }
}
