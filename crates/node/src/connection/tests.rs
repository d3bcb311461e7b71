use super::*;
use base::Caller;
use base::drawing::{Drawing, variant};
use expect_test::expect;
use front::{Export, Identity, Limits, Nfs, Protocol, Web};
use wire::ninep::{NO_TAG, Tmessage};

fn connection() -> Connection {
    let export = Export {
        root: NodeId(0),
        device: 1,
        path: Vec::new(),
        wall: base::Time::from_secs(0),
        limits: Limits::default(),
        web: Web::default(),
        nfs: Nfs::default(),
        services: [].into(),
    };
    let identity = Identity::Fixed(Caller::Server);
    let session = Session::new(Protocol::NineP, export, identity, true);
    Connection::new(OpId(1), Socket(4), Peer::Network("127.0.0.1:5".into()), session)
}

fn version() -> Buf {
    let mut bytes = Vec::new();
    Tmessage::Version { msize: 8192, version: b"9P2000.L" }.encode(NO_TAG, &mut bytes);
    Buf::from(bytes)
}

/// Steps the connection, ends the turn, and returns its outputs.
fn turn(connection: &mut Connection, now: u64, input: Input) -> String {
    let label = variant(&input);
    let (mut out, mut ops) = (Vec::new(), Vec::new());
    connection.step(Instant(now), input, &mut out);
    connection.check();
    connection.leave(Instant(now), front::Room::ALL, &mut ops);
    let requested = out.iter().filter(|o| !matches!(o, Output::Staged(..))).map(variant);
    let all: Vec<String> = requested.chain(ops.iter().map(variant)).collect();
    format!("{label}: {}\n", all.join(", "))
}

#[test]
fn it_ends_when_everything_has_come_back() {
    let mut c = connection();
    let mut text = turn(&mut c, 0, Input::Begin);
    text += &turn(&mut c, 0, Input::Received(Ok(version())));
    text += &turn(&mut c, 1, Input::Received(Ok(version())));
    text += &turn(&mut c, 2, Input::Sent(Ok(())));
    text += &turn(&mut c, 3, Input::Received(Ok(Buf::default())));
    text += &turn(&mut c, 4, Input::Sent(Ok(())));
    expect![[r#"
        Begin: Receive
        Received: Replied, Send, Receive
        Received: Replied, Receive
        Sent: Send
        Received: 
        Sent: Hangup
    "#]]
    .assert_eq(&text);
    assert!(c.is_over());
}

#[test]
fn a_client_that_takes_nothing_is_given_up() {
    let mut c = connection();
    turn(&mut c, 0, Input::Begin);
    turn(&mut c, 0, Input::Received(Ok(version())));
    let late = c.deadline().unwrap();
    assert_eq!(late, Instant(0) + STALL_TIME);
    assert_eq!(turn(&mut c, late.0, Input::Tick), "Tick: Do\n");
    turn(&mut c, late.0, Input::Received(Err(Error::Disconnected)));
    assert!(!c.is_over());
    turn(&mut c, late.0, Input::Sent(Err(Error::Disconnected)));
    assert!(c.is_over());
}

#[test]
fn states_md_is_fresh() {
    type Sample = (&'static str, fn() -> Input);
    let samples: [Sample; 10] = [
        ("Begin", || Input::Begin),
        ("Received", || Input::Received(Ok(version()))),
        ("End", || Input::Received(Ok(Buf::default()))),
        ("ReceiveFailed", || Input::Received(Err(Error::Disconnected))),
        ("Sent", || Input::Sent(Ok(()))),
        ("SendFailed", || Input::Sent(Err(Error::Disconnected))),
        ("Tick", || Input::Tick),
        ("LateTick", || Input::Tick),
        ("Drain", || Input::Drain),
        ("Abort", || Input::Abort),
    ];
    let mut drawing = Drawing::default();
    for state in [State::Talking, State::Parting, State::Ending] {
        for (label, input) in samples {
            let mut c = connection();
            let late = label == "LateTick";
            let since = Instant(0);
            c.receiving = true;
            if label.starts_with("Sen") || late {
                c.sending = Sending::Yes { bytes: 0, since };
            }
            c.state = state;
            let at = if late { since + STALL_TIME } else { since };
            draw(&mut drawing, label, c, at, input());
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/connection/states.md"));
}

fn draw(drawing: &mut Drawing, label: &str, mut c: Connection, now: Instant, input: Input) {
    let (mut out, before) = (Vec::new(), variant(&c.state));
    c.step(now, input, &mut out);
    let asks: Vec<String> = out.iter().map(variant).filter(|ask| ask != "Staged").collect();
    drawing.row(&before, label, &variant(&c.state), &asks.join(", "));
}

#[test]
fn addresses_that_one_host_may_have_are_one_client() {
    let of = |address: &str| Origin::of(&Peer::Network(address.to_owned()));
    assert_eq!(of("127.0.0.1:1"), of("127.9.0.2:7"));
    assert_eq!(of("[::1]:1"), of("[::ffff:127.0.0.1]:9"));
    assert_eq!(of("[2001:db8:1:2:3::4]:1"), of("[2001:db8:1:2::9]:2"));
    assert_ne!(of("[2001:db8:1:2::9]:2"), of("[2001:db8:1:3::9]:2"));
    assert_ne!(of("10.0.0.1:1"), of("10.0.0.2:1"));
    assert_eq!(of("10.0.0.1:1"), of("10.0.0.1:2"));
}
