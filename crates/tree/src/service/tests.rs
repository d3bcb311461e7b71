use super::*;
use crate::request::AsClient;
use base::Caller;

/// Root and device of the namespace.
const TOP: (NodeId, u64) = (NodeId(0), 0);

fn ask(service: &mut Service, ask: Ask) -> Vec<Output> {
    let mut out = Vec::new();
    let request = Request { caller: Caller::Server, ask };
    service.step(Instant(0), Input::Ask(RequestId(1), request), &mut out);
    service.check();
    out
}

#[test]
fn a_reader_sees_the_moment_of_the_open() {
    let mut service = Service::new(1, Time::from_secs(1), 7, Vec::new(), TOP);
    let names = vec![Name::new(b"stages").unwrap()];
    let out = ask(&mut service, Ask::Walk { from: NodeId::new(1, 0), names });
    let [Output::Reply(_, Ok(Reply::Walked(stats, Some(node))))] = &out[..] else {
        panic!("{out:?}")
    };
    assert_eq!((stats.len(), stats[0].mode), (1, 0o444));
    let out = ask(&mut service, Ask::Open { node: *node, access: base::Access::READ });
    let [Output::Render(ticket, Topic::Stages)] = out[..] else { panic!("{out:?}") };
    let mut out = Vec::new();
    service.step(Instant(0), Input::Rendered(ticket, b"now".to_vec()), &mut out);
    let [Output::Reply(_, Ok(Reply::Opened(open, stat)))] = &out[..] else { panic!("{out:?}") };
    assert_eq!(stat.size, 3);
    let out = ask(&mut service, Ask::Read { open: *open, offset: 1, count: 9, headroom: 0 });
    let [Output::Reply(_, Ok(Reply::Data(data)))] = &out[..] else { panic!("{out:?}") };
    assert_eq!(&**data, b"ow");
}

#[test]
fn nothing_in_it_can_be_changed() {
    let mut service = Service::new(1, Time::from_secs(1), 7, Vec::new(), TOP);
    let name = Name::new(b"stages").unwrap();
    let out = ask(&mut service, Ask::Remove { dir: NodeId::new(1, 0), name, directory: None });
    assert!(matches!(out[..], [Output::Reply(_, Err(Error::NotPermitted))]));
}

fn as_user(uid: u32) -> Caller {
    caller(uid, true)
}

fn caller(uid: u32, commands: bool) -> Caller {
    let user = base::User { uid, gid: uid, groups: Vec::new(), commands };
    Caller::User(std::sync::Arc::new(user))
}

fn open_to_write(service: &mut Service, caller: Caller, name: &str) -> Result<Reply, Error> {
    let names = vec![Name::new(name.as_bytes()).unwrap()];
    let out = ask(service, Ask::Walk { from: NodeId::new(1, 0), names });
    let [Output::Reply(_, Ok(Reply::Walked(_, Some(node))))] = out[..] else { panic!("{out:?}") };
    let access = base::Access { write: true, ..base::Access::default() };
    let mut out = Vec::new();
    let request = Request { caller, ask: Ask::Open { node, access } };
    service.step(Instant(0), Input::Ask(RequestId(2), request), &mut out);
    match out.pop() {
        Some(Output::Reply(_, reply)) => reply,
        other => panic!("{other:?}"),
    }
}

