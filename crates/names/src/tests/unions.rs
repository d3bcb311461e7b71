//! Several directories at one mount point.

use super::*;
use base::Access;
use base::op::Detail;

fn union() -> Lab {
    let mut lab =
        Lab::new(&[&["u/"], &["a", "both", "d/one"], &["b", "both", "d/two"], &["c", "both"]]);
    lab.mount("/u", 1, Order::Replace).unwrap();
    lab.mount("/u", 2, Order::After).unwrap();
    lab.mount("/u", 3, Order::Before).unwrap();
    lab
}

#[test]
fn the_first_member_that_has_a_name_has_it() {
    let mut lab = union();
    assert_eq!(lab.at("u/a").unwrap(), "1:/a");
    assert_eq!(lab.at("u/b").unwrap(), "2:/b");
    assert_eq!(lab.at("u/both").unwrap(), "3:/both");
    assert_eq!(lab.at("u/d/one").unwrap(), "1:/d/one");
    assert_eq!(lab.at("u/d/two"), Err(Error::NotFound));
    assert_eq!(lab.at("u/d/../b").unwrap(), "2:/b");
    assert_eq!(lab.at("u/d/../..").unwrap(), "0:/");
    assert_eq!(lab.at("u").unwrap(), "3:/");
    lab.check_held();
}

#[test]
fn a_dot_stays_in_the_member_where_a_walk_came_back() {
    let mut lab = union();
    let (stats, node) = lab.walk(lab.names.root(), &parts("u/d/.././b")).unwrap();
    let shown: Vec<String> = stats.iter().map(|stat| lab.shown(stat)).collect();
    assert_eq!(shown, ["3:/", "1:/d", "1:/", "1:/", "2:/b"]);
    lab.step(Input::Release(node.unwrap()));
    assert_eq!(lab.at("u/d/../.").unwrap(), "1:/");
    assert_eq!(lab.at("u/.").unwrap(), "3:/");
    lab.check_held();
}

#[test]
fn a_list_joins_the_members_and_says_each_name_once() {
    let mut lab = union();
    assert_eq!(lab.list("u").unwrap(), "both c a d b");
    assert_eq!(lab.list("u/d").unwrap(), "one");
    lab.check_held();
}

#[test]
fn a_reader_may_go_back_to_any_entry_it_has_seen() {
    let mut lab = union();
    let (_, node) = lab.walk(lab.names.root(), &parts("u")).unwrap();
    let node = node.unwrap();
    let access = Access { read: true, ..Access::default() };
    let Ok(Reply::Opened(open, _)) = lab.ask(Ask::Open { node, access }) else { panic!() };
    let mut seen: Vec<(u64, String)> = Vec::new();
    let list = |lab: &mut Lab, cookie| {
        let ask = Ask::List { open, cookie, bytes_max: 60, detail: Detail::Name };
        match lab.ask(ask) {
            Ok(Reply::Entries(entries)) => {
                entries.into_iter().map(|e| (e.cookie, e.name.to_string())).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        }
    };
    while let Some(more) =
        Some(list(&mut lab, seen.last().map_or(0, |s| s.0))).filter(|m| !m.is_empty())
    {
        seen.extend(more);
    }
    let names: Vec<&str> = seen.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["both", "c", "a", "d", "b"]);
    for (index, (cookie, _)) in seen.clone().iter().enumerate() {
        let next = list(&mut lab, *cookie);
        assert_eq!(next.first().map(|(_, name)| name), seen.get(index + 1).map(|(_, name)| name));
    }
    let unknown = Ask::List { open, cookie: 1 << 40, bytes_max: 60, detail: Detail::Name };
    assert_eq!(lab.ask(unknown).unwrap_err(), Error::Invalid);
    lab.step(Input::Close(open));
    lab.step(Input::Release(node));
    lab.check_held();
}

#[test]
fn a_member_that_is_not_there_does_not_hide_the_others() {
    let mut lab = union();
    lab.fakes[3].broken = Some(Error::Disconnected);
    assert_eq!(lab.at("u/a").unwrap(), "1:/a");
    assert_eq!(lab.at("u/both").unwrap(), "1:/both");
    let (_, union) = lab.walk(lab.names.root(), &parts("u")).unwrap();
    assert_eq!(lab.walk(union.unwrap(), &parts("none")).unwrap_err(), Error::Disconnected);
    lab.step(Input::Release(union.unwrap()));
    assert_eq!(lab.at("u").unwrap(), "1:/");
    assert_eq!(lab.list("u").unwrap(), "a both d b");
    lab.fakes[3].broken = None;
    assert_eq!(lab.at("u/c").unwrap(), "3:/c");
    lab.check_held();
}

