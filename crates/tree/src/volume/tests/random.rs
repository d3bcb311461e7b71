//! Random requests against a model that is too simple to be wrong.

use super::*;
use base::rng::{Rng, seeded};
use std::collections::BTreeMap;

/// The expected tree: by path, all of it in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Thing {
    Directory,
    /// An identity shared by hard links.
    File(u64),
    Link(String),
}

#[derive(Debug, Default)]
struct Model {
    things: BTreeMap<String, Thing>,
    files: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').expect("absolute").0
}

impl Model {
    fn is_directory(&self, path: &str) -> bool {
        path.is_empty() || self.things.get(path) == Some(&Thing::Directory)
    }

    fn is_empty(&self, path: &str) -> bool {
        !self.things.keys().any(|known| known.starts_with(&format!("{path}/")))
    }

    /// Checks that a file could be created there.
    fn vacant(&self, path: &str) -> Result<(), Error> {
        match (self.is_directory(parent(path)), self.things.contains_key(path)) {
            (false, _) => Err(self.missing(parent(path))),
            (true, true) => Err(Error::Exists),
            (true, false) => Ok(()),
        }
    }

    /// Returns the error of a walk into a directory.
    fn missing(&self, dir: &str) -> Error {
        match self.things.get(dir) {
            Some(_) => Error::NotDirectory,
            None => Error::NotFound,
        }
    }

    fn file(&mut self, path: &str) -> Result<&mut Vec<u8>, Error> {
        match self.things.get(path) {
            Some(Thing::File(id)) => Ok(self.files.get_mut(id).expect("it is there")),
            Some(Thing::Directory) => Err(Error::IsDirectory),
            Some(Thing::Link(_)) => Err(Error::Loop),
            None => Err(Error::NotFound),
        }
    }

    fn forget_unnamed(&mut self) {
        let named = |id: &u64| self.things.values().any(|thing| *thing == Thing::File(*id));
        let gone: Vec<u64> = self.files.keys().filter(|id| !named(id)).copied().collect();
        gone.iter().for_each(|id| _ = self.files.remove(id));
    }

    fn make(&mut self, path: &str, thing: Thing) -> Result<(), Error> {
        self.vacant(path)?;
        self.things.insert(path.to_string(), thing);
        Ok(())
    }

    fn remove(&mut self, path: &str) -> Result<(), Error> {
        match self.things.get(path) {
            None => return Err(Error::NotFound),
            Some(Thing::Directory) if !self.is_empty(path) => return Err(Error::NotEmpty),
            Some(_) => {}
        }
        self.things.remove(path);
        self.forget_unnamed();
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), Error> {
        let Some(source) = self.things.get(from).cloned() else { return Err(Error::NotFound) };
        if !self.is_directory(parent(to)) {
            return Err(self.missing(parent(to)));
        }
        let beneath =
            |path: &str, above: &str| format!("{path}/").starts_with(&format!("{above}/"));
        let target = self.things.get(to).cloned();
        if from != to && source == Thing::Directory && beneath(parent(to), from) {
            return Err(Error::Invalid);
        }
        if from != to && target == Some(Thing::Directory) && beneath(parent(from), to) {
            return Err(Error::NotEmpty);
        }
        if from == to || (target.as_ref() == Some(&source) && matches!(source, Thing::File(_))) {
            return Ok(());
        }
        match (&source, &target) {
            (Thing::Directory, Some(Thing::Directory)) if !self.is_empty(to) => {
                return Err(Error::NotEmpty);
            }
            (Thing::Directory, Some(Thing::File(_) | Thing::Link(_))) => {
                return Err(Error::NotDirectory);
            }
            (Thing::File(_) | Thing::Link(_), Some(Thing::Directory)) => {
                return Err(Error::IsDirectory);
            }
            (_, _) => {}
        }
        let inside = format!("{from}/");
        let moved: Vec<String> = self
            .things
            .keys()
            .filter(|path| *path == from || path.starts_with(&inside))
            .cloned()
            .collect();
        for path in moved {
            let thing = self.things.remove(&path).expect("it is there");
            self.things.insert(format!("{to}{}", &path[from.len()..]), thing);
        }
        self.forget_unnamed();
        Ok(())
    }
}

fn path(rng: &mut Rng) -> String {
    let depth = rng.usize(1..4);
    (0..depth).map(|_| format!("/{}", ["a", "b", "c", "d"][rng.usize(..4)])).collect()
}

