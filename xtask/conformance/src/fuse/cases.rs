//! Cases on two mounts of one server.

use anyhow::{Context, Result, ensure};
use rig::sh;
use rustix::fs::{FlockOperation, Gid, Mode, OFlags, Uid, fcntl_lock, flock, ftruncate, openat};
use rustix::io::Errno;
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Files in a large directory.
const MANY: usize = 3000;

/// Age of names and attributes that a mount may show: a second, and two ticks of a kernel's slowest
/// clock, which counts it.
const CACHED_MAX: Duration = Duration::from_millis(1020);

/// Programs and inserts of each that write to a database at the same time.
const WRITERS: usize = 4;
const INSERTS: usize = 25;

/// Two mounts of one server.
pub(super) struct Pair<'a> {
    pub(super) a: &'a Path,
    pub(super) b: &'a Path,
    /// Whether they cache nothing.
    pub(super) is_uncached: bool,
}

/// A kind of lock.
type Lock = fn(&File, FlockOperation) -> rustix::io::Result<()>;

type Case = fn(&Pair<'_>) -> Result<String>;

/// All cases.
pub(super) const ALL: [(&str, Case); 14] = [
    ("files", files),
    ("removed_open", removed_open),
    ("renamed_open", renamed_open),
    ("close_to_open", close_to_open),
    ("seen_by_others", seen_by_others),
    ("locks", locks),
    ("waiting_locks", waiting_locks),
    ("memory_maps", memory_maps),
    ("running_program", running_program),
    ("truncated_by_others", truncated_by_others),
    ("attributes", attributes),
    ("large_directory", large_directory),
    ("git", git),
    ("sqlite", sqlite),
];

/// Cases that work on a single mount, too.
pub(super) const OF_ONE: [(&str, Case); 8] = [
    ("files", files),
    ("removed_open", removed_open),
    ("renamed_open", renamed_open),
    ("memory_maps", memory_maps),
    ("running_program", running_program),
    ("truncated_by_others", truncated_by_others),
    ("git", git),
    ("sqlite", sqlite),
];

/// Runs commands of a shell in a new directory.
fn shell(dir: &Path, script: &str) -> Result<String> {
    sh::read(sh::cmd("sh", &["-euc", script]).current_dir(dir))
}

fn empty(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    Ok(fs::create_dir(dir)?)
}

/// Copies, moves, links and compares files.
fn files(pair: &Pair<'_>) -> Result<String> {
    let dir = pair.a.join("files");
    empty(&dir)?;
    let docs = sh::root().join("docs").display().to_string();
    shell(
        &dir,
        &format!(
            "cp -a {docs} copy; diff -r {docs} copy
        mkdir sub; mv copy/decisions sub/moved; ln sub/moved/0001* link; ln -s link soft
        cmp link soft; test $(stat -c %h link) = 2; rm sub/moved/0001*; test $(stat -c %h link) = 1
        chmod 600 link; test $(stat -c %a link) = 600; truncate -s 5 link; test $(wc -c < link) = 5
        dd if=/dev/urandom of=big bs=1M count=64 2>&1; cp big big2; cmp big big2; sync big2
        dd if=big of=part bs=4097 skip=3 count=5 2>&1; cmp -n 20485 -i 12291:0 big part
        printf x | dd of=hole bs=1 seek=1000000 conv=notrunc 2>&1; test $(stat -c %s hole) = 1000001
        tar cf all.tar sub; mkdir out; tar xf all.tar -C out; diff -r sub out/sub
        touch -d 2001-02-03T04:05:06.789 link; stat -c %y link | grep -q 06.789; df . > /dev/null
        mkfifo pipe; test -p pipe; mknod null c 1 3; test -c null
        test $(find . -type f | wc -l) -gt 50; rm -r *; test -z \"$(ls)\""
        ),
    )?;
    Ok(String::new())
}

/// Uses a file after its last name is removed, or replaced.
fn removed_open(pair: &Pair<'_>) -> Result<String> {
    for replaced in [false, true] {
        let path = pair.a.join("removed");
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path)?;
        file.write_all_at(&[b'x'; 100_000], 0)?;
        match replaced {
            false => fs::remove_file(&path)?,
            true => {
                fs::write(pair.a.join("other"), "other")?;
                fs::rename(pair.a.join("other"), &path)?;
            }
        }
        ensure!(file.metadata()?.nlink() == 0, "it has {} names", file.metadata()?.nlink());
        let mut bytes = [0; 100_000];
        file.read_exact_at(&mut bytes, 0)?;
        file.set_len(5)?;
        file.write_all_at(b"more", 5)?;
        file.sync_all()?;
        ensure!(file.metadata()?.len() == 9, "{} bytes", file.metadata()?.len());
        ensure!(path.exists() == replaced, "its name");
    }
    Ok(String::new())
}

