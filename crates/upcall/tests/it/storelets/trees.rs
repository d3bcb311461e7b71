//! Programs that search a tree, over every kind of tree.

use super::guests::{self, NOTCAPABLE};
use super::{Ran, Scratch, Server};
use crate::server::{BINARY, volume};
use std::path::Path;
use std::process::{Command, Stdio};

const PORTS: [&str; 4] = ["--9p", "127.0.0.1:0", "--http", "127.0.0.1:0"];

/// Creates forty directories in four, with three files each, the last of them of 20 KB.
fn forest(dir: &Path) {
    for number in 0..40 {
        let below = dir.join(format!("{}/{number}", number % 4));
        std::fs::create_dir_all(&below).unwrap();
        for (file, times) in [("a", 1), ("b", 500), ("c", 4000)] {
            let line = format!("{number} {file}\n");
            std::fs::write(below.join(file), line.repeat(times)).unwrap();
        }
    }
    std::os::unix::fs::symlink("0/4", dir.join("link")).unwrap();
    std::fs::write(dir.join("empty"), "").unwrap();
}

/// Returns the number of occurrences of each line in all files.
fn counted(dir: &Path) -> Vec<(String, usize)> {
    let mut all = Vec::new();
    for number in 0..40 {
        for file in ["a", "b", "c"] {
            let path = dir.join(format!("{}/{number}/{file}", number % 4));
            let text = std::fs::read_to_string(path).unwrap();
            all.push((format!("{number} {file}"), text.lines().count()));
        }
    }
    all.sort();
    all
}

/// Runs a program that prints all files, from this directory on; returns its output, and the number
/// of its requests.
fn tour(server: &Server, programs: &Path, root: &str) -> (Vec<(String, usize)>, u64) {
    let file = programs.join("tour.wasm");
    std::fs::write(&file, guests::TOUR.wasm()).unwrap();
    let mut command = Command::new(BINARY);
    command.arg("run").arg(server.ninep()).args(["--json", "--root", root]).arg(file);
    let ran: Ran = command.stdin(Stdio::null()).output().unwrap().into();
    assert_eq!(ran.code, Some(0), "{root}: {}", ran.err);
    let report: serde_json::Value = serde_json::from_str(ran.err.lines().next().unwrap()).unwrap();
    let mut counts = std::collections::BTreeMap::new();
    for line in ran.out.lines() {
        *counts.entry(line.to_string()).or_insert(0) += 1;
    }
    (counts.into_iter().collect(), report["operations"].as_u64().unwrap())
}

#[test]
fn trees_of_every_kind_are_looked_through() {
    let (scratch, programs) = (Scratch::new("trees"), Scratch::new("tour"));
    let dir = scratch.path();
    let forest_dir = dir.join("forest");
    std::fs::create_dir(&forest_dir).unwrap();
    forest(&forest_dir);
    let wanted = counted(&forest_dir);
    // A server of a volume started by root has another user than one of a directory of root.
    let caches = ["cache", "of-volumes"].map(|name| programs.path().join(name));
    let [cache, of_volumes] =
        caches.each_ref().map(|it| ["--storelet-cache", it.to_str().unwrap()]);
    let look = |server: &Server, root: &str, most: u64| {
        let (lines, requests) = tour(server, programs.path(), root);
        assert_eq!(lines, wanted, "{root}");
        assert!(requests <= most, "{root}: {requests} requests");
    };
    let host = Server::start(&forest_dir, &cache);
    look(&host, "/", 400);

    // A volume, from the disk and from memory.
    let path = dir.join("tree.volume");
    let path = path.to_str().unwrap();
    let made = volume(&["create", path, "--size", "256M", "--sparse"]);
    assert_eq!(made.0, Some(0), "{made:?}");
    let copied = volume(&["copy", forest_dir.to_str().unwrap(), &format!("{path}:/")]);
    assert_eq!(copied.0, Some(0), "{copied:?}");
    let own = Server::start(Path::new(path), &of_volumes);
    look(&own, "/", 500);
    look(&own, "/", 500);
    assert_eq!(own.end(), Some(0));

    // Its links do not lead out of a program's root.
    for (link, to) in [("0/0/out", "../../1/1/a"), ("0/0/top", "/1/1/a"), ("0/0/in", "./a")] {
        std::os::unix::fs::symlink(to, forest_dir.join(link)).unwrap();
    }
    let links = dir.join("links.volume");
    let links = links.to_str().unwrap();
    assert_eq!(volume(&["create", links, "--size", "64M", "--sparse"]).0, Some(0));
    assert_eq!(volume(&["copy", forest_dir.to_str().unwrap(), &format!("{links}:/")]).0, Some(0));
    let linked = Server::start(Path::new(links), &of_volumes);
    for (path, code) in [("in", 0), ("a", 0), ("out", NOTCAPABLE), ("top", NOTCAPABLE)] {
        let file = programs.path().join(format!("{path}.wasm"));
        std::fs::write(&file, guests::open_through(path).wasm()).unwrap();
        let mut command = Command::new(BINARY);
        command.arg("run").arg(linked.ninep()).args(["--root", "/0/0"]).arg(file);
        let ran: Ran = command.stdin(Stdio::null()).output().unwrap().into();
        assert_eq!(ran.code, Some(code), "{path}: {}", ran.err);
    }
    for link in ["0/0/out", "0/0/top", "0/0/in"] {
        std::fs::remove_file(forest_dir.join(link)).unwrap();
    }

    // All of them in one tree: mounts are visible, and hide what they cover.
    let base = dir.join("base");
    for name in ["vol", "far", "host", "again"] {
        std::fs::create_dir_all(base.join(name)).unwrap();
    }
    std::fs::write(base.join("vol/hidden"), "nobody sees this\n").unwrap();
    let shown = forest_dir.display();
    let lines = format!(
        "mount / host:{}\nmount /vol volume:{path}\nmount /far 9p://{}\nmount /host host:{shown}\n\
         bind /host /again\n",
        base.display(),
        host.ninep()
    );
    let names = dir.join("names");
    std::fs::write(&names, lines).unwrap();
    let args = ["--names", names.to_str().unwrap()];
    let joined = Server::with(&[&args[..], &PORTS, &cache].concat());
    look(&joined, "/host", 400);
    look(&joined, "/vol", 500);
    look(&joined, "/far", 2000);
    look(&joined, "/again", 2000);
    let (all, _) = tour(&joined, programs.path(), "/");
    let four = |(line, count): &(String, usize)| (line.clone(), count * 4);
    assert_eq!(all, wanted.iter().map(four).collect::<Vec<_>>());
    assert_eq!(joined.end(), Some(0));
}
