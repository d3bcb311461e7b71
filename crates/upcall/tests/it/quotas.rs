//! Quotas of directories and users of volumes.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use crate::remote::run;
use crate::server::{Scratch, Server, delete, get, put};
use crate::volumes::{check, json, made, serve};
use std::process::Output;

/// Runs `upcall quota` at an address.
fn quota(address: &str, words: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = run(address, "quota", words);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (status.code(), text(&stdout), text(&stderr))
}

#[test]
fn a_directory_is_limited_while_it_is_served_and_df_shows_it() {
    let dir = Scratch::new("quotas");
    let path = made(&dir, &[]);
    let socket = format!("unix:{}", dir.path().join("socket").display());
    let server = serve(&path, &["--9p", &socket]);
    assert!(run(&socket, "mkdir", &["/d"]).status.success());
    put(server.http(), "/d/before", &vec![1; 1 << 20]).unwrap();
    let (code, _, errors) = quota(&socket, &["/d"]);
    assert_eq!(code, Some(1));
    assert!(
        errors.contains("/d has no quota that this user may see; in a volume, set one with --size"),
        "{errors}"
    );
    let (code, text, errors) = quota(&socket, &["/d", "--size", "4M", "--files", "3"]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(text.contains("4 MiB") && text.contains("/d"), "{text}");

    let refused = put(server.http(), "/d/large", &vec![2; 8 << 20]).unwrap();
    assert!(refused.starts_with("HTTP/1.1 507 "), "{refused}");
    let taken = put(server.http(), "/d/small", &vec![2; 2 << 20]).unwrap();
    assert!(taken.starts_with("HTTP/1.1 201 "), "{taken}");
    let refused = put(server.http(), "/d/more", b"a fourth").unwrap();
    assert!(refused.starts_with("HTTP/1.1 507 "), "{refused}");
    assert!(put(server.http(), "/elsewhere", b"x").unwrap().starts_with("HTTP/1.1 201 "));
    let refused = run(&socket, "mkdir", &["/d/e"]);
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(errors.contains("Disk quota exceeded") && errors.contains("quota"), "{errors}");

    let shown = run(&socket, "df", &["/d", "--json"]);
    let rows = json(&String::from_utf8_lossy(&shown.stdout));
    assert_eq!((&rows[0]["size"], &rows[0]["files"]), (&(4 << 20).into(), &3.into()));
    assert_eq!((&rows[0]["available"], &rows[0]["files_free"]), (&(1 << 20).into(), &0.into()));
    let metrics = get(server.http(), "/.upcall/metrics");
    assert!(metrics.lines().any(|line| {
        line.starts_with("upcall_quota_used_bytes{tree=\"0\",directory=\"")
            && line.ends_with("\"} 3145728")
    }));
    server.kill();
    check(&path);

    let server = serve(&path, &["--9p", &socket]);
    let (code, text, errors) = quota(&socket, &["--list", "--json"]);
    assert_eq!(code, Some(0), "{errors}");
    let all = json(&text);
    assert_eq!(all.as_array().unwrap().len(), 1);
    assert_eq!((&all[0]["size_used"], &all[0]["files_used"]), (&(3 << 20).into(), &3.into()));
    // A limit that is not given stays.
    let (code, text, _) = quota(&socket, &["/d", "--files", "none", "--json"]);
    let one = json(&text);
    assert_eq!((code, &one[0]["size_max"]), (Some(0), &(4 << 20).into()));
    assert!(one[0]["files_max"].is_null(), "{text}");
    assert_eq!(delete(server.http(), "/d/before").unwrap().split(' ').nth(1), Some("204"));
    assert_eq!(quota(&socket, &["/d", "--remove"]).0, Some(0));
    let (code, _, errors) = quota(&socket, &["/d", "--remove"]);
    assert!(code == Some(1) && errors.contains("no quota is set"), "{errors}");
    assert!(put(server.http(), "/d/large", &vec![2; 8 << 20]).unwrap().contains(" 201 "));
    assert_eq!(server.end(), Some(0));
    check(&path);
}

#[test]
fn a_user_is_limited_and_others_may_not_say_so() {
    let dir = Scratch::new("quotas-of-users");
    let path = made(&dir, &[]);
    let socket = format!("unix:{}", dir.path().join("socket").display());
    let server = serve(&path, &["--9p", &socket]);
    let as_root = |words: &[&str]| quota(&socket, &[words, &["--as", "0"]].concat());
    let (code, text, errors) = as_root(&["--owner", "1234", "--files", "1"]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(text.ends_with("user 1234\n"), "{text}");
    assert!(run(&socket, "mkdir", &["/open", "--as", "0"]).status.success());
    assert!(run(&socket, "chmod", &["777", "/open", "--as", "0"]).status.success());
    assert!(run(&socket, "mkdir", &["/open/one", "--as", "1234"]).status.success());
    let refused = run(&socket, "mkdir", &["/open/two", "--as", "1234"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(run(&socket, "mkdir", &["/open/two", "--as", "1235"]).status.success());
    for (words, printed) in [
        (&["/", "--as", "1234", "--size", "1G"][..], "attach as root"),
        (&["/", "--as", "1234"], "attach as root"),
        (&["--list", "--as", "1234"], "attach as root"),
        (&["/open/one", "--as", "0", "--owner", "5", "--size", "1G"], "the root of the volume"),
    ] {
        let (code, _, errors) = quota(&socket, words);
        assert!(code == Some(1) && errors.contains(printed), "{words:?}: {errors}");
    }
    assert_eq!(server.end(), Some(0));
    check(&path);
}

#[test]
fn a_directory_of_the_host_has_no_quota() {
    let dir = Scratch::new("quotas-of-nobody");
    let socket = format!("unix:{}", dir.path().join("socket").display());
    let served = dir.path().join("served");
    std::fs::create_dir(&served).unwrap();
    let _server = Server::start(&served, &["--9p", &socket]);
    let (code, _, errors) = quota(&socket, &["/", "--size", "1G"]);
    assert!(code == Some(1) && errors.contains("only these have quotas"), "{errors}");
}
