//! Client commands that move, copy and change files of a server, in both dialects.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use crate::remote::{DIALECTS, described, fails, large, run, serve, works};
use crate::server::Scratch;
use serde_json::Value;
use std::os::unix::fs::{PermissionsExt, symlink};

/// Returns the arguments of a command in this dialect.
fn at<'a>(dialect: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    [&["--protocol", dialect][..], words].concat()
}

#[test]
fn files_are_moved_and_renamed() {
    for dialect in DIALECTS {
        let (dir, server) = serve("mv");
        let mv = |words: &[&str]| works(server.ninep(), "mv", &at(dialect, words));
        let there = |path: &str| dir.path().join(path).symlink_metadata().is_ok();
        assert_eq!(mv(&["/sub/tool", "/sub/tool2"]), "");
        assert!(there("sub/tool2") && !there("sub/tool"));
        // An existing file of that name is replaced.
        mv(&["/sub/tool2", "/sub/large"]);
        assert_eq!(std::fs::read(dir.path().join("sub/large")).unwrap(), b"#!/bin/sh\n");
        let error =
            fails(server.ninep(), "mv", &at(dialect, &["/sub/large", "/notes", "/nowhere"]));
        assert!(error.contains("/nowhere: no such directory; make it with"), "{error}");
        let error = fails(server.ninep(), "mv", &at(dialect, &["/sub/large", "/notes/"]));
        assert!(error.contains("/notes/: not a directory"), "{error}");
        match dialect {
            "9P2000" => {
                let error = fails(server.ninep(), "mv", &at(dialect, &["/notes", "/sub/"]));
                assert!(error.contains("cannot move /notes: 9P2000 has no message"), "{error}");
                assert!(there("notes"));
            }
            _linux => {
                mv(&["/notes", "/sub/deep", "/empty/"]);
                assert!(there("empty/notes") && there("empty/deep/299") && !there("sub/deep"));
                let errors = fails(server.ninep(), "mv", &["/no", "/empty/notes", "/sub"]);
                assert!(errors.contains("cannot rename /no: No such file"), "{errors}");
                assert!(there("sub/notes"));
            }
        }
    }
}

/// 9P2000 never replaces, so an existing target has to be removed; no failure may lose a file.
#[test]
fn no_file_is_lost_by_a_move_that_fails() {
    for dialect in DIALECTS {
        let (dir, server) = serve("mv-lost");
        let path = |name: &str| dir.path().join(name);
        let notes = std::fs::read(path("notes")).unwrap();
        std::fs::write(path("sub/notes"), "others").unwrap();
        std::fs::set_permissions(path("sub/notes"), PermissionsExt::from_mode(0o666)).unwrap();
        let mv = |words: &[&str]| run(server.ninep(), "mv", &at(dialect, words)).status.success();
        let is_kept = || std::fs::read(path("notes")).is_ok_and(|now| now == notes);
        let _ = mv(&["/notes", "/notes"]);
        assert!(is_kept(), "{dialect}: onto itself");
        assert!(!mv(&["/no", "/notes"]) && is_kept(), "{dialect}: what is not there");
        if dialect == "9P2000" {
            assert!(!mv(&["/notes", "/sub/"]) && is_kept(), "to another directory");
            assert_eq!(std::fs::read(path("sub/notes")).unwrap(), b"others");
            assert!(mv(&["notes", "/other"]) && mv(&["/other", "notes"]) && is_kept());
        } else {
            // Two sources of one name do not replace each other.
            assert!(!mv(&["/notes", "/sub/notes", "/empty/"]));
            assert_eq!(std::fs::read(path("empty/notes")).unwrap(), notes);
            assert_eq!(std::fs::read(path("sub/notes")).unwrap(), b"others");
        }
    }
}

