//! Directories: links in listings, and index pages.

use super::*;
use base::op::Entry;

fn entry(name: &str, kind: Kind, cookie: u64) -> Entry {
    let name = base::Name::new(name.as_bytes()).expect("a name");
    let (stat, handle) = (None, None);
    Entry { cookie, inode: cookie, device: None, kind, name, stat, handle }
}

fn directory(open: u64) -> Result<Reply, Error> {
    let stat = Stat { kind: Kind::Directory, ..Stat::default() };
    Ok(Reply::Fetched(stat, Buf::default(), Some(OpenId(open))))
}

/// Returns the bytes that a session sends for these replies.
fn outputs(
    session: &mut Session,
    path: &str,
    fields: &str,
    replies: Vec<Result<Reply, Error>>,
) -> String {
    let text = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
    let mut inputs = vec![Input::Received(Buf::from(text.as_bytes()))];
    inputs.extend(replies.into_iter().map(|reply| Input::Answered(CALL, reply)));
    let mut outputs = String::new();
    for input in inputs {
        let mut out = Vec::new();
        session.step(Instant(0), input, &mut out);
        session.check();
        for output in &out {
            if let Output::Send(bytes) = output {
                outputs += &String::from_utf8_lossy(bytes);
            }
        }
    }
    outputs
}

#[test]
fn a_link_to_a_directory_is_listed_with_a_slash() {
    let entries = vec![
        entry("away", Kind::Symlink, 1),
        entry("file", Kind::File, 2),
        entry("to-dir", Kind::Symlink, 3),
        entry("to-file", Kind::Symlink, 4),
    ];
    let replies = || {
        vec![
            directory(5),
            Ok(Reply::Entries(entries.clone())),
            Err(Error::CrossDevice),
            directory(6),
            fetched(3, 0, Some(7)),
            Ok(Reply::Entries(Vec::new())),
        ]
    };
    let page = outputs(&mut session(), "/", "", replies());
    let order: Vec<_> = ["to-dir/", "away", "file", "to-file"]
        .iter()
        .map(|name| {
            page.find(&format!("href=\"{name}\"")).unwrap_or_else(|| panic!("{name}: {page}"))
        })
        .collect();
    assert!(order.is_sorted(), "directories first, then by name: {page}");
    let json = outputs(&mut session(), "/", "Accept: application/json\r\n", replies());
    assert!(json.contains("\"href\":\"to-dir/\",\"type\":\"symlink\""), "{json}");
    assert!(json.contains("\"href\":\"away\",\"type\":\"symlink\""), "{json}");
}

#[test]
fn a_link_that_hangs_does_not_keep_its_directory_from_being_listed() {
    let mut lab = Lab::new();
    lab.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    lab.answer(directory(5));
    let entries = vec![entry("hangs", Kind::Symlink, 1), entry("later", Kind::Symlink, 2)];
    lab.answer(Ok(Reply::Entries(entries)));
    let until = lab.session.deadline().expect("a link has its time");
    let mut out = Vec::new();
    lab.session.step(until, Input::Tick, &mut out);
    assert!(matches!(out[..], [Output::Cancel(CALL)]), "{out:?}");
    lab.answer(Err(Error::Cancelled));
    lab.answer(Ok(Reply::Entries(Vec::new())));
    assert!(lab.text.contains("<- Cancelled: ask 0 List"), "{}", lab.text);
    assert!(lab.text.ends_with("close 5\n"), "{}", lab.text);
}

#[test]
fn an_index_page_is_shown_in_place_of_its_directory() {
    let mut session = session();
    session.export.web.index = true;
    let page = outputs(&mut session, "/d/", "", vec![directory(5), fetched(3, 3, None)]);
    assert!(page.ends_with("\r\n\r\nxxx") && page.contains("Content-Type: text/html"), "{page}");
    // Without an index page, and for programs, the directory is listed.
    let none = || vec![Ok(Reply::Entries(Vec::new()))];
    let missing = [vec![directory(5), Err(Error::NotFound)], none()].concat();
    assert!(outputs(&mut session, "/d/", "", missing).contains("<title>/d/</title>"));
    let refused = outputs(&mut session, "/d/", "", vec![directory(5), Err(Error::Denied)]);
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    let json = [vec![directory(5)], none()].concat();
    let json = outputs(&mut session, "/d/", "Accept: application/json\r\n", json);
    assert!(json.contains("Content-Type: application/json"), "{json}");
}

#[test]
fn a_client_that_leaves_while_an_index_page_is_fetched_keeps_nothing_open() {
    let mut lab = Lab::new();
    lab.session.export.web.index = true;
    lab.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    lab.answer(directory(5));
    lab.step("lost", Input::Lost);
    lab.answer(fetched(3, 0, Some(7)));
    expect![[r#"
        GET / HTTP/1.1: ask 0 Fetch
        <- Fetched: ask 0 Fetch
        lost: close 5, cancel 0, hang up: the client left
        <- Fetched: close 7
    "#]]
    .assert_eq(&lab.text);
    assert!(lab.session.is_over());
}

#[test]
fn the_servers_own_state_is_text() {
    let mut session = session();
    let page = outputs(&mut session, "/.upcall/metrics", "", vec![fetched(3, 3, None)]);
    assert!(page.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{page}");
    let page = outputs(&mut session, "/.upcall/stages", "", vec![fetched(3, 3, None)]);
    assert!(page.contains("Content-Type: text/plain; charset=utf-8\r\n"), "{page}");
}
