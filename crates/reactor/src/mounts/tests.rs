//! The table of a host with nested, stacked and strangely named mounts.

use super::{Mounts, Table, unescape};

const TEXT: &[u8] = b"\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:25 / /srv/photos rw shared:2 master:1 - fuse.sshfs photos: rw
31 22 0:26 / /srv/with\\040space\\134 rw - nfs4 host:/ rw
32 30 0:27 / /srv/photos/inner rw - tmpfs tmpfs rw
33 30 0:28 / /srv/photos rw - xfs /dev/vdb rw
34 22 254:1 /home /srv/again rw - ext4 /dev/vda1 rw
not a line
";

#[test]
fn a_point_leads_to_its_topmost_mount() {
    let table = Table::parse(TEXT);
    let at = |point: &[u8]| table.at(point).map(|mount| (mount.id, mount.is_local()));
    assert_eq!(at(b"/srv/photos"), Some((33, true)));
    assert_eq!(at(b"/srv/with space\\"), Some((31, false)));
    assert_eq!(at(b"/srv/photos/inner"), Some((32, true)));
    assert_eq!(at(b"/srv"), None);
    let nfs = table.at(b"/srv/with space\\").expect("is in the table");
    assert_eq!(nfs.to_string(), "/srv/with space\\ (nfs4)");
}

#[test]
fn the_way_up_leaves_all_mounts_of_a_point() {
    let table = Table::parse(TEXT);
    let above = |id| table.above(id).map(|mount| mount.id);
    assert_eq!(above(33), Some(22));
    assert_eq!(above(32), Some(30));
    assert_eq!(above(22), None);
    assert_eq!(above(99), None);
}

#[test]
fn mounts_of_one_file_system_share_a_device() {
    let table = Table::parse(TEXT);
    let device = |id| table.by_id(id).map(|mount| mount.device);
    assert_eq!(device(22), device(34));
    assert_ne!(device(22), device(30));
}

#[test]
fn mount_points_are_found_by_their_directory() {
    let table = Table::parse(TEXT);
    let found = |dir| {
        let mounts = table.in_directory(dir);
        mounts.map(|(name, mount)| (name.to_vec(), mount.id)).collect::<Vec<_>>()
    };
    let expected = [(&b"photos"[..], 30), (b"with space\\", 31), (b"photos", 33), (b"again", 34)];
    assert_eq!(found(b"/srv"), expected.map(|(name, id)| (name.to_vec(), id)));
    assert_eq!(found(b"/srv/photos"), [(b"inner".to_vec(), 32)]);
    assert_eq!(found(b"/"), []);
    assert_eq!(found(b"/sr"), []);
}

#[test]
fn escapes_are_octal() {
    assert_eq!(unescape(b"a\\040b\\134"), b"a b\\");
    assert_eq!(unescape(b"\\9\\04"), b"\\9\\04");
}

#[test]
fn the_host_has_a_root() {
    let mounts = Mounts::open().expect("/proc is mounted");
    let table = mounts.table();
    assert!(table.at(b"/").is_some());
    assert!(std::sync::Arc::ptr_eq(&table, &mounts.table()), "nothing has changed");
}
