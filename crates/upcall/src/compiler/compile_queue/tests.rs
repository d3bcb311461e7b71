//! Fake children: shells that wait, or end in each way that a child can.
#![allow(clippy::disallowed_methods, reason = "a test of real processes waits in real time")]

use super::*;
use crate::compiler::inside::RunSpec;
use std::path::PathBuf;
use std::time::Duration;

/// Returns a queue whose children run this shell script.
fn compile_queue(script: &str) -> CompileQueue {
    let engines = Engines::compilers().expect("engines");
    let child_command = ChildCommand {
        program: PathBuf::from("/bin/sh"),
        args: vec!["-c".to_string(), script.to_string()],
        time_max: Duration::from_secs(60),
        quick_max: Duration::from_millis(100),
    };
    CompileQueue::new(Arc::new(engines), None, child_command)
}

/// Returns a small program; each number gives a different one.
fn program(number: u8) -> Vec<u8> {
    let mut wasm = b"\0asm\x01\0\0\0".to_vec();
    wasm.extend(b"\x01\x04\x01\x60\0\0\x03\x02\x01\0\x05\x03\x01\0\x01");
    wasm.extend(b"\x07\x13\x02\x06_start\0\0\x06memory\x02\0\x0a\x07\x01\x05\0");
    wasm.extend([0x41, number & 0x3F, 0x1A, 0x0B]);
    wasm
}

fn compile(ticket: u64, wasm: &[u8]) -> ToCompiler {
    let mut piece = Buf::with_room(0, 0);
    piece.extend(wasm);
    ask(ticket, Module::Sent(vec![piece]), Code::Plain)
}

/// Returns a request of a client of a user.
fn compile_for(user: u32, client: u32, ticket: u64, wasm: &[u8]) -> ToCompiler {
    let module = Module::Sent(vec![Buf::from(wasm)]);
    let account = Account { user, client };
    ToCompiler::Compile { ticket, module, code: Code::Plain, account }
}

fn ask(ticket: u64, module: Module, code: Code) -> ToCompiler {
    let account = Account { user: 7, client: 1 };
    ToCompiler::Compile { ticket, module, code, account }
}

/// Returns the tickets of results, and the rejections.
fn done(compile_queue: &mut CompileQueue) -> Vec<(u64, Option<Refused>)> {
    let done = compile_queue.take_done();
    done.into_iter().map(|compiled| (compiled.ticket, compiled.result.err())).collect()
}

/// Returns the result of a module whose child runs this script.
fn outcome(script: &str) -> Option<Refused> {
    let mut compile_queue = compile_queue(script);
    compile_queue.take(Instant::default(), compile(7, &program(0)));
    loop {
        compile_queue.look(Instant::default());
        if let Some((ticket, refused)) = done(&mut compile_queue).pop() {
            assert_eq!(ticket, 7);
            assert!(!compile_queue.is_busy());
            return refused;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn each_end_of_a_child_has_its_reason() {
    let cases = [
        ("echo the reason >&2; exit 3", "the module cannot be run: the reason"),
        ("echo trouble >&2; exit 4", "the server could not compile it: trouble"),
        ("kill -XCPU $$", "compilation exceeds 20 s of processor time; split"),
        ("kill -XFSZ $$", "its machine code is more than 128 MiB"),
        ("kill -TERM $$", "its process was ended by signal 15"),
        ("kill -KILL $$", "its process was ended by signal 9"),
        (
            "echo memory allocation of 9 bytes failed >&2; kill -ABRT $$",
            "compilation exceeds 1 GiB of memory",
        ),
        ("echo main has overflowed its stack >&2; kill -ABRT $$", "exceeds the stack"),
        ("echo none", "the output of its process is broken"),
        ("exit 0", "the output of its process is broken"),
    ];
    for (script, printed) in cases {
        let refused = outcome(script).expect("it is refused").to_string();
        assert!(refused.contains(printed), "{script}: {refused}");
    }
}

/// A directory of a test's own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("upcall-compile-queue-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("it is ours");
        Scratch(path)
    }

    fn cache(&self) -> Cache {
        Cache::open(&self.0.join("cache")).expect("it opens")
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.join(name)).expect("it is there")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Returns whether these bytes are anywhere in the memory of a process.
fn is_in_memory(pid: i32, part: &[u8]) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it is ours");
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).expect("it is ours");
    maps.lines().any(|line| {
        let mut words = line.split(' ');
        let (range, mode) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let ends = range.split_once('-').expect("a range");
        let [from, to] =
            [ends.0, ends.1].map(|end| u64::from_str_radix(end, 16).expect("a number"));
        let len = usize::try_from(to - from).expect("it fits");
        if !mode.starts_with('r') || len > 1 << 28 {
            return false;
        }
        let mut bytes = vec![0; len];
        // Some of the kernel's pages cannot be read.
        let read = std::os::unix::fs::FileExt::read_at(&memory, &mut bytes, from).unwrap_or(0);
        contains(&bytes[..read], part)
    })
}

