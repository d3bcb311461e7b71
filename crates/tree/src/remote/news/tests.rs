use super::*;
use expect_test::expect;
use std::fmt::Write as _;

const UP: LinkState = LinkState::Up(Dialect::Linux, 8192);
const LOST: LinkState = LinkState::Down("the connection broke");
const WRONG: LinkState = LinkState::Down("an answer of the wrong type");

/// Returns the reports, second by second, of these events at these seconds.
fn play(happens: &[(u64, LinkState)]) -> String {
    let (mut reported, mut text) = (Newsfeed::default(), String::new());
    for second in 0..1000 {
        for (_, news) in happens.iter().filter(|(at, _)| *at == second) {
            reported.note(*news);
            reported.report(Instant(second * 1_000_000_000));
        }
        reported.report(Instant(second * 1_000_000_000));
        while let Some(news) = reported.next() {
            writeln!(text, "{second} s: {news}").unwrap();
        }
    }
    assert_eq!(reported.deadline(), None, "something is not said");
    text
}

#[test]
fn state_changes_are_logged_at_once() {
    expect![[r#"
        1 s: connected, 9P2000.L, 8192 bytes
        100 s: not connected: the connection broke
        300 s: connected, 9P2000.L, 8192 bytes
    "#]]
    .assert_eq(&play(&[(1, UP), (100, LOST), (300, UP)]));
}

#[test]
fn a_server_that_is_left_for_the_same_mistake_every_second_is_named_once_a_minute() {
    let flaps: Vec<(u64, LinkState)> = (1..150).flat_map(|at| [(at, UP), (at, WRONG)]).collect();
    expect![[r#"
        1 s: connected, 9P2000.L, 8192 bytes
        1 s: not connected: an answer of the wrong type
        2 s: connected, 9P2000.L, 8192 bytes
        61 s: not connected: an answer of the wrong type
        62 s: connected, 9P2000.L, 8192 bytes
        121 s: not connected: an answer of the wrong type
        122 s: connected, 9P2000.L, 8192 bytes
        181 s: not connected: an answer of the wrong type
    "#]]
    .assert_eq(&play(&flaps));
}

#[test]
fn the_final_state_and_every_error_are_logged() {
    expect![[r#"
        1 s: connected, 9P2000.L, 8192 bytes
        2 s: not connected: the connection broke
        2 s: connected, 9P2000.L, 8192 bytes
        3 s: not connected: an answer of the wrong type
        4 s: connected, 9P2000.L, 8192 bytes
        62 s: not connected: the connection broke
    "#]]
    .assert_eq(&play(&[(1, UP), (2, LOST), (2, UP), (3, WRONG), (4, UP), (5, LOST)]));
}