#[test]
fn commands_are_taken_from_root_and_the_owner_only() {
    let mut service = Service::new(1, Time::from_secs(1), 7, Vec::new(), TOP);
    for (who, may) in [
        (as_user(0), true),
        (as_user(7), true),
        (as_user(8), false),
        (Caller::Server, false),
        // Without the request for administration, or not authenticated.
        (caller(0, false), false),
        (caller(7, false), false),
    ] {
        assert_eq!(open_to_write(&mut service, who, "names").is_ok(), may);
    }
    assert_eq!(open_to_write(&mut service, as_user(0), "stages").unwrap_err(), Error::Denied);
    let opened = open_to_write(&mut service, as_user(0), "names");
    let Ok(Reply::Opened(open, _)) = opened else { panic!("{opened:?}") };
    let data = Buf::from(b"unmount /x\n".to_vec());
    let out = ask(&mut service, Ask::Write { open, offset: 0, data: data.clone() });
    let [Output::Command { ticket, ref text, .. }] = out[..] else { panic!("{out:?}") };
    assert_eq!(text, b"unmount /x\n");
    let mut out = Vec::new();
    service.step(Instant(0), Input::Commanded(ticket, Ok(())), &mut out);
    assert!(matches!(out[..], [Output::Reply(_, Ok(Reply::Written(11)))]), "{out:?}");
    let out = ask(&mut service, Ask::Write { open, offset: 0, data });
    let [Output::Command { ticket, .. }] = out[..] else { panic!("{out:?}") };
    let mut out = Vec::new();
    service.step(Instant(0), Input::Commanded(ticket, refused(Error::Busy)), &mut out);
    assert!(matches!(out[..], [Output::Reply(_, Err(Error::Busy))]), "{out:?}");
}

#[test]
fn a_cancelled_command_is_reported() {
    let mut service = Service::new(1, Time::from_secs(1), 7, Vec::new(), TOP);
    let opened = open_to_write(&mut service, as_user(7), "names");
    let Ok(Reply::Opened(open, _)) = opened else { panic!("{opened:?}") };
    let data = base::Buf::from(b"bind /a /b\n".to_vec());
    let out = ask(&mut service, Ask::Write { open, offset: 0, data });
    let [Output::Command { ticket, .. }] = out[..] else { panic!("{out:?}") };
    let mut out = Vec::new();
    service.step(Instant(0), Input::Cancel(RequestId(9)), &mut out);
    assert!(out.is_empty(), "{out:?}");
    service.step(Instant(0), Input::Cancel(RequestId(1)), &mut out);
    assert!(matches!(out[..], [Output::CancelCommand(it)] if it == ticket), "{out:?}");
    out.clear();
    service.step(Instant(0), Input::Commanded(ticket, refused(Error::Cancelled)), &mut out);
    assert!(matches!(out[..], [Output::Reply(_, Err(Error::Cancelled))]), "{out:?}");
    service.step(Instant(0), Input::Cancel(RequestId(1)), &mut out);
    assert_eq!(out.len(), 1);
}

fn refused(error: Error) -> Result<(), Refusal> {
    Err(Refusal { error, why: format!("line 1: {error}") })
}

/// An open control file.
struct Harness {
    service: Service,
    open: OpenId,
    /// Number of requests.
    requested: u64,
    out: Vec<Output>,
}

impl Harness {
    fn new() -> Harness {
        let mut service = Service::new(1, Time::from_secs(1), 7, Vec::new(), TOP);
        let opened = open_to_write(&mut service, as_user(7), "names");
        let Ok(Reply::Opened(open, _)) = opened else { panic!("{opened:?}") };
        Harness { service, open, requested: 0, out: Vec::new() }
    }

    fn step(&mut self, input: Input) {
        self.service.step(Instant(0), input, &mut self.out);
        self.service.check();
    }

    fn ask(&mut self, ask: Ask) {
        self.requested += 1;
        let request = Request { caller: as_user(7), ask };
        self.step(Input::Ask(RequestId(self.requested), request));
    }

    fn write(&mut self, offset: u64, text: &str) {
        let data = Buf::from(text.as_bytes().to_vec());
        self.ask(Ask::Write { open: self.open, offset, data });
    }

    fn read(&mut self) -> String {
        self.ask(Ask::Read { open: self.open, offset: 0, count: 1000, headroom: 0 });
        let Some(Output::Reply(_, Ok(Reply::Data(data)))) = self.out.pop() else { panic!() };
        String::from_utf8(data.to_vec()).unwrap()
    }

    fn done(&mut self, ticket: u64) {
        self.step(Input::Commanded(ticket, Ok(())));
    }

    fn failed(&mut self, ticket: u64, error: Error) {
        self.step(Input::Commanded(ticket, refused(error)));
    }

    /// Returns and clears the outputs so far, as text.
    fn outputs(&mut self) -> String {
        let words: Vec<String> = self.out.drain(..).map(|output| outputs(&output)).collect();
        words.join(", ")
    }
}

