//! Removals, and the responses to failed changes.

use super::*;

/// Advances a removal to the open directory.
fn begin_delete(lab: &mut Lab, fields: &str) {
    lab.send(&format!("DELETE /d/f HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"));
    let directory = Stat { kind: Kind::Directory, ..file(0) };
    lab.answer(Ok(Reply::Walked(vec![directory.clone()], Some(NodeId(5)))));
    lab.answer(Ok(Reply::Opened(OpenId(6), directory)));
}

#[test]
fn a_removal_is_durable_before_it_is_acknowledged() {
    let mut lab = Lab::new();
    begin_delete(&mut lab, "");
    lab.answer(Ok(Reply::Done));
    lab.answer(Ok(Reply::Done));
    expect![[r#"
        DELETE /d/f HTTP/1.1: ask 0 Walk
        <- Walked: ask 0 Open
        <- Opened: ask 0 Remove
        <- Done: ask 0 Sync
        <- Done: close 6, release 5, say "204 No Content" +0
    "#]]
    .assert_eq(&lab.text);
    let mut lab = Lab::new();
    begin_delete(&mut lab, "");
    lab.answer(Ok(Reply::Done));
    lab.text.clear();
    lab.answer(Err(Error::NoSpace));
    expect![[r#"
        <- NoSpace: close 6, release 5, say "507 Insufficient Storage" +78
    "#]]
    .assert_eq(&lab.text);
}

/// Responses to each failure of an upload and a removal.
#[test]
fn an_error_says_whether_the_change_was_made() {
    let reported = |lab: &mut Lab, answers: &[Result<Reply, Error>]| {
        answers.iter().for_each(|answer| lab.answer(answer.clone()));
        let line = lab.text.lines().last().expect("an answer").to_string();
        let outputs = line.split("say ").nth(1).unwrap_or(&line);
        outputs.trim_end_matches(", finish").to_string()
    };
    let put = |answers: &[Result<Reply, Error>]| {
        let mut lab = Lab::new();
        lab.send(&format!("{PUT}\r\n"));
        reported(&mut lab, answers)
    };
    let made = || -> Vec<Result<Reply, Error>> {
        vec![
            Ok(Reply::Walked(vec![file(0)], Some(NodeId(5)))),
            Err(Error::NotFound),
            Ok(Reply::Created(NodeId(6), OpenId(7), file(0))),
            Ok(Reply::Done),
            Ok(Reply::Opened(OpenId(8), file(0))),
        ]
    };
    let and = |more: &[Result<Reply, Error>]| [made(), more.to_vec()].concat();
    let forbidden = "\"403 Forbidden\" +35";
    assert_eq!(put(&[Err(Error::Denied)]), forbidden);
    assert_eq!(put(&[made()[..2].to_vec(), vec![Err(Error::Denied)]].concat()), forbidden);
    let unread = "\"403 Forbidden\" +81";
    assert_eq!(put(&[made()[..4].to_vec(), vec![Err(Error::Denied)]].concat()), unread);
    let unsure = "\"500 Internal Server Error\" +78";
    assert_eq!(put(&and(&[Ok(Reply::Done), Err(Error::Io)])), unsure);
    assert_eq!(put(&and(&[Ok(Reply::Stat(file(3))), Err(Error::Denied)])), unsure);
    assert_eq!(put(&and(&[Ok(Reply::Stat(file(3))), Err(Error::Invalid)])), "\"201 Created\" +0");

    let delete = |answer: Error| {
        let mut lab = Lab::new();
        begin_delete(&mut lab, "");
        reported(&mut lab, &[Ok(Reply::Done), Err(answer)])
    };
    assert_eq!(delete(Error::Stale), unsure);
    assert_eq!(delete(Error::Unsupported), "\"204 No Content\" +0");
    let mut lab = Lab::new();
    lab.send("DELETE /d/f HTTP/1.1\r\nHost: localhost\r\n\r\n");
    lab.answer(Ok(Reply::Walked(Vec::new(), Some(NodeId(5)))));
    lab.text.clear();
    lab.answer(Err(Error::Denied));
    assert!(lab.text.contains("release 5, say \"403 Forbidden\""), "{}", lab.text);
    assert!(!lab.text.contains("Remove"), "{}", lab.text);
}

#[test]
fn a_file_has_no_entries_to_remove() {
    let mut lab = Lab::new();
    lab.send("DELETE /d/f HTTP/1.1\r\nHost: localhost\r\n\r\n");
    lab.text.clear();
    lab.answer(Ok(Reply::Walked(vec![file(3)], Some(NodeId(5)))));
    expect![[r#"
        <- Walked: release 5, say "404 Not Found" +85
    "#]]
    .assert_eq(&lab.text);
}

/// Nothing but its existence is required of a directory, so it needs no version.
#[test]
fn any_directory_is_removed() {
    let directory = Stat { kind: Kind::Directory, ..file(0) };
    let mut lab = Lab::new();
    begin_delete(&mut lab, "If-Match: *\r\n");
    lab.answer(Ok(Reply::Walked(vec![directory.clone()], Some(NodeId(9)))));
    lab.text.clear();
    lab.answer(Ok(Reply::Stat(directory.clone())));
    lab.answer(Ok(Reply::Done));
    lab.answer(Ok(Reply::Done));
    expect![[r#"
        <- Stat: release 9, ask 0 Remove
        <- Done: ask 0 Sync
        <- Done: close 6, release 5, say "204 No Content" +0
    "#]]
    .assert_eq(&lab.text);
    let mut lab = Lab::new();
    begin_delete(&mut lab, &format!("If-Match: {}\r\n", etag(&directory)));
    lab.answer(Ok(Reply::Walked(vec![directory.clone()], Some(NodeId(9)))));
    lab.answer(Ok(Reply::Stat(directory)));
    assert!(lab.text.contains("say \"412 Precondition"), "{}", lab.text);
}

#[test]
fn a_file_is_removed_if_it_still_is_what_was_judged() {
    let mut lab = Lab::new();
    begin_delete(&mut lab, &format!("If-Match: {}\r\n", etag(&file(3))));
    lab.answer(Ok(Reply::Walked(vec![file(3)], Some(NodeId(9)))));
    let out = step(&mut lab, Reply::Stat(file(3)));
    assert_eq!(replaced(&out), Some(Expected::Version(file(3).file_version())));
    lab.text.clear();
    lab.answer(Ok(Reply::Unexpected(Some(file(4)))));
    assert!(lab.text.contains("close 6, release 5, say \"412 Precondition"), "{}", lab.text);
}
