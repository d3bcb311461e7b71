//! Random namespaces against a model that walks name by name and remembers everything.

use super::*;
use fastrand::Rng;
use std::collections::BTreeSet;

/// A file: its tree and its inode.
type File = (usize, usize);

/// A crossed mount point: its members, its own directory, and the member by which it was crossed.
type Passed = (Vec<File>, File, File);

#[derive(Clone)]
struct At {
    file: File,
    passed: Vec<Passed>,
    /// Whether this is the last mount point itself.
    here: bool,
}

struct Model {
    points: BTreeMap<File, Vec<File>>,
}

impl Model {
    fn enter(&self, file: File, passed: &[Passed]) -> At {
        let mut passed = passed.to_vec();
        match self.points.get(&file) {
            Some(members) => {
                passed.push((members.clone(), file, members[0]));
                At { file: members[0], passed, here: true }
            }
            None => At { file, passed, here: false },
        }
    }

    fn step(&self, fakes: &[Fake], at: &At, name: &str) -> Option<At> {
        let above = |(tree, inode): File| (tree, fakes[tree].parent(inode));
        let mut at = at.clone();
        if name == ".." {
            at.file = match at.here {
                true => above(at.passed.pop().unwrap().1),
                false => above(at.file),
            };
            at.here = at.passed.last().is_some_and(|(_, _, root)| *root == at.file);
            let top = at.passed.is_empty() && at.file == (0, 0);
            return Some(if top { self.enter((0, 0), &[]) } else { at });
        }
        let from = if at.here { at.passed.last().unwrap().0.clone() } else { vec![at.file] };
        let (member, found) = from.into_iter().find_map(|(tree, inode)| {
            Some(((tree, inode), (tree, fakes[tree].child(inode, name)?)))
        })?;
        if at.here {
            at.passed.last_mut().unwrap().2 = member;
        }
        Some(self.enter(found, &at.passed))
    }

    fn walk(&self, fakes: &[Fake], names: &[&str]) -> Option<At> {
        let root = self.enter((0, 0), &[]);
        names.iter().try_fold(root, |at, name| self.step(fakes, &at, name))
    }

    /// Returns whether a mount point is unreachable.
    fn is_stranded(&self) -> bool {
        let mut open = BTreeSet::from([0]);
        loop {
            let before = open.len();
            for (from, members) in &self.points {
                if open.contains(&from.0) {
                    open.extend(members.iter().map(|member| member.0));
                }
            }
            if open.len() == before {
                return self.points.keys().any(|from| !open.contains(&from.0));
            }
        }
    }

    /// Returns the members to bind from a directory: those of a mount point, or itself.
    fn source(&self, fakes: &[Fake], at: &At) -> Option<Vec<File>> {
        let (tree, inode) = at.file;
        match at.here {
            true => Some(at.passed.last().unwrap().0.clone()),
            false => fakes[tree].is_directory(inode).then(|| vec![at.file]),
        }
    }
}

const NAMES_USED: [&str; 4] = ["a", "b", "c", "d"];

fn random_path(rng: &mut Rng, up: bool) -> Vec<&'static str> {
    let name = |rng: &mut Rng| match rng.u8(..5) {
        0 if up => "..",
        _ => NAMES_USED[rng.usize(..4)],
    };
    (0..rng.usize(..6)).map(|_| name(rng)).collect()
}

fn random_tree(rng: &mut Rng) -> Vec<String> {
    (0..rng.usize(3..9))
        .map(|_| {
            let path = random_path(rng, false).join("/");
            if path.is_empty() { "a/".into() } else { format!("{path}/") }
        })
        .collect()
}

fn one(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let trees: Vec<Vec<String>> = (0..3).map(|_| random_tree(&mut rng)).collect();
    let trees: Vec<Vec<&str>> =
        trees.iter().map(|t| t.iter().map(String::as_str).collect()).collect();
    let trees: Vec<&[&str]> = trees.iter().map(Vec::as_slice).collect();
    let mut lab = Lab::new(&trees);
    let mut model = Model { points: BTreeMap::new() };
    for _ in 0..60 {
        match rng.u8(..10) {
            0..=2 => join(&mut lab, &mut model, &mut rng),
            3 => part(&mut lab, &mut model, &mut rng),
            _ => look(&mut lab, &model, &mut rng),
        }
    }
    lab.check_held();
}

