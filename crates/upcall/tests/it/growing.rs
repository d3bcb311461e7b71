//! Growth of volumes.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use crate::remote::run;
use crate::server::{Scratch, get, put, volume};
use crate::volumes::{check, json, made, serve};
use std::os::unix::fs::MetadataExt as _;

fn bytes(path: &str) -> u64 {
    let (code, text, errors) = volume(&["info", path, "--json"]);
    assert_eq!(code, Some(0), "{errors}");
    json(&text)["bytes"].as_u64().unwrap()
}

#[test]
fn a_volume_grows_and_keeps_what_it_has() {
    let dir = Scratch::new("grown");
    let path = made(&dir, &[]);
    let server = serve(&path, &[]);
    put(server.http(), "/early", b"early\n").unwrap();
    // 64 MiB are too few for this one.
    let large = vec![9; 80 << 20];
    let refused = put(server.http(), "/large", &large);
    assert!(!refused.is_some_and(|line| line.starts_with("HTTP/1.1 201 ")));
    assert_eq!(volume(&["snapshot", &path, "list"]).0, Some(0));
    let (code, _, errors) = volume(&["grow", &path, "1G"]);
    assert_eq!(code, Some(2));
    assert!(
        errors.contains("has it; if that is a server, name its unix socket: --at unix:PATH"),
        "{errors}"
    );
    assert_eq!(server.end(), Some(0));

    for (size, shown, version) in
        [("65568K", "64.0 MiB", 1), ("1G", "1 GiB", 2), ("5G", "5 GiB", 2)]
    {
        let (code, text, errors) = volume(&["grow", &path, size, "--sparse"]);
        assert_eq!(code, Some(0), "{errors}");
        assert!(text.starts_with(&format!("grown {path} from ")), "{text}");
        assert!(text.ends_with(&format!(" to {shown}\n")), "{text}");
        let (_, text, _) = volume(&["info", &path, "--json"]);
        assert_eq!(json(&text)["version"], version, "{text}");
        check(&path);
    }
    let server = serve(&path, &[]);
    assert!(server.greeting().contains("volume   5 GiB, "), "{}", server.greeting());
    assert!(get(server.http(), "/early").ends_with("\r\n\r\nearly\n"));
    assert!(put(server.http(), "/large", &large).unwrap().starts_with("HTTP/1.1 201 "));
    server.kill();
    check(&path);
    let server = serve(&path, &[]);
    assert!(get(server.http(), "/large").len() > large.len());
    assert_eq!(server.end(), Some(0));
    check(&path);
}

#[test]
fn a_served_volume_grows_and_takes_more() {
    let dir = Scratch::new("grown-while-served");
    let path = made(&dir, &[]);
    let socket = format!("unix:{}", dir.path().join("socket").display());
    let server = serve(&path, &["--9p", &socket]);
    put(server.http(), "/early", b"early\n").unwrap();
    let large = vec![9; 80 << 20];
    let refused = put(server.http(), "/large", &large);
    assert!(!refused.is_some_and(|line| line.starts_with("HTTP/1.1 201 ")));

    // No other user may grow it, and a refusal leaves the file unchanged.
    let over_tcp = ["grow", &path, "256M", "--at", server.ninep()];
    let (code, _, errors) = volume(&over_tcp);
    assert!(code == Some(1) && errors.contains("only root and the server's own user"), "{errors}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 64 << 20);
    for (size, shown) in [("256M", "256 MiB"), ("5G", "5 GiB")] {
        let (code, text, errors) = volume(&["grow", &path, size, "--sparse", "--at", &socket]);
        assert_eq!(code, Some(0), "{errors}");
        assert!(text.ends_with(&format!(" to {shown}\n")), "{text}");
    }
    assert!(put(server.http(), "/large", &large).unwrap().starts_with("HTTP/1.1 201 "));
    let shown = run(&socket, "df", &[]);
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.status.success() && text.contains(" GiB"), "{text}");

    // The same by hand, with a file that was not extended; and for an unknown volume.
    let grow = |line: &str| {
        let output = run(&socket, "names", &[line]);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, printed) = grow(&format!("grow 'volume:{path}' 6G"));
    assert!(
        code == Some(1) && printed.contains("make the file or device longer first"),
        "{printed}"
    );
    let (code, printed) = grow(&format!("grow 'volume:{path}' 1G"));
    assert!(code == Some(1) && printed.contains("choose a size that is larger"), "{printed}");
    let (code, printed) = grow("grow volume:none 6G");
    let served = format!("no such volume is served; served are: {path}");
    assert!(code == Some(1) && printed.contains(&served), "{printed}");
    server.kill();

    assert_eq!(bytes(&path), 5 << 30);
    let server = serve(&path, &[]);
    assert!(get(server.http(), "/early").ends_with("\r\n\r\nearly\n"));
    assert!(get(server.http(), "/large").len() > large.len());
    assert_eq!(server.end(), Some(0));
    check(&path);
    let (code, _, errors) = volume(&["grow", &path, "6G", "--sparse", "--at", &socket]);
    assert!(code == Some(2) && errors.contains("no server has"), "{errors}");
}