/// Performs one random request on both; the replies must be the same.
fn step(lab: &mut Lab, model: &mut Model, rng: &mut Rng) {
    let (one, two) = (path(rng), path(rng));
    let (what, got, wanted) = match rng.u8(..12) {
        0 | 1 => ("make_dir", lab.make_dir(&one, 0o755), model.make(&one, Thing::Directory)),
        2 | 3 => {
            model.next += 1;
            let id = model.next;
            let wanted = model.make(&one, Thing::File(id));
            if wanted.is_ok() {
                model.files.insert(id, Vec::new());
            }
            ("create", lab.create(&one, 0o644), wanted)
        }
        4 => {
            let wanted = model.make(&one, Thing::Link(two.clone()));
            ("symlink", lab.symlink(&one, &two), wanted)
        }
        5 => ("remove", lab.remove(&one), model.remove(&one)),
        6 | 7 => ("rename", lab.rename(&one, &two), model.rename(&one, &two)),
        8 => {
            let source = model.things.get(&one).cloned();
            let wanted = match source {
                None => Err(Error::NotFound),
                Some(source) => model.vacant(&two).and_then(|()| match source {
                    Thing::Directory => Err(Error::NotPermitted),
                    // Two links with the same target would look like one to the model.
                    Thing::Link(_) => Err(Error::Cancelled),
                    Thing::File(_) => model.make(&two, source),
                }),
            };
            if wanted == Err(Error::Cancelled) {
                return;
            }
            ("link", lab.link(&one, &two), wanted)
        }
        9 => {
            let size = [0, 5, 100, 5000, 70_000, 2_000_000][rng.usize(..6)];
            let wanted = model.file(&one).map(|file| file.resize(size, 0));
            let wanted = wanted.map_err(|error| match error {
                Error::Loop => Error::Invalid,
                other => other,
            });
            ("resize", lab.resize(&one, size as u64), wanted)
        }
        _write => {
            let (far, most) = ([10, 5000, 500_000], [20, 10_000, 300_000]);
            let (far, most) = (far[rng.usize(..3)], most[rng.usize(..3)]);
            let (offset, count) = (rng.usize(..far), rng.usize(1..most));
            let data = vec![rng.u8(..); count];
            let wanted = model.file(&one).map(|file| {
                file.resize(file.len().max(offset + data.len()), 0);
                file[offset..offset + data.len()].copy_from_slice(&data);
            });
            ("write", lab.write(&one, offset as u64, &data), wanted)
        }
    };
    // The order of checks does not matter for missing parents.
    let same = got == wanted
        || (got.is_err() && wanted == Err(Error::NotFound))
        || (got.is_err() && wanted == Err(Error::NotDirectory))
        || (got == Err(Error::NotFound) && wanted.is_err());
    assert!(same, "{what} {one} {two}: {got:?}, and should be {wanted:?}");
}

fn compare(lab: &mut Lab, model: &mut Model) {
    let mut dirs = vec![String::new()];
    let mut seen = 0;
    while let Some(dir) = dirs.pop() {
        for name in lab.list(if dir.is_empty() { "/" } else { &dir }) {
            let path = format!("{dir}/{name}");
            seen += 1;
            match model.things.get(&path).expect("the model has it, too") {
                Thing::Directory => dirs.push(path),
                Thing::File(id) => assert!(lab.read(&path).unwrap() == model.files[id], "{path}"),
                Thing::Link(target) => {
                    let read = lab.at(&path, |lab, node| lab.ask(Ask::ReadLink { node }));
                    let Ok(Reply::Bytes(bytes)) = read else { panic!("{path}") };
                    assert_eq!(bytes, target.as_bytes());
                }
            }
        }
    }
    assert_eq!(seen, model.things.len());
}

/// Compares all directories and all files, read in batches.
fn compare_batches(lab: &mut Lab, model: &Model) {
    let mut missing: Vec<&str> = vec![""];
    let is_dir = |(_, thing): &(&String, &Thing)| **thing == Thing::Directory;
    missing.extend(model.things.iter().filter(is_dir).map(|(path, _)| &path[1..]));
    let mut names = Vec::new();
    while let Some(first) = missing.first() {
        let listings = lab.list_all(&[first], 1 << 20);
        assert!(!listings.is_empty(), "{first} is not listed");
        for listing in listings {
            let dir = batch::text(&listing.path);
            let place = missing.iter().position(|path| *path == dir).expect("it is a directory");
            missing.remove(place);
            let dir = if dir.is_empty() { dir } else { format!("/{dir}") };
            names.extend(listing.entries.iter().map(|entry| format!("{dir}/{}", entry.name)));
        }
    }
    names.sort();
    assert!(names.iter().eq(model.things.keys()), "{names:?}");
    let is_file = |(_, thing): &(&String, &Thing)| matches!(thing, Thing::File(_));
    let files: Vec<&str> =
        model.things.iter().filter(is_file).map(|(path, _)| &path[1..]).collect();
    let contents = lab.read_all(&files, (u32::MAX, u32::MAX));
    assert_eq!(contents.len(), files.len());
    for content in contents {
        let path = format!("/{}", batch::text(&content.path));
        let Some(Thing::File(id)) = model.things.get(&path) else { panic!("{path} is no file") };
        assert!(content.data[..] == model.files[id], "{path}");
    }
}

/// For any sequence of requests, the tree equals the model, also after a restart.
fn runs_with(seed: u64, world: World, steps: usize) {
    let mut rng = seeded(seed);
    let (mut lab, mut model) = (Lab::made(&usual(), world), Model::default());
    for n in 0..steps {
        step(&mut lab, &mut model, &mut rng);
        if n % 50 == 49 {
            compare_batches(&mut lab, &model);
            compare(&mut lab, &mut model);
            lab.verify();
        }
        match n % 200 {
            99 => lab = lab.reopen(),
            199 => lab = lab.check_disk(),
            _other => {}
        }
    }
    compare(&mut lab, &mut model);
    lab = lab.check_disk();
    compare_batches(&mut lab, &model);
    lab.verify();
}

#[test]
fn the_tree_is_what_the_model_is() {
    for seed in 0..4 {
        runs_with(seed, World::new(), 400);
    }
}

#[test]
fn so_it_is_with_tiny_blocks() {
    for seed in 10..12 {
        runs_with(seed, World::with(512, 1 << 16), 300);
    }
}
