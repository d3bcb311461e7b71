use super::*;

#[test]
fn a_file_that_comes_through_many_servers_has_a_number_of_its_own_at_each() {
    let far = 0xfffe_0000_0000_0002;
    let moved = |inode| qid(&Stat { device: far, inode, ..Stat::default() }, 1).path;
    for inode in [2, 720, u64::MAX] {
        let numbers: Vec<u64> =
            std::iter::successors(Some(inode), |inode| Some(moved(*inode))).take(20).collect();
        for (index, number) in numbers.iter().enumerate() {
            assert!(!numbers[..index].contains(number), "{inode} after {index} servers");
        }
    }
}
