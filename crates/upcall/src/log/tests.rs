use super::*;
use base::Instant;
use node::log::{Account, Entry};
use wire::http::Line;

const WALL: Time = Time { secs: 1_000_000_000, nanos: 123_456_789 };

fn access(target: &str) -> Access {
    let line = Line {
        method: "GET".to_string(),
        target: target.to_string(),
        minor: 1,
        referer: None,
        agent: Some("curl \"8\"\n".to_string()),
    };
    let entry = Entry { begun: Instant(1000), ended: Instant(2_501_000), line: Some(line) };
    let account = Account { method: "GET", status: 200, bytes: 42, entry: Some(Box::new(entry)) };
    Access { peer: Peer::Network("[::1]:4000".to_string()), account }
}

#[test]
fn entries_are_in_the_formats_of_apache_and_in_json() {
    let access = access("/a%20b");
    let text = |format| access_text(&access, format, WALL);
    assert_eq!(
        text(AccessFormat::Common),
        "::1 - - [09/Sep/2001:01:46:40 +0000] \"GET /a%20b HTTP/1.1\" 200 42"
    );
    assert_eq!(
        text(AccessFormat::Combined),
        "::1 - - [09/Sep/2001:01:46:40 +0000] \"GET /a%20b HTTP/1.1\" 200 42 \"-\" \
         \"curl \\\"8\\\"\\x0a\""
    );
    let json: serde_json::Value = serde_json::from_str(&text(AccessFormat::Json)).unwrap();
    assert_eq!(json["time"], "2001-09-09T01:46:40.123Z");
    assert_eq!((&json["duration_us"], &json["status"]), (&2500.into(), &200.into()));
    assert_eq!(json["user_agent"], "curl \"8\"\n");
}

#[test]
fn messages_are_text_or_json_in_one_line() {
    let message =
        LogMessage { level: Level::Warn, target: "mount", text: "down:\n\"why\"".to_string() };
    let text = |format| message_text(&message, format, WALL);
    assert_eq!(text(LogFormat::Text), "2001-09-09T01:46:40.123Z WARN  mount: down:\\x0a\"why\"");
    assert_eq!(
        text(LogFormat::Json),
        "{\"time\":\"2001-09-09T01:46:40.123Z\",\"level\":\"warn\",\"target\":\"mount\",\
         \"message\":\"down:\\n\\\"why\\\"\"}"
    );
}

#[test]
fn entries_that_cannot_be_written_are_reported() {
    let full = || Some(io::Error::from_raw_os_error(28));
    let at = Time::from_secs;
    let mut gap = Gap::default();
    assert_eq!(gap.note(at(0), 5, None), None);
    let text = gap.note(at(1), 2, full()).expect("the first failure");
    assert!(text.contains("No space left") && text.contains("2 entries"), "{text}");
    assert_eq!(gap.note(at(2), 3, full()), None, "at most once a minute");
    assert!(gap.note(at(70), 1, full()).expect("a minute later").contains("6 entries"));
    let text = gap.note(at(71), 1, None).expect("the end");
    assert!(text.contains("written again: 6 entries"), "{text}");
    assert_eq!(gap.note(at(72), 1, None), None);
}

#[test]
fn a_fifo_without_a_reader_is_no_access_log() {
    let path = std::env::temp_dir().join(format!("upcall-fifo-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let refused = open_access_log(&path).map(drop);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(6));
}