/// Uses a file after it is renamed, and its directory.
fn renamed_open(pair: &Pair<'_>) -> Result<String> {
    empty(&pair.a.join("renamed"))?;
    empty(&pair.a.join("new-name"))?;
    let file = File::create(pair.a.join("renamed/a"))?;
    file.write_all_at(b"one", 0)?;
    fs::rename(pair.a.join("renamed/a"), pair.a.join("renamed/b"))?;
    file.write_all_at(b"two", 3)?;
    fs::remove_dir(pair.a.join("new-name"))?;
    fs::rename(pair.a.join("renamed"), pair.a.join("new-name"))?;
    file.write_all_at(b"three", 6)?;
    file.sync_all()?;
    let found = fs::read(pair.a.join("new-name/b"))?;
    ensure!(found == b"onetwothree", "{}", String::from_utf8_lossy(&found));
    let other = fs::read(pair.b.join("new-name/b"))?;
    ensure!(other == found, "the other mount: {}", String::from_utf8_lossy(&other));
    fs::remove_dir_all(pair.a.join("new-name"))?;
    Ok(String::new())
}

/// Writes and closes on one mount, opens and reads on the other.
fn close_to_open(pair: &Pair<'_>) -> Result<String> {
    for round in 0..100_usize {
        let bytes: Vec<u8> = (0..round * 977 % 20_000).map(|n| (n * round) as u8).collect();
        fs::write(pair.a.join("shared"), &bytes)?;
        ensure!(fs::read(pair.b.join("shared"))? == bytes, "round {round}");
        fs::write(pair.b.join("shared"), bytes.repeat(2))?;
        ensure!(fs::read(pair.a.join("shared"))? == bytes.repeat(2), "back in round {round}");
        // Replaced as a whole, while its old name is cached.
        fs::write(pair.a.join("shared.new"), &bytes)?;
        fs::rename(pair.a.join("shared.new"), pair.a.join("shared"))?;
        ensure!(fs::read(pair.b.join("shared"))? == bytes, "replaced in round {round}");
    }
    let logs =
        [pair.a, pair.b].map(|dir| File::options().append(true).create(true).open(dir.join("log")));
    let [mut a, mut b] = [logs[0].as_ref(), logs[1].as_ref()].map(|log| log.expect("it opens"));
    for _ in 0..100 {
        std::io::Write::write_all(&mut a, b"from the first\n")?;
        std::io::Write::write_all(&mut b, b"from the second\n")?;
    }
    let log = fs::read(pair.a.join("log"))?;
    ensure!(log.len() == 100 * 31, "{} bytes were appended", log.len());
    fs::remove_file(pair.a.join("log"))?;
    Ok(String::new())
}

/// Changes names and attributes on one mount, and looks at them on the other. What was cached
/// before a change is as old as permitted some time after it, however slow the machine is.
fn seen_by_others(pair: &Pair<'_>) -> Result<String> {
    let (a, b) = (pair.a.join("seen"), pair.b.join("seen"));
    let age = || std::thread::sleep(CACHED_MAX);
    fs::write(&a, "1")?;
    ensure!(b.exists(), "a new file is not seen");
    fs::write(&a, "12345")?;
    age();
    ensure!(fs::metadata(&b)?.len() == 5, "the old size is seen");
    fs::rename(&a, pair.a.join("seen-2"))?;
    age();
    ensure!(!b.exists(), "the old name is seen");
    ensure!(pair.b.join("seen-2").exists(), "the new name is not seen");
    fs::remove_file(pair.b.join("seen-2"))?;
    age();
    ensure!(!pair.a.join("seen-2").exists(), "a removed file is seen");
    Ok(format!("after {} ms", CACHED_MAX.as_millis()))
}

/// Locks ranges of bytes and whole files on both mounts.
fn locks(pair: &Pair<'_>) -> Result<String> {
    let open = |dir: &Path| {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).open(dir.join("locked"))
    };
    let (a, b) = (open(pair.a)?, open(pair.b)?);
    let kinds: [(&str, Lock); 2] = [
        ("fcntl", |file, operation| fcntl_lock(file, operation)),
        ("flock", |file, operation| flock(file, operation)),
    ];
    for (kind, lock) in kinds {
        lock(&a, FlockOperation::LockExclusive)?;
        let refused = lock(&b, FlockOperation::NonBlockingLockExclusive);
        ensure!(refused == Err(rustix::io::Errno::AGAIN), "{kind}: {refused:?}");
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
                sender.send(thread).expect("it is awaited");
                lock(&b, FlockOperation::LockExclusive)
            });
            super::until_it_waits(receiver.recv()?)?;
            // Others are served while it waits.
            fs::write(pair.b.join("beside"), kind)?;
            ensure!(!waiter.is_finished(), "{kind} did not wait");
            lock(&a, FlockOperation::Unlock)?;
            waiter.join().expect("it does not panic").context("the waiting lock")
        })?;
        lock(&b, FlockOperation::Unlock)?;
    }
    // Closing a file unlocks it.
    let again = open(pair.a)?;
    fcntl_lock(&again, FlockOperation::LockExclusive)?;
    drop(again);
    fcntl_lock(&b, FlockOperation::NonBlockingLockExclusive).context("after a close")?;
    Ok(String::new())
}

