use super::*;
use crate::{Call, On};
use store::drive::Memory;
use store::{Change, Durability, Geometry, Table, View};

const TABLE: Table = Table(300);
const NOW: Instant = Instant(1);

fn geometry() -> Geometry {
    Geometry { block: 512, blocks: 8192, journal: 256, segment: 256 }
}

fn open(memory: Memory) -> Driver<Memory> {
    let config = Config::for_memory(1 << 20, &geometry().layout().unwrap());
    Driver::open(memory, config, NOW).unwrap()
}

fn put(driver: &mut Driver<Memory>, key: &[u8], durability: Durability) {
    let changes = vec![Change::Put { table: TABLE, key: key.to_vec(), value: b"value".to_vec() }];
    let call = Call::Apply(changes);
    let answer = driver.ask(NOW, Request::Call(On::Once(View::Present, durability), call));
    assert_eq!(answer, Ok(Reply::Done));
}

fn has(driver: &mut Driver<Memory>, key: &[u8]) -> bool {
    let call = Call::Get { table: TABLE, key: key.to_vec() };
    let on = On::Once(View::Present, Durability::Soon);
    match driver.ask(NOW, Request::Call(on, call)) {
        Ok(Reply::Value(value)) => value.is_some(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn acknowledged_changes_survive_a_power_failure() {
    let mut driver = open(Memory::formatted(&geometry()).unwrap());
    for round in 0..5u8 {
        put(&mut driver, &[round], Durability::Durable);
        put(&mut driver, &[100 + round], Durability::Soon);
        assert!(has(&mut driver, &[100 + round]));
        let mut memory = driver.into_disk();
        memory.lose_power();
        driver = open(memory);
        assert!((0..=round).all(|round| has(&mut driver, &[round])));
        base::Automaton::check(driver.engine());
    }
}

#[test]
fn files_that_are_no_volume_are_refused() {
    let config = Config::for_memory(1 << 20, &geometry().layout().unwrap());
    let opened = Driver::open(Memory::new(512, 1024), config, NOW);
    assert_eq!(opened.err(), Some(Error::NotAVolume));
    assert_eq!(Driver::open(Memory::new(512, 8), config, NOW).err(), Some(Error::NotAVolume));
}
