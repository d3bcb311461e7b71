//! Directories and small files that the server sends ahead of requests.

use super::watched::{Watched, messages, until};
use anyhow::{Context as _, Result, ensure};
use rig::sh;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Types of messages that a client sends for each file if nothing is sent ahead.
const OF_EACH: [&str; 4] = ["Walk", "Getattr", "Lopen", "Readdir"];

/// Maximum number of those, however many files there are.
const MESSAGES_MAX: u64 = 100;

/// Files of a directory.
const FILES: usize = 25;

/// Rounds of changes while another mount reads.
const ROUNDS: usize = 20;

/// Creates directories with files of some hundred bytes.
fn fill(dir: &Path, directories: usize) -> Result<()> {
    for number in 0..directories {
        let parent = dir.join(format!("d{}", number % 10)).join(format!("e{number}"));
        fs::create_dir_all(&parent)?;
        for file in 0..FILES {
            let text = format!("file {file} of directory {number}\n").repeat(1 + file);
            fs::write(parent.join(format!("f{file}")), text)?;
        }
    }
    Ok(())
}

/// Looks at all files that another mount has made, and reads them: the number of messages does not
/// grow with that of the files.
pub(super) fn few_messages(watched: &Watched<'_>) -> Result<String> {
    let mut printed = Vec::new();
    ensure!(fs::read_dir(watched.b)?.count() > 0, "the root is empty");
    ensure!(watched.b.join(".upcall/queues").exists(), "a directory that is not listed");
    for (name, directories) in [("ahead-few", 20), ("ahead-many", 80)] {
        fill(&watched.a.join(name), directories)?;
        let dir = watched.b.join(name);
        let measured = |what: &str, program: &str, words: &[&str]| {
            let before = messages(watched.server, &OF_EACH)?;
            let output = sh::read(sh::cmd(program, words).arg(&dir))?;
            let count = messages(watched.server, &OF_EACH)? - before;
            ensure!(count < MESSAGES_MAX, "{count} messages to {what} {}", directories * FILES);
            anyhow::Ok((output, count))
        };
        let (found, finds) = measured("find", "find", &["-L"])?;
        let files = found.lines().filter(|line| line.contains("/f")).count();
        ensure!(files == directories * FILES, "{files} files were found");
        let (_, reads) = measured("read", "grep", &["-rc", "directory"])?;
        ensure!(same(&watched.a.join(name), &dir)?, "the contents are others");
        printed.push(format!("{files} files: {finds} messages to find, {reads} to read them"));
    }
    Ok(printed.join("; "))
}

fn same(a: &Path, b: &Path) -> Result<bool> {
    Ok(sh::cmd("diff", &["-rq"]).arg(a).arg(b).output()?.status.success())
}

/// Changes, replaces and removes files that another mount has open without having read them.
pub(super) fn changed(watched: &Watched<'_>) -> Result<String> {
    let [a, b] = [watched.a, watched.b].map(|dir| dir.join("ahead-changed"));
    fs::create_dir(&a)?;
    let names: Vec<String> = (0..40).map(|number| format!("n{number:02}")).collect();
    for name in &names {
        fs::write(a.join(name), format!("old {name}"))?;
    }
    until("the names", || fs::read_dir(&b).is_ok_and(|list| list.count() == names.len()))?;
    let open = |name: &String| fs::File::open(b.join(name)).context("open a file");
    let files: Vec<fs::File> = names.iter().map(open).collect::<Result<_>>()?;
    let read = |file: &fs::File| {
        let mut bytes = [0; 64];
        let count = file.read_at(&mut bytes, 0).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    for (number, name) in names.iter().enumerate() {
        match number % 4 {
            0 => fs::write(a.join(name), format!("new {name}"))?,
            1 => fs::remove_file(a.join(name))?,
            2 => {
                fs::write(a.join("temporary"), format!("new {name}"))?;
                fs::rename(a.join("temporary"), a.join(name))?;
            }
            _ => {}
        }
    }
    for (number, (name, file)) in names.iter().zip(&files).enumerate() {
        let (old, new) = (format!("old {name}"), format!("new {name}"));
        match number % 4 {
            0 => until("what was written", || read(file) == new)?,
            1 => {
                ensure!(read(file) == old, "{name}: {:?} of a removed file", read(file));
                until("the removal", || !b.join(name).exists())?;
            }
            2 => {
                ensure!(read(file) == old, "{name}: {:?} of a replaced file", read(file));
                until("the new file", || {
                    fs::read_to_string(b.join(name)).is_ok_and(|it| it == new)
                })?;
            }
            _ => ensure!(read(file) == old, "{name}: {:?} of a file without a change", read(file)),
        }
    }
    Ok(String::new())
}

/// Changes a tree on one mount while the other one reads it. In the end both show the same.
pub(super) fn changing(watched: &Watched<'_>) -> Result<String> {
    let [a, b] = [watched.a, watched.b].map(|dir| dir.join("ahead-changing"));
    fill(&a, 20)?;
    let is_over = AtomicBool::new(false);
    let looks = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut looks = 0;
            while !is_over.load(Ordering::SeqCst) {
                // Files that are removed meanwhile are errors here.
                drop(sh::cmd("grep", &["-rc", "directory"]).arg(&b).output());
                looks += 1;
            }
            looks
        });
        let changes = (0..ROUNDS).try_for_each(|round| change(&a, round));
        is_over.store(true, Ordering::SeqCst);
        changes.map(|()| reader.join().unwrap_or(0))
    })?;
    ensure!(looks > 0, "nothing was read");
    until("the last state", || same(&a, &b).unwrap_or(false))?;
    Ok(format!("{looks} looks"))
}

/// Creates, writes, renames and removes files and directories.
fn change(dir: &Path, round: usize) -> Result<()> {
    for number in 0..20 {
        let parent = dir.join(format!("d{}/e{number}", number % 10));
        fs::write(parent.join(format!("f{}", round % FILES)), format!("round {round}\n"))?;
        fs::write(parent.join(format!("new-{round}")), "directory\n")?;
        fs::rename(parent.join(format!("new-{round}")), parent.join("newest"))?;
        let below = parent.join("below");
        match round % 2 {
            0 => {
                fs::create_dir(&below)?;
                fs::write(below.join("file"), format!("directory {round}\n"))?;
            }
            _ => fs::remove_dir_all(&below)?,
        }
    }
    Ok(())
}
