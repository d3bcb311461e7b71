use super::*;
use base::op::Address;
use tree::remote;

fn at(seconds: u64) -> Instant {
    Instant(1) + Duration::from_secs(seconds)
}

/// A way to a member that can be written to.
fn way() -> Way {
    let to = vec![Address::Unix(b"/nowhere".to_vec())];
    let remote = Remote::new(0, to, Vec::new(), remote::Config::default());
    Way::new(crate::peer::tests::up(), remote)
}

/// It may not get what is sent to it.
#[test]
fn a_member_that_sends_and_does_not_reply_is_silent() {
    let mut way = way();
    for second in 0..=20 {
        way.note_use(at(second));
        way.note_silence(at(second), None);
        assert_eq!(way.is_silent, second >= SILENT.as_secs(), "after {second} s");
    }
    assert_eq!(way.unheard_since(), Some(at(20)), "it is there");
    let news = way.next_news().expect("news");
    assert_eq!(news, (false, "silent: no reply for 6 s".to_string()));
    way.note_reply(at(21));
    assert!(!way.is_silent);
    assert_eq!(way.next_news(), Some((true, "replies again".to_string())));
}
