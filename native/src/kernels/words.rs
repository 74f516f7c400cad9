//! Texts split at white space, as Python's `str.split()` does it, with the words coded.

use super::distinct::Distinct;
use super::rows::Rows;

pub struct Split {
    pub words: Distinct,
    /// Words per row.
    pub counts: Vec<i64>,
    /// Codes of all words.
    pub codes: Vec<i32>,
    /// 1 for a row that is not pure ASCII, and has no words here.
    pub unsure: Vec<u8>,
    pub any_unsure: bool,
}

/// ASCII of which `str.isspace` is true; it has four more than Rust's `is_ascii_whitespace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | 0x1c..=0x1f | b' ')
}

/// The words of all rows; a null has none. `lower`: of the text as `str.lower` makes it.
pub fn split(rows: &Rows, lower: bool) -> Split {
    let count = rows.len();
    let mut split = Split {
        words: Distinct::new(),
        counts: vec![0; count],
        codes: vec![],
        unsure: vec![0; count],
        any_unsure: false,
    };
    let mut text = vec![];
    for row in 0..count {
        let Some(value) = rows.get(row) else {
            continue;
        };
        if !value.is_ascii() {
            split.unsure[row] = 1;
            split.any_unsure = true;
            continue;
        }
        text.clear();
        text.extend_from_slice(value);
        if lower {
            text.make_ascii_lowercase();
        }
        let before = split.codes.len();
        let words = text.split(|&byte| is_space(byte)).filter(|word| !word.is_empty());
        split.codes.extend(words.map(|word| split.words.code(word)));
        split.counts[row] = (split.codes.len() - before) as i64;
    }
    split
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(texts: &[Option<&str>], lower: bool) -> (Split, Vec<String>) {
        let (mut data, mut offsets, mut nulls) = (vec![], vec![0], vec![]);
        for text in texts {
            data.extend_from_slice(text.unwrap_or("").as_bytes());
            offsets.push(data.len() as i64);
            nulls.push(u8::from(text.is_none()));
        }
        let found = split(&Rows::of(&data, &offsets, Some(&nulls)).unwrap(), lower);
        let (bytes, ends) = found.words.column();
        let word = |code: &i32| {
            let (from, to) = (ends[*code as usize] as usize, ends[*code as usize + 1] as usize);
            String::from_utf8(bytes[from..to].to_vec()).unwrap()
        };
        let words = found.codes.iter().map(word).collect();
        (found, words)
    }

    #[test]
    fn texts_are_split_at_every_white_space_of_python() {
        let (found, words) =
            words_of(&[Some(" the\tquick\x0b\x0cfox\x1c\x1d\x1e\x1fThe "), Some(""), Some(" \r\n")], false);
        assert_eq!(words, ["the", "quick", "fox", "The"]);
        assert_eq!(found.counts, [4, 0, 0]);
        assert!(!found.any_unsure);
        assert_eq!(words_of(&[Some("A a B")], true).1, ["a", "a", "b"]);
        assert_eq!(words_of(&[Some("A a A")], false).0.codes, [0, 1, 0]);
    }

    #[test]
    fn what_is_not_ascii_is_left_to_python() {
        let (found, words) = words_of(&[Some("a b"), Some("é a"), None, Some("c\u{85}d")], true);
        assert_eq!((found.counts, found.unsure, found.any_unsure), (vec![2, 0, 0, 0], vec![0, 1, 0, 1], true));
        assert_eq!(words, ["a", "b"]);
    }
}