/// The key of the cache stays in the server. The compiling child has its request, which names a
/// module and the kind of code, and the module.
#[test]
fn a_child_gets_the_order_and_the_module_and_no_key() {
    let scratch = Scratch::new("key");
    let dir = scratch.0.display();
    let script = format!(
        "cat > {dir}/input; cat /proc/$$/environ > {dir}/environ; cat /proc/$$/cmdline > \
         {dir}/cmdline; ls -l /proc/$$/fd > {dir}/fd; pwd > {dir}/pwd; : > {dir}/done; sleep 100"
    );
    let mut compile_queue = compile_queue(&script);
    compile_queue.cache = Some(scratch.cache());
    let key = scratch.read("cache/key");
    compile_queue.take(Instant::default(), compile(7, &program(0)));
    compile_queue.look(Instant::default());
    while !scratch.0.join("done").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let order = RunSpec { name: Hash::of(&program(0)), code: Code::Plain };
    let prepared = prepare(&program(0)).expect("it is good");
    assert!(scratch.read("input") == [order.bytes(), prepared].concat(), "it got more");
    assert_eq!(scratch.read("cmdline"), format!("/bin/sh\0-c\0{script}\0").as_bytes());
    assert_eq!((scratch.read("environ"), scratch.read("pwd")), (Vec::new(), b"/\n".to_vec()));
    // The test may have inherited more descriptors, but none of the cache.
    let descriptors = String::from_utf8(scratch.read("fd")).expect("text");
    assert!(descriptors.contains("upcall-compile") && !descriptors.contains("/cache"));
    let pid = compile_queue.lanes[QUICK].as_ref().map(|(_, child)| child.pid()).expect("it runs");
    assert!(is_in_memory(std::process::id() as i32, &key), "it would be found");
    assert!(!is_in_memory(pid, &key), "the child has the key");
}