/// Waits for a lock with more threads than a mount has for other requests.
fn waiting_locks(pair: &Pair<'_>) -> Result<String> {
    const THREADS: usize = 200;
    let path = pair.a.join("wanted");
    fs::write(&path, b"")?;
    let holder = File::open(&path)?;
    flock(&holder, FlockOperation::LockExclusive)?;
    let (sender, receiver) = std::sync::mpsc::channel();
    let wait = |sender: std::sync::mpsc::Sender<u32>| {
        let file = File::open(&path)?;
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        sender.send(thread).expect("it is awaited");
        Ok(flock(&file, FlockOperation::LockExclusive)?)
    };
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..THREADS)
            .map(|_| {
                let sender = sender.clone();
                scope.spawn(|| -> Result<()> { wait(sender) })
            })
            .collect();
        for _ in 0..THREADS {
            super::until_it_waits(receiver.recv()?)?;
        }
        fs::write(pair.a.join("beside"), b"beside them")?;
        ensure!(fs::read(pair.a.join("beside"))? == b"beside them", "others are not served");
        flock(&holder, FlockOperation::Unlock)?;
        waiters.into_iter().try_for_each(|waiter| waiter.join().expect("it does not panic"))
    })?;
    Ok(format!("{THREADS} threads wait"))
}

