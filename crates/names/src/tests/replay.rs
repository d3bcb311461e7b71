//! The listed commands rebuild the same namespace.

use super::*;
use crate::script::{Line, Source as History};
use fastrand::Rng;

/// Trees with enough directories to get lost.
const TREES: [&[&str]; 3] = [&["a/b/", "b/a/c/", "c/"], &["a/", "b/c/a/"], &["c/b/", "a/b/c/"]];

impl Lab {
    /// Executes a line, as a node does; `volume:N` is the tree with this number.
    fn execute(&mut self, text: &str) -> Result<(), Error> {
        let mut lines = script::parse(text).expect("a line");
        let requested = match lines.remove(0).1 {
            Line::Mount { at, source, order, create } => {
                let source_text = script::quoted(&source.to_string()).into();
                let History::Volume(number) = source else { panic!("{source}") };
                let fake = &self.fakes[number.parse::<usize>().unwrap()];
                let what = Source::Tree(fake.root(), fake.root_stat());
                NamespaceChange::Join { at, what, order, create, source_text }
            }
            Line::Bind { new, old, order, create } => {
                let source_text = script::path_text(&new).into();
                NamespaceChange::Join {
                    at: old,
                    what: Source::Path(new),
                    order,
                    create,
                    source_text,
                }
            }
            Line::Unmount { what, at } => NamespaceChange::Part {
                at,
                source_text: what.map(|what| script::quoted(&what).into()),
            },
            Line::Grow { .. } => panic!("no volume is here"),
        };
        self.requested(requested)
    }
}

fn shown(lines: &[&str]) -> Vec<String> {
    let mut lab = Lab::new(&TREES);
    lines.iter().for_each(|line| lab.execute(line).expect("it can be made"));
    lab.names.text()
}

#[test]
fn dependent_lines_follow_their_dependencies() {
    let lines = ["mount /c volume:1", "bind /c/b /a"];
    assert_eq!(shown(&lines), lines);
    // Also after that was unmounted.
    let lines = ["mount /c volume:1", "bind /c/b /a", "mount /c volume:2"];
    assert_eq!(shown(&lines), lines);
    let lines = ["mount /c volume:1", "bind /c/b /a", "unmount /c"];
    assert_eq!(shown(&lines), lines);
    let lines = ["mount /c volume:1", "bind /c/b /a", "unmount /c", "unmount /a"];
    assert_eq!(shown(&lines), [""; 0]);
    assert_eq!(shown(&["mount /c volume:1", "mount /c volume:2"]), ["mount /c volume:2"]);
}

#[test]
fn a_bind_of_a_union_is_one_line() {
    let lines = ["mount /c volume:1", "mount -ac /c volume:2", "bind -b /c /a"];
    assert_eq!(shown(&lines), lines);
}

#[test]
fn the_rest_of_a_union_keeps_its_order() {
    let lines = ["mount /c volume:1", "mount -a /c volume:2", "mount -bc /c volume:0"];
    let taken = [&lines[..], &["unmount volume:1 /c"]].concat();
    assert_eq!(shown(&taken), ["mount /c volume:2", "mount -bc /c volume:0"]);
    let lines = ["mount -a /c volume:1", "mount -b /c volume:2"];
    let taken = [&lines[..], &["unmount volume:1 /c"]].concat();
    assert_eq!(shown(&taken), ["mount -b /c volume:2"]);
}

#[test]
fn a_line_that_makes_itself_superfluous_is_forgotten() {
    let mut lab = Lab::new(&TREES);
    for _ in 0..2000 {
        lab.execute("mount /c volume:1").expect("it can be made");
        lab.execute("bind /c/b /a").expect("it can be made");
        lab.execute("unmount /a").expect("it is there");
        lab.execute("mount -a /c volume:2").expect("it can be made");
        lab.execute("unmount volume:1 /c").expect("it is there");
        lab.execute("unmount /c").expect("it is there");
        assert!(lab.names.text().is_empty() && lab.names.table.lines_kept() < 200);
    }
    // An endless history has a limit.
    let made = (0..100_000).take_while(|_| lab.execute("bind /c /c").is_ok()).count();
    assert!((60_000..70_000).contains(&made), "{made}");
    lab.execute("unmount /c").expect("it is there");
    lab.execute("bind /c /c").expect("there is room again");
}

fn random_line(rng: &mut Rng) -> String {
    let path = |rng: &mut Rng| {
        let names: Vec<&str> =
            (0..rng.usize(..4)).map(|_| ["a", "b", "c"][rng.usize(..3)]).collect();
        format!("/{}", names.join("/"))
    };
    let flags = ["", "-a ", "-b ", "-c ", "-ac ", "-bc "][rng.usize(..6)];
    let (new, old, tree) = (path(rng), path(rng), rng.usize(..3));
    match rng.u8(..8) {
        0..3 => format!("mount {flags}{old} volume:{tree}"),
        3..6 => format!("bind {flags}{new} {old}"),
        6 if rng.bool() => format!("unmount volume:{tree} {old}"),
        6 => format!("unmount {new} {old}"),
        _ => format!("unmount {old}"),
    }
}

/// Returns the results of random walks and lists.
fn seen(lab: &mut Lab, rng: &mut Rng) -> Vec<String> {
    (0..40)
        .map(|_| {
            let names: Vec<&str> =
                (0..rng.usize(..6)).map(|_| ["a", "b", "c", ".."][rng.usize(..4)]).collect();
            let path = names.join("/");
            format!("{path}: {:?} {:?}", lab.at(&path), lab.list(&path))
        })
        .collect()
}

#[test]
fn a_name_space_said_again_is_the_same() {
    for seed in 0..1000 {
        let mut rng = Rng::with_seed(seed);
        let (mut lab, mut made) = (Lab::new(&TREES), Vec::new());
        for _ in 0..rng.usize(1..30) {
            let line = random_line(&mut rng);
            if lab.execute(&line).is_ok() {
                made.push(line);
            }
        }
        let text = lab.names.text();
        let mut again = Lab::new(&TREES);
        for line in &text {
            let done = again.execute(line);
            assert_eq!(done, Ok(()), "seed {seed}: {line}\nsaid: {made:#?}\nshown: {text:#?}");
        }
        let source_text = format!("seed {seed}\nsaid: {made:#?}\nshown: {text:#?}");
        assert_eq!(again.names.text(), text, "{source_text}");
        assert!(text.len() <= made.len(), "{source_text}");
        let look = rng.u64(..);
        let before = seen(&mut lab, &mut Rng::with_seed(look));
        assert_eq!(seen(&mut again, &mut Rng::with_seed(look)), before, "{source_text}");
    }
}
