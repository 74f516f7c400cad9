//! Tests of aggregates by key.

use super::*;
use crate::kernels::segments::WRITTEN;

const PARTS: [Part; 4] = [Part::Count, Part::Total, Part::Least, Part::Greatest];

fn offsets(count: usize) -> Vec<i64> {
    (0..=count as i64).collect()
}

/// Reserves keys of one byte each that the store does not have.
fn reserve(tally: &mut PartTally, keys: &[u8], starts: Option<&[i64]>) {
    assert!(tally.reserve(&Rows::of(keys, &offsets(keys.len()), None).unwrap(), starts));
}

fn all<'a>(numbers: &'a [i64], nulls: Option<&'a [u8]>) -> [Values<'a>; 4] {
    let values = || Values::Numbers(numbers, nulls);
    [Values::Rows(nulls), values(), values(), values()]
}

fn of(keys: &[u8], numbers: &[i64], nulls: Option<&[u8]>) -> PartTally {
    let mut tally = PartTally::new(PARTS.to_vec());
    reserve(&mut tally, keys, None);
    tally.base_nothing();
    assert!(tally.fold(&all(numbers, nulls), &vec![5; keys.len()]));
    tally
}

fn stored(time: i64, numbers: &[i64]) -> Vec<u8> {
    let mut out = time.to_be_bytes().to_vec();
    write(&PARTS, &mut out, numbers).unwrap();
    out
}

fn listed(taken: &Taken) -> Vec<&[u8]> {
    taken.ends.windows(2).map(|pair| &taken.data[pair[0] as usize..pair[1] as usize]).collect()
}

#[test]
fn parts_have_letters() {
    let found: Vec<_> = b"nslgx".iter().map(|&letter| Part::of(letter)).collect();
    assert_eq!(found, [Some(PARTS[0]), Some(PARTS[1]), Some(PARTS[2]), Some(PARTS[3]), None]);
}

#[test]
fn rows_are_folded_by_key_without_nulls() {
    let tally = of(b"abaab", &[4, 9, -7, 2, 8], Some(&[0, 1, 0, 0, 1]));
    assert_eq!(tally.columns(), [vec![3, 0], vec![3, 0], vec![-1, 0], vec![1, 0], vec![-7, 0], vec![1, 0], vec![4, 0]]);
    assert_eq!(listed(&tally.keys().unwrap()), [b"a", b"b"]);
    assert_eq!((tally.len(), tally.times(), tally.reserved()), (2, &[5, 5][..], 0));
    let written = tally.written().unwrap();
    assert_eq!(
        listed(&written),
        [
            b"\x94\xc4\x08\0\0\0\0\0\0\0\x03\xc4\x03\x92\x03\xff\xc4\x02\x91\xf9\xc4\x02\x91\x04",
            &b"\x94\xc4\x08\0\0\0\0\0\0\0\0\xc4\x03\x92\0\0\xc4\x01\x90\xc4\x01\x90"[..]
        ]
    );
}

#[test]
fn times_are_the_highest() {
    let mut tally = of(b"a", &[1], None);
    for time in [9, 7] {
        reserve(&mut tally, b"a", None);
        assert!(tally.fold(&all(&[1], None), &[time]));
        assert_eq!(tally.times(), [9]);
    }
}

#[test]
fn partials_are_merged_as_their_records() {
    let mut tally = of(b"a", &[4], None);
    let partials = [&stored(0, &[2, 3, 10, 1, -2, 1, 6])[8..], &stored(0, &[1, 0, 0, 0, 0, 0, 0])[8..]];
    let ends = [0, partials[0].len() as i64, (partials[0].len() + partials[1].len()) as i64];
    reserve(&mut tally, b"ab", None);
    tally.base_nothing();
    let data = partials.concat();
    assert!(tally.merge(&Rows::of(&data, &ends, None).unwrap(), &[6, 2]));
    assert_eq!(tally.columns(), [vec![3, 1], vec![4, 0], vec![14, 0], vec![1, 0], vec![-2, 0], vec![1, 0], vec![6, 0]]);
    assert_eq!(tally.times(), [6, 2]);
}

#[test]
fn what_the_store_holds_comes_first() {
    let mut tally = PartTally::new(PARTS.to_vec());
    reserve(&mut tally, b"ab", None);
    assert_eq!(tally.unbased_keys().collect::<Vec<_>>(), [b"a", b"b"]);
    let values = [Some(&stored(9, &[40, 2, 3, 1, -5, 0, 0])[..]), None];
    tally.base(values.into_iter()).unwrap();
    assert!(tally.unbased_keys().next().is_none() && tally.len() == 0, "nothing was folded yet");
    assert!(tally.fold(&all(&[1, 2], None), &[3, 4]));
    assert_eq!(tally.columns()[0], [41, 1]);
    assert_eq!((tally.columns()[2][0], tally.columns()[4][0], tally.columns()[6][0]), (4, -5, 1));
    assert_eq!(tally.times(), [9, 4]);
}