#[test]
fn files_and_trees_are_copied_on_the_server() {
    for dialect in DIALECTS {
        let (dir, server) = serve("cp");
        let path = |name: &str| dir.path().join(name);
        if dialect == "9P2000.L" {
            symlink("../notes", path("sub/link")).unwrap();
        }
        let cp = |words: &[&str]| works(server.ninep(), "cp", &at(dialect, words));
        let printed = cp(&["/sub/large", "/copy"]);
        assert!(printed.starts_with("copied 1 file, 5 MiB in "), "{printed}");
        assert!(std::fs::read(path("copy")).unwrap() == large());
        cp(&["--sync", "/sub/tool", "/notes", "/empty/"]);
        let mode = path("empty/tool").metadata().unwrap().permissions().mode();
        assert_eq!((mode & 0o777, std::fs::read(path("empty/notes")).unwrap().len()), (0o755, 6));
        let report: Value = serde_json::from_str(&cp(&["-r", "--json", "/sub", "/new"])).unwrap();
        assert_eq!((&report["files"], &report["directories"]), (&303.into(), &2.into()));
        assert!(described(&path("new")) == described(&path("sub")), "{dialect}");
        let mode = |name: &str| path(name).metadata().unwrap().permissions().mode();
        assert_eq!((mode("new"), mode("new/deep")), (mode("sub"), mode("sub/deep")));
        // Into an existing directory, like cp(1).
        cp(&["-r", "sub", "/empty"]);
        assert!(described(&path("empty/sub")) == described(&path("sub")), "{dialect}");
        for (words, cause) in [
            (
                &["/sub", "/other"][..],
                "cannot copy /sub: it is a directory; copy all of it with -r",
            ),
            (&["-r", "/sub", "/sub/deep"], "cannot copy /sub into itself, /sub/deep/sub;"),
            (&["/notes", "/notes"], "they are the same file"),
            (&["/no", "/other"], "cannot look at /no: "),
            (&["/notes", "/other/"], "cannot put files into /other/: no such directory"),
        ] {
            let error = fails(server.ninep(), "cp", &at(dialect, words));
            assert!(error.contains(cause), "{words:?}: {error}");
        }
        let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(names.len(), 5, "no temporary names: {names:?}");
        assert_eq!(server.end(), Some(0));
    }
}

#[test]
fn a_tree_is_not_copied_into_itself_by_a_link() {
    let (dir, server) = serve("cp-link");
    symlink("sub/deep", dir.path().join("link")).unwrap();
    std::fs::create_dir(dir.path().join("sub/deep/sub")).unwrap();
    std::fs::set_permissions(dir.path().join("sub/deep/sub"), PermissionsExt::from_mode(0o777))
        .unwrap();
    let error = fails(server.ninep(), "cp", &["-r", "/sub", "/link"]);
    assert!(error.contains("into itself"), "{error}");
    assert!(!dir.path().join("sub/deep/sub/deep/sub").exists());
}

#[test]
fn modes_are_changed() {
    for dialect in DIALECTS {
        let (dir, server) = serve("chmod");
        // Files of the client's user: others' modes cannot be changed.
        std::fs::remove_dir_all(dir.path().join("sub")).unwrap();
        works(server.ninep(), "mkdir", &at(dialect, &["-p", "/sub/deep"]));
        let here = Scratch::new("chmod-here");
        std::fs::write(here.path().join("file"), "x").unwrap();
        let file = here.path().join("file").to_str().unwrap().to_string();
        works(server.ninep(), "put", &at(dialect, &[&file, "/sub/"]));
        let chmod = |words: &[&str]| run(server.ninep(), "chmod", &at(dialect, words));
        let mode =
            |path: &str| dir.path().join(path).metadata().unwrap().permissions().mode() & 0o7777;
        let works = |words: &[&str]| {
            let output = chmod(words);
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{words:?}: {errors}");
        };
        works(&["600", "/sub/file"]);
        assert_eq!(mode("sub/file"), 0o600);
        works(&["u+x,g=r", "/sub/file"]);
        assert_eq!(mode("sub/file"), 0o740);
        if dialect == "9P2000.L" {
            symlink("nowhere", dir.path().join("sub/link")).unwrap();
        }
        works(&["-R", "u=rwX,go=", "/sub"]);
        assert_eq!((mode("sub"), mode("sub/deep"), mode("sub/file")), (0o700, 0o700, 0o700));
        let output = chmod(&["644", "/no", "/sub/file"]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), mode("sub/file")), (Some(1), 0o644), "{errors}");
        assert!(errors.contains("cannot look at /no: "), "{errors}");
        assert_eq!(chmod(&["999", "/sub"]).status.code(), Some(2));
    }
}

