//! Modules that are expensive to compile, byte by byte. `cargo xtask hostile` includes this file.

/// Encodes a number as LEB128.
fn number(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7F {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Prefixes bytes with their length.
pub(crate) fn with_len(bytes: &[u8]) -> Vec<u8> {
    [&number(bytes.len())[..], bytes].concat()
}

/// Returns a section of a module.
pub(crate) fn section(id: u8, contents: &[u8]) -> Vec<u8> {
    [&[id][..], &with_len(contents)].concat()
}

/// Returns a program of these functions, beginning with the first.
pub(crate) fn program(bodies: &[Vec<u8>]) -> Vec<u8> {
    let count = number(bodies.len());
    let functions = [&count[..], &vec![0; bodies.len()]].concat();
    let code: Vec<u8> = bodies.iter().flat_map(|body| with_len(body)).collect();
    [
        &b"\0asm\x01\0\0\0"[..],
        &section(1, b"\x01\x60\0\0"),
        &section(3, &functions),
        &section(5, b"\x01\0\x01"),
        &section(7, b"\x02\x06_start\0\0\x06memory\x02\0"),
        &section(10, &[&count[..], &code].concat()),
    ]
    .concat()
}

/// Returns an empty function.
pub(crate) fn empty() -> Vec<u8> {
    vec![0, 0x0B]
}

/// Returns a function of many branches, each of which reads and sets some of many locals, so that
/// values merge everywhere.
pub(crate) fn branching(locals: usize, branches: usize) -> Vec<u8> {
    let mut body = [&[1][..], &number(locals), &[0x7F]].concat();
    for at in 0..branches {
        let local = |number_of: usize| number(number_of % locals);
        body.push(0x20);
        body.extend(local(at));
        body.extend([0x04, 0x40, 0x20]);
        body.extend(local(at * 7 + 1));
        body.extend([0x41, 1, 0x6A, 0x21]);
        body.extend(local(at * 13));
        body.push(0x0B);
    }
    body.push(0x0B);
    body
}

/// Returns nested loops, and branches to all of them.
fn looping(loops: usize, branches: usize) -> Vec<u8> {
    let mut body = [&[1, 1, 0x7F][..], &[0x03, 0x40].repeat(loops)].concat();
    for at in 0..branches {
        body.extend([0x20, 0, 0x0D]);
        body.extend(number(at % loops));
    }
    body.extend(vec![0x0B; loops + 1]);
    body
}

/// Returns valid modules, of a megabyte at most, that take a compiler half a minute or gigabytes.
pub(crate) fn bombs() -> [(&'static str, Vec<u8>, &'static str); 4] {
    [
        ("meetings", program(&[branching(1000, 20_000)]), "meetings of locals and branches"),
        ("large", program(&[branching(5000, 80_000)]), "bytes in function 0, at most 1048576"),
        ("many", program(&vec![empty(); 200_000]), "200000 functions, at most 50000"),
        ("loops", program(&[looping(2000, 4000)]), "2000 loops inside of each other"),
    ]
}

/// Returns a module that the server accepts and compiles for seconds, longer in a debug build.
pub(crate) fn slow() -> Vec<u8> {
    program(&vec![branching(100, 9_000); 60])
}
