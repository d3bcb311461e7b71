//! The table of a host with nested, stacked and oddly named mounts.

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
fn a_name_leads_to_the_topmost_mount() {
    let table = Table::parse(TEXT);
    let named = |id, name: &'static [u8]| {
        let mounts = table.named(id, name);
        mounts.map(|mount| (mount.id, mount.is_local())).collect::<Vec<_>>()
    };
    assert_eq!(named(22, b"photos"), [(33, true)]);
    assert_eq!(named(22, b"with space\\"), [(31, false)]);
    assert_eq!(named(30, b"inner"), [(32, true)]);
    assert_eq!(named(22, b"inner"), []);
    let nfs = table.by_id(31).expect("is in the table");
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
fn names_of_mount_points_are_known_by_mount() {
    let table = Table::parse(TEXT);
    let names: Vec<&[u8]> = table.names_on(22).collect();
    assert_eq!(names, [&b"photos"[..], b"with space\\", b"again"]);
    assert_eq!(table.names_on(31).count(), 0);
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
    assert!(table.0.iter().any(|mount| mount.point == b"/"));
    assert!(std::sync::Arc::ptr_eq(&table, &mounts.table()), "nothing has changed");
}