fn join(lab: &mut Lab, model: &mut Model, rng: &mut Rng) {
    let (old, new) = (random_path(rng, false), random_path(rng, false));
    let order = [Order::Replace, Order::Before, Order::After][rng.usize(..3)];
    let mount = rng.bool().then(|| rng.usize(..3));
    let text = |path: &[&str]| format!("/{}", path.join("/"));
    let result = match mount {
        Some(tree) => {
            let what = Source::Tree(lab.fakes[tree].root(), lab.fakes[tree].root_stat());
            let (at, source_text) = (path(&text(&old)), format!("tree {tree}").into());
            lab.requested(NamespaceChange::Join { at, what, order, create: false, source_text })
        }
        None => lab.bind(&text(&new), &text(&old), order),
    };
    let source = match mount {
        Some(tree) => Some(vec![(tree, 0)]),
        None => model.walk(&lab.fakes, &new).and_then(|at| model.source(&lab.fakes, &at)),
    };
    let position = model.walk(&lab.fakes, &old);
    let Some((source, position)) = source.zip(position) else {
        return assert!(result.is_err(), "{old:?} {new:?}");
    };
    let from = if position.here { position.passed.last().unwrap().1 } else { position.file };
    let there = model.points.get(&from).cloned().unwrap_or(vec![from]);
    if !position.here && !lab.fakes[from.0].is_directory(from.1) {
        return assert!(result.is_err());
    }
    let members = match order {
        Order::Replace => source,
        Order::Before => [source, there].concat(),
        Order::After => [there, source].concat(),
    };
    let old_points = model.points.clone();
    model.points.insert(from, members);
    if model.is_stranded() {
        model.points = old_points;
        return assert_eq!(result, Err(Error::Busy), "{old:?} {new:?}");
    }
    assert_eq!(result, Ok(()), "{old:?} {new:?}");
}

fn part(lab: &mut Lab, model: &mut Model, rng: &mut Rng) {
    let old = random_path(rng, false);
    let result = lab.part(&format!("/{}", old.join("/")));
    match model.walk(&lab.fakes, &old).filter(|at| at.here) {
        Some(at) => {
            let old_points = model.points.clone();
            model.points.remove(&at.passed.last().unwrap().1);
            if model.is_stranded() {
                model.points = old_points;
                return assert_eq!(result, Err(Error::Busy));
            }
            assert_eq!(result, Ok(()));
        }
        None => assert!(result.is_err()),
    }
}

fn look(lab: &mut Lab, model: &Model, rng: &mut Rng) {
    let names = random_path(rng, true);
    let expected = model.walk(&lab.fakes, &names);
    let found = lab.at(&names.join("/"));
    let shown = expected.as_ref().map(|at| {
        let (tree, inode) = at.file;
        format!("{tree}:{}", lab.fakes[tree].path(inode))
    });
    match (&shown, &found) {
        (Some(shown), Ok(found)) => {
            assert!(names.is_empty() || shown == found, "{names:?}: {shown} {found}")
        }
        (None, Err(Error::NotFound)) => {}
        other => panic!("{names:?}: {other:?} {:?} {:?}", lab.names.text(), model.points),
    }
    let Some(at) = expected else { return };
    let Some(members) = model.source(&lab.fakes, &at) else { return };
    let has = |(tree, inode): &File| {
        let fake = &lab.fakes[*tree];
        NAMES_USED.into_iter().filter(|name| fake.child(*inode, name).is_some()).collect::<Vec<_>>()
    };
    let names_there: BTreeSet<&str> = members.iter().flat_map(has).collect();
    let listed = lab.list(&names.join("/")).unwrap();
    let count = listed.split_whitespace().count();
    let listed: BTreeSet<&str> = listed.split_whitespace().collect();
    assert_eq!((listed.len(), &listed), (count, &names_there), "{names:?}");
}

/// Each walk ends where the model says, each list has the names of the model, and nothing unneeded
/// is held.
#[test]
fn random_name_spaces_are_as_the_model_has_them() {
    for seed in 0..400 {
        one(seed);
    }
}