#[test]
fn free_space_is_shown() {
    let (dir, server) = serve("df");
    let text = works(server.ninep(), "df", &[]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with("available  use  files free  path"), "{text}");
    assert!(lines.len() == 2 && lines[1].ends_with("  /"), "{text}");
    let report: Value =
        serde_json::from_str(&works(server.ninep(), "df", &["--json", "/sub"])).unwrap();
    let host = rustix::fs::statvfs(dir.path()).unwrap();
    assert_eq!(report[0]["size"], host.f_blocks * host.f_frsize);
    assert_eq!((&report[0]["path"], &report[0]["name_max"]), (&"/sub".into(), &255.into()));
    let error = fails(server.ninep(), "df", &["/no"]);
    assert!(error.contains("cannot tell the free space of /no: No such file"), "{error}");
    let error = fails(server.ninep(), "df", &["--protocol", "9P2000"]);
    assert!(error.contains("9P2000 has no message for it; use a server of 9P2000.L"), "{error}");
}

/// Sets the modification time of a file.
fn touch(path: &std::path::Path, date: &str) {
    let done = std::process::Command::new("touch").args(["-d", date]).arg(path).status().unwrap();
    assert!(done.success());
}

#[test]
fn trees_keep_their_times_and_are_not_transferred_again() {
    for dialect in DIALECTS {
        let (dir, server) = serve("again");
        let here = Scratch::new("again-here");
        let time = |path: &std::path::Path| path.metadata().unwrap().modified().unwrap();
        touch(&dir.path().join("sub/tool"), "2001-02-03 04:05:06.123456789");
        let got = here.path().join("got");
        let got_text = got.to_str().unwrap();
        let report = |command: &str, words: &[&str]| -> Value {
            let words = [&["--protocol", dialect, "-r", "--json"], words].concat();
            serde_json::from_str(&works(server.ninep(), command, &words)).unwrap()
        };
        let counts = |report: &Value| [&report["files"], &report["skipped"]].map(|it| it.as_u64());
        let fetch = || counts(&report("get", &["/sub", got_text]));
        let send = || {
            let report = report("put", &[got_text, "/sent"]);
            assert_eq!(report["undated"], 0, "{report}");
            counts(&report)
        };
        assert_eq!(fetch(), [Some(303), Some(0)]);
        assert_eq!(send(), [Some(303), Some(0)]);
        let (there, copy) = (time(&dir.path().join("sub/tool")), time(&got.join("tool")));
        match dialect {
            "9P2000.L" => assert_eq!(copy, there),
            _plan9 => assert!(there.duration_since(copy).unwrap().as_secs() == 0),
        }
        assert_eq!(time(&dir.path().join("sent/tool")), copy);
        assert_eq!((fetch(), send()), ([Some(0), Some(303)], [Some(0), Some(303)]));
        // Another size, another time, and a missing file.
        std::fs::write(got.join("deep/5"), "other").unwrap();
        touch(&got.join("tool"), "2002-02-03");
        std::fs::remove_file(dir.path().join("sent/large")).unwrap();
        assert_eq!(send(), [Some(3), Some(300)]);
        assert!(described(&dir.path().join("sent")) == described(&got));
        std::fs::remove_file(got.join("large")).unwrap();
        assert_eq!(fetch(), [Some(3), Some(300)]);
        assert!(described(&dir.path().join("sub")) == described(&got));
        let words = ["--protocol", dialect, "-r", "/sub", got_text];
        let printed = works(server.ninep(), "get", &words);
        assert!(printed.contains("; 303 there already\n"), "{printed}");
    }
}
