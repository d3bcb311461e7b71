//! Accounting of requests for metrics and the access log, and permitted hosts.

use super::*;
use crate::Account;

fn accounts(session: &mut Session, now: u64, input: Input) -> Vec<Account> {
    let mut out = Vec::new();
    session.step(Instant(now), input, &mut out);
    session.check();
    answer_locks(session, &mut webdav::Locks::default(), &mut out);
    let account = |output| match output {
        Output::Account(account) => Some(account),
        _other => None,
    };
    out.into_iter().filter_map(account).collect()
}

fn request(text: &str) -> Input {
    Input::Received(Buf::from(text.as_bytes()))
}

#[test]
fn each_request_is_accounted_for_once_with_its_content() {
    let mut session = session();
    session.export.web.logs = true;
    let get = "GET /f%20g HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test\r\n\r\n";
    assert!(accounts(&mut session, 1000, request(get)).is_empty());
    let reply = fetched(3, 3, None);
    let all = accounts(&mut session, 5000, Input::Answered(CALL, reply));
    let [account] = &all[..] else { panic!("{all:?}") };
    assert_eq!((account.method, account.status, account.bytes), ("GET", 200, 3));
    let entry = account.entry.as_ref().unwrap();
    assert_eq!((entry.begun, entry.ended), (Instant(1000), Instant(5000)));
    let line = entry.line.as_ref().unwrap();
    assert_eq!((&*line.method, &*line.target, line.minor), ("GET", "/f%20g", 1));
    assert_eq!((line.agent.as_deref(), line.referer.as_deref()), (Some("test"), None));

    // A client that disconnects before the response, and an undecodable request.
    assert!(accounts(&mut session, 6000, request(get)).is_empty());
    let all = accounts(&mut session, 7000, Input::Lost);
    assert_eq!(all.iter().map(|it| it.status).collect::<Vec<_>>(), [499]);
    let mut session = super::session();
    let all = accounts(&mut session, 0, request("nonsense\r\n\r\n"));
    let [account] = &all[..] else { panic!("{all:?}") };
    assert_eq!((account.method, account.status), ("other", 400));
    assert!(account.entry.is_none(), "no log is kept");
    assert!(accounts(&mut session, 1, Input::Lost).is_empty(), "once");
}

#[test]
fn interim_responses_are_no_content() {
    let mut session = session();
    let put = "PUT /f HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\
               Expect: 100-continue\r\nIf-Match: \"x\"\r\n\r\n";
    assert!(accounts(&mut session, 0, request(put)).is_empty());
    let all = accounts(&mut session, 0, Input::Answered(CALL, Err(Error::NotFound)));
    let [account] = &all[..] else { panic!("{all:?}") };
    assert_eq!(account.method, "PUT");
    assert!(account.status >= 400 && account.bytes < 100, "{account:?}");
}

#[test]
fn a_refusal_by_permissions_names_the_user() {
    let user = base::User { uid: 1000, gid: 1000, groups: Vec::new(), commands: false };
    let mut session = Session::new(export(), Caller::User(std::sync::Arc::new(user)), true);
    let mut out = Vec::new();
    session.step(Instant(0), request("GET /f HTTP/1.1\r\nHost: localhost\r\n\r\n"), &mut out);
    session.step(Instant(0), Input::Answered(CALL, Err(Error::Denied)), &mut out);
    let outputs = out.iter().filter_map(|output| match output {
        Output::Send(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _other => None,
    });
    let outputs: String = outputs.collect();
    assert!(outputs.contains("403 Forbidden") && outputs.contains("user 1000"), "{outputs}");
}

#[test]
fn names_that_a_proxy_passes_on_can_be_allowed() {
    let allowed = |fields: &str, hosts: &[&str]| {
        let mut lab = Lab::new();
        lab.session.export.web.hosts = hosts.iter().map(|host| host.to_string()).collect();
        lab.send(&format!("GET / HTTP/1.1\r\n{fields}\r\n\r\n"));
        lab.text.contains("ask 0 Fetch")
    };
    let names = ["files.example", "0:0::2"];
    let good = [
        "Host: files.example",
        "Host: FILES.example:8443",
        "Host: [::2]",
        "Host: files.example:8443\r\nOrigin: https://files.example:8443",
        "Host: files.example\r\nOrigin: https://files.example",
        "Host: localhost",
    ];
    for fields in good {
        assert!(allowed(fields, &names), "{fields}");
        let is_own = fields == "Host: localhost";
        assert_eq!(allowed(fields, &[]), is_own, "{fields}");
    }
    let bad = [
        "Host: other.example",
        "Host: files.example.evil",
        "Host: files.example\r\nOrigin: https://evil.example",
        "Host: files.example\r\nOrigin: https://files.example.evil",
        "Host: files.example\r\nOrigin: null",
        "Host: files.example\r\nOrigin: http://files.example:80",
        "Host: files.example\r\nOrigin: https://files.example:3000",
        "Host: 127.0.0.1:8080\r\nOrigin: https://files.example",
        "Host: localhost\r\nOrigin: https://localhost",
    ];
    assert!(bad.iter().all(|fields| !allowed(fields, &names)));
}
