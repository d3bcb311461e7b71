//! Permission checks.

use super::*;

fn stage() -> Lab {
    let mut lab = Lab::new();
    lab.make_dir("/home", 0o777).unwrap();
    lab.chown("/home", 10, 20).unwrap();
    lab.caller = user(10, &[20]);
    lab
}

fn become_user(lab: &mut Lab, uid: u32, groups: &[u32]) {
    lab.caller = user(uid, groups);
}

#[test]
fn every_directory_on_the_way_must_let_the_caller_through() {
    let mut lab = stage();
    lab.make_dir("/home/a", 0o700).unwrap();
    lab.make_dir("/home/a/b", 0o777).unwrap();
    lab.create("/home/a/b/f", 0o666).unwrap();
    become_user(&mut lab, 11, &[]);
    let from = lab.volume.root();
    let ask = Ask::Walk { from, names: names("home/a/b") };
    // The walk ends in front of a directory that may not be searched.
    assert!(matches!(lab.ask(ask), Ok(Reply::Walked(stats, None)) if stats.len() == 2));
    let node = lab.walk("/home/a").unwrap();
    let ask = Ask::Walk { from: node, names: names(".") };
    assert!(matches!(lab.ask(ask), Err(Error::Denied)));
    let ask = Ask::Walk { from: node, names: names("..") };
    assert!(matches!(lab.ask(ask), Err(Error::Denied)));
    lab.release(node);
    let ask = Ask::Fetch { root: None, path: names("home/a/b/f"), read_max: 1, headroom: 0 };
    assert!(matches!(lab.ask(ask), Err(Error::Denied)));
    lab.verify();
}

#[test]
fn modes_decide_who_opens_what() {
    let mut lab = stage();
    lab.create("/home/f", 0o640).unwrap();
    lab.chown("/home/f", u32::MAX, 20).unwrap();
    assert!(lab.open("/home/f", WRITE).is_ok());
    become_user(&mut lab, 11, &[20]);
    assert!(lab.open("/home/f", Access::READ).is_ok());
    assert_eq!(lab.open("/home/f", WRITE), Err(Error::Denied));
    assert_eq!(lab.open("/home/f", APPEND), Err(Error::Denied));
    let truncate = Access { truncate: true, ..Access::READ };
    assert_eq!(lab.open("/home/f", truncate), Err(Error::Denied));
    become_user(&mut lab, 12, &[]);
    assert_eq!(lab.open("/home/f", Access::READ), Err(Error::Denied));
    assert_eq!(lab.create_with("/home/f", WRITE, false, 0o666), Err(Error::Denied));
    assert_eq!(lab.resize("/home/f", 0), Err(Error::Denied));
    // The creator may use a new file as opened, whatever its mode.
    let (node, open) = lab.create_with("/home/mine", WRITE, true, 0).unwrap();
    assert_eq!(lab.write_open(open, 0, b"x"), Ok(1));
    assert_eq!(lab.open_node(node, Access::READ), Err(Error::Denied));
    let set = SetStat { size: Some(0), ..SetStat::default() };
    assert_eq!(lab.done(Ask::SetStat { node, open: Some(open), set }), Ok(()));
    lab.release(node);
    lab.close(open);
    for open in 0..2 {
        lab.close(OpenId::new(3, open));
    }
    lab.verify();
}

#[test]
fn names_are_changed_by_those_who_may_write_the_directory() {
    let mut lab = stage();
    lab.make_dir("/home/d", 0o755).unwrap();
    lab.create("/home/d/f", 0o666).unwrap();
    lab.create("/home/d/secret", 0o640).unwrap();
    lab.make_dir("/home/mine", 0o755).unwrap();
    become_user(&mut lab, 11, &[]);
    lab.make_dir("/home/theirs", 0o755).unwrap();
    assert_eq!(lab.create("/home/d/g", 0o644), Err(Error::Denied));
    assert_eq!(lab.create("/home/d/f", 0o644), Err(Error::Exists));
    assert_eq!(lab.remove("/home/d/f"), Err(Error::Denied));
    assert_eq!(lab.rename("/home/d/f", "/home/theirs/f"), Err(Error::Denied));
    assert_eq!(lab.link("/home/d/f", "/home/mine/f"), Err(Error::Denied));
    lab.link("/home/d/f", "/home/theirs/f").unwrap();
    assert_eq!(lab.link("/home/d/secret", "/home/theirs/s"), Err(Error::NotPermitted));
    // Only who could change the `..` of a directory can move it into another one.
    assert_eq!(lab.rename("/home/mine", "/home/theirs/mine"), Err(Error::Denied));
    lab.rename("/home/mine", "/home/same").unwrap();
    lab.verify();
}

