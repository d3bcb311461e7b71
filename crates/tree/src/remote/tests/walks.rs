//! Walks along names that are no entries, or lead elsewhere.

use super::*;

#[test]
fn names_that_lead_nowhere_take_no_stack() {
    // On a thread with the smallest stack.
    let walk = || {
        let mut lab = Lab::up(b"9P2000.L");
        let names = vec![name("."); 100_000];
        lab.ask(1, Ask::Walk { from: lab.remote.root(), names });
        lab.text
    };
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(walk).unwrap();
    assert_eq!(thread.join().unwrap(), "asks Walk\n  reply 1 Walked\n");
}

/// Another file has the name when the server's directory is a union of one directory twice.
#[test]
fn a_created_file_has_attributes_while_open_also_if_its_name_leads_elsewhere() {
    let mut lab = Lab::up(b"9P2000.L");
    lab.create();
    lab.send(&Rmessage::Walk { qids: [qid(77, Qid::FILE)].into_iter().collect() });
    lab.send(&Rmessage::Clunk {});
    lab.text.clear();
    let node = NodeId::new(3, 1);
    lab.ask(2, Ask::Stat { node });
    // The fid stays bound until the stat is answered.
    lab.step(Input::Close(OpenId::new(3, 0)));
    lab.send(&getattr());
    lab.send(&Rmessage::Clunk {});
    lab.ask(3, Ask::Stat { node });
    lab.send(&Rmessage::Walk { qids: [qid(77, Qid::FILE)].into_iter().collect() });
    expect![[r#"
        asks Stat
          hears Getattr { fid: 1, mask: 2047 }
        says Getattr
          reply 2 Stat
          hears Clunk { fid: 1 }
        says Clunk
        asks Stat
          hears Walk { fid: 0, newfid: 1, names: ["f"] }
        says Walk
          reply 3 Stale
          hears Clunk { fid: 1 }
    "#]]
    .assert_eq(&lab.text);
}
