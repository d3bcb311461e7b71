//! WebDAV.

use super::*;
use crate::http::removal::{DEPTH_MAX, EMPTIED_MAX};
use base::op::Entry;

/// Body of a `PROPPATCH` that sets a property.
pub(super) const SET: &str = "<D:propertyupdate xmlns:D=\"DAV:\"><D:set><D:prop>\
                              <a xmlns=\"x\">v</a></D:prop></D:set></D:propertyupdate>";

/// Sends a request for `/a/f` with these fields and body.
pub(super) fn begin(lab: &mut Lab, method: &str, fields: &str, body: &str) {
    let length = match body.len() {
        0 => String::new(),
        length => format!("Content-Length: {length}\r\n"),
    };
    lab.send(&format!("{method} /a/f HTTP/1.1\r\nHost: localhost\r\n{fields}{length}\r\n{body}"));
}

fn directory() -> Stat {
    Stat { kind: Kind::Directory, inode: 5, mode: 0o755, ..Stat::default() }
}

fn walked(stat: Stat, node: u64) -> Result<Reply, Error> {
    Ok(Reply::Walked(vec![stat], Some(NodeId(node))))
}

/// Returns the only entry of a directory.
fn member(name: &str, kind: Kind, stat: Option<Stat>) -> Entry {
    let name = Name::new(name.as_bytes()).expect("plain");
    Entry { cookie: 1, inode: 1, device: None, kind, name, stat, handle: None }
}

