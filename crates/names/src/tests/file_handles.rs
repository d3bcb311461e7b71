//! Persistent identities of files, before and after a restart with the same mounts.

use super::*;
use base::op::Detail;
use base::{Access, FileHandle};

impl Lab {
    fn handle(&mut self, text: &str) -> FileHandle {
        let (_, node) = self.walk(self.names.root(), &parts(text)).unwrap();
        let node = node.unwrap();
        let reply = self.ask(Ask::FileHandle { node });
        self.step(Input::Release(node));
        let Ok(Reply::FileHandle(handle)) = reply else { panic!("{reply:?}") };
        handle
    }

    /// Returns the file of a handle, as `tree:path`.
    fn resolved(&mut self, handle: FileHandle) -> Result<String, Error> {
        let Reply::Walked(stats, node) = self.ask(Ask::Resolve { handle })? else { panic!() };
        self.step(Input::Release(node.expect("it was found")));
        Ok(self.shown(stats.last().expect("with its attributes")))
    }
}

fn mounted() -> Lab {
    let mut lab = Lab::new(&[&["f", "m/", "u/"], &["a", "d/e"], &["b"], &["c"]]);
    lab.mount("/m", 1, Order::Replace).unwrap();
    lab.mount("/u", 2, Order::Replace).unwrap();
    lab.mount("/u", 3, Order::After).unwrap();
    lab
}

#[test]
fn handles_of_all_trees_are_valid_after_a_restart() {
    let paths =
        [("f", "0:/f"), ("m", "1:/"), ("m/a", "1:/a"), ("m/d/e", "1:/d/e"), ("u/c", "3:/c")];
    let mut before = mounted();
    let handles = paths.map(|(path, _)| before.handle(path));
    let union = before.handle("u");
    before.check_held();
    let mut after = mounted();
    for ((path, shown), handle) in paths.into_iter().zip(handles) {
        assert_eq!(after.resolved(handle).as_deref(), Ok(shown));
        assert_eq!(after.handle(path), handle);
    }
    assert_eq!(after.resolved(union).as_deref(), Ok("2:/"));
    after.check_held();
}

#[test]
fn handles_of_an_unmounted_tree_are_stale() {
    let mut lab = mounted();
    let (root, file) = (lab.handle("m"), lab.handle("m/a"));
    lab.part("/m").unwrap();
    assert_eq!(lab.resolved(root), Err(Error::Stale));
    assert_eq!(lab.resolved(file), Err(Error::Stale));
    lab.mount("/m", 2, Order::Replace).unwrap();
    assert_eq!(lab.resolved(file), Err(Error::Stale));
    lab.check_held();
}

#[test]
fn failures_of_mounted_trees_are_passed_on() {
    let mut lab = mounted();
    let (_, node) = lab.walk(lab.names.root(), &parts("m/a")).unwrap();
    let node = node.unwrap();
    lab.fakes[1].broken = Some(Error::Unsupported);
    assert_eq!(lab.ask(Ask::FileHandle { node }).unwrap_err(), Error::Unsupported);
    lab.step(Input::Release(node));
    lab.check_held();
}

#[test]
fn listed_handles_are_those_of_the_files_except_at_mount_points() {
    let mut lab = mounted();
    let listed = [("", &["f"][..]), ("m", &["m/a", "m/d"]), ("u", &[])];
    for (dir, expected) in listed {
        let (_, node) = lab.walk(lab.names.root(), &parts(dir)).unwrap();
        let node = node.unwrap();
        let ask = Ask::Open { node, access: Access::READ };
        let Ok(Reply::Opened(open, _)) = lab.ask(ask) else { panic!("{dir} is there") };
        let (mut cookie, mut found) = (0, Vec::new());
        loop {
            let ask = Ask::List { open, cookie, bytes_max: 60, detail: Detail::Handle };
            let Ok(Reply::Entries(entries)) = lab.ask(ask) else { panic!("{dir} is listed") };
            let Some(last) = entries.last() else { break };
            cookie = last.cookie;
            found.extend(entries.into_iter().filter_map(|entry| entry.handle));
        }
        let expected: Vec<FileHandle> = expected.iter().map(|path| lab.handle(path)).collect();
        assert_eq!(found, expected, "{dir}");
        lab.step(Input::Close(open));
        lab.step(Input::Release(node));
    }
    lab.check_held();
}