fn outputs(output: &Output) -> String {
    match output {
        Output::Command { ticket, line, text } => {
            format!("{ticket} from line {line}: {:?}", String::from_utf8_lossy(text))
        }
        Output::CancelCommand(ticket) => format!("cancel {ticket}"),
        Output::Reply(RequestId(id), Ok(Reply::Written(count))) => format!("{id} wrote {count}"),
        Output::Reply(RequestId(id), Ok(_)) => format!("{id} done"),
        Output::Reply(RequestId(id), Err(error)) => format!("{id} failed: {error}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_text_is_the_same_however_it_is_cut() {
    let mut harness = Harness::new();
    harness.write(0, "bind /a /b\nunmount /fa");
    assert_eq!(harness.outputs(), r#"0 from line 1: "bind /a /b\n""#);
    harness.done(0);
    assert_eq!(harness.outputs(), "1 wrote 22");
    harness.write(22, "r");
    assert_eq!(harness.outputs(), "2 wrote 1");
    harness.write(23, "ther\nunmount /c\nunm");
    assert_eq!(harness.outputs(), r#"0 from line 2: "unmount /farther\nunmount /c\n""#);
    harness.done(0);
    harness.write(42, "ount /d");
    assert_eq!(harness.outputs(), "3 wrote 19, 4 wrote 7");
    harness.ask(Ask::Sync { open: harness.open, data_only: false });
    assert_eq!(harness.outputs(), r#"0 from line 4: "unmount /d""#);
    harness.done(0);
    assert_eq!(harness.outputs(), "5 done");
    harness.write(49, "unmount /e");
    harness.step(Input::Close(harness.open));
    assert_eq!(harness.outputs(), r#"6 wrote 10, 0 from line 4: "unmount /e""#);
    assert_eq!(harness.service.opens(), 1);
    harness.failed(0, Error::NotFound);
    assert_eq!((harness.outputs().as_str(), harness.service.opens()), ("", 0));
}

#[test]
fn half_a_line_of_who_is_gone_is_no_line() {
    let mut harness = Harness::new();
    harness.write(0, "bind /a /b\nunmount /far");
    harness.step(Input::Abandon(harness.open));
    assert_eq!(harness.outputs(), r#"0 from line 1: "bind /a /b\n""#);
    harness.done(0);
    assert_eq!((harness.outputs().as_str(), harness.service.opens()), ("1 wrote 23", 0));
}

#[test]
fn a_write_at_offset_zero_begins_a_line() {
    let mut harness = Harness::new();
    harness.write(0, "unmount /a");
    harness.write(0, "unmount /b\n");
    assert_eq!(harness.outputs(), r#"1 wrote 10, 0 from line 1: "unmount /a\nunmount /b\n""#);
}

#[test]
fn a_failed_command_drops_the_lines_behind_it() {
    let mut harness = Harness::new();
    harness.write(0, "bind /a /b\n");
    harness.write(11, "bind /c /d\nbi");
    assert_eq!(
        harness.outputs(),
        r#"0 from line 1: "bind /a /b\n", 1 from line 2: "bind /c /d\n""#
    );
    harness.failed(0, Error::NotFound);
    assert_eq!(harness.outputs(), "cancel 1, 1 failed: file does not exist");
    harness.failed(1, Error::Cancelled);
    harness.write(24, "nd /e /f\n");
    assert_eq!(harness.outputs(), "2 failed: interrupted, 3 failed: interrupted");
    assert_eq!(harness.read(), "line 1: file does not exist\n");
    // A retry starts at the failed write, or at the beginning.
    for offset in [11, 0] {
        let mut harness = Harness::new();
        harness.write(0, "#\n");
        harness.done(0);
        harness.write(11, "bind /a /b\n");
        harness.failed(0, Error::NotFound);
        harness.outputs();
        harness.write(offset, "bind /c /d\n");
        let line = if offset == 0 { 1 } else { 3 };
        assert_eq!(harness.outputs(), format!("0 from line {line}: \"bind /c /d\\n\""));
        harness.done(0);
        assert_eq!(harness.read(), "");
    }
}

#[test]
fn everybody_reads_what_was_wrong_with_his_own() {
    let mut harness = Harness::new();
    let mine = harness.open;
    harness.write(0, "bind /a /b\n");
    harness.failed(0, Error::NotFound);
    let opened = open_to_write(&mut harness.service, as_user(7), "names");
    let Ok(Reply::Opened(other, _)) = opened else { panic!("{opened:?}") };
    harness.open = other;
    harness.write(0, "bind /c /d\n");
    harness.failed(0, Error::Busy);
    assert_eq!(harness.read(), "line 1: device or resource busy\n");
    harness.open = mine;
    assert_eq!(harness.read(), "line 1: file does not exist\n");
}

#[test]
fn a_line_has_an_end() {
    let mut harness = Harness::new();
    let piece = "x".repeat(control::LINE_MAX);
    harness.write(0, "\n");
    harness.done(0);
    harness.write(1, &piece);
    harness.outputs();
    harness.write(1 + piece.len() as u64, "x");
    assert_eq!(harness.outputs(), "3 failed: file too large");
    assert_eq!(harness.read(), "line 2 or one behind it is too long\n");
    harness.step(Input::Close(harness.open));
    assert_eq!((harness.outputs().as_str(), harness.service.opens()), ("", 0));
}

/// Opens a file with contents of this size, bytes.
fn open_page(service: &mut Service, bytes: usize) -> OpenId {
    let access = base::Access::READ;
    let out = ask(service, Ask::Open { node: NodeId::new(1, 1), access });
    let [Output::Render(ticket, _)] = out[..] else { panic!("{out:?}") };
    let mut out = Vec::new();
    service.step(Instant(0), Input::Rendered(ticket, vec![b'x'; bytes]), &mut out);
    service.check();
    let [Output::Reply(_, Ok(Reply::Opened(open, _)))] = out[..] else { panic!("{out:?}") };
    open
}

#[test]
fn clients_that_keep_files_open_do_not_keep_others_from_reading() {
    let mut service = Service::new(1, Time::from_secs(1), 7, Vec::new(), TOP);
    let read = |service: &mut Service, open| {
        let out = ask(service, Ask::Read { open, offset: 0, count: 9, headroom: 0 });
        let [Output::Reply(_, reply)] = &out[..] else { panic!("{out:?}") };
        match reply {
            Ok(Reply::Data(data)) => Ok(data.len()),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(*error),
        }
    };
    let kept: Vec<OpenId> = (0..40).map(|_| open_page(&mut service, 1 << 20)).collect();
    let readable = kept.iter().map(|open| read(&mut service, *open));
    let readable: Vec<bool> = readable.map(|reply| reply == Ok(9)).collect();
    assert_eq!(readable, (0..40).map(|at| at >= 24).collect::<Vec<_>>(), "the newest 16 MiB");
    assert_eq!(read(&mut service, kept[0]), Err(Error::Stale));
    // Contents that were read are kept longer than others.
    assert_eq!(read(&mut service, kept[24]), Ok(9));
    let more = open_page(&mut service, 1 << 20);
    assert_eq!(read(&mut service, kept[24]), Ok(9));
    assert_eq!(read(&mut service, kept[25]), Err(Error::Stale));
    // Contents larger than the limit are kept alone.
    let large = open_page(&mut service, CONTENTS_MAX + 1);
    assert_eq!((read(&mut service, large), service.contents.len()), (Ok(9), 1));
    for open in kept.into_iter().chain([more, large]) {
        service.step(Instant(0), Input::Close(open), &mut Vec::new());
        service.check();
    }
    assert_eq!((service.bytes, service.opens()), (0, 0));
}

#[test]
fn few_requests_wait_for_contents() {
    let mut service = Service::new(1, Time::from_secs(1), 7, Vec::new(), TOP);
    let access = base::Access::READ;
    let mut open = || {
        let out = ask(&mut service, Ask::Open { node: NodeId::new(1, 1), access });
        matches!(out[..], [Output::Render(..)])
    };
    assert!((0..RENDERINGS_MAX).all(|_| open()));
    assert!(!open());
}

#[test]
fn every_listed_file_can_be_opened_and_fetched_or_is_refused() {
    let mut service = Service::new(1, Time::from_secs(1), 7, Vec::new(), TOP);
    let root = Ask::Open { node: service.root(), access: base::Access::READ };
    let opened = ask(&mut service, root).pop();
    let Some(Output::Reply(_, Ok(Reply::Opened(open, _)))) = opened else { panic!("{opened:?}") };
    let detail = base::op::Detail::Name;
    let listed = ask(&mut service, Ask::List { open, cookie: 0, bytes_max: 4096, detail }).pop();
    let Some(Output::Reply(_, Ok(Reply::Entries(entries)))) = listed else { panic!("{listed:?}") };
    assert_eq!(entries.len(), LAST, "the topics and the streams");
    for entry in entries {
        let path = vec![entry.name.clone()];
        let fetch = Ask::Fetch { root: None, path, read_max: 9, headroom: 0 };
        let fetched = ask(&mut service, fetch).pop();
        let is_stream = STREAMS.contains(&entry.name.to_string().as_str());
        match fetched {
            Some(Output::Render(..)) if !is_stream => {}
            Some(Output::Reply(_, Err(Error::Unsupported))) if is_stream => {}
            other => panic!("{}: {other:?}", entry.name),
        }
        let node = NodeId::new(1, entry.cookie as usize);
        let opened = ask(&mut service, Ask::Open { node, access: base::Access::READ }).pop();
        let is_right = match entry.name.as_bytes() {
            // It is written to first.
            b"subtree" => matches!(opened, Some(Output::Reply(_, Err(Error::Invalid)))),
            b"watch" => matches!(opened, Some(Output::Reply(_, Ok(Reply::Opened(..))))),
            _topic => matches!(opened, Some(Output::Render(..))),
        };
        assert!(is_right, "{}: {opened:?}", entry.name);
    }
}

/// Opens a stream file, and writes a request to it.
fn open_stream(service: &mut Service, name: &str, text: &str) -> OpenId {
    let opened = open_to_write(service, as_user(5), name);
    let Ok(Reply::Opened(open, stat)) = opened else { panic!("{opened:?}") };
    assert!(stat.is_stream() && stat.mode == 0o666, "{stat:?}");
    let data = Buf::from(text.as_bytes().to_vec());
    let out = ask(service, Ask::Write { open, offset: 0, data });
    assert!(matches!(out[..], [Output::Reply(_, Ok(Reply::Written(_)))]), "{out:?}");
    open
}

#[test]
fn requests_of_all_streams_have_different_numbers() {
    let mut service = Service::new(1, Time::from_secs(1), 7, Vec::new(), TOP);
    let watch = open_stream(&mut service, "watch", "/a\n");
    let subtree = open_stream(&mut service, "subtree", "attributes /b");
    let mut out = Vec::new();
    service.begin_turn();
    service.tick(Instant(0), &mut out);
    let mut numbers = BTreeMap::new();
    for output in out.drain(..) {
        let Output::AsClient(AsClient::Ask(number, Request { caller, ask })) = output else {
            panic!("{output:?}")
        };
        let Ask::Walk { names, .. } = ask else { panic!("{ask:?}") };
        assert_eq!(caller, as_user(5));
        numbers.insert(names[0].to_string(), number);
    }
    assert_ne!(numbers["a"], numbers["b"]);
    for number in numbers.into_values() {
        service.step(Instant(0), Input::Answered(number, Err(Error::Denied)), &mut out);
        service.check();
    }
    for open in [watch, subtree] {
        let out = ask(&mut service, Ask::Read { open, offset: 0, count: 99, headroom: 0 });
        service.tick(Instant(0), &mut Vec::new());
        assert!(out.len() <= 1, "{out:?}");
    }
    assert_eq!((service.watches().0, service.subtrees().0), (1, 1));
    for open in [watch, subtree] {
        service.step(Instant(0), Input::Close(open), &mut out);
        service.check();
    }
    assert_eq!((service.watches().0, service.subtrees().0, service.opens()), (0, 0, 0));
}
