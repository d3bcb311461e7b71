//! Extended attributes.

use super::*;

fn set(
    lab: &mut Lab,
    path: &str,
    key: &str,
    value: &[u8],
    create: Option<bool>,
) -> Result<(), Error> {
    let (name, value) = (key.as_bytes().to_vec(), value.to_vec());
    lab.at(path, |lab, node| lab.done(Ask::SetAttr { node, name, value, create }))
}

fn get(lab: &mut Lab, path: &str, key: &str) -> Result<Vec<u8>, Error> {
    let name = key.as_bytes().to_vec();
    bytes(lab.at(path, |lab, node| lab.ask(Ask::GetAttr { node, name })))
}

fn list(lab: &mut Lab, path: &str) -> Vec<String> {
    let list = bytes(lab.at(path, |lab, node| lab.ask(Ask::ListAttrs { node }))).unwrap();
    let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<String> =
        names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    names.sort();
    names
}

fn remove(lab: &mut Lab, path: &str, key: &str) -> Result<(), Error> {
    let name = key.as_bytes().to_vec();
    lab.at(path, |lab, node| lab.done(Ask::RemoveAttr { node, name }))
}

fn bytes(reply: Result<Reply, Error>) -> Result<Vec<u8>, Error> {
    match reply? {
        Reply::Bytes(bytes) => Ok(bytes),
        other => panic!("{other:?}"),
    }
}

#[test]
fn attributes_are_set_read_listed_and_removed() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    assert_eq!(get(&mut lab, "/f", "user.a"), Err(Error::NoAttribute));
    assert_eq!(set(&mut lab, "/f", "user.a", b"1", Some(false)), Err(Error::NoAttribute));
    set(&mut lab, "/f", "user.a", b"1", Some(true)).unwrap();
    assert_eq!(set(&mut lab, "/f", "user.a", b"2", Some(true)), Err(Error::Exists));
    set(&mut lab, "/f", "user.a", b"3", Some(false)).unwrap();
    set(&mut lab, "/f", "user.b", b"", None).unwrap();
    let large = vec![7; 65_536];
    set(&mut lab, "/f", "user.large", &large, None).unwrap();
    assert_eq!(set(&mut lab, "/f", "user.a", &[0; 65_537], None), Err(Error::AttributeTooLarge));
    assert_eq!(list(&mut lab, "/f"), ["user.a", "user.b", "user.large"]);
    let mut lab = lab.reopen();
    assert_eq!(get(&mut lab, "/f", "user.a").unwrap(), b"3");
    assert!(get(&mut lab, "/f", "user.large").unwrap() == large);
    remove(&mut lab, "/f", "user.b").unwrap();
    assert_eq!(remove(&mut lab, "/f", "user.b"), Err(Error::NoAttribute));
    assert_eq!(list(&mut lab, "/f"), ["user.a", "user.large"]);
    lab.verify();
    lab.remove("/f").unwrap();
    lab.verify();
}

#[test]
fn names_that_cannot_be_are_refused() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    let long = format!("user.{}", "x".repeat(251));
    for (name, error) in [
        ("", Error::AttributeTooLarge),
        (&long, Error::AttributeTooLarge),
        ("user.", Error::Invalid),
        ("other.x", Error::Unsupported),
        ("system.posix_acl_access", Error::Unsupported),
    ] {
        assert_eq!(set(&mut lab, "/f", name, b"v", None), Err(error), "{name}");
        assert_eq!(get(&mut lab, "/f", name), Err(error), "{name}");
    }
    lab.verify();
}

#[test]
fn each_name_space_has_its_rules() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    lab.symlink("/l", "f").unwrap();
    lab.make_dir("/t", 0o1777).unwrap();
    for name in ["trusted.x", "security.x", "user.x"] {
        set(&mut lab, "/f", name, b"v", None).unwrap();
    }
    assert_eq!(set(&mut lab, "/l", "user.x", b"v", None), Err(Error::NotPermitted));
    assert_eq!(get(&mut lab, "/l", "user.x"), Err(Error::NoAttribute));
    set(&mut lab, "/l", "trusted.x", b"v", None).unwrap();
    lab.caller = user(10, &[]);
    assert_eq!(set(&mut lab, "/f", "user.y", b"v", None), Err(Error::Denied));
    assert_eq!(get(&mut lab, "/f", "user.x").unwrap(), b"v");
    assert_eq!(set(&mut lab, "/f", "trusted.y", b"v", None), Err(Error::NotPermitted));
    assert_eq!(get(&mut lab, "/f", "trusted.x"), Err(Error::NoAttribute));
    assert_eq!(set(&mut lab, "/f", "security.y", b"v", None), Err(Error::NotPermitted));
    assert_eq!(get(&mut lab, "/f", "security.x").unwrap(), b"v");
    assert_eq!(set(&mut lab, "/t", "user.x", b"v", None), Err(Error::NotPermitted));
    assert_eq!(list(&mut lab, "/f"), ["security.x", "user.x"]);
    lab.verify();
}

#[test]
fn a_file_with_many_attributes_goes_in_pieces() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    for n in 0..256 {
        set(&mut lab, "/f", &format!("user.{n}"), b"value", None).unwrap();
    }
    assert_eq!(set(&mut lab, "/f", "user.more", b"v", None), Err(Error::NoSpace));
    assert_eq!(list(&mut lab, "/f").len(), 256);
    lab.verify();
    lab.remove("/f").unwrap();
    lab.verify();
    assert_eq!(lab.stat_fs().files, lab.stat_fs().files_free + 1);
}
