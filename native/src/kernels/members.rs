//! Members of distinct counts that are new since the last commit: `penstock.state.stores.member_store`.
//!
//! The key of a member: the head of its aggregate's entry, the number of the count (2 bytes), the member.

use super::bags::each_value;
use super::changelog::logged_keys;
use super::distinct::Distinct;
use super::rows::{Rows, Taken};
use super::tuples::{Form, Unread};
use crate::refused::Refused;

/// With more bytes than these the store's entries take over: places in `Distinct` have 31 bits.
const BYTES_MAX: usize = 1 << 30;

/// What was asked about last.
struct Asked {
    keys: Distinct,
    /// Of each key: the row that has it first, and the number of its count there.
    owners: Vec<(u32, u32)>,
    /// The keys that are new.
    new: Vec<u32>,
    rows: usize,
    counts: usize,
}

impl Asked {
    fn none() -> Self {
        Asked { keys: Distinct::new(), owners: vec![], new: vec![], rows: 0, counts: 0 }
    }
}

pub struct Members {
    /// Those that are new since the commit, in their order.
    kept: Distinct,
    asked: Asked,
}

impl Default for Members {
    fn default() -> Self {
        Members { kept: Distinct::new(), asked: Asked::none() }
    }
}

impl Members {
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    pub fn used_bytes(&self) -> usize {
        if self.kept.len() == 0 { 0 } else { self.kept.used_bytes() }
    }

    pub fn clear(&mut self) {
        *self = Members::default();
    }

    /// Asks about the members of partial aggregates: `heads` of entries, and the entry of each row, which all exist.
    /// `None`: Python must read one of them, or there are too many.
    pub fn ask(&mut self, partials: &Rows, forms: &[Form], heads: &Rows, entries: &[i64]) -> Option<()> {
        let mut asked = Asked::none();
        asked.rows = partials.len();
        asked.counts = forms.iter().filter(|&&form| form == Form::Bag).count();
        let mut key = vec![];
        for (row, &entry) in entries.iter().enumerate() {
            let mut unread = Unread(partials.bytes(row));
            if unread.array()? != forms.len() {
                return None;
            }
            key.clear();
            key.extend_from_slice(heads.bytes(entry as usize));
            let head = key.len();
            let mut number = 0u16;
            for form in forms {
                let part = unread.bytes()?;
                if *form != Form::Bag {
                    continue;
                }
                if self.kept.bytes() + asked.keys.bytes() + part.len() * (head + 3) > BYTES_MAX {
                    return None;
                }
                key.truncate(head);
                key.extend_from_slice(&number.to_be_bytes());
                let start = key.len();
                each_value(part, |member| {
                    key.truncate(start);
                    key.extend_from_slice(member);
                    if !self.kept.has(&key) {
                        let place = asked.keys.code(&key) as usize;
                        if place == asked.owners.len() {
                            asked.owners.push((row as u32, number.into()));
                        }
                    }
                })?;
                number += 1;
            }
            unread.end()?;
        }
        self.asked = asked;
        Some(())
    }

    /// The keys that were asked about and are not kept, each once.
    pub fn asked(&self) -> (&[u8], Vec<i64>) {
        self.asked.keys.column()
    }

    /// How many members are new for each row and count, of the keys that were asked about; `absent`: 1 for each that the
    /// store does not have. Refuses other than one flag for each.
    pub fn fresh(&mut self, absent: &[u8]) -> Result<Vec<i64>, Refused> {
        let asked = &mut self.asked;
        if absent.len() != asked.owners.len() {
            return Err(Refused::Value("there is not one flag per key".into()));
        }
        let mut counts = vec![0; asked.rows * asked.counts];
        asked.new.clear();
        for (place, &(row, number)) in asked.owners.iter().enumerate() {
            if absent[place] != 0 {
                counts[row as usize * asked.counts + number as usize] += 1;
                asked.new.push(place as u32);
            }
        }
        Ok(counts)
    }

    /// Keeps those that are new.
    pub fn keep(&mut self) {
        let asked = std::mem::replace(&mut self.asked, Asked::none());
        for place in asked.new {
            self.kept.code(asked.keys.get(place as usize));
        }
    }

    /// Whether a key lies below the bound.
    pub fn any_below(&self, bound: &[u8]) -> bool {
        (0..self.kept.len()).any(|place| self.kept.get(place) < bound)
    }

    /// All that are new since the commit, in their order.
    pub fn keys(&self) -> (&[u8], Vec<i64>) {
        self.kept.column()
    }

