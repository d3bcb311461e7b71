//! Pipelined requests.

use super::*;
use crate::Room;

#[test]
fn no_more_requests_are_begun_than_the_turn_allows() {
    let mut lab = Lab::new();
    lab.session.set_room(Room { messages: 2, ..Room::ALL });
    lab.send(&"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(3));
    assert_eq!(lab.session.deadline(), Some(Instant(0)), "it goes on in the next turn");
    lab.take();
    lab.step("tick", Input::Tick);
    assert_ne!(lab.session.deadline(), Some(Instant(0)), "all are answered");
    lab.send(&"GET /f HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(3));
    lab.answer(Err(Error::NotFound));
    lab.answer(Err(Error::NotFound));
    lab.step("tick", Input::Tick);
    expect![[r#"
        OPTIONS * HTTP/1.1: say "204 No Content" +0, say "204 No Content" +0
        sent: 
        tick: say "204 No Content" +0
        GET /f HTTP/1.1: ask 0 Fetch
        <- NotFound: say "404 Not Found" +22, ask 0 Fetch
        <- NotFound: say "404 Not Found" +22
        tick: ask 0 Fetch
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn requests_that_came_before_the_end_of_the_stream_are_answered() {
    let mut lab = Lab::new();
    lab.session.set_room(Room { messages: 1, ..Room::ALL });
    lab.send(&"GET /f HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(3));
    lab.step("end", Input::Ended);
    lab.answer(Err(Error::NotFound));
    lab.step("tick", Input::Tick);
    lab.answer(Err(Error::NotFound));
    lab.step("tick", Input::Tick);
    lab.answer(Err(Error::NotFound));
    expect![[r#"
        GET /f HTTP/1.1: ask 0 Fetch
        end: 
        <- NotFound: say "404 Not Found" +22
        tick: ask 0 Fetch
        <- NotFound: say "404 Not Found" +22
        tick: ask 0 Fetch
        <- NotFound: say "404 Not Found" +22, hang up: done
    "#]]
    .assert_eq(&lab.text);
    assert!(lab.session.is_over());
    let mut lab = Lab::new();
    lab.session.set_room(Room { messages: 1, ..Room::ALL });
    lab.send("GET /f HTTP/1.1\r\nHost: localhost\r\n\r\nGET /f HTT");
    lab.step("end", Input::Ended);
    lab.answer(Err(Error::NotFound));
    lab.step("tick", Input::Tick);
    assert!(lab.session.is_over(), "half a request is not waited for");
    let mut lab = Lab::new();
    lab.session.set_room(Room { messages: 1, ..Room::ALL });
    let events = "GET /services/hits/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    lab.send(&format!("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n{events}"));
    lab.step("end", Input::Ended);
    lab.step("tick", Input::Tick);
    assert!(lab.session.is_over(), "the listener has ended");
}