/// A child taken over by a module may output anything. The output counts for this module only, and
/// is kept only if it is code.
#[test]
fn a_child_can_produce_only_its_own_module() {
    let scratch = Scratch::new("taken");
    let engine = wasi::Engine::compiler(Code::Plain.pace()).expect("an engine");
    let of_other = engine.precompile(Hash::of(&program(1)), &program(1)).expect("it compiles");
    std::fs::write(scratch.0.join("code"), of_other.code()).expect("it is ours");
    // Sealed for the other module, with the key that children once had.
    let mut sealed = of_other;
    let sealed = sealed.seal(&wasi::Key::new([7; 32])).to_vec();
    std::fs::write(scratch.0.join("sealed"), sealed).expect("it is ours");
    let result = |file: &str| {
        let mut compile_queue = compile_queue(&format!("cat {}/{file}", scratch.0.display()));
        compile_queue.cache = Some(scratch.cache());
        compile_queue.take(Instant::default(), compile(7, &program(0)));
        loop {
            compile_queue.look(Instant::default());
            if let Some(compiled) = compile_queue.take_done().pop() {
                return compiled.result.map(|fresh| fresh.hash);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let Err(Refused::Failed(why)) = result("sealed") else { panic!("that is no code") };
    assert_eq!(why, "the output of its process is broken");
    let found = |wasm: &[u8]| {
        let found = scratch.cache().find(Hash::of(wasm), engine.compatibility());
        found.map(|artifact| artifact.name())
    };
    assert_eq!((found(&program(0)), found(&program(1))), (None, None));
    assert_eq!(result("code"), Ok(Hash::of(&program(0))));
    assert_eq!((found(&program(0)), found(&program(1))), (Some(Hash::of(&program(0))), None));
    // On disk it can neither be assigned to another module nor be changed.
    let dir = scratch.0.join("cache");
    let files = || std::fs::read_dir(&dir).expect("it is ours").filter_map(Result::ok);
    let name = Hash::of(&program(0)).to_string();
    let kept = files().find(|it| it.file_name().to_string_lossy().starts_with(&name));
    let kept = kept.expect("it was kept").path();
    let other = kept.display().to_string().replace(&name, &Hash::of(&program(1)).to_string());
    std::fs::copy(&kept, other).expect("it is ours");
    assert_eq!(found(&program(1)), None);
    let mut bytes = std::fs::read(&kept).expect("it is ours");
    *bytes.last_mut().expect("there are some") ^= 1;
    std::fs::write(&kept, bytes).expect("it is ours");
    assert_eq!(found(&program(0)), None);
}

#[test]
fn concurrent_requests_share_one_compilation() {
    let mut compile_queue = compile_queue("sleep 100");
    compile_queue.take(Instant::default(), compile(1, &program(0)));
    compile_queue.look(Instant::default());
    compile_queue.take(Instant::default(), compile(2, &program(0)));
    compile_queue.take(Instant::default(), compile(3, &program(1)));
    compile_queue.take(Instant::default(), compile(4, &program(1)));
    let known = Module::Known(Hash::of(&program(0)));
    compile_queue.take(Instant::default(), ask(5, known, Code::Plain));
    let other = Module::Known(Hash::of(&program(9)));
    compile_queue.take(Instant::default(), ask(6, other, Code::Plain));
    assert_eq!(done(&mut compile_queue), [(6, Some(Refused::Unknown))]);
    assert_eq!(compile_queue.waiting.len(), 1);
    // Code of another kind is a different artifact.
    let piece = Buf::from(&program(1)[..]);
    compile_queue.take(Instant::default(), ask(8, Module::Sent(vec![piece]), Code::Metered));
    assert_eq!(compile_queue.waiting.len(), 2);
    compile_queue.take(Instant::default(), ToCompiler::End);
    let all = [1, 2, 5, 3, 4, 8].map(|ticket| (ticket, Some(Refused::Cancelled)));
    assert_eq!(done(&mut compile_queue), all);
    assert!(!compile_queue.is_open() && !compile_queue.is_busy());
}

#[test]
fn abandoned_compilations_are_dropped() {
    let mut compile_queue = compile_queue("sleep 100");
    for ticket in 0..4 {
        compile_queue.take(Instant::default(), compile(ticket, &program(ticket as u8 / 2)));
    }
    compile_queue.look(Instant::default());
    let pid = compile_queue.lanes[QUICK].as_ref().map(|(_, child)| child.pid()).expect("it runs");
    let alive = || std::path::Path::new(&format!("/proc/{pid}")).exists();
    assert!(alive());
    for ticket in [0, 9, 2] {
        compile_queue.take(Instant::default(), ToCompiler::Cancel(ticket));
    }
    assert!(compile_queue.is_busy() && alive(), "somebody waits");
    compile_queue.take(Instant::default(), ToCompiler::Cancel(1));
    assert!(!compile_queue.is_busy() && !alive());
    compile_queue.take(Instant::default(), ToCompiler::Cancel(3));
    let all = [0, 2, 1, 3].map(|ticket| (ticket, Some(Refused::Cancelled)));
    assert_eq!(done(&mut compile_queue), all);
    compile_queue.look(Instant::default());
    assert!(!compile_queue.is_busy() && compile_queue.waiting.is_empty());
}

#[test]
fn a_child_has_a_minute() {
    let mut compile_queue = compile_queue("sleep 100");
    compile_queue.take(Instant::default(), compile(1, &program(0)));
    compile_queue.look(Instant::default());
    compile_queue.look(Instant::default() + Duration::from_secs(59));
    assert!(compile_queue.is_busy());
    compile_queue.look(Instant::default() + Duration::from_secs(60));
    let done = done(&mut compile_queue);
    let [(1, Some(Refused::Failed(why)))] = &done[..] else { panic!("{done:?}") };
    assert!(why.contains("after 60 s"), "{why}");
}

/// Returns one of many small programs.
fn numbered(number: u64) -> Vec<u8> {
    let mut wasm = program(number as u8);
    wasm.extend([0, 4, 1, b'n', number as u8, (number >> 8) as u8]);
    wasm
}

#[test]
fn clients_have_their_turns_and_none_takes_all_places() {
    let mut compile_queue = compile_queue("echo no module >&2; exit 3");
    for number in 0..=8 {
        compile_queue.take(Instant::default(), compile_for(9, 1, number, &numbered(number)));
    }
    assert!(matches!(done(&mut compile_queue)[..], [(8, Some(Refused::Failed(_)))]));
    compile_queue.take(Instant::default(), compile_for(9, 2, 20, &numbered(20)));
    compile_queue.take(Instant::default(), compile_for(12, 1, 21, &numbered(21)));
    let mut ended = Vec::new();
    while ended.len() < 10 {
        compile_queue.look(Instant::default());
        ended.extend(done(&mut compile_queue).into_iter().map(|(ticket, _)| ticket));
    }
    assert_eq!(ended[..4], [0, 20, 21, 1], "not all of who asked first");
    // A rejected module is not retried.
    compile_queue.take(Instant::default(), compile_for(5, 1, 30, &numbered(21)));
    assert!(matches!(done(&mut compile_queue)[..], [(30, Some(Refused::Malformed(_)))]));
    assert!(!compile_queue.is_busy() && compile_queue.waiting.is_empty());
}

/// Returns a program of about this many bytes.
fn long(number: u8, bytes: usize) -> Vec<u8> {
    let mut wasm = b"\0asm\x01\0\0\0".to_vec();
    wasm.extend(b"\x01\x04\x01\x60\0\0\x03\x02\x01\0\x05\x03\x01\0\x01");
    wasm.extend(b"\x07\x13\x02\x06_start\0\0\x06memory\x02\0");
    // One data segment, whose lengths take three bytes each.
    let part = |count: usize, at: u32| (count >> (7 * at)) as u8 & 0x7f;
    let length = |count: usize| [part(count, 0) | 0x80, part(count, 1) | 0x80, part(count, 2)];
    wasm.extend(b"\x0a\x07\x01\x05\0");
    wasm.extend([0x41, number & 0x3F, 0x1A, 0x0B, 0x0B]);
    wasm.extend(length(bytes + 8));
    wasm.extend([1, 0, 0x41, 0, 0x0B]);
    wasm.extend(length(bytes));
    wasm.extend(vec![number; bytes]);
    wasm
}

#[test]
fn the_shortest_is_next_and_the_longest_is_not_passed_for_ever() {
    let mut compile_queue = compile_queue("sleep 100");
    // A running one keeps the lane.
    compile_queue.take(Instant::default(), compile_for(1, 9, 0, &numbered(0)));
    compile_queue.look(Instant::default());
    let large = long(1, 60_000);
    compile_queue.take(Instant::default(), compile_for(1, 1, 1, &large));
    let finish = compile_queue.finish(&compile_queue.waiting[0]);
    assert!(finish > Instant::default() + Duration::from_millis(120));
    let mut order = Vec::new();
    for number in 2..40_u64 {
        let now = Instant::default() + Duration::from_millis(10 * number);
        compile_queue.take(now, compile_for(1, number as u32, number, &numbered(number)));
        let job = compile_queue.next(QUICK).expect("it waits");
        order.push(job.tickets[0]);
    }
    let large = order.iter().position(|ticket| *ticket == 1).expect("it has its turn");
    assert!((5..20).contains(&large), "{order:?}");
    assert_eq!(order[..3], [2, 3, 4]);
}

/// Eight modules that never finish, and one that finishes at once.
#[test]
fn slow_modules_do_not_delay_a_small_one() {
    // The module follows the request; the slow ones contain this byte.
    let script = "if tail -c +34 | grep -aq '?'; then while :; do :; done; fi; \
                  echo no module >&2; exit 3";
    let mut compile_queue = compile_queue(script);
    let clock = std::time::Instant::now();
    let now = || Instant::default() + clock.elapsed();
    for number in 0..8_u64 {
        let slow = long(b'?', 100 + number as usize);
        compile_queue.take(now(), compile_for(9, 1, number, &slow));
    }
    let is_slow = |compile_queue: &CompileQueue| compile_queue.lanes[SLOW].is_some();
    while !is_slow(&compile_queue) {
        assert!(clock.elapsed() < Duration::from_secs(20), "it stays in the quick lane");
        compile_queue.look(now());
        std::thread::sleep(Duration::from_millis(2));
    }
    let requested = clock.elapsed();
    compile_queue.take(now(), compile_for(9, 2, 100, &program(1)));
    let ended = loop {
        compile_queue.look(now());
        if let Some(ended) = done(&mut compile_queue).pop() {
            break ended;
        }
        let waited = clock.elapsed() - requested;
        assert!(waited < Duration::from_secs(20), "it waits for slow ones");
        std::thread::sleep(Duration::from_millis(2));
    };
    assert!(matches!(ended, (100, Some(Refused::Malformed(_)))), "{ended:?}");
    assert!(compile_queue.lanes.iter().flatten().count() <= 2);
    assert_eq!(compile_queue.waiting.len() + compile_queue.lanes.iter().flatten().count(), 8);
    // The waiting ones are already charged for the first ones: at most one more was started.
    assert!(compile_queue.waiting.iter().filter(|job| job.is_slow).count() <= 1);
}

/// Simulates a machine without CPU time for it: sleeping uses none.
#[test]
fn one_that_keeps_others_waiting_leaves_the_quick_lane() {
    let mut compile_queue = compile_queue("sleep 100");
    let start = Instant::default();
    let tickets = |compile_queue: &CompileQueue| {
        let of = |lane: &Option<(Job, Child)>| lane.as_ref().map(|(job, _)| job.tickets[0]);
        [of(&compile_queue.lanes[QUICK]), of(&compile_queue.lanes[SLOW])]
    };
    compile_queue.take(start, compile_for(9, 1, 0, &numbered(0)));
    compile_queue.look(start);
    compile_queue.look(start + TIMEOUT * 2);
    assert_eq!(tickets(&compile_queue), [Some(0), None], "nobody waits");
    compile_queue.take(start + TIMEOUT * 2, compile_for(9, 2, 1, &numbered(1)));
    compile_queue.take(start + TIMEOUT * 2, compile_for(9, 3, 2, &numbered(2)));
    compile_queue.look(start + TIMEOUT * 2);
    // The other lane is free: no work is lost.
    assert_eq!(tickets(&compile_queue), [Some(1), Some(0)]);
    compile_queue.look(start + TIMEOUT * 3);
    assert_eq!(tickets(&compile_queue), [Some(1), Some(0)]);
    compile_queue.look(start + TIMEOUT * 3 + Duration::from_millis(1));
    assert_eq!(tickets(&compile_queue), [Some(2), Some(0)]);
    assert!(compile_queue.waiting[0].is_slow && compile_queue.waiting[0].tickets == [1]);
}

#[test]
fn no_more_than_so_many_wait() {
    let mut compile_queue = compile_queue("sleep 100");
    for number in 0..=JOBS_MAX as u64 {
        let client = number as u32;
        let compile = compile_for(client % 2, client, number, &numbered(number));
        compile_queue.take(Instant::default(), compile);
    }
    let Some((1024, Some(Refused::Failed(why)))) = done(&mut compile_queue).pop() else {
        panic!("the last one is refused")
    };
    assert!(why.contains("try again"), "{why}");
    let mut large = vec![Buf::with_room(0, 0); 2];
    large.iter_mut().for_each(|piece| piece.extend(&vec![0; SENT_MAX]));
    compile_queue.take(Instant::default(), ask(99, Module::Sent(large), Code::Plain));
    assert!(matches!(done(&mut compile_queue)[..], [(99, Some(Refused::TooLarge(_)))]));
}

/// Twenty connections of one user with maximum load leave room for a hundred others.
#[test]
fn some_clients_of_a_user_do_not_lock_out_the_others() {
    let mut compile_queue = compile_queue("sleep 100");
    let mut ticket = 0;
    let mut send = |compile_queue: &mut CompileQueue, client| {
        ticket += 1;
        let compile = compile_for(9, client, ticket, &numbered(ticket));
        compile_queue.take(Instant::default(), compile);
        done(compile_queue).is_empty()
    };
    for client in 0..20 {
        assert!((0..8).all(|_| send(&mut compile_queue, client)));
        assert!(!send(&mut compile_queue, client));
    }
    for client in 20..120 {
        assert!(send(&mut compile_queue, client), "client {client} is locked out");
    }
}

#[test]
fn a_program_that_is_not_there_is_reported() {
    let mut compile_queue = compile_queue("");
    compile_queue.child_command.program = PathBuf::from("/no/such/program");
    compile_queue.take(Instant::default(), compile(1, &program(0)));
    compile_queue.look(Instant::default());
    let Some((1, Some(Refused::Failed(why)))) = done(&mut compile_queue).pop() else {
        panic!("it is refused")
    };
    assert!(why.contains("no process to compile in"), "{why}");
}