/// Maps a file on one mount, and reads it on the other.
fn memory_maps(pair: &Pair<'_>) -> Result<String> {
    const SCRIPT: &str = "import mmap, sys
f = open(sys.argv[1], 'w+b'); f.truncate(1 << 20)
m = mmap.mmap(f.fileno(), 1 << 20)
m[5000:5005] = b'hello'; m[1048570:1048576] = b'at end'
m.flush(); m.close(); f.close()
f = open(sys.argv[2], 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
assert m[5000:5005] == b'hello' and m[1048570:] == b'at end', 'other bytes'";
    let paths = [pair.a, pair.b].map(|dir| dir.join("mapped").display().to_string());
    sh::read(sh::cmd("python3", &["-c", SCRIPT]).args(paths))
}

/// A running program cannot be written or truncated: it goes on, and so do its contents.
fn running_program(pair: &Pair<'_>) -> Result<String> {
    let path = pair.a.join("sleeps");
    let program = fs::read("/bin/sleep")?;
    fs::write(&path, &program)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    let mut child = sh::cmd(&path.display().to_string(), &["1000"]).spawn()?;
    let refused = || {
        let opened = |flags| rustix::fs::open(&path, flags, Mode::empty()).map(drop);
        for flags in [OFlags::WRONLY, OFlags::RDWR, OFlags::RDONLY | OFlags::TRUNC] {
            let result = opened(flags);
            ensure!(result == Err(Errno::TXTBSY), "{flags:?}: {result:?}");
        }
        ensure!(fs::read(&path)? == program, "its contents have changed");
        Ok(())
    };
    let result = refused();
    let end = child.try_wait()?;
    child.kill()?;
    child.wait()?;
    result?;
    ensure!(end.is_none(), "it has ended: {end:?}");
    fs::write(&path, b"short")?;
    ensure!(fs::read(&path)? == b"short", "it is truncated when it has ended");
    fs::remove_file(&path)?;
    Ok(String::new())
}

/// Truncates a file as a user who may write it, but does not own it.
fn truncated_by_others(pair: &Pair<'_>) -> Result<String> {
    const NOBODY: u32 = 65_534;
    let path = pair.a.join("shared");
    fs::write(&path, b"some contents")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    fs::set_permissions(pair.a, fs::Permissions::from_mode(0o755))?;
    let dir = File::open(pair.a)?;
    let change = || {
        set_thread_groups(&[])?;
        let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        let open = |flags| openat(&dir, "shared", flags, Mode::empty());
        let file = open(OFlags::WRONLY | OFlags::TRUNC).context("open with O_TRUNC")?;
        rustix::io::write(&file, b"other contents")?;
        ftruncate(&file, 5).context("ftruncate")
    };
    std::thread::scope(|scope| scope.spawn(change).join().expect("it does not panic"))?;
    ensure!(fs::read(&path)? == b"other", "contents {:?}", fs::read(&path)?);
    Ok(String::new())
}

/// Sets, lists and removes extended attributes.
fn attributes(pair: &Pair<'_>) -> Result<String> {
    fs::write(pair.a.join("attributes"), "x")?;
    let long = "v".repeat(3000);
    shell(
        pair.a,
        &format!(
            "setfattr -n user.one -v 1 attributes; setfattr -n user.long -v {long} attributes
        test $(getfattr --only-values -n user.one attributes) = 1
        test $(getfattr --only-values -n user.long attributes) = {long}
        getfattr -d attributes | grep -c user. | grep -qx 2
        setfattr -x user.one attributes; ! getfattr -n user.one attributes 2>/dev/null"
        ),
    )?;
    shell(pair.b, &format!("test $(getfattr --only-values -n user.long attributes) = {long}"))
}

/// Lists a large directory, with attributes and without.
fn large_directory(pair: &Pair<'_>) -> Result<String> {
    let (a, b) = (pair.a.join("many"), pair.b.join("many"));
    empty(&a)?;
    for number in 0..MANY {
        File::create(a.join(format!("file-{number}")))?;
    }
    let begin = Instant::now();
    let listed = fs::read_dir(&b)?.count();
    let names = begin.elapsed();
    ensure!(listed == MANY, "{listed} entries");
    let long = shell(&b, "ls -la | wc -l")?;
    ensure!(long.trim() == (MANY + 3).to_string(), "ls -la: {long} lines");
    let took = begin.elapsed() - names;
    fs::remove_dir_all(&a)?;
    Ok(format!("names {} ms, ls -la {} ms", names.as_millis(), took.as_millis()))
}

/// Works with git.
fn git(pair: &Pair<'_>) -> Result<String> {
    let dir = pair.a.join("git");
    empty(&dir)?;
    let source = sh::root().join("docs").display().to_string();
    let author = "-c user.email=tests@example.com -c user.name=tests -c safe.directory='*'";
    shell(
        &dir,
        &format!(
            "git init -q one; cd one; cp -r {source} .; git {author} add -A
        git {author} commit -qm first; echo more >> docs/status.md
        git {author} commit -qam second; git {author} gc -q; git {author} fsck --strict
        test -z \"$(git {author} status --porcelain)\"; cd ..
        git {author} clone -q one two; cd two; git {author} fsck --strict
        diff -r {source} docs | wc -l"
        ),
    )?;
    shell(&pair.b.join("git/one"), &format!("git {author} log --oneline | wc -l | grep -qx 2"))?;
    fs::remove_dir_all(&dir)?;
    Ok(String::new())
}

/// Writes to a database by several processes: on both mounts if they cache nothing, because SQLite
/// looks whether its journal exists, which a cached name would answer.
fn sqlite(pair: &Pair<'_>) -> Result<String> {
    let path = |dir: &Path| dir.join("database").display().to_string();
    let (a, b) = (path(pair.a), path(pair.b));
    if pair.a.join("database").exists() {
        fs::remove_file(pair.a.join("database"))?;
    }
    sh::read(&mut sh::cmd("sqlite3", &[a.as_str(), "create table t (writer int, number int)"]))?;
    let begin = Instant::now();
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let insert = |number| format!("insert into t values ({writer}, {number});");
        let script: String = (0..INSERTS).map(insert).collect();
        let script = format!(".timeout 20000\n{script}");
        let database = if writer % 2 == 0 || !pair.is_uncached { &a } else { &b };
        let mut command = sh::cmd("sqlite3", &["-bail", database]);
        let mut child = command.stdin(Stdio::piped()).spawn()?;
        let mut input = child.stdin.take().context("it is a pipe")?;
        std::io::Write::write_all(&mut input, script.as_bytes())?;
        writers.push(child);
    }
    let ends = writers.into_iter().map(|mut writer| writer.wait());
    let failed = ends.filter(|end| !end.as_ref().is_ok_and(ExitStatus::success)).count();
    ensure!(failed == 0, "{failed} writers failed");
    let took = begin.elapsed();
    let query = "select count(*) from t; pragma integrity_check";
    let printed = sh::read(&mut sh::cmd("sqlite3", &[b.as_str(), query]))?;
    ensure!(printed.trim() == format!("{}\nok", WRITERS * INSERTS), "{printed}");
    Ok(format!("{} transactions in {} ms", WRITERS * INSERTS, took.as_millis()))
}
