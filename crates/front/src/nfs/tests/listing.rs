//! READDIR and READDIRPLUS.

use super::*;
use base::Name;
use base::op::{Detail, Entry};

fn entry(name: &str, number: u64) -> Entry {
    Entry {
        cookie: number,
        inode: number,
        device: None,
        kind: Kind::File,
        name: Name::new(name.as_bytes()).unwrap(),
        stat: Some(Stat { inode: number, ..stat(Kind::File) }),
        handle: (number < 256).then(|| tree_handle(number as u8)),
    }
}

impl Lab {
    /// Lists the root from a cookie on, in results of at most `count` bytes, while the tree returns
    /// these entries in each list; returns names and cookies, and whether it is the end.
    fn list(&mut self, plus: bool, cookie: u64, count: u32, lists: &[&[Entry]]) -> Listed {
        let (dir, verifier) = (handle(0), [0; 8]);
        let sent = match plus {
            false => WireCall::ReadDir { dir, cookie, verifier, count },
            true => {
                WireCall::ReadDirPlus { dir, cookie, verifier, dir_count: count, max_count: count }
            }
        };
        let bytes = Buf::from(call(8, &sent));
        let mut lists = lists.iter();
        let mut input = Some(Input::Received(bytes));
        let mut body = Vec::new();
        while let Some(next) = input.take() {
            let mut out = Vec::new();
            self.session.step(self.now, next, &mut out);
            self.session.check();
            for output in out {
                match output {
                    Output::Ask(id, request) => {
                        let reply = match request.ask {
                            Ask::Open { .. } => Reply::Opened(OpenId(9), stat(Kind::Directory)),
                            Ask::Stat { .. } => Reply::Stat(stat(Kind::Directory)),
                            Ask::Walk { .. } => {
                                let parent = Stat { inode: 1, ..stat(Kind::Directory) };
                                Reply::Walked(vec![parent], Some(NodeId(3)))
                            }
                            Ask::List { cookie, detail, .. } => {
                                let wanted = if plus { Detail::Handle } else { Detail::Name };
                                assert_eq!(detail, wanted);
                                let entries = lists.next().expect("no more are requested");
                                let behind = entries.iter().filter(|entry| entry.cookie > cookie);
                                Reply::Entries(behind.cloned().collect())
                            }
                            other => panic!("{other:?}"),
                        };
                        input = Some(Input::Answered(id, Ok(reply)));
                    }
                    Output::Send(bytes) => body.extend(&*bytes),
                    _other => {}
                }
            }
        }
        let bytes = self.session.unsent();
        self.session.step(self.now, Input::Sent(bytes), &mut Vec::new());
        let (_, _, results) = decode_reply(&body[MARK_SIZE..]).unwrap();
        let most = count.min(limits().msize) as usize;
        assert!(results.len() <= most, "{} bytes", results.len());
        let shown = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        match Results::decode(sent.procedure(), results).unwrap() {
            Ok(Results::ReadDir { entries, eof, .. }) => {
                let all = entries.iter().map(|it| (shown(it.name), it.fileid, it.cookie));
                Ok((all.collect(), eof))
            }
            Ok(Results::ReadDirPlus { entries, eof, .. }) => {
                for entry in &entries {
                    let is_dot = entry.name.starts_with(b".");
                    let expected = u8::try_from(entry.fileid).ok().filter(|_| !is_dot);
                    assert_eq!(entry.handle, expected.map(handle));
                    assert!(entry.attributes.is_some());
                }
                let all = entries.iter().map(|it| (shown(it.name), it.fileid, it.cookie));
                Ok((all.collect(), eof))
            }
            Ok(other) => panic!("{other:?}"),
            Err((status, _)) => Err(status),
        }
    }
}

type Listed = Result<(Vec<(String, u64, u64)>, bool), Status>;

fn named(all: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
    all.iter().map(|(name, number, cookie)| (name.to_string(), *number, *cookie)).collect()
}

#[test]
fn a_small_directory_is_one_reply_with_dots() {
    for plus in [false, true] {
        let mut lab = Lab::mounted();
        let entries = [entry("a", 10), entry("b", 11)];
        let listed = lab.list(plus, 0, 4096, &[&entries, &[]]);
        let all = named(&[(".", 7, 1), ("..", 1, 2), ("a", 10, 12), ("b", 11, 13)]);
        assert_eq!(listed, Ok((all, true)));
        assert_eq!(lab.list(plus, 12, 4096, &[&entries, &[]]), Ok((named(&[("b", 11, 13)]), true)));
        assert_eq!(lab.list(plus, 13, 4096, &[&[]]), Ok((Vec::new(), true)));
    }
}

#[test]
fn a_listing_goes_on_at_every_cookie_and_keeps_to_its_size() {
    let entries: Vec<Entry> = (0..50).map(|n| entry(&format!("name-{n:03}"), 100 + n)).collect();
    for (plus, count) in [(false, 130), (false, 600), (true, 300), (true, 2000)] {
        let mut lab = Lab::mounted();
        let (mut cookie, mut names, mut replies) = (0, Vec::new(), 0);
        loop {
            let lists = [&entries[..]; 60];
            let (all, eof) = lab.list(plus, cookie, count, &lists).unwrap();
            replies += 1;
            cookie = all.last().map_or(cookie, |(.., cookie)| *cookie);
            names.extend(all.into_iter().map(|(name, ..)| name));
            if eof {
                break;
            }
        }
        assert_eq!(names.len(), 52, "{count}");
        assert_eq!((names[0].as_str(), names[51].as_str()), (".", "name-049"));
        assert!(replies > 2, "{replies}");
    }
}

#[test]
fn a_reply_is_never_larger_than_the_maximum_size() {
    let entries: Vec<Entry> = (0..3000).map(|n| entry(&format!("name-{n:04}"), 100 + n)).collect();
    for plus in [false, true] {
        let mut lab = Lab::mounted();
        let (all, eof) = lab.list(plus, 0, u32::MAX, &[&entries[..]]).unwrap();
        assert!(all.len() > 300 && !eof, "{}", all.len());
    }
}

#[test]
fn sizes_and_cookies_that_make_no_sense_have_their_status() {
    let mut lab = Lab::mounted();
    assert_eq!(lab.list(false, 0, 30, &[]), Err(Status::TooSmall));
    let listed = lab.list(false, 2, 40, &[&[entry("a-long-name", 10)]]);
    assert_eq!(listed, Err(Status::TooSmall));
    lab.call(9, &WireCall::ReadDir { dir: handle(0), cookie: 99, verifier: [0; 8], count: 512 });
    lab.answer(0, Err(Error::Invalid));
    assert!(lab.text.ends_with("9 BadCookie\n"), "{}", lab.text);
}

#[test]
fn listed_files_are_found_by_their_place() {
    let mut lab = Lab::mounted();
    lab.list(true, 0, 4096, &[&[entry("a", 10), entry("b", 11)], &[]]).unwrap();
    assert_eq!(lab.session.bytes(), 2 * files::PLACE_SIZE);
    lab.text.clear();
    lab.call(9, &WireCall::GetAttr { object: handle(11) });
    lab.answer(0, walked(Kind::File, 2));
    lab.answer(0, identified(11));
    lab.answer(0, Ok(Reply::Stat(stat(Kind::File))));
    expect![[r#"
        GetAttr: ask 0 Walk
        <- 0 Walked: ask 0 FileHandle
        <- 0 FileHandle: ask 0 Stat
        <- 0 Stat: 9 GetAttr
    "#]]
    .assert_eq(&lab.text);
}
