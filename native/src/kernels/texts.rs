//! Functions of texts in UTF-8, for whole columns: see `penstock.topologies.expressions.strings`. Nulls stay null.
//!
//! What is looked for is UTF-8, too, so it begins only where a character begins, and bytes may be compared.

use memchr::memmem;

use super::rows::{Rows, Taken};
use crate::refused::Refused;

/// What is looked for, and in which place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Where {
    Anywhere,
    AtStart,
    AtEnd,
}

impl Where {
    /// By its letter.
    pub fn of(letter: u8) -> Option<Self> {
        match letter {
            b'a' => Some(Where::Anywhere),
            b's' => Some(Where::AtStart),
            b'e' => Some(Where::AtEnd),
            _ => None,
        }
    }
}

/// The number of characters of each text; 0 for a null.
pub fn lengths(texts: &Rows) -> Vec<i64> {
    // Each byte but those that go on with a character begins one.
    let count = |text: &[u8]| text.iter().map(|&byte| i64::from(byte & 0xc0 != 0x80)).sum();
    (0..texts.len()).map(|row| texts.get(row).map_or(0, count)).collect()
}

/// 1 for each text that has `what`; 0 for a null.
pub fn found(texts: &Rows, what: &[u8], place: Where) -> Vec<u8> {
    let finder = memmem::Finder::new(what);
    let has = |text: &[u8]| match place {
        Where::Anywhere => finder.find(text).is_some(),
        Where::AtStart => text.starts_with(what),
        Where::AtEnd => text.ends_with(what),
    };
    (0..texts.len()).map(|row| texts.get(row).is_some_and(has).into()).collect()
}

/// Each text with `new` in the place of each `old`, which is not empty.
pub fn replaced(texts: &Rows, old: &[u8], new: &[u8]) -> Result<Taken, Refused> {
    let finder = finder_of(old)?;
    let mut all = Taken::with_room(texts.len(), texts.extent())?;
    for row in 0..texts.len() {
        let Some(text) = texts.get(row) else {
            all.push(None);
            continue;
        };
        let mut rest = 0;
        for at in finder.find_iter(text) {
            all.data.extend_from_slice(&text[rest..at]);
            all.data.extend_from_slice(new);
            rest = at + old.len();
        }
        all.push(Some([&text[rest..], &[]]));
    }
    Ok(all)
}

/// The part number `place`, from 0 on, of each text between the separators, which are not empty. Null: it has less of them.
pub fn split_part(texts: &Rows, separator: &[u8], place: usize) -> Result<Taken, Refused> {
    let finder = finder_of(separator)?;
    let mut all = Taken::with_room(texts.len(), texts.extent() / (place + 2))?;
    for row in 0..texts.len() {
        let part = texts.get(row).and_then(|text| {
            let mut ends = finder.find_iter(text);
            let start = match place {
                0 => 0,
                _ => ends.nth(place - 1)? + separator.len(),
            };
            Some([&text[start..ends.next().unwrap_or(text.len())], &[]])
        });
        all.push(part);
    }
    Ok(all)
}

fn finder_of(what: &[u8]) -> Result<memmem::Finder<'_>, Refused> {
    if what.is_empty() {
        return Err(Refused::Value("there is nothing to look for".into()));
    }
    Ok(memmem::Finder::new(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T>(texts: &[Option<&str>], f: impl Fn(&Rows) -> T) -> T {
        let mut all = Taken::with_room(0, 0).unwrap();
        for text in texts {
            all.push(text.map(|text| [text.as_bytes(), &[]]));
        }
        f(&Rows::of(&all.data, &all.ends, Some(&all.nulls)).unwrap())
    }

    fn listed(taken: Taken) -> Vec<Option<String>> {
        let rows = Rows::of(&taken.data, &taken.ends, Some(&taken.nulls)).unwrap();
        (0..rows.len()).map(|i| rows.get(i).map(|text| String::from_utf8(text.to_vec()).unwrap())).collect()
    }

    const TEXTS: [Option<&str>; 6] = [Some("a/b/c"), None, Some(""), Some("größe/é"), Some("aaa"), Some("/")];

    #[test]
    fn lengths_are_of_characters() {
        assert_eq!(with(&TEXTS, lengths), [5, 0, 0, 7, 3, 1]);
    }

    #[test]
    fn texts_are_found_at_a_place_or_anywhere() {
        let flags = |what: &str, place| with(&TEXTS, |rows| found(rows, what.as_bytes(), place));
        assert_eq!(flags("/", Where::Anywhere), [1, 0, 0, 1, 0, 1]);
        assert_eq!(flags("a", Where::AtStart), [1, 0, 0, 0, 1, 0]);
        assert_eq!(flags("é", Where::AtEnd), [0, 0, 0, 1, 0, 0]);
        assert_eq!(flags("", Where::Anywhere), [1, 0, 1, 1, 1, 1]);
        assert_eq!([b'a', b's', b'e', b'x'].map(Where::of)[3], None);
    }

    #[test]
    fn each_occurrence_is_replaced_from_the_left() {
        let of = |old: &str, new: &str| with(&TEXTS, |rows| replaced(rows, old.as_bytes(), new.as_bytes()).unwrap());
        let some = |texts: [&str; 5]| {
            let [a, c, d, e, f] = texts.map(|text| Some(text.to_string()));
            vec![a, None, c, d, e, f]
        };
        assert_eq!(listed(of("aa", "b")), some(["a/b/c", "", "größe/é", "ba", "/"]));
        assert_eq!(listed(of("/", "")), some(["abc", "", "größeé", "aaa", ""]));
        assert_eq!(listed(of("ö", "oe")), some(["a/b/c", "", "groeße/é", "aaa", "/"]));
        assert!(with(&TEXTS, |rows| replaced(rows, b"", b"x").is_err()));
    }

    #[test]
    fn parts_are_counted_from_zero_and_missing_ones_are_null() {
        let of = |place| listed(with(&TEXTS, |rows| split_part(rows, b"/", place).unwrap()));
        let texts = |all: [Option<&str>; 6]| all.map(|text| text.map(str::to_string)).to_vec();
        assert_eq!(of(0), texts([Some("a"), None, Some(""), Some("größe"), Some("aaa"), Some("")]));
        assert_eq!(of(1), texts([Some("b"), None, None, Some("é"), None, Some("")]));
        assert_eq!(of(2), texts([Some("c"), None, None, None, None, None]));
        assert!(with(&TEXTS, |rows| split_part(rows, b"", 0).is_err()));
    }
}