#[test]
fn new_files_are_made_in_the_first_member_that_takes_them() {
    let mut lab = union();
    let (_, dir) = lab.walk(lab.names.root(), &parts("u")).unwrap();
    let dir = dir.unwrap();
    let name = |text: &str| Name::new(text.as_bytes()).unwrap();
    let make = |text: &str| Ask::MakeDir { dir, name: name(text), mode: 0o755, gid: None };
    let made = |lab: &mut Lab, text: &str| match lab.ask(make(text))? {
        Reply::Stat(_) => Ok::<(), Error>(()),
        other => panic!("{other:?}"),
    };
    // Trees with odd numbers accept new files here, and the third is in front.
    made(&mut lab, "new").unwrap();
    assert_eq!(lab.at("u/new").unwrap(), "3:/new");
    lab.fakes[3].broken = Some(Error::NoSpace);
    assert_eq!(made(&mut lab, "next").unwrap_err(), Error::NoSpace);
    lab.fakes[3].broken = None;
    assert_eq!(made(&mut lab, "b").unwrap_err(), Error::Exists);
    let remove = |text| Ask::Remove { dir, name: name(text), directory: None };
    assert!(lab.ask(remove("b")).is_ok());
    assert_eq!(lab.at("u/b"), Err(Error::NotFound));
    assert_eq!(lab.ask(remove("b")).unwrap_err(), Error::NotFound);
    lab.step(Input::Release(dir));
    lab.check_held();
}

#[test]
fn a_file_made_in_a_union_knows_its_way_back() {
    let mut lab = union();
    let (_, dir) = lab.walk(lab.names.root(), &parts("u")).unwrap();
    let dir = dir.unwrap();
    let access = Access { read: true, write: true, ..Access::default() };
    let ask = Ask::Create {
        dir,
        name: Name::new(b"new").unwrap(),
        access,
        exclusive: true,
        mode: 0o644,
        gid: None,
    };
    let Ok(Reply::Created(node, open, stat)) = lab.ask(ask) else { panic!() };
    assert_eq!((lab.shown(&stat).as_str(), node.tree()), ("3:/new", NAMES));
    let (stats, above) = lab.walk(node, &parts("..")).unwrap();
    assert_eq!(lab.shown(&stats[0]), "3:/");
    let (stats, other) = lab.walk(above.unwrap(), &parts("b")).unwrap();
    assert_eq!(lab.shown(&stats[0]), "2:/b");
    for node in [node, above.unwrap(), other.unwrap(), dir] {
        lab.step(Input::Release(node));
    }
    lab.step(Input::Close(open));
    lab.check_held();
}

#[test]
fn members_are_taken_away_one_by_one() {
    let mut lab = union();
    let part = |source_text: &str| NamespaceChange::Part {
        at: path("/u"),
        source_text: Some(source_text.into()),
    };
    lab.requested(part("tree 3")).unwrap();
    assert_eq!(lab.at("u/both").unwrap(), "1:/both");
    assert_eq!(lab.requested(part("tree 3")), Err(Error::NotFound));
    lab.requested(part("tree 1")).unwrap();
    assert_eq!(lab.at("u/both").unwrap(), "2:/both");
    lab.requested(part("tree 2")).unwrap();
    assert_eq!(lab.at("u").unwrap(), "0:/u");
    assert!(lab.fakes.iter().all(Fake::is_free));
}

#[test]
fn a_directory_joined_with_what_it_stands_for() {
    let mut lab = Lab::new(&[&["u/own", "u/both"], &["a", "both"]]);
    lab.mount("/u", 1, Order::After).unwrap();
    assert_eq!(lab.list("u").unwrap(), "both own a");
    assert_eq!(lab.at("u/both").unwrap(), "0:/u/both");
    assert_eq!(lab.at("u/own/..").unwrap(), "0:/u");
    assert_eq!(lab.at("u/own/../a").unwrap(), "1:/a");
    assert_eq!(lab.names.text().len(), 1);
    lab.part("/u").unwrap();
    lab.check_held();
}

#[test]
fn nodes_of_a_request_are_held_until_its_end() {
    let mut lab = union();
    let (_, dir) = lab.walk(lab.names.root(), &parts("u")).unwrap();
    let dir = dir.unwrap();
    let name = Name::new(b"new").unwrap();
    lab.begin(Ask::MakeDir { dir, name, mode: 0o755, gid: None });
    lab.step(Input::Release(dir));
    while !lab.wanted.is_empty() {
        lab.answer_one();
    }
    assert!(matches!(lab.replies.pop(), Some((_, Ok(Reply::Stat(_))))));
    assert_eq!(lab.at_once("u/new").unwrap(), "3:/new");
    lab.check_held();
    assert!(lab.names.held.is_empty());
}

