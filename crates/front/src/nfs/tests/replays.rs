//! Calls that are sent again over another connection.

use super::*;

fn remove() -> WireCall<'static> {
    WireCall::Remove { dir: handle(0), name: b"f" }
}

impl Lab {
    /// Continues on another connection.
    fn reconnect(&mut self) {
        let next = Lab::mounted();
        self.session = next.session;
        self.sent.clear();
        self.text += "another connection\n";
    }
}

#[test]
fn a_change_that_was_performed_gets_its_reply_again() {
    let mut lab = Lab::mounted();
    lab.call(2, &remove());
    lab.answer(0, Ok(Reply::Done));
    lab.answer(0, Ok(Reply::Stat(stat(Kind::Directory))));
    lab.step("lost", Input::Lost);
    lab.reconnect();
    lab.call(2, &remove());
    // Another call of the same name has another number, or other contents.
    lab.call(3, &remove());
    lab.answer(0, Err(Error::NotFound));
    lab.call(2, &WireCall::RmDir { dir: handle(0), name: b"f" });
    lab.answer(0, Err(Error::TooManyOpen));
    // What failed for a while is tried again, and what changes nothing is not remembered.
    lab.call(2, &WireCall::RmDir { dir: handle(0), name: b"f" });
    lab.answer(0, Err(Error::NotFound));
    expect![[r#"
        Remove: ask 0 Remove
        <- 0 Done: ask 0 Stat
        <- 0 Stat: 2 Remove
        lost: hang up: the client left, release 1
        another connection
        Remove: 2 Remove
        Remove: ask 0 Remove
        <- 0 NotFound: 3 NoEnt
        RmDir: ask 0 Remove
        <- 0 TooManyOpen: 2 Jukebox
        RmDir: ask 0 Remove
        <- 0 NotFound: 2 NoEnt
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn a_change_in_progress_goes_on_without_its_client() {
    let mut lab = Lab::mounted();
    lab.session.export.nfs.is_async = false;
    lab.call(2, &remove());
    lab.answer(0, Ok(Reply::Opened(OpenId(9), stat(Kind::Directory))));
    // Nothing is changed yet by this one.
    lab.call(3, &WireCall::Remove { dir: handle(6), name: b"g" });
    lab.step("lost", Input::Lost);
    lab.answer(1, Err(Error::Cancelled));
    lab.answer(0, Ok(Reply::Done));
    let mut old = std::mem::replace(&mut lab.session, Lab::mounted().session);
    lab.text += "another connection\n";
    lab.call(2, &remove());
    lab.sent.clear();
    std::mem::swap(&mut old, &mut lab.session);
    lab.text += "the first one\n";
    lab.answer(0, Ok(Reply::Done));
    lab.answer(0, Ok(Reply::Stat(stat(Kind::Directory))));
    lab.wait(0);
    assert!(lab.session.is_over());
    lab.reconnect();
    lab.call(2, &remove());
    lab.call(3, &WireCall::Remove { dir: handle(0), name: b"g" });
    assert!(!lab.replays.is_settled(), "the last one is in progress");
    expect![[r#"
        Remove: ask 0 Open
        <- 0 Opened: ask 0 Remove
        Remove: ask 1 Resolve
        lost: cancel 1, hang up: the client left
        <- 1 Cancelled: 
        <- 0 Done: ask 0 Sync
        another connection
        Remove: 
        the first one
        <- 0 Done: ask 0 Stat
        <- 0 Stat: close 9, release 1
        tick: 
        another connection
        Remove: 2 Remove
        Remove: ask 0 Remove
    "#]]
    .assert_eq(&lab.text);
}