#[test]
fn in_a_sticky_directory_everybody_minds_their_own() {
    let mut lab = stage();
    lab.caller = root();
    lab.make_dir("/tmp", 0o1777).unwrap();
    become_user(&mut lab, 10, &[]);
    lab.create("/tmp/a", 0o666).unwrap();
    lab.create("/tmp/a2", 0o666).unwrap();
    become_user(&mut lab, 11, &[]);
    lab.create("/tmp/b", 0o666).unwrap();
    assert_eq!(lab.remove("/tmp/a"), Err(Error::NotPermitted));
    assert_eq!(lab.rename("/tmp/a", "/tmp/c"), Err(Error::NotPermitted));
    assert_eq!(lab.rename("/tmp/b", "/tmp/a"), Err(Error::NotPermitted));
    lab.rename("/tmp/b", "/tmp/c").unwrap();
    lab.caller = root();
    lab.remove("/tmp/a").unwrap();
    lab.verify();
}

#[test]
fn owners_change_modes_and_only_root_gives_files_away() {
    let mut lab = stage();
    lab.create("/home/f", 0o644).unwrap();
    lab.symlink("/home/l", "f").unwrap();
    lab.chmod("/home/f", 0o4755).unwrap();
    assert_eq!(lab.chmod("/home/l", 0o600), Err(Error::Unsupported));
    assert_eq!(lab.chown("/home/f", 11, u32::MAX), Err(Error::NotPermitted));
    assert_eq!(lab.chown("/home/f", u32::MAX, 99), Err(Error::NotPermitted));
    lab.chown("/home/f", 10, 20).unwrap();
    let stat = lab.stat("/home/f").unwrap();
    assert_eq!((stat.uid, stat.gid, stat.mode), (10, 20, 0o755));
    lab.chmod("/home/f", 0o2755).unwrap();
    become_user(&mut lab, 11, &[20]);
    assert_eq!(lab.chmod("/home/f", 0o777), Err(Error::NotPermitted));
    assert_eq!(lab.chown("/home/f", u32::MAX, 20), Err(Error::NotPermitted));
    lab.caller = root();
    lab.chown("/home/f", 10, 99).unwrap();
    become_user(&mut lab, 10, &[]);
    // No longer a member of that group.
    lab.chmod("/home/f", 0o2755).unwrap();
    assert_eq!(lab.stat("/home/f").unwrap().mode, 0o755);
    let set = SetStat { uid: Some(u32::MAX), ..SetStat::default() };
    assert_eq!(lab.set("/home/f", set), Err(Error::Invalid));
    lab.verify();
}

#[test]
fn writing_takes_set_id_bits_away() {
    let mut lab = stage();
    lab.create("/home/f", 0o777).unwrap();
    for case in 0..3 {
        lab.caller = root();
        lab.chmod("/home/f", 0o6777).unwrap();
        become_user(&mut lab, 11, &[]);
        match case {
            0 => lab.write("/home/f", 0, b"x").unwrap(),
            1 => lab.resize("/home/f", 0).unwrap(),
            _open => {
                let open = lab.open("/home/f", TRUNCATE).unwrap();
                lab.close(open);
            }
        }
        assert_eq!(lab.stat("/home/f").unwrap().mode, 0o777, "{case}");
    }
    lab.caller = Caller::Server;
    lab.chmod("/home/f", 0o6777).unwrap();
    lab.write("/home/f", 0, b"x").unwrap();
    assert_eq!(lab.stat("/home/f").unwrap().mode, 0o6777);
    lab.verify();
}

#[test]
fn a_directory_hands_its_group_down() {
    let mut lab = stage();
    lab.make_dir("/home/d", 0o777).unwrap();
    lab.chown("/home/d", u32::MAX, 20).unwrap();
    lab.chmod("/home/d", 0o2777).unwrap();
    become_user(&mut lab, 11, &[]);
    lab.make_dir("/home/d/e", 0o755).unwrap();
    lab.create("/home/d/f", 0o2755).unwrap();
    let (dir, file) = (lab.stat("/home/d/e").unwrap(), lab.stat("/home/d/f").unwrap());
    assert_eq!((dir.uid, dir.gid, dir.mode), (11, 20, 0o2755));
    assert_eq!((file.uid, file.gid, file.mode), (11, 20, 0o755));
    assert_eq!(lab.make_node("/home/d/n", Kind::BlockDevice, 1), Err(Error::NotPermitted));
    lab.make_node("/home/d/n", Kind::Socket, 1).unwrap();
    lab.caller = Caller::Server;
    lab.create("/home/d/s", 0o644).unwrap();
    assert_eq!(lab.stat("/home/d/s").unwrap().uid, 10);
    lab.verify();
}

#[test]
fn a_volume_for_reading_only_refuses_every_change() {
    let mut lab = stage();
    lab.create("/home/f", 0o644).unwrap();
    let mut lab = lab.reopen();
    lab.volume.read_only = true;
    lab.caller = user(10, &[20]);
    assert_eq!(lab.create("/home/g", 0o644), Err(Error::ReadOnly));
    assert_eq!(lab.open("/home/f", WRITE), Err(Error::ReadOnly));
    let open = lab.open("/home/f", Access::READ).unwrap();
    assert_eq!(lab.done(Ask::Sync { open, data_only: false }), Ok(()));
    assert_eq!(lab.read_open(open, 0, 5).unwrap(), b"");
    lab.close(open);
    lab.verify();
}
