//! Extended attributes.

use super::*;

/// A client with a file as fid 2.
fn lab() -> Lab {
    let mut lab = Lab::linux();
    lab.attach();
    lab.send(2, Tmessage::Walk { fid: 1, newfid: 2, names: Names::new(&[b"f"]).unwrap() });
    lab.answer(0, walked(&[Kind::File], 5));
    lab.text.clear();
    lab
}

#[test]
fn removing_the_fid_of_an_attribute_removes_no_file() {
    let mut lab = lab();
    lab.send(3, Tmessage::Xattrwalk { fid: 2, newfid: 3, name: b"user.a" });
    lab.answer(0, walked(&[], 5));
    lab.answer(0, Ok(Reply::Bytes(Vec::new())));
    lab.send(4, Tmessage::Remove { fid: 3 });
    lab.send(5, Tmessage::Xattrcreate { fid: 2, name: b"user.b", size: 3, flags: 0 });
    lab.send(6, Tmessage::Remove { fid: 2 });
    lab.send(7, Tmessage::Clunk { fid: 2 });
    expect![[r#"
        TXattrwalk 3: ask 0 Walk
        <- 0 Walked: ask 0 GetAttr
        <- 0 Bytes: RXattrwalk 3
        TRemove 4: release 5, Rlerror 4 (22)
        TXattrcreate 5: RXattrcreate 5
        TRemove 6: release 5, Rlerror 6 (22)
        TClunk 7: Rlerror 7 (22)
    "#]]
    .assert_eq(&lab.text);
    assert_eq!(lab.session.handles(), 1, "the root is left");
}

#[test]
fn the_fid_of_an_attribute_stands_for_no_file() {
    let names = || Names::new(&[]).unwrap();
    let messages = |fid: u32| {
        [
            Tmessage::Getattr { fid, mask: 0 },
            Tmessage::Rename { fid, dfid: 1, name: b"g" },
            Tmessage::Link { dfid: 1, fid, name: b"g" },
            Tmessage::Statfs { fid },
            Tmessage::Readlink { fid },
            Tmessage::Walk { fid, newfid: 9, names: names() },
            Tmessage::Xattrwalk { fid, newfid: 9, name: b"" },
            Tmessage::Lopen { fid, flags: 0 },
        ]
    };
    let mut lab = lab();
    lab.send(3, Tmessage::Xattrwalk { fid: 2, newfid: 3, name: b"user.a" });
    lab.answer(0, walked(&[], 5));
    lab.answer(0, Ok(Reply::Bytes(Vec::new())));
    lab.send(4, Tmessage::Xattrcreate { fid: 2, name: b"user.b", size: 3, flags: 0 });
    for message in messages(2).into_iter().chain(messages(3)) {
        lab.text.clear();
        let shown = format!("{message:?}");
        lab.send(5, message);
        assert!(lab.text.ends_with(": Rlerror 5 (22)\n"), "{shown}: {}", lab.text);
    }
}

#[test]
fn flags_of_a_new_attribute_that_no_one_knows_are_refused() {
    for flags in [3, 4, u32::MAX] {
        let mut lab = lab();
        lab.send(3, Tmessage::Xattrcreate { fid: 2, name: b"user.a", size: 0, flags });
        assert_eq!(lab.text, "TXattrcreate 3: Rlerror 3 (22)\n", "{flags}");
    }
    for flags in [0, 1, 2] {
        let mut lab = lab();
        lab.send(3, Tmessage::Xattrcreate { fid: 2, name: b"user.a", size: 0, flags });
        assert_eq!(lab.text, "TXattrcreate 3: RXattrcreate 3\n", "{flags}");
    }
}
