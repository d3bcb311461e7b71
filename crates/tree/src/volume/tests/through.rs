//! Write-through: changes that are durable before their replies.

use super::*;

fn lab() -> Lab {
    written_through(Lab::new())
}

fn written_through(mut lab: Lab) -> Lab {
    lab.volume.set_write_through(true);
    lab
}

/// Returns the volume after a change and a power failure at its reply.
fn after(mut lab: Lab, change: impl FnOnce(&mut Lab) -> Result<(), Error>) -> Lab {
    change(&mut lab).unwrap();
    written_through(lab.crash())
}

#[test]
fn every_change_survives_a_power_failure_at_its_answer() {
    let mut lab = after(lab(), |lab| lab.create("/f", 0o644));
    assert_eq!(lab.read("/f").unwrap(), b"");
    lab = after(lab, |lab| lab.write("/f", 0, &[7; 100_000]));
    assert_eq!(lab.read("/f").unwrap(), [7; 100_000]);
    lab = after(lab, |lab| lab.resize("/f", 10));
    assert_eq!(lab.read("/f").unwrap(), [7; 10]);
    lab = after(lab, |lab| lab.chmod("/f", 0o600));
    assert_eq!(lab.stat("/f").unwrap().mode & 0o777, 0o600);
    lab = after(lab, |lab| lab.make_dir("/d", 0o755));
    lab = after(lab, |lab| lab.symlink("/s", "f"));
    lab = after(lab, |lab| lab.link("/f", "/l"));
    assert_eq!(lab.list("/"), ["d", "f", "l", "s"]);
    lab = after(lab, |lab| lab.rename("/f", "/d/f"));
    assert_eq!(lab.list("/"), ["d", "l", "s"]);
    assert_eq!(lab.list("/d"), ["f"]);
    lab = after(lab, |lab| lab.remove("/l"));
    assert_eq!(lab.list("/"), ["d", "s"]);
    lab.verify();
}

#[test]
fn a_change_that_no_disk_took_is_an_error_and_hands_nothing_out() {
    let mut lab = lab();
    lab.create("/f", 0o644).unwrap();
    lab.idle();
    let held = (lab.volume.nodes.len(), lab.volume.opens.len());
    lab.world.failing = Some(Error::Io);
    assert_eq!(lab.create("/g", 0o644), Err(Error::Io));
    assert_eq!(lab.make_dir("/d", 0o755), Err(Error::Io));
    lab.idle();
    assert_eq!((lab.volume.nodes.len(), lab.volume.opens.len()), held);
}

#[test]
fn a_create_that_nobody_waits_for_gives_back_what_it_made() {
    let mut lab = lab();
    // Its blocks are in memory then.
    lab.create("/other", 0o644).unwrap();
    let dir = lab.volume.root();
    let (name, access) = (name("f"), WRITE);
    let ask = Ask::Create { dir, name, access, exclusive: true, mode: 0o644, gid: None };
    let id = lab.begin(ask);
    assert!(lab.answered(id).is_none(), "it waits until it is durable");
    lab.input(Input::Cancel(id));
    let reply = loop {
        if let Some(reply) = lab.answered(id) {
            break reply.expect("it was made");
        }
        assert!(lab.operate() || lab.tick(), "nothing is going to answer");
    };
    let (Some(node), Some(open)) = reply.handed_out() else { panic!("{reply:?}") };
    lab.close(open);
    lab.release(node);
    lab.verify();
}
