use super::*;
use base::op::Address;
use tree::remote;

fn at(seconds: u64) -> Instant {
    Instant(1) + Duration::from_secs(seconds)
}

/// Returns a connected link.
fn link() -> PeerLink {
    let to = vec![Address::Unix(b"/nowhere".to_vec())];
    let remote = Remote::new(0, to, Vec::new(), remote::Config::default());
    PeerLink::new(crate::peer::tests::up(), remote, Vec::new())
}

/// It may not receive our messages.
#[test]
fn a_member_that_sends_and_does_not_reply_is_silent() {
    let mut link = link();
    for second in 0..=20 {
        link.note_use(at(second));
        link.note_silence(at(second), None);
        assert_eq!(link.is_silent, second >= SILENT.as_secs(), "after {second} s");
    }
    assert_eq!(link.silent_since(), Some(at(20)), "it is there");
    let news = link.next_report().expect("news");
    assert_eq!(news, (false, "silent: no reply for 6 s".to_string()));
    link.note_reply(at(21));
    assert!(!link.is_silent);
    assert_eq!(link.next_report(), Some((true, "replies again".to_string())));
}
