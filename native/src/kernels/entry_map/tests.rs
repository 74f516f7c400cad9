//! What the map keeps, moves and forgets.

use std::collections::BTreeMap;

use super::*;

type Entry = (Vec<u8>, Option<Vec<u8>>);

fn written(map: &mut Entered) -> Vec<Entry> {
    let owned = |(key, value): (&[u8], Option<&[u8]>)| (key.to_vec(), value.map(<[u8]>::to_vec));
    map.written_part(0, usize::MAX).map(owned).collect()
}

fn value(map: &Entered, key: &[u8]) -> Option<Option<Vec<u8>>> {
    map.find(key).map(|place| map.log.value(place).map(<[u8]>::to_vec))
}

#[test]
fn what_is_written_comes_back_in_the_order_of_keys() {
    let mut map = Entered::default();
    map.put(b"prefix-b", Some(b"1"), WRITTEN);
    map.put(b"prefix-a", None, WRITTEN);
    map.put(b"", Some(b""), WRITTEN);
    map.put(b"prefix", Some(b"2"), WRITTEN);
    map.keep(b"only read", Some(b"3"));
    let keys = |part: Vec<Entry>| part.into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    assert_eq!(keys(written(&mut map)), [&b""[..], b"prefix", b"prefix-a", b"prefix-b"]);
    let part: Vec<_> = map.written_part(1, 3).map(|(key, value)| (key.to_vec(), value.is_some())).collect();
    assert_eq!(part, [(b"prefix".to_vec(), true), (b"prefix-a".to_vec(), false)]);
    assert_eq!(map.written_part(3, 1).count() + map.written_part(9, 12).count(), 0);
    assert_eq!((map.written, value(&map, b"only read")), (4, Some(Some(b"3".to_vec()))));
}