    /// As `keys`, with the keys as the changelog of a window store has them: the start behind the rest, and the sequence.
    pub fn logged(&self) -> Result<Taken, Refused> {
        logged_keys((0..self.kept.len()).map(|place| self.kept.get(place)), self.kept.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::bags::Bags;
    use crate::kernels::tuples::{put_array, put_framed, put_long};

    const FORMS: [Form; 3] = [Form::Bag, Form::Long, Form::Bag];

    /// Partials of two counts, whose members are numbers.
    fn partials(rows: &[[&[i64]; 2]]) -> (Vec<u8>, Vec<i64>) {
        let (mut data, mut ends) = (vec![], vec![0]);
        for counts in rows {
            let mut bags = Bags::default();
            for (count, numbers) in counts.iter().enumerate() {
                bags.add_numbers(count as u16, &vec![0; numbers.len()], numbers);
            }
            bags.sort();
            put_array(&mut data, 3).unwrap();
            put_framed(&mut data, |out| bags.put(out, 0, 0)).unwrap();
            put_long(&mut data, 9);
            put_framed(&mut data, |out| bags.put(out, 0, 1)).unwrap();
            ends.push(data.len() as i64);
        }
        (data, ends)
    }

    fn ask(members: &mut Members, rows: &[[&[i64]; 2]], entries: &[i64]) -> Vec<Vec<u8>> {
        let (data, ends) = partials(rows);
        let heads = Rows::of(b"12345678A12345678B", &[0, 9, 18], None).unwrap();
        members.ask(&Rows::of(&data, &ends, None).unwrap(), &FORMS, &heads, entries).unwrap();
        listed(members.asked())
    }

    fn listed((data, ends): (&[u8], Vec<i64>)) -> Vec<Vec<u8>> {
        ends.windows(2).map(|pair| data[pair[0] as usize..pair[1] as usize].to_vec()).collect()
    }

    #[test]
    fn members_are_asked_about_once_and_counted_at_their_first_row() {
        let mut members = Members::default();
        let keys = ask(&mut members, &[[&[2, 1, 2], &[1]], [&[1], &[]], [&[1, 3], &[]]], &[1, 0, 1]);
        let expected: [&[u8]; 5] = [
            b"12345678B\0\0\x01",
            b"12345678B\0\0\x02",
            b"12345678B\0\x01\x01",
            b"12345678A\0\0\x01",
            b"12345678B\0\0\x03",
        ];
        assert_eq!(keys, expected);
        assert_eq!(members.fresh(&[1, 0, 1, 1, 1]), Ok(vec![1, 1, 1, 0, 1, 0]));
        assert_eq!(members.len(), 0);
        members.keep();
        assert_eq!(listed(members.keys()), [expected[0], expected[2], expected[3], expected[4]]);
        assert_eq!(ask(&mut members, &[[&[1, 2, 4], &[]]], &[1]), [&b"12345678B\0\0\x02"[..], b"12345678B\0\0\x04"]);
        assert_eq!(members.fresh(&[0, 0]), Ok(vec![0, 0]));
        members.keep();
        assert_eq!(members.len(), 4);
        members.clear();
        assert_eq!((members.len(), members.used_bytes()), (0, 0));
    }

    #[test]
    fn what_was_asked_about_is_not_kept_if_another_question_follows() {
        let mut members = Members::default();
        ask(&mut members, &[[&[1], &[]]], &[0]);
        members.fresh(&[1]).unwrap();
        ask(&mut members, &[[&[], &[]]], &[0]);
        members.keep();
        assert_eq!(members.len(), 0);
        assert!(members.fresh(&[1]).is_err());
    }

    #[test]
    fn changelogs_have_the_start_behind_the_key() {
        let mut members = Members::default();
        ask(&mut members, &[[&[1, 2], &[]]], &[1]);
        members.fresh(&[1, 1]).unwrap();
        members.keep();
        let logged = members.logged().unwrap();
        assert_eq!(logged.data, b"B\0\0\x0112345678\0\0\0\0B\0\0\x0212345678\0\0\0\0");
        assert_eq!(logged.ends, [0, 16, 32]);
        assert!(members.any_below(b"12345678C") && !members.any_below(b"12345678B"));
    }

    #[test]
    fn other_partials_are_left_to_python() {
        let heads = Rows::of(b"h", &[0, 1], None).unwrap();
        for data in [&[0x92, 0xc4, 1, 0x90][..], &[0x91, 0xc4, 1, 0x91], &[0x91, 0xc4, 1, 0x90, 0], &[0x91, 0x90]] {
            let rows = Rows::of(data, &[0, 0], None).unwrap();
            assert_eq!(Members::default().ask(&rows, &[Form::Bag], &heads, &[0]), None);
            let ends = [0, data.len() as i64];
            let rows = Rows::of(data, &ends, None).unwrap();
            assert_eq!(Members::default().ask(&rows, &[Form::Bag], &heads, &[0]), None, "{data:?}");
        }
    }
}
