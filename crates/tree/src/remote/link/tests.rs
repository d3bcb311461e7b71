use super::*;
use base::drawing::{Drawing, variant};
use base::rng::seeded;

const SOCKET: Socket = Socket(7);

fn link() -> Link {
    Link::new(seeded(1))
}

fn state(link: &Link) -> String {
    link.name().to_string()
}

/// Returns a link in each of its states.
fn samples() -> Vec<Link> {
    let until = Instant(0);
    let (linux, plan9) = (Dialect::Linux, Dialect::Plan9);
    let states = [
        State::Down { until },
        State::Connecting { until },
        State::Abandoning,
        State::Version { socket: SOCKET, until, offered: linux },
        State::Version { socket: SOCKET, until, offered: plan9 },
        State::Attaching { socket: SOCKET, until },
        State::Up { socket: SOCKET },
        State::Parting { socket: SOCKET, until },
        State::Ending,
        State::Leaving { socket: SOCKET },
        State::Over,
    ];
    // An attach follows an accepted version.
    let met = |state: &State| matches!(state, State::Attaching { .. } | State::Up { .. });
    states.into_iter().map(|state| Link { met: met(&state), state, ..link() }).collect()
}

#[test]
fn states_md_is_fresh() {
    let inputs = [
        Input::Tick,
        Input::Connected(Ok(SOCKET)),
        Input::Connected(Err(Error::Disconnected)),
        Input::Agreed(Dialect::Linux),
        Input::Unknown,
        Input::Refused,
        Input::Attached,
        Input::Broken("why"),
        Input::Idle,
        Input::Close,
    ];
    let mut drawing = Drawing::default();
    for link in samples() {
        for input in inputs {
            let label = match input {
                Input::Connected(Err(_)) => "Failed".to_string(),
                other => variant(&other),
            };
            drawing.sample_as(&label, link.clone(), input, state);
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/remote/link/states.md"));
}

/// Feeds inputs, each at its time in milliseconds; returns the outputs.
fn run(link: &mut Link, inputs: &[(u64, Input)]) -> Vec<Output> {
    let mut out = Vec::new();
    for (millis, input) in inputs {
        link.step(Instant(millis * 1_000_000), *input, &mut out);
    }
    out
}

#[test]
fn a_server_that_does_not_know_the_first_offer_is_made_another() {
    let mut link = link();
    let connected = Input::Connected(Ok(SOCKET));
    let out = run(&mut link, &[(0, Input::Tick), (1, connected), (2, Input::Unknown)]);
    let expected = [
        Output::Connect,
        Output::Offer(SOCKET, Dialect::Linux),
        Output::Offer(SOCKET, Dialect::Plan9),
    ];
    assert_eq!(out, expected);
    let out = run(&mut link, &[(3, Input::Agreed(Dialect::Plan9)), (4, Input::Attached)]);
    assert_eq!(out, [Output::Attach(Dialect::Plan9), Output::Up]);
}

#[test]
fn a_server_that_answers_an_error_hears_the_other_offer_on_a_new_connection() {
    let mut link = link();
    let connected = Input::Connected(Ok(SOCKET));
    run(&mut link, &[(0, Input::Tick), (1, connected), (2, Input::Refused), (3, Input::Idle)]);
    let out = run(&mut link, &[(1000, Input::Tick), (1001, connected)]);
    assert_eq!(out, [Output::Connect, Output::Offer(SOCKET, Dialect::Plan9)]);
}

fn agree(at: u64, dialect: Dialect) -> [(u64, Input); 2] {
    [(at, Input::Agreed(dialect)), (at, Input::Attached)]
}

/// An error on one connection does not downgrade a server of 9P2000.L to 9P2000.
#[test]
fn a_server_that_agreed_to_the_first_offer_hears_it_again_after_an_error_on_a_later_connection() {
    let mut link = link();
    let connected = Input::Connected(Ok(SOCKET));
    let part = |at| [(at, Input::Broken("the connection broke")), (at, Input::Idle)];
    run(&mut link, &[(0, Input::Tick), (1, connected)]);
    run(&mut link, &agree(2, Dialect::Linux));
    run(&mut link, &part(3));
    let out = run(&mut link, &[(1000, Input::Tick), (1001, connected), (1002, Input::Refused)]);
    assert!(out.contains(&Output::Offer(SOCKET, Dialect::Linux)), "{out:?}");
    let out = run(&mut link, &[(1003, Input::Idle), (2000, Input::Tick), (2001, connected)]);
    assert_eq!(
        out,
        [Output::Release(SOCKET), Output::Connect, Output::Offer(SOCKET, Dialect::Plan9)]
    );
    let out = run(&mut link, &[(2002, Input::Agreed(Dialect::Plan9))]);
    assert_eq!(out, [Output::Offer(SOCKET, Dialect::Linux)]);
    let out = run(&mut link, &agree(2003, Dialect::Linux));
    assert_eq!(out, [Output::Attach(Dialect::Linux), Output::Up]);
}

/// A server that has replaced another may support less.
#[test]
fn a_server_that_answers_again_with_the_other_dialect_is_believed() {
    let plan9 = Input::Agreed(Dialect::Plan9);
    let mut link =
        Link { offer: Dialect::Plan9, better_offers: BETTER_OFFERS, met: true, ..self::link() };
    let connected = Input::Connected(Ok(SOCKET));
    let out = run(&mut link, &[(0, Input::Tick), (1, connected), (2, plan9), (3, plan9)]);
    let offers = [Dialect::Plan9, Dialect::Linux].map(|dialect| Output::Offer(SOCKET, dialect));
    let expected = [Output::Connect].into_iter().chain(offers);
    assert!(out.into_iter().eq(expected.chain([Output::Attach(Dialect::Plan9)])));

    // The better offer may also be ignored, twice: the next connection offers 9P2000.
    let mut link = stranger();
    for start in [0, 20_000] {
        let inputs = [(start, Input::Tick), (start + 1, connected), (start + 2, plan9)];
        let out = run(&mut link, &inputs);
        assert_eq!(out.last(), Some(&Output::Offer(SOCKET, Dialect::Linux)), "{out:?}");
        run(&mut link, &[(start + 10_002, Input::Tick), (start + 10_003, Input::Idle)]);
    }
    let out = run(&mut link, &[(40_000, Input::Tick), (40_001, connected), (40_002, plan9)]);
    let plain = [Output::Offer(SOCKET, Dialect::Plan9), Output::Attach(Dialect::Plan9)];
    assert!(out.ends_with(&plain), "{out:?}");
}

/// Returns a link to a server that accepted 9P2000.L, and is offered 9P2000 after several failures.
fn stranger() -> Link {
    let (offer, better_offers) = (Dialect::Plan9, BETTER_OFFERS);
    Link { offer, better_offers, met: true, failures: STRANGER, ..link() }
}

/// The better offer has a timeout of its own, however late the reply to the first one was.
#[test]
fn a_late_answer_leaves_time_for_the_better_offer() {
    let connected = Input::Connected(Ok(SOCKET));
    let late = (9_900, Input::Agreed(Dialect::Plan9));
    let mut link = stranger();
    run(&mut link, &[(0, Input::Tick), (1, connected), late, (10_002, Input::Tick)]);
    let out = run(&mut link, &agree(12_000, Dialect::Linux));
    assert_eq!(out, [Output::Attach(Dialect::Linux), Output::Up]);
}

/// Some servers ignore an unknown version; those that have accepted one before know it.
#[test]
fn a_server_that_says_nothing_hears_the_other_offer_unless_it_was_heard_before() {
    let connected = Input::Connected(Ok(SOCKET));
    let silence = [(0, Input::Tick), (1, connected), (3001, Input::Tick), (3002, Input::Idle)];
    let mut link = link();
    run(&mut link, &silence);
    let out = run(&mut link, &[(4000, Input::Tick), (4001, connected)]);
    assert_eq!(out, [Output::Connect, Output::Offer(SOCKET, Dialect::Plan9)]);

    let mut met = Link { met: true, ..self::link() };
    run(&mut met, &silence[..2]);
    run(&mut met, &[(10_001, Input::Tick), (10_002, Input::Idle)]);
    let out = run(&mut met, &[(11_000, Input::Tick), (11_001, connected)]);
    assert_eq!(out, [Output::Connect, Output::Offer(SOCKET, Dialect::Linux)]);

    // Another server may have taken its place.
    let mut offers = Vec::new();
    for at in (30_000..150_000).step_by(30_000) {
        run(&mut met, &[(at, Input::Tick), (at + 10_001, Input::Tick), (at + 10_002, Input::Idle)]);
        offers.extend(run(&mut met, &[(at + 20_000, Input::Tick), (at + 20_001, connected)]));
    }
    assert!(offers.contains(&Output::Offer(SOCKET, Dialect::Plan9)), "{offers:?}");
}

/// The pauses grow to five seconds, and are short again after a success.
#[test]
fn it_pauses_longer_and_longer() {
    let mut link = link();
    let mut now = Instant(0);
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let mut out = Vec::new();
        link.step(now, Input::Tick, &mut out);
        link.step(now, Input::Connected(Err(Error::Disconnected)), &mut out);
        let next = link.deadline().unwrap();
        pauses.push(next.since(now));
        now = next;
    }
    for (index, pause) in pauses.iter().enumerate() {
        let most = PAUSE_MIN.saturating_mul(1 << index).min(PAUSE_MAX);
        assert!(*pause <= most && *pause >= most / 2, "{index}: {pause:?}");
    }
    let connected = Input::Connected(Ok(SOCKET));
    let agreed = Input::Agreed(Dialect::Linux);
    for input in [Input::Tick, connected, agreed, Input::Attached, Input::Broken("x"), Input::Idle]
    {
        link.step(now, input, &mut Vec::new());
    }
    assert!(link.deadline().unwrap().since(now) <= PAUSE_MIN);
}

/// For any sequence of inputs, each socket is shut down at most once and closed exactly once; and
/// after a close the link ends.
#[test]
fn every_socket_is_given_back_once() {
    for seed in 0..2000 {
        let mut rng = seeded(seed);
        let mut link = Link::new(seeded(seed + 1));
        let (mut held, mut next, mut connecting) = (None, 0, false);
        for turn in 0..60u64 {
            let input = match (link.state(), rng.u8(..6)) {
                (_, 0) if turn > 40 => Input::Close,
                (_, 1 | 2) => Input::Tick,
                (_, _) if connecting && rng.bool() => {
                    connecting = false;
                    next += 1;
                    Input::Connected(if rng.bool() { Ok(Socket(next)) } else { Err(Error::Io) })
                }
                (State::Version { .. }, 3) => Input::Unknown,
                (State::Version { .. }, 4) => Input::Refused,
                (State::Version { .. }, 5) => Input::Agreed(Dialect::Linux),
                (State::Attaching { .. }, 3 | 4) => Input::Attached,
                (State::Parting { .. } | State::Leaving { .. }, _) => Input::Idle,
                _other => Input::Broken("seeded"),
            };
            if let Input::Connected(Ok(socket)) = input {
                assert_eq!(held.replace(socket), None, "seed {seed}");
            }
            let mut out = Vec::new();
            link.step(Instant(turn * 1_000_000_000), input, &mut out);
            for output in out {
                match output {
                    Output::Connect => assert!(!std::mem::replace(&mut connecting, true)),
                    Output::Release(socket) => assert_eq!(held.take(), Some(socket)),
                    Output::Offer(socket, _) | Output::Hangup(socket) => {
                        assert_eq!(held, Some(socket));
                    }
                    Output::Cancel | Output::Attach(_) | Output::Up | Output::Lost(_) => {}
                }
            }
            assert!(!link.is_over() || (held.is_none() && !connecting), "seed {seed}");
        }
    }
}