#[test]
fn written_entries_are_found_by_range() {
    let mut map = Entered::default();
    for key in [&b"b"[..], b"aa", b"c", b"a"] {
        map.put(key, Some(key), WRITTEN);
    }
    map.put(b"b", None, WRITTEN);
    map.keep(b"ab", Some(b"only read"));
    let mut between = |low: &[u8], high: Option<&[u8]>, most: usize, last: bool| {
        let found = map.written_between(low, high, most, last);
        found.into_iter().map(|place| String::from_utf8(map.log.key(place).to_vec()).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(between(b"a", Some(b"c"), 3, false), ["a", "aa", "b"]);
    assert_eq!(between(b"a", Some(b"c"), 2, false), ["a", "aa"]);
    assert_eq!(between(b"a", Some(b"c"), 2, true), ["aa", "b"]);
    assert_eq!(between(b"aa", None, 9, true), ["aa", "b", "c"]);
    assert!(between(b"", Some(b"a"), 9, false).is_empty() && between(b"b", Some(b"a"), 9, true).is_empty());
    assert_eq!(value(&map, b"b"), Some(None));
}

#[test]
fn what_is_kept_never_hides_what_is_written() {
    let mut map = Entered::default();
    map.put(b"k", Some(b"new"), WRITTEN);
    map.keep(b"k", Some(b"old"));
    assert_eq!(value(&map, b"k"), Some(Some(b"new".to_vec())));
    map.keep(b"absent", None);
    assert_eq!((value(&map, b"absent"), value(&map, b"unknown")), (Some(None), None));
}

#[test]
fn settled_entries_are_no_longer_written_but_known() {
    let mut map = Entered::default();
    map.put(b"k", Some(b"v"), WRITTEN);
    map.settle();
    assert_eq!((map.written, map.written_bytes(), written(&mut map)), (0, 0, vec![]));
    assert_eq!(value(&map, b"k"), Some(Some(b"v".to_vec())));
    map.unsort();
    map.put(b"k", Some(b"longer than before"), WRITTEN);
    assert_eq!(written(&mut map), [(b"k".to_vec(), Some(b"longer than before".to_vec()))]);
}

#[test]
fn keys_below_a_bound_are_forgotten() {
    let mut map = Entered::default();
    for key in [b"a", b"b", b"c"] {
        map.put(key, Some(b"v"), WRITTEN);
    }
    map.keep(b"0", Some(b"v"));
    map.forget_below(b"b");
    assert_eq!(written(&mut map).len(), 2);
    assert!([&b"0"[..], b"a"].iter().all(|key| value(&map, key).is_none()));
    assert!(!map.forgot, "what is below the bound is not in the database either");
}

/// Entries that come by time leave whole segments behind, of which ordered and other places are known.
#[test]
fn what_expires_by_time_frees_its_memory() {
    let mut map = Entered::default();
    let key = |i: u32| i.to_be_bytes();
    let put = |map: &mut Entered, range: std::ops::Range<u32>| {
        map.unsort();
        range.for_each(|i| map.put(&key(i), Some(&[1; 100]), WRITTEN));
    };
    put(&mut map, 0..20_000);
    assert_eq!(map.written_between(&key(5), None, 3, false).len(), 3);
    put(&mut map, 20_000..40_000);
    let before = map.used_bytes();
    for bound in [10_000, 30_000] {
        map.forget_below(&key(bound));
        let first = map.written_between(b"", None, 1, false)[0];
        assert_eq!((map.entry(first).0, map.written), (&key(bound)[..], 40_000 - bound as usize));
        assert_eq!(map.sort().len(), 40_000 - bound as usize);
        map.unsort();
    }
    assert!(map.used_bytes() < before / 2);
    map.forget_below(&key(40_000));
    assert_eq!((map.written, map.log.bytes), (0, 0));
    map.settle();
    put(&mut map, 1..3);
    assert_eq!(written(&mut map).len(), 2);
}

#[test]
fn shrinking_keeps_what_is_written_and_forgets_what_nobody_asked_for_first() {
    let mut map = Entered::default();
    let key = |i: u32| i.to_be_bytes();
    for i in 0..20_000 {
        map.keep(&key(i), Some(&[1; 100]));
    }
    map.put(&key(5), Some(b"new"), WRITTEN);
    let asked = map.find(&key(7)).unwrap();
    map.mark_used(asked);
    let before = map.used_bytes();
    map.shrink(before / 2);
    assert!(map.used_bytes() <= before / 2 && map.forgot);
    assert_eq!(value(&map, &key(5)), Some(Some(b"new".to_vec())));
    assert!(value(&map, &key(7)).is_some() && value(&map, &key(6)).is_none());
    map.unsort();
    assert_eq!(written(&mut map), [(key(5).to_vec(), Some(b"new".to_vec()))]);
}

/// Compared with a map of the standard library, over some thousand steps of a small generator.
#[test]
fn it_answers_as_a_plain_map_does() {
    let (mut map, mut plain) = (Entered::default(), BTreeMap::<Vec<u8>, Option<Vec<u8>>>::new());
    let mut state = 1u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for step in 0..30_000 {
        let key = format!("key {}", next(700)).into_bytes();
        let new = (next(5) > 0).then(|| vec![step as u8; next(40) as usize]);
        map.unsort();
        map.put(&key, new.as_deref(), WRITTEN);
        plain.insert(key, new);
        match next(2_000) {
            0 => {
                assert_eq!(written(&mut map), plain.clone().into_iter().collect::<Vec<_>>());
                map.settle();
                plain.clear();
            }
            1 => map.shrink(20_000),
            2 => {
                let bound = format!("key {}", next(200)).into_bytes();
                map.forget_below(&bound);
                plain = plain.split_off(&bound);
            }
            3..60 => {
                let bounds = [next(700), next(700)].map(|n| format!("key {n}").into_bytes());
                let (low, high) = (bounds[0].clone(), (next(4) > 0).then(|| bounds[1].clone()));
                let most = next(30) as usize;
                let within = |key: &[u8]| key >= &low[..] && high.as_ref().is_none_or(|high| key < &high[..]);
                let all: Vec<Entry> = plain.clone().into_iter().filter(|(key, _)| within(key)).collect();
                for (last, expected) in
                    [(false, &all[..most.min(all.len())]), (true, &all[all.len().saturating_sub(most)..])]
                {
                    let places = map.written_between(&low, high.as_deref(), most, last);
                    let found = places.into_iter().map(|place| map.entry(place));
                    let found: Vec<Entry> =
                        found.map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec))).collect();
                    assert_eq!(found, expected);
                }
            }
            _ => {}
        }
        assert_eq!(map.written, plain.len());
    }
    for (key, expected) in &plain {
        assert_eq!(value(&map, key).as_ref(), Some(expected));
    }
}