/// Steps the session; returns what it sends, without the trace.
fn sent(lab: &mut Lab, input: Input) -> String {
    let mut out = Vec::new();
    lab.session.step(Instant(0), input, &mut out);
    lab.session.check();
    lab.sent += out.iter().map(length).sum::<usize>();
    let text = |output: &Output| match output {
        Output::Send(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    };
    out.iter().filter_map(text).collect()
}

#[test]
fn properties_are_found_or_reported_missing() {
    let mut lab = Lab::new();
    let body = "<propfind xmlns=\"DAV:\"><prop><getcontentlength/><a xmlns=\"x\"/><b xmlns=\"x\"/>\
                </prop></propfind>";
    begin(&mut lab, "PROPFIND", "Depth: 0\r\n", body);
    lab.answer(Ok(Reply::Fetched(file(3), Buf::default(), None)));
    lab.answer(walked(file(3), 7));
    let stored = Ok(Reply::Bytes(SET.as_bytes().to_vec()));
    let text = sent(&mut lab, Input::Answered(CALL, stored));
    let body = text.split_once("\r\n\r\n").expect("a head").1;
    expect![[r#"
        17d
        <?xml version="1.0" encoding="utf-8"?>
        <D:multistatus xmlns:D="DAV:">
        <D:response>
        <D:href>/a/f</D:href>
        <D:propstat>
        <D:prop>
        <D:getcontentlength>3</D:getcontentlength>
        <x:a xmlns:x="x">v</x:a>
        </D:prop>
        <D:status>HTTP/1.1 200 OK</D:status>
        </D:propstat>
        <D:propstat>
        <D:prop>
        <x:b xmlns:x="x"/>
        </D:prop>
        <D:status>HTTP/1.1 404 Not Found</D:status>
        </D:propstat>
        </D:response>
        </D:multistatus>

        0

    "#]]
    .assert_eq(&body.replace('\r', "").replace("><", ">\n<"));
    assert!(text.starts_with("HTTP/1.1 207 Multi-Status\r\n"), "{text}");
    expect![[r#"
        PROPFIND /a/f HTTP/1.1: ask 0 Fetch
        <- Fetched: ask 0 Walk
        <- Walked: ask 0 GetAttr
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn the_members_of_a_large_directory_are_sent_as_the_client_takes_them() {
    const COUNT: u64 = 100_000;
    let mut lab = Lab::new();
    let body = "<propfind xmlns=\"DAV:\"><prop><getcontentlength/></prop></propfind>";
    begin(&mut lab, "PROPFIND", "Depth: 1\r\n", body);
    let first = Reply::Fetched(directory(), Buf::default(), Some(OpenId(1)));
    let (mut next, mut peak, mut text) = (0, 0, String::new());
    let mut input = Input::Answered(CALL, Ok(first));
    while lab.session.state_name() == "describing" {
        text += &sent(&mut lab, input);
        peak = peak.max(lab.session.held_bytes());
        input = if lab.session.outstanding > 0 {
            let count = (COUNT - next).min(400);
            let entry = |number: u64| Entry {
                cookie: number + 1,
                inode: number,
                device: None,
                kind: Kind::File,
                name: Name::new(format!("m{number}").as_bytes()).expect("plain"),
                stat: Some(file(number)),
                handle: None,
            };
            next += count;
            Input::Answered(CALL, Ok(Reply::Entries((next - count..next).map(entry).collect())))
        } else {
            Input::Sent(std::mem::take(&mut lab.sent))
        };
    }
    assert!(peak < 300 << 10, "{peak} bytes are held");
    assert_eq!(text.matches("<D:href>/a/f/m").count() as u64, COUNT);
    assert!(text.contains("<D:href>/a/f/</D:href>") && text.ends_with("\r\n0\r\n\r\n"));
}

#[test]
fn properties_are_set_at_once_and_durable_before_they_are_acknowledged() {
    let mut lab = Lab::new();
    begin(&mut lab, "PROPPATCH", "", SET);
    lab.answer(walked(file(3), 7));
    lab.answer(Ok(Reply::Stat(file(3))));
    lab.answer(Err(Error::NoAttribute));
    lab.answer(Ok(Reply::Opened(OpenId(8), file(3))));
    lab.answer(Ok(Reply::Done));
    lab.answer(Ok(Reply::Done));
    // A live property is refused, and with it all others.
    let two = SET.replace("</D:prop>", "<D:getetag>x</D:getetag></D:prop>");
    begin(&mut lab, "PROPPATCH", "", &two);
    lab.answer(walked(file(3), 7));
    lab.answer(Ok(Reply::Stat(file(3))));
    let text = sent(&mut lab, Input::Answered(CALL, Err(Error::NoAttribute)));
    assert!(text.contains("<D:getetag/></D:prop><D:status>HTTP/1.1 403 Forbidden"), "{text}");
    assert!(text.contains("<x:a xmlns:x=\"x\"/></D:prop><D:status>HTTP/1.1 424 Failed"), "{text}");
    expect![[r#"
        PROPPATCH /a/f HTTP/1.1: ask 0 Walk
        <- Walked: ask 0 Stat
        <- Stat: ask 0 GetAttr
        <- NoAttribute: ask 0 Open
        <- Opened: ask 0 SetAttr
        <- Done: ask 0 Sync
        <- Done: close 8, release 7, say "207 Multi-Status" +230
        PROPPATCH /a/f HTTP/1.1: ask 0 Walk
        <- Walked: ask 0 Stat
        <- Stat: ask 0 GetAttr
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn permissions_are_those_of_before_if_the_other_properties_cannot_be_set() {
    let mut lab = Lab::new();
    let both = SET.replace(
        "</D:prop>",
        "<e:executable xmlns:e=\"http://apache.org/dav/props/\">T</e:executable></D:prop>",
    );
    begin(&mut lab, "PROPPATCH", "", &both);
    lab.answer(walked(file(3), 7));
    lab.answer(Ok(Reply::Stat(file(3))));
    lab.answer(Err(Error::NoAttribute));
    lab.answer(Ok(Reply::Opened(OpenId(8), file(3))));
    lab.text.clear();
    lab.answer(Ok(Reply::Done));
    lab.answer(Err(Error::NoSpace));
    let text = sent(&mut lab, Input::Answered(CALL, Ok(Reply::Done)));
    assert_eq!(text.matches("HTTP/1.1 507").count(), 1, "{text}");
    assert!(!text.contains("200 OK"), "{text}");
    expect![[r#"
        <- Done: ask 0 SetAttr
        <- NoSpace: ask 0 SetStat
    "#]]
    .assert_eq(&lab.text);
}

/// The dead properties of the target of a link are not known, but its members are listed.
#[test]
fn the_members_of_a_directory_behind_a_link_are_listed() {
    let mut lab = Lab::new();
    begin(&mut lab, "PROPFIND", "Depth: 1\r\n", "");
    lab.answer(Ok(Reply::Fetched(directory(), Buf::default(), Some(OpenId(1)))));
    lab.answer(walked(Stat { kind: Kind::Symlink, inode: 99, ..file(1) }, 7));
    let entry = member("x", Kind::File, Some(file(3)));
    lab.answer(Ok(Reply::Entries(vec![entry])));
    let text = sent(&mut lab, Input::Answered(CALL, Ok(Reply::Entries(Vec::new()))));
    assert!(text.contains("<D:href>/a/f/x</D:href>"), "{text}");
}

#[test]
fn what_is_mounted_below_a_directory_is_not_removed() {
    let mut lab = Lab::new();
    lab.send("DELETE /a/f HTTP/1.1\r\nHost: localhost\r\n\r\n");
    lab.answer(walked(directory(), 5));
    lab.answer(Ok(Reply::Opened(OpenId(6), directory())));
    lab.answer(Err(Error::NotEmpty));
    lab.answer(walked(directory(), 7));
    lab.answer(Ok(Reply::Opened(OpenId(8), directory())));
    let entry = member("mount", Kind::Directory, None);
    lab.answer(Ok(Reply::Entries(vec![entry])));
    lab.answer(Err(Error::NotEmpty));
    lab.text.clear();
    lab.answer(walked(Stat { device: 9, ..directory() }, 10));
    lab.answer(Ok(Reply::Opened(OpenId(11), directory())));
    let text = sent(&mut lab, Input::Answered(CALL, Ok(Reply::Entries(Vec::new()))));
    assert!(text.contains("<D:href>/a/f/mount</D:href><D:status>HTTP/1.1 403"), "{text}");
    expect![[r#"
        <- Walked: release 10, ask 0 Open
        <- Opened: ask 0 List
    "#]]
    .assert_eq(&lab.text);
}

/// Empties the directory that a `DELETE` removes, which has an entry, up to its own removal.
fn empty(lab: &mut Lab) {
    lab.answer(Err(Error::NotEmpty));
    lab.answer(walked(directory(), 7));
    lab.answer(Ok(Reply::Opened(OpenId(8), directory())));
    lab.answer(Ok(Reply::Entries(vec![member("x", Kind::File, None)])));
    lab.answer(Ok(Reply::Done));
    lab.answer(Ok(Reply::Opened(OpenId(8), directory())));
    lab.answer(Ok(Reply::Entries(Vec::new())));
}

#[test]
fn an_emptied_directory_that_others_fill_is_emptied_again() {
    let begun = || {
        let mut lab = Lab::new();
        lab.send("DELETE /a/f HTTP/1.1\r\nHost: localhost\r\n\r\n");
        lab.answer(walked(directory(), 5));
        lab.answer(Ok(Reply::Opened(OpenId(6), directory())));
        empty(&mut lab);
        lab
    };
    let mut lab = begun();
    empty(&mut lab);
    lab.answer(Ok(Reply::Done));
    let text = sent(&mut lab, Input::Answered(CALL, Ok(Reply::Done)));
    assert!(text.starts_with("HTTP/1.1 204"), "{text}");
    // Not without end.
    let mut lab = begun();
    for _ in 1..EMPTIED_MAX {
        empty(&mut lab);
    }
    let text = sent(&mut lab, Input::Answered(CALL, Err(Error::NotEmpty)));
    assert!(text.contains("HTTP/1.1 409"), "{text}");
}

#[test]
fn directories_that_are_too_deep_are_named() {
    let mut lab = Lab::new();
    lab.send("DELETE /a/f HTTP/1.1\r\nHost: localhost\r\n\r\n");
    lab.answer(walked(directory(), 5));
    lab.answer(Ok(Reply::Opened(OpenId(6), directory())));
    for level in 0..DEPTH_MAX {
        lab.answer(Err(Error::NotEmpty));
        lab.answer(walked(directory(), 7 + level as u64));
        lab.answer(Ok(Reply::Opened(OpenId(8), directory())));
        lab.answer(Ok(Reply::Entries(vec![member("d", Kind::Directory, None)])));
    }
    lab.answer(Err(Error::NotEmpty));
    let mut text = String::new();
    for _ in 0..DEPTH_MAX {
        lab.answer(Ok(Reply::Opened(OpenId(8), directory())));
        text = sent(&mut lab, Input::Answered(CALL, Ok(Reply::Entries(Vec::new()))));
    }
    assert!(text.contains("/d</D:href><D:status>HTTP/1.1 414"), "{text}");
}

/// The listing of a directory that somebody else has removed is invalid on some file systems.
#[test]
fn a_directory_that_others_remove_meanwhile_is_no_failure() {
    let mut lab = Lab::new();
    lab.send("DELETE /a/f HTTP/1.1\r\nHost: localhost\r\n\r\n");
    lab.answer(walked(directory(), 5));
    lab.answer(Ok(Reply::Opened(OpenId(6), directory())));
    lab.answer(Err(Error::NotEmpty));
    lab.answer(walked(directory(), 7));
    lab.answer(Ok(Reply::Opened(OpenId(8), directory())));
    let entries = ["x", "y"].map(|name| member(name, Kind::Directory, None));
    lab.answer(Ok(Reply::Entries(entries.into())));
    // It is gone when it is looked up, or when it is listed.
    lab.answer(Err(Error::NotEmpty));
    lab.answer(Err(Error::NotFound));
    lab.answer(Err(Error::NotEmpty));
    lab.answer(walked(directory(), 9));
    lab.answer(Ok(Reply::Opened(OpenId(10), directory())));
    lab.answer(Err(Error::Invalid));
    lab.answer(Err(Error::NotFound));
    lab.answer(Ok(Reply::Opened(OpenId(8), directory())));
    lab.answer(Ok(Reply::Entries(Vec::new())));
    lab.answer(Ok(Reply::Done));
    let text = sent(&mut lab, Input::Answered(CALL, Ok(Reply::Done)));
    assert!(text.starts_with("HTTP/1.1 204"), "{text}");
}

/// Advances a copy or move to the open directories, with this at the destination.
fn relocate(lab: &mut Lab, method: &str, source: Stat, present: Option<Stat>) {
    begin(lab, method, "Destination: http://localhost/b\r\n", "");
    lab.answer(walked(directory(), 1));
    lab.answer(walked(source, 2));
    lab.answer(Ok(Reply::Walked(Vec::new(), Some(NodeId(3)))));
    lab.answer(match present {
        Some(stat) => walked(stat, 4),
        None => Err(Error::NotFound),
    });
    if method == "MOVE" {
        lab.answer(Ok(Reply::Opened(OpenId(1), directory())));
    }
    lab.answer(Ok(Reply::Opened(OpenId(3), directory())));
}

#[test]
fn a_copy_gets_its_name_when_it_is_durable() {
    let mut lab = Lab::new();
    relocate(&mut lab, "COPY", file(3), None);
    lab.answer(Ok(Reply::Opened(OpenId(9), file(3))));
    lab.answer(Ok(Reply::Created(NodeId(6), OpenId(7), Stat { links: 0, ..file(0) })));
    lab.answer(Err(Error::NoAttribute));
    lab.answer(Ok(Reply::DataAt(Some(0))));
    lab.answer(data(3));
    lab.answer(Ok(Reply::Written(3)));
    lab.answer(data(0));
    lab.answer(Ok(Reply::Done));
    lab.answer(Ok(Reply::Done));
    lab.answer(Ok(Reply::Done));
    expect![[r#"
        COPY /a/f HTTP/1.1: ask 0 Walk
        <- Walked: ask 0 Walk
        <- Walked: ask 0 Walk
        <- Walked: ask 0 Walk
        <- NotFound: ask 0 Open
        <- Opened: ask 0 Open
        <- Opened: ask 0 CreateUnnamed
        <- Created: ask 0 GetAttr
        <- NoAttribute: ask 0 NextData
        <- DataAt: ask 0 Read 0+131072
        <- Data: ask 0 Write
        <- Written: ask 0 Read 3+131072
        <- Data: ask 0 Sync
        <- Done: ask 0 Replace
        <- Done: close 9, close 7, release 6, release 2, ask 0 Sync
        <- Done: release 1, close 3, release 3, say "201 Created" +0
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn a_hole_is_not_read() {
    let mut lab = Lab::new();
    relocate(&mut lab, "COPY", file(1 << 60), None);
    lab.answer(Ok(Reply::Opened(OpenId(9), file(1 << 60))));
    lab.answer(Ok(Reply::Created(NodeId(6), OpenId(7), Stat { links: 0, ..file(0) })));
    lab.answer(Err(Error::NoAttribute));
    lab.answer(Ok(Reply::DataAt(Some(1 << 40))));
    lab.answer(Ok(Reply::Data(Buf::from(vec![0; 4096]))));
    lab.answer(Ok(Reply::Written(4096)));
    lab.text.clear();
    lab.answer(Ok(Reply::DataAt(None)));
    lab.answer(Ok(Reply::Stat(file(1 << 60))));
    expect![[r#"
        <- DataAt: ask 0 Stat
        <- Stat: ask 0 SetStat
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn a_directory_in_the_way_of_a_move_is_removed_after_it_and_stays_without_overwrite() {
    let mut lab = Lab::new();
    let other = Stat { inode: 9, ..directory() };
    relocate(&mut lab, "MOVE", directory(), Some(other.clone()));
    lab.text.clear();
    lab.answer(Err(Error::NotEmpty));
    (0..2).for_each(|_| lab.answer(Ok(Reply::Done)));
    lab.answer(Err(Error::NotEmpty));
    lab.answer(walked(other.clone(), 20));
    lab.answer(Ok(Reply::Opened(OpenId(21), other.clone())));
    let entry = member("x", Kind::File, None);
    lab.answer(Ok(Reply::Entries(vec![entry])));
    lab.answer(Ok(Reply::Done));
    lab.answer(Ok(Reply::Opened(OpenId(22), other.clone())));
    lab.answer(Ok(Reply::Entries(Vec::new())));
    (0..3).for_each(|_| lab.answer(Ok(Reply::Done)));
    expect![[r#"
        <- NotEmpty: ask 0 Rename
        <- Done: ask 0 Rename
        <- Done: ask 0 Remove
        <- NotEmpty: ask 0 Walk
        <- Walked: ask 0 Open
        <- Opened: ask 0 List
        <- Entries: close 21, ask 0 Remove
        <- Done: ask 0 Open
        <- Opened: ask 0 List
        <- Entries: close 22, release 20, ask 0 Remove
        <- Done: ask 0 Sync
        <- Done: ask 0 Sync
        <- Done: release 2, close 1, release 1, close 3, release 3, say "204 No Content" +0
    "#]]
    .assert_eq(&lab.text);
    let mut lab = Lab::new();
    begin(&mut lab, "MOVE", "Destination: /b\r\nOverwrite: F\r\n", "");
    lab.answer(walked(directory(), 1));
    lab.answer(walked(file(3), 2));
    lab.answer(Ok(Reply::Walked(Vec::new(), Some(NodeId(3)))));
    lab.text.clear();
    lab.answer(walked(other, 4));
    assert!(lab.text.contains("say \"412 Precondition Failed\""), "{}", lab.text);
}

/// A failed move destroys nothing: the source may be gone by the time of the second attempt.
#[test]
fn a_directory_in_the_way_of_a_failed_move_gets_its_name_back() {
    let mut lab = Lab::new();
    relocate(&mut lab, "MOVE", directory(), Some(Stat { inode: 9, ..directory() }));
    lab.text.clear();
    lab.answer(Err(Error::NotEmpty));
    lab.answer(Ok(Reply::Done));
    lab.answer(Err(Error::NotFound));
    lab.answer(Ok(Reply::Done));
    expect![[r#"
        <- NotEmpty: ask 0 Rename
        <- Done: ask 0 Rename
        <- NotFound: ask 0 Rename
        <- Done: release 2, close 1, release 1, close 3, release 3, say "404 Not Found" +22
    "#]]
    .assert_eq(&lab.text);
    // By another path, the destination holds the source.
    let mut lab = Lab::new();
    begin(&mut lab, "MOVE", "Destination: /b\r\n", "");
    lab.answer(walked(Stat { inode: 9, ..directory() }, 1));
    lab.answer(walked(file(3), 2));
    lab.answer(Ok(Reply::Walked(Vec::new(), Some(NodeId(3)))));
    lab.answer(walked(Stat { inode: 9, ..directory() }, 4));
    assert!(lab.text.contains("say \"403 Forbidden\""), "{}", lab.text);
}

/// A directory in the way of a copy gets its name back only if nothing was copied.
#[test]
fn a_copied_directory_stays_although_a_part_failed() {
    for is_made in [false, true] {
        let mut lab = Lab::new();
        relocate(&mut lab, "COPY", directory(), Some(Stat { inode: 9, ..directory() }));
        lab.answer(Ok(Reply::Done));
        lab.text.clear();
        if is_made {
            lab.answer(Ok(Reply::Stat(directory())));
            lab.answer(walked(Stat { inode: 20, ..directory() }, 20));
            lab.answer(Err(Error::NoAttribute));
            lab.answer(Err(Error::Denied));
            lab.answer(Ok(Reply::Opened(OpenId(21), directory())));
            lab.answer(Ok(Reply::Done));
            assert!(lab.text.ends_with("ask 0 Remove\n"), "{}", lab.text);
            lab.answer(Ok(Reply::Done));
            assert!(lab.text.contains("say \"207 Multi-Status\""), "{}", lab.text);
        } else {
            lab.answer(Err(Error::NoSpace));
            assert!(lab.text.ends_with("ask 0 Rename\n"), "{}", lab.text);
            lab.answer(Ok(Reply::Done));
            assert!(lab.text.contains("say \"507 Insufficient Storage\""), "{}", lab.text);
        }
    }
}

#[test]
fn a_temporary_copy_is_removed_when_it_fails() {
    let mut lab = Lab::new();
    relocate(&mut lab, "COPY", file(3), None);
    lab.answer(Ok(Reply::Opened(OpenId(9), file(3))));
    lab.answer(Err(Error::Unsupported));
    lab.answer(Ok(Reply::Created(NodeId(6), OpenId(7), Stat { links: 1, ..file(0) })));
    lab.text.clear();
    lab.answer(Err(Error::NoAttribute));
    lab.answer(Err(Error::Unsupported));
    lab.answer(data(3));
    lab.answer(Err(Error::NoSpace));
    lab.answer(Ok(Reply::Done));
    expect![[r#"
        <- NoAttribute: ask 0 NextData
        <- Unsupported: ask 0 Read 0+131072
        <- Data: ask 0 Write
        <- NoSpace: ask 0 Remove
        <- Done: close 9, close 7, release 6, release 2,
          release 1, close 3, release 3, say "507 Insufficient Storage" +17
    "#]]
    .assert_eq(&lab.text.replace(", release 1", ",\n  release 1"));
}

#[test]
fn requests_that_cannot_be_meant_are_refused() {
    let status = |method: &str, fields: &str, body: &str| {
        let mut lab = Lab::new();
        begin(&mut lab, method, fields, body);
        lab.text.split("say \"").nth(1).unwrap_or(&lab.text).get(..3).unwrap_or("").to_string()
    };
    assert_eq!(status("PROPFIND", "", ""), "403");
    assert_eq!(status("PROPFIND", "Depth: infinity\r\n", ""), "403");
    assert_eq!(status("PROPFIND", "Depth: 0\r\n", "<x"), "400");
    assert_eq!(status("PROPPATCH", "", ""), "400");
    assert_eq!(status("MKCOL", "", "x"), "415");
    assert_eq!(status("UNLOCK", "Lock-Token: <urn:x>\r\n", "x"), "415");
    assert_eq!(status("COPY", "", ""), "400");
    assert_eq!(status("COPY", "Destination: http://other/b\r\n", ""), "502");
    assert_eq!(status("COPY", "Destination: http://127.0.0.1:81/b\r\n", ""), "502");
    let again = "Destination: http://127.0.0.1/a/f\r\n";
    assert_eq!(status("COPY", again, ""), "403", "the same server, the same file");
    assert_eq!(status("COPY", "Destination: /a/f\r\n", ""), "403");
    assert_eq!(status("COPY", "Destination: /a/f/b\r\n", ""), "403");
    assert_eq!(status("MOVE", "Destination: /a\r\n", ""), "403");
    assert_eq!(status("MOVE", "Destination: /\r\n", ""), "403");
    assert_eq!(status("MOVE", "Destination: /b\r\nDepth: 0\r\n", ""), "400");
    assert_eq!(status("DELETE", "Depth: 1\r\n", ""), "400");
    for method in ["PROPPATCH", "MKCOL", "COPY", "MOVE"] {
        let mut lab = Lab::new();
        lab.session.export.web.write = false;
        begin(&mut lab, method, "", "");
        assert!(lab.text.contains("say \"405 Method Not Allowed\""), "{}", lab.text);
    }
}

pub(super) const LOCK: &str = "<D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:exclusive/>\
                    </D:lockscope><D:locktype><D:write/></D:locktype><D:owner>me</D:owner>\
                    </D:lockinfo>";

/// Steps the session with the replies of the locks; returns what it sends.
fn sent_with_locks(lab: &mut Lab, input: Input) -> String {
    let mut out = Vec::new();
    lab.session.step(Instant(0), input, &mut out);
    answer_locks(&mut lab.session, &mut lab.locks, &mut out);
    let text = |output: &Output| match output {
        Output::Send(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    };
    out.iter().filter_map(text).collect()
}

/// Locks `/a/f`; returns the token.
fn lock(lab: &mut Lab, depth: &str) -> String {
    begin(lab, "LOCK", &format!("Depth: {depth}\r\nTimeout: Second-60\r\n"), LOCK);
    let text = sent_with_locks(lab, Input::Answered(CALL, walked(file(3), 7)));
    assert!(
        text.starts_with("HTTP/1.1 200 OK") && text.contains("<D:owner>me</D:owner>"),
        "{text}"
    );
    assert!(text.contains("<D:timeout>Second-60</D:timeout>"), "{text}");
    let token = text.split("Lock-Token: <").nth(1).and_then(|rest| rest.split('>').next());
    token.expect("a token").to_string()
}

#[test]
fn a_locked_file_is_changed_with_the_token_only() {
    let mut lab = Lab::new();
    let token = lock(&mut lab, "0");
    let status = |lab: &mut Lab, method: &str, fields: &str, body: &str| {
        let mut other = Lab { locks: std::mem::take(&mut lab.locks), ..Lab::new() };
        begin(&mut other, method, fields, body);
        lab.locks = std::mem::take(&mut other.locks);
        let line = other.text.lines().last().unwrap_or_default().to_string();
        line.split(": ").nth(1).unwrap_or_default().chars().take(12).collect::<String>()
    };
    for (method, fields, body) in [
        ("PUT", "", "x"),
        ("DELETE", "", ""),
        ("PROPPATCH", "", SET),
        ("MOVE", "Destination: /b\r\n", ""),
        ("LOCK", "Depth: 0\r\n", LOCK),
    ] {
        assert_eq!(status(&mut lab, method, fields, body), "say \"423 Loc", "{method}");
    }
    assert_eq!(status(&mut lab, "COPY", "Destination: /b\r\n", ""), "ask 0 Walk");
    let with = format!("If: (<{token}>)\r\n");
    assert_eq!(status(&mut lab, "DELETE", &with, ""), "ask 0 Walk");
    // A list that does not hold is no permission, although the token is submitted.
    let other = format!("If: (<{token}> <urn:other>)\r\n");
    assert_eq!(status(&mut lab, "PUT", &other, "x"), "say \"412 Pre");
    assert_eq!(
        status(&mut lab, "PUT", "If: (<urn:other>) (Not <DAV:no-lock>)\r\n", "x"),
        "say \"423 Loc"
    );
    assert_eq!(status(&mut lab, "UNLOCK", "Lock-Token: <urn:other>\r\n", ""), "say \"409 Con");
    assert_eq!(status(&mut lab, "LOCK", &with, ""), "say \"200 OK\"");
    assert_eq!(
        status(&mut lab, "UNLOCK", &format!("Lock-Token: <{token}>\r\n"), ""),
        "say \"204 No "
    );
    assert_eq!(status(&mut lab, "PUT", "", "x"), "ask 0 Walk");
    assert_eq!(lab.locks.changes(), 3, "copy, removal and upload are in progress");
}

/// The tag in `If` is that of the file when the upload gets its name.
#[test]
fn a_tag_in_if_is_a_condition_on_the_file() {
    for (tag, is_met) in [(etag(&file(3)), true), ("\"other\"".to_string(), false)] {
        let mut lab = Lab::new();
        let token = lock(&mut lab, "0");
        lab.text.clear();
        begin(&mut lab, "PUT", &format!("If: (<{token}> [{tag}])\r\n"), "x");
        lab.answer(walked(directory(), 5));
        lab.answer(walked(file(3), 9));
        lab.answer(Ok(Reply::Stat(file(3))));
        lab.answer(Err(Error::NoAttribute));
        assert_eq!(lab.text.contains("CreateUnnamed"), is_met, "{}", lab.text);
        assert_eq!(lab.text.contains("412 Precondition"), !is_met, "{}", lab.text);
    }
}

#[test]
fn a_lock_on_a_name_without_a_file_creates_an_empty_one() {
    let mut lab = Lab::new();
    begin(&mut lab, "LOCK", "Depth: 0\r\n", LOCK);
    lab.answer(Err(Error::NotFound));
    lab.answer(walked(directory(), 5));
    lab.answer(Ok(Reply::Created(NodeId(6), OpenId(7), file(0))));
    assert!(
        lab.text.contains("close 7, release 6, release 5, say \"201 Created\""),
        "{}",
        lab.text
    );
    assert_eq!((lab.locks.len(), lab.locks.changes()), (1, 0));
    // Without its directory there is neither a file nor a lock.
    let mut lab = Lab::new();
    begin(&mut lab, "LOCK", "Depth: 0\r\n", LOCK);
    lab.answer(Err(Error::NotFound));
    lab.answer(Err(Error::NotFound));
    assert!(lab.text.contains("say \"409 Conflict\""), "{}", lab.text);
    assert_eq!((lab.locks.len(), lab.locks.changes()), (0, 0));
}

#[test]
fn what_is_removed_or_moved_loses_its_locks() {
    let mut lab = Lab::new();
    let token = lock(&mut lab, "infinity");
    let text = {
        begin(&mut lab, "PROPFIND", "Depth: 0\r\n", "");
        lab.answer(Ok(Reply::Fetched(file(3), Buf::default(), None)));
        lab.answer(walked(file(3), 7));
        sent_with_locks(&mut lab, Input::Answered(CALL, Err(Error::NoAttribute)))
    };
    assert!(text.contains(&token) && text.contains("<D:supportedlock>"), "{text}");
    lab.send(&format!("DELETE /a HTTP/1.1\r\nHost: localhost\r\nIf: </a/f> (<{token}>)\r\n\r\n"));
    lab.answer(walked(directory(), 5));
    lab.answer(Ok(Reply::Opened(OpenId(6), directory())));
    lab.answer(Ok(Reply::Done));
    assert!(lab.locks.is_empty());
    lab.answer(Ok(Reply::Done));
    assert!(lab.text.ends_with("say \"204 No Content\" +0\n"), "{}", lab.text);
    assert_eq!(lab.locks.changes(), 0);
}