#[test]
fn storage_is_taken_for_what_a_volume_gets() {
    let dir = Scratch::new("taken");
    let path = made(&dir, &[]);
    let before = std::fs::metadata(&path).unwrap();
    let (code, text, errors) = volume(&["grow", &path, "96M", "--json"]);
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(json(&text)["bytes_before"], 64 << 20);
    assert_eq!(json(&text)["bytes"], 96 << 20);
    let after = std::fs::metadata(&path).unwrap();
    assert_eq!(after.len(), 96 << 20);
    let more = (after.blocks() - before.blocks()) * 512;
    assert!((32 << 20..34 << 20).contains(&more), "the old part stays sparse: {more}");
    check(&path);
    // Both maps of 5 GiB have 5 MiB, and storage, or a full disk would stop the volume later.
    assert_eq!(volume(&["grow", &path, "5G", "--sparse"]).0, Some(0));
    let sparse = std::fs::metadata(&path).unwrap();
    let more = (sparse.blocks() - after.blocks()) * 512;
    assert!((10 << 20..16 << 20).contains(&more), "the maps alone are not sparse: {more}");
    check(&path);
}

#[test]
fn a_growth_to_an_impossible_size_is_refused_and_changes_nothing() {
    let dir = Scratch::new("ungrown");
    let path = made(&dir, &[]);
    for (size, advice) in [
        (&["64M"][..], "has 64 MiB already; choose a larger size"),
        (&["1M"], "has 64 MiB already; choose a larger size"),
        (&[], "the new size"),
        (&["1T", "--sparse"], "to 1 TiB: with segments of 4 MiB it can have 256 GiB at most;"),
        (&["4000P"], "to 4000 PiB: with segments of 4 MiB it can have 256 GiB at most;"),
    ] {
        let (code, text, errors) = volume(&[&["grow", &path][..], size].concat());
        assert_eq!(code, Some(2), "{text}{errors}");
        assert!(errors.contains(advice), "{size:?}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 64 << 20);
    }
    assert_eq!(bytes(&path), 64 << 20);
    // A power failure between the file's growth and the volume's leaves a file that is too long.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(80 << 20).unwrap();
    assert_eq!(bytes(&path), 64 << 20);
    assert_eq!(volume(&["grow", &path, "80M"]).0, Some(0));
    assert_eq!(bytes(&path), 80 << 20);
    check(&path);
}

#[test]
fn a_small_volume_becomes_a_thousand_times_as_large() {
    let dir = Scratch::new("far-grown");
    let path = made(&dir, &[]);
    let server = serve(&path, &[]);
    put(server.http(), "/early", b"early\n").unwrap();
    assert_eq!(server.end(), Some(0));
    let (code, text, errors) = volume(&["grow", &path, "64G", "--sparse"]);
    assert_eq!(code, Some(0), "{text}{errors}");
    let server = serve(&path, &[]);
    assert!(server.greeting().contains("volume   64 GiB, "), "{}", server.greeting());
    assert!(get(server.http(), "/early").ends_with("\r\n\r\nearly\n"));
    let large = vec![9; 80 << 20];
    assert!(put(server.http(), "/large", &large).unwrap().starts_with("HTTP/1.1 201 "));
    assert_eq!(server.end(), Some(0));
    check(&path);
}