#[test]
fn the_memory_of_a_store_answers_for_the_keys_that_it_knows() {
    for whole in [false, true] {
        let mut known = Entered::default();
        known.put(b"a", Some(&stored(7, &[1, 1, 1, 1, 1, 1, 1])), WRITTEN);
        known.put(b"b", None, WRITTEN);
        let mut tally = PartTally::new(PARTS.to_vec());
        reserve(&mut tally, b"abc", None);
        assert_eq!(tally.base_from(&mut known, whole), Ok(()));
        assert_eq!(tally.unbased_keys().count(), usize::from(!whole));
        tally.base(std::iter::repeat_n(None, usize::from(!whole))).unwrap();
        assert!(tally.fold(&all(&[1, 1, 1], None), &[0, 0, 0]));
        assert_eq!(tally.columns()[1], [2, 1, 1]);
    }
}

#[test]
fn what_is_not_of_whole_numbers_is_refused() {
    let good = stored(1, &[1, 1, 1, 1, 1, 1, 1]);
    let mut into = [0; 7];
    assert_eq!(read(&PARTS, &good[8..], &mut into), Some(1));
    assert_eq!(read(&PARTS[..3], &good[8..], &mut into), None);
    assert_eq!(read(&[PARTS[0], PARTS[2], PARTS[2], PARTS[3]], &good[8..], &mut into), None);
    assert_eq!(read(&PARTS, &[&good[8..], &[0]].concat(), &mut into), None);
    for end in 8..good.len() {
        assert_eq!(read(&PARTS, &good[8..end], &mut into), None);
    }
    for inner in [&b"\xcb\0\0\0\0\0\0\0\0"[..], b"\xa1x", b"\xcf\x80\0\0\0\0\0\0\0", b"\xc0"] {
        let mut total = vec![0x91, 0xc4, 2 + inner.len() as u8, 0x92, 1];
        total.extend_from_slice(inner);
        assert_eq!(read(&[Part::Total], &total, &mut into), None, "{inner:?}");
    }
    assert_eq!(read(&[Part::Total], b"\x91\xc4\x03\x92\x00\x01", &mut into), None, "a sum of no numbers");
    for values in [&b"short"[..], b"12345678\x90", &stored(0, &[1, 1, 1 << 62, 0, 0, 0, 0])] {
        let mut tally = PartTally::new(PARTS.to_vec());
        reserve(&mut tally, b"a", None);
        assert!(tally.base([Some(values)].into_iter()).is_err() && tally.len() == 0);
    }
}

#[test]
fn sums_that_may_come_too_far_are_refused_as_a_whole() {
    let mut tally = of(b"a", &[1], None);
    let before = tally.columns();
    let near = (1 << 62) - 2;
    for (numbers, nulls) in [(&[near, 1][..], None), (&[i64::MIN, 0], None), (&[-near, -1], Some(&[0, 0][..]))] {
        reserve(&mut tally, b"bc", None);
        tally.base_nothing();
        assert!(!tally.fold(&all(numbers, nulls), &[0, 0]));
        assert_eq!((tally.len(), tally.columns()), (1, before.clone()), "{numbers:?}");
    }
    assert!(tally.fold(&all(&[near, i64::MIN], Some(&[1, 1])), &[0, 0]), "nulls have no numbers");
    let far = &stored(0, &[near, 0, 0, 0, 0, 0, 0])[8..];
    reserve(&mut tally, b"a", None);
    assert!(!tally.merge(&Rows::of(far, &[0, far.len() as i64], None).unwrap(), &[0]));
    assert!(!tally.merge(&Rows::of(b"x", &[0, 1], None).unwrap(), &[0]));
    assert_eq!(tally.len(), 3);
    tally.clear();
    assert_eq!((tally.len(), tally.used_bytes(), tally.bound), (0, 0, 0));
}

#[test]
fn windows_stand_before_their_keys() {
    let mut tally = PartTally::new(vec![Part::Count]);
    reserve(&mut tally, b"abaa", Some(&[10, 10, 0, 10]));
    tally.base_nothing();
    assert!(tally.fold(&[Values::Rows(None)], &[0; 4]));
    let (starts, names) = tally.windows().unwrap();
    assert_eq!((starts, listed(&names)), (vec![10, 10, 0], vec![&b"a"[..], b"b", b"a"]));
    assert_eq!(tally.columns(), [[2, 1, 1]]);
    assert_eq!(listed(&tally.keys().unwrap())[0], b"\0\0\0\0\0\0\0\x0aa");
    assert_eq!(listed(&tally.logged().unwrap())[1], b"b\0\0\0\0\0\0\0\x0a\0\0\0\0");
    assert!(tally.any_below(&[0, 0, 0, 0, 0, 0, 0, 1]) && !tally.any_below(&[0; 8]));
    assert!(tally.used_bytes() > 0);
    let mut other = of(b"a", &[1], None);
    assert!(other.windows().is_err());
    other.clear();
    assert!(!other.any_below(&[255]));
}