#[test]
fn lists_that_wait_are_answered_whatever_becomes_of_those_before() {
    let mut lab = union();
    let (_, node) = lab.walk(lab.names.root(), &parts("u")).unwrap();
    let node = node.unwrap();
    let access = Access { read: true, ..Access::default() };
    let Ok(Reply::Opened(open, _)) = lab.ask(Ask::Open { node, access }) else { panic!() };
    let list = |cookie| Ask::List { open, cookie, bytes_max: 60, detail: Detail::Name };
    let ids = [0, 999, 0, 0].map(|cookie| lab.begin(list(cookie)));
    lab.step(Input::Cancel(ids[3]));
    lab.step(Input::Close(open));
    lab.step(Input::Release(node));
    while !lab.wanted.is_empty() {
        lab.answer_one();
    }
    let mut answers: Vec<_> = lab.replies.drain(..).map(|(id, reply)| (id, reply.err())).collect();
    answers.sort();
    let expected = [
        (ids[0], None),
        (ids[1], Some(Error::Invalid)),
        (ids[2], None),
        (ids[3], Some(Error::Cancelled)),
    ];
    assert_eq!(answers, expected);
    lab.check_held();
}

#[test]
fn a_cancelled_task_sends_no_further_requests() {
    let mut lab = union();
    let (_, dir) = lab.walk(lab.names.root(), &parts("u")).unwrap();
    let dir = dir.unwrap();
    let name = Name::new(b"none").unwrap();
    let asks = [
        Ask::Remove { dir, name: name.clone(), directory: None },
        Ask::Walk { from: dir, names: vec![name] },
        Ask::Fetch { root: None, path: parts("u/b"), read_max: 10, headroom: 0 },
    ];
    for ask in asks {
        let id = lab.begin(ask);
        lab.step(Input::Cancel(id));
        lab.answer_one();
        assert!(lab.wanted.is_empty());
        assert!(matches!(lab.replies.pop(), Some((_, Err(Error::Cancelled)))));
    }
    lab.step(Input::Release(dir));
    lab.slow = false;
    lab.check_held();
    assert!(lab.names.cancelled.is_empty());
}

#[test]
fn a_member_that_is_dead_can_be_taken_away() {
    let mut lab = union();
    lab.fakes.iter_mut().skip(1).for_each(|fake| fake.broken = Some(Error::Disconnected));
    lab.part("/u").unwrap();
    assert_eq!(lab.at("u").unwrap(), "0:/u");
    lab.check_held();
}

#[test]
fn a_list_that_breaks_off_says_so() {
    let mut lab = union();
    let (_, node) = lab.walk(lab.names.root(), &parts("u")).unwrap();
    let node = node.unwrap();
    let access = Access { read: true, ..Access::default() };
    let Ok(Reply::Opened(open, _)) = lab.ask(Ask::Open { node, access }) else { panic!() };
    lab.fakes[3].broken = Some(Error::Disconnected);
    let list = Ask::List { open, cookie: 0, bytes_max: 60, detail: Detail::Name };
    assert_eq!(lab.ask(list).unwrap_err(), Error::Disconnected);
    lab.step(Input::Close(open));
    lab.step(Input::Release(node));
    lab.check_held();
}

#[test]
fn a_flush_of_a_union_reaches_every_member() {
    let mut lab = union();
    let (_, node) = lab.walk(lab.names.root(), &parts("u")).unwrap();
    let node = node.unwrap();
    let access = Access { read: true, ..Access::default() };
    let Ok(Reply::Opened(open, _)) = lab.ask(Ask::Open { node, access }) else { panic!() };
    let flush = || Ask::Sync { open, data_only: false };
    assert!(matches!(lab.ask(flush()), Ok(Reply::Done)));
    let flushed = |lab: &Lab| lab.fakes.iter().map(|fake| fake.flushed.len()).collect::<Vec<_>>();
    assert_eq!(flushed(&lab), [0, 1, 1, 1]);
    // The others are flushed even if one is unavailable.
    lab.fakes[1].broken = Some(Error::Disconnected);
    assert!(matches!(lab.ask(flush()), Ok(Reply::Done)));
    assert_eq!(flushed(&lab), [0, 1, 2, 2]);
    lab.step(Input::Close(open));
    lab.step(Input::Release(node));
    lab.check_held();
}
