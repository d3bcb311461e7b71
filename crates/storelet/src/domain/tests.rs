use super::*;
use base::drawing::{Drawing, variant};
use wasi::{Ended, Hash, Used};
use wire::storelet::{FRAME_HEAD, Frame};

fn run_spec(text: &str) -> Box<RunSpec> {
    Box::new(RunSpec::parse(text.as_bytes()).expect("it is one"))
}

fn report() -> Box<Report> {
    Box::new(Report::new(&Ended::Exit(0), Used::default(), 9))
}

const ID: RequestId = RequestId(1);

#[test]
fn states_md_is_fresh() {
    let fresh = Fresh::idle();
    let simple = || run_spec("module 2");
    let stages = |count: usize| -> Vec<Stage> {
        let text = format!("module sha256:{}", Hash([7; 32]));
        let stage = |place| Stage { called: format!("s{place}@1"), run_spec: *run_spec(&text) };
        (0..count).map(stage).collect()
    };
    let chain =
        |count: usize, had: usize| Chain { stages: stages(count), fresh: vec![fresh.clone(); had] };
    let pipe = |count: usize| Pipe::new((0..count).map(|place| format!("s{place}@1")));
    let states: [&dyn Fn() -> State; 12] = [
        &|| State::Received(Vec::new()),
        &|| State::Naming,
        &|| State::Filling(simple(), Vec::new(), 2),
        &|| State::Compiling(chain(1, 0), None),
        &|| State::Compiling(chain(2, 0), None),
        &|| State::Ready(chain(1, 1)),
        &|| State::Running(pipe(1)),
        &|| State::Running(pipe(2)),
        &|| State::Ended,
        &|| State::Dropping,
        &|| State::Leaving(pipe(1)),
        &|| State::Over,
    ];
    let write = |text: &'static [u8]| Input::Write(ID, Buf::from(text));
    let named = || Input::Resolved(Ok(stages(2)));
    let inputs: [(&str, &dyn Fn() -> Input); 19] = [
        ("Write(some)", &|| write(b"m")),
        ("Write(order)", &|| write(b"module 2\n\n")),
        ("Write(order, module)", &|| write(b"module 2\n\nab")),
        ("Write(names)", &|| write(b"standing s0\nstanding s1\n\n")),
        ("Write(nonsense)", &|| write(b"nonsense\n\n")),
        ("Resolved(Ok)", &named),
        ("Resolved(Err)", &|| Input::Resolved(Err("no".to_string()))),
        ("Begin", &|| Input::Begin(stages(1))),
        ("Read", &|| Input::Read(ID, 10, 0)),
        ("Cancel", &|| Input::Cancel(ID)),
        ("Compiled(Ok)", &|| Input::Compiled(Ok(fresh.clone()))),
        ("Compiled(Err)", &|| Input::Compiled(Err(Refused::Unknown))),
        ("Admitted", &|| Input::Admitted),
        ("Refused", &|| Input::Refused(String::new())),
        ("Emitted", &|| Input::Emitted(0, Stream::Output, vec![1])),
        ("Eaten", &|| Input::Eaten(0, 0)),
        ("Ended", &|| Input::Ended(0, report())),
        ("Kill", &|| Input::Kill(Reason::Time)),
        ("Gone", &|| Input::Gone),
    ];
    let mut drawing = Drawing::default();
    for (label, input) in inputs {
        for state in states {
            let mut domain = Domain::new(Instant(0), Maxima::NONE);
            domain.state = state();
            drawing.sample_as(label, domain, input(), |domain| variant(&domain.state));
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/domain/states.md"));
}

/// Decodes framed output: kinds and contents.
fn frames(mut bytes: &[u8]) -> Vec<(Frame, String)> {
    let mut frames = Vec::new();
    while let Ok(Some((frame, body))) = Frame::decode(bytes) {
        frames.push((frame, String::from_utf8(body.to_vec()).expect("text")));
        bytes = &bytes[FRAME_HEAD + body.len()..];
    }
    frames
}

fn read(domain: &mut Domain, out: &mut Vec<Output>) -> Vec<u8> {
    out.clear();
    domain.step(Instant(9), Input::Read(ID, 1 << 20, 3), out);
    let Some(Output::Reply(ID, Ok(Reply::Data(data)))) = out.first() else { panic!("{out:?}") };
    assert!(data.headroom() >= 3);
    data.to_vec()
}

/// Clients send input once the storelet runs, so until then state frames may be the only output.
#[test]
fn a_pending_read_receives_the_wait_reason_at_once() {
    let (mut domain, mut out) = (Domain::new(Instant(0), Maxima::NONE), Vec::new());
    let mut receives = |input, state: &str| {
        domain.step(Instant(1), Input::Read(ID, 1 << 20, 0), &mut out);
        domain.check();
        domain.step(Instant(1), input, &mut out);
        domain.check();
        let received = out.drain(..).find_map(|output| {
            let Output::Reply(ID, Ok(Reply::Data(data))) = output else { return None };
            Some(frames(&data))
        });
        assert_eq!(received, Some(vec![(Frame::State, state.to_string())]));
    };
    let run_spec = Buf::from(&b"module 2\nframes\n\nab"[..]);
    receives(Input::Write(RequestId(2), run_spec), "compiling");
    receives(Input::Compiled(Ok(Fresh::idle())), "waiting for memory");
    receives(Input::Admitted, "running");
}

#[test]
fn spec_errors_are_reported_in_the_requested_format() {
    for (run_spec, is_framed) in [("frames\ncolour red\n\n", true), ("colour red\n\n", false)] {
        let (mut domain, mut out) = (Domain::new(Instant(0), Maxima::NONE), Vec::new());
        domain.step(Instant(1), Input::Write(ID, Buf::from(run_spec.as_bytes())), &mut out);
        let emitted = read(&mut domain, &mut out);
        assert!(String::from_utf8_lossy(&emitted).contains("no such word"));
        assert_eq!(matches!(frames(&emitted)[..], [(Frame::Report, _)]), is_framed);
    }
}

#[test]
fn order_module_and_input_may_come_in_one_piece_or_in_bytes() {
    let mut text = b"module 3\narg x\ninput\nframes\n\nabc".to_vec();
    for input in [&b"hel"[..], b"lo", b""] {
        text.extend_from_slice(&(input.len() as u32).to_le_bytes());
        text.extend_from_slice(input);
    }
    for size in [1, 2, 7, 1000] {
        let (mut domain, mut out) = (Domain::new(Instant(0), Maxima::NONE), Vec::new());
        for piece in text.chunks(size) {
            domain.step(Instant(1), Input::Write(ID, Buf::from(piece)), &mut out);
        }
        let written =
            out.iter().filter(|it| matches!(it, Output::Reply(ID, Ok(Reply::Written(_)))));
        assert_eq!(written.count(), text.len().div_ceil(size));
        let module = out.iter().find_map(|it| {
            let Output::Compile(Module::Sent(parts), Code::Plain) = it else { return None };
            Some(parts.iter().flat_map(|part| part.to_vec()))
        });
        assert_eq!(module.expect("it is compiled").collect::<Vec<u8>>(), b"abc");
        out.clear();
        domain.step(Instant(5), Input::Compiled(Ok(Fresh::idle())), &mut out);
        assert!(matches!(out[..], [Output::Enqueue]));
        domain.step(Instant(6), Input::Admitted, &mut out);
        let fed = out.iter().filter_map(|it| {
            let Output::Feed(0, bytes) = it else { return None };
            Some(bytes.clone())
        });
        let fed: Vec<Vec<u8>> = fed.collect();
        assert_eq!(fed.concat(), b"hello");
        assert!(fed.last().expect("an end").is_empty());
        domain.step(Instant(7), Input::Emitted(0, Stream::Error, b"hm".to_vec()), &mut out);
        domain.step(Instant(8), Input::Ended(0, report()), &mut out);
        let emitted = frames(&read(&mut domain, &mut out));
        let kinds: Vec<Frame> = emitted.iter().map(|(frame, _)| *frame).collect();
        let states = [Frame::State; 3];
        assert_eq!(kinds[..3], states);
        assert_eq!(kinds[3..], [Frame::Error, Frame::Report]);
        assert!(emitted[4].1.contains("\"exit\":0"), "{emitted:?}");
        assert!(emitted[4].1.contains("\"waited_ns\":6"), "{emitted:?}");
        assert!(read(&mut domain, &mut out).is_empty());
    }
}

#[test]
fn a_writer_waits_while_its_storelet_takes_nothing() {
    let (mut domain, mut out) = (Domain::new(Instant(0), Maxima::NONE), Vec::new());
    let mut text = format!("module sha256:{}\ninput\n\n", Hash([1; 32])).into_bytes();
    text.extend_from_slice(&(600_000_u32).to_le_bytes());
    domain.step(Instant(0), Input::Write(ID, Buf::from(&text[..])), &mut out);
    domain.step(Instant(0), Input::Compiled(Ok(Fresh::idle())), &mut out);
    domain.step(Instant(0), Input::Admitted, &mut out);
    out.clear();
    domain.step(Instant(0), Input::Write(RequestId(2), Buf::from(&[0; 300_000][..])), &mut out);
    assert!(matches!(out[..], [Output::Feed(0, _)]), "{out:?}");
    domain.step(Instant(0), Input::Eaten(0, 100_000), &mut out);
    assert!(matches!(out[1], Output::Reply(RequestId(2), Ok(Reply::Written(300_000)))));
}

#[test]
fn reads_are_reported_in_time() {
    let (mut domain, mut out) = (Domain::new(Instant(0), Maxima::NONE), Vec::new());
    domain.state = State::Running(Pipe::new(["it".to_string()].into_iter()));
    domain.step(Instant(0), Input::Read(ID, 5, 0), &mut out);
    assert!(out.is_empty());
    domain.step(Instant(0), Input::Emitted(0, Stream::Output, b"hello world".to_vec()), &mut out);
    let [Output::Reply(ID, Ok(Reply::Data(data)))] = &out[..] else { panic!("{out:?}") };
    assert_eq!(&**data, b"hello");
    domain.step(Instant(0), Input::Read(ID, 50, 0), &mut out);
    assert!(matches!(out[2], Output::Taken(0, 11)), "{out:?}");
}

/// A running chain of this many storelets.
fn chain(count: usize) -> Domain {
    let mut domain = Domain::new(Instant(0), Maxima::NONE);
    domain.streams.begin(true, false);
    domain.state = State::Running(Pipe::new((0..count).map(|place| format!("s{place}@1"))));
    domain
}

/// Steps a domain and returns its outputs except replies to reads.
fn come_of(domain: &mut Domain, input: Input) -> Vec<String> {
    let mut out = Vec::new();
    domain.step(Instant(9), input, &mut out);
    domain.check();
    out.iter().map(|it| format!("{it:?}").chars().take(40).collect()).collect()
}

fn killed(reason: Reason) -> Box<Report> {
    Box::new(Report::killed(reason))
}

fn exit(code: u32) -> Box<Report> {
    Box::new(Report::new(&Ended::Exit(code), Used { read: 5, ..Used::default() }, 9))
}

fn last_report(domain: &mut Domain) -> serde_json::Value {
    let emitted = frames(&read(domain, &mut Vec::new()));
    let Some((Frame::Report, json)) = emitted.last() else { panic!("{emitted:?}") };
    serde_json::from_str(json).expect("it is JSON")
}

#[test]
fn chained_output_flows_with_backpressure() {
    let mut domain = chain(2);
    let emitted = come_of(&mut domain, Input::Emitted(0, Stream::Output, b"ab".to_vec()));
    assert_eq!(emitted, ["Feed(1, [97, 98])"]);
    assert_eq!(come_of(&mut domain, Input::Eaten(1, 2)), ["Taken(0, 2)"]);
    assert!(come_of(&mut domain, Input::Emitted(1, Stream::Output, b"2".to_vec())).is_empty());
    assert_eq!(come_of(&mut domain, Input::Ended(0, exit(0))), ["Feed(1, [])"]);
    come_of(&mut domain, Input::Ended(1, exit(0)));
    let report = last_report(&mut domain);
    assert_eq!((&report["exit"], &report["read"]), (&0.into(), &10.into()), "{report}");
    assert!(report["stage"].is_null(), "{report}");
}

#[test]
fn a_chain_fails_where_one_of_it_does() {
    // A trap ends the other stages.
    let mut domain = chain(3);
    let trap = Report::new(&Ended::Trap("unreachable".to_string()), Used::default(), 1);
    let requested = come_of(&mut domain, Input::Ended(1, Box::new(trap)));
    assert_eq!(requested, ["Kill(0, Broken)", "Kill(2, Broken)"]);
    come_of(&mut domain, Input::Ended(2, killed(Reason::Broken)));
    come_of(&mut domain, Input::Ended(0, killed(Reason::Broken)));
    let report = last_report(&mut domain);
    assert_eq!((&report["end"], &report["stage"]), (&"trap".into(), &"s1@1".into()), "{report}");
    // An exit code does not, but it names the stage in the report.
    let mut domain = chain(2);
    assert_eq!(come_of(&mut domain, Input::Ended(0, exit(3))), ["Feed(1, [])"]);
    come_of(&mut domain, Input::Ended(1, exit(0)));
    let report = last_report(&mut domain);
    assert_eq!((&report["exit"], &report["stage"]), (&3.into(), &"s0@1".into()), "{report}");
}

#[test]
fn closing_the_reader_ends_a_chain_with_success() {
    let mut domain = chain(3);
    assert_eq!(
        come_of(&mut domain, Input::Ended(2, exit(0))),
        ["Kill(1, ReaderClosed)"],
        "the one before it first"
    );
    // Output after that is discarded.
    assert!(come_of(&mut domain, Input::Emitted(1, Stream::Output, vec![1])).is_empty());
    let requested = come_of(&mut domain, Input::Ended(1, killed(Reason::ReaderClosed)));
    assert_eq!(requested, ["Kill(0, ReaderClosed)"]);
    come_of(&mut domain, Input::Ended(0, killed(Reason::ReaderClosed)));
    let report = last_report(&mut domain);
    assert_eq!((&report["end"], &report["exit"]), (&"exit".into(), &0.into()), "{report}");
}

#[test]
fn a_chain_that_nobody_wants_any_more_ends_and_is_written_down() {
    let mut domain = chain(2);
    come_of(&mut domain, Input::Emitted(0, Stream::Error, b"hm".to_vec()));
    let requested = come_of(&mut domain, Input::Gone);
    assert_eq!(requested, ["Kill(0, Cancelled)", "Kill(1, Cancelled)"]);
    come_of(&mut domain, Input::Ended(0, killed(Reason::Cancelled)));
    let requested = come_of(&mut domain, Input::Ended(1, killed(Reason::Cancelled)));
    assert!(
        requested.iter().any(|it| it.starts_with("Over(Report { end: \"killed\"")),
        "{requested:?}"
    );
    assert!(domain.is_over());
}

#[test]
fn invalid_frames_are_answered_with_a_reason() {
    let (mut domain, mut out) = (Domain::new(Instant(0), Maxima::NONE), Vec::new());
    domain.step(Instant(0), Input::Write(ID, Buf::from(&b"colour red\n\n"[..])), &mut out);
    let [Output::Over(..), Output::Reply(ID, Err(Error::Invalid))] = &out[..] else {
        panic!("{out:?}")
    };
    let emitted = String::from_utf8(read(&mut domain, &mut out)).expect("text");
    assert!(emitted.starts_with("upcall: refused: 'colour red': no such word"), "{emitted}");
}
