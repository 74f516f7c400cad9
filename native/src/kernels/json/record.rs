//! One record at a time: which of its members are fields, whether their values have the fields' types, and where they
//! are.

use super::lexer::{Cursor, Number};
use super::scan::Literal;

/// Sets of fields are bits of one word.
pub const FIELDS_MAX: usize = 64;
/// After this many consecutive records with an unexpected layout the parser learns the layout again.
const MISSES_MAX: u32 = 8;
/// The most members that one layout remembers; later ones are read without a guess.
const LAYOUT_MEMBERS_MAX: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Str,
    Int,
    Float,
    Bool,
    /// Any JSON, of a field that is not needed.
    Any,
    /// An object, by the parser of its own fields.
    Object,
}

/// A field that the type declares, needed or not: the type checks both.
pub struct Field {
    pub name: Box<[u8]>,
    pub kind: Kind,
    pub nullable: bool,
    pub required: bool,
    pub needed: bool,
    /// The value of a record without the field: `Absent`, or a number or flag.
    pub default: Found,
    /// Of an object: what reads it.
    pub inner: Option<Box<RecordParser>>,
}

/// What a record has at a field. Text is a place in the buffer, so that nothing is made of a record that turns out bad.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Found {
    Absent,
    Null,
    Text(usize, usize),
    Int(i64),
    Float(f64),
    Bool(bool),
    /// From brace to brace. Its fields are in the `found` of the field's own parser.
    Object(usize, usize),
}

/// A member where it is expected: everything from the end of the previous value up to this one, with the opening quote
/// of a string, and the field that it is.
struct Guess {
    literal: Literal,
    key: Box<[u8]>,
    text: bool,
    field: Option<usize>,
}

/// What was seen of one record, for learning a layout: all as places in the buffer.
struct Member {
    start: usize,
    key: (usize, usize),
    value: usize,
    field: Option<usize>,
}

pub struct RecordParser {
    pub fields: Vec<Field>,
    unknown_allowed: bool,
    required: u64,
    layout: Vec<Guess>,
    misses: u32,
    learned: Vec<Member>,
    defaults: Vec<Found>,
    pub found: Vec<Found>,
}

impl RecordParser {
    /// `fields` are at most `FIELDS_MAX`, of different names.
    pub fn new(fields: Vec<Field>, unknown_allowed: bool) -> Self {
        let required = fields.iter().enumerate().filter(|(_, f)| f.required).fold(0, |set, (i, _)| set | (1 << i));
        let defaults: Vec<Found> = fields.iter().map(|f| f.default).collect();
        let found = defaults.clone();
        RecordParser {
            fields,
            unknown_allowed,
            required,
            layout: vec![],
            misses: MISSES_MAX,
            learned: vec![],
            defaults,
            found,
        }
    }

    /// Reads the record `data[start..end]` into `found`. `None`: it is not certain how msgspec reads it.
    pub fn parse(&mut self, data: &[u8], start: usize, end: usize) -> Option<()> {
        let mut cursor = Cursor { data, pos: start, end };
        self.parse_object(&mut cursor)?;
        cursor.skip_space();
        (cursor.pos == end).then_some(())
    }

    /// Reads the object at the cursor, with the space before it, into `found`.
    fn parse_object(&mut self, cursor: &mut Cursor) -> Option<()> {
        self.found.copy_from_slice(&self.defaults);
        let learning = self.misses >= MISSES_MAX;
        let guessed = if learning { self.parse_members::<true>(cursor)? } else { self.parse_members::<false>(cursor)? };
        if learning {
            self.learn(cursor.data);
        } else if guessed {
            self.misses = 0;
        } else {
            self.misses += 1;
        }
        Some(())
    }

    /// Whether every member stood where it was expected.
    #[inline(always)]
    fn parse_members<const LEARNING: bool>(&mut self, cursor: &mut Cursor) -> Option<bool> {
        let mut seen: u64 = 0;
        let mut next = 0;
        let mut first = true;
        let mut guessed = true;
        if LEARNING {
            self.learned.clear();
        }
        loop {
            let expected = if LEARNING { None } else { self.layout.get(next) };
            let (field, text) = match expected {
                // The first literal opens the record, all others begin with a comma.
                Some(guess) if (next == 0) == first && guess.literal.stands_at(cursor.data, cursor.pos, cursor.end) => {
                    cursor.pos += guess.literal.len();
                    next += 1;
                    (guess.field, guess.text || open_value(cursor))
                }
                _ => {
                    let start = cursor.pos;
                    let Some(key) = self.open_member(cursor, first)? else {
                        break;
                    };
                    guessed = false;
                    let field = self.field_named(&cursor.data[key.0..key.1]);
                    next = self.place_after(&cursor.data[key.0..key.1], next);
                    if LEARNING && self.learned.len() < LAYOUT_MEMBERS_MAX {
                        self.learned.push(Member { start, key, value: cursor.pos, field });
                    }
                    (field, open_value(cursor))
                }
            };
            first = false;
            let Some(index) = field else {
                if !self.unknown_allowed {
                    return None;
                }
                if text {
                    cursor.string()?;
                } else {
                    cursor.skip_value()?;
                }
                continue;
            };
            if seen & (1 << index) != 0 {
                return None; // the last one counts, but all are checked, in their order
            }
            seen |= 1 << index;
            self.found[index] = value_of(&mut self.fields[index], cursor, text)?;
        }
        (seen & self.required == self.required).then_some(guessed && next == self.layout.len())
    }

    /// Reads up to the next member's value; its key, or `Some(None)` behind the closing brace.
    #[inline]
    fn open_member(&self, cursor: &mut Cursor, first: bool) -> Option<Option<(usize, usize)>> {
        cursor.skip_space();
        if first {
            cursor.take(b'{')?;
            cursor.skip_space();
        }
        if cursor.take(b'}').is_some() {
            return Some(None);
        }
        if !first {
            cursor.take(b',')?;
            cursor.skip_space();
        }
        cursor.take(b'"')?;
        let key = cursor.string()?;
        if key.escaped {
            return None;
        }
        cursor.skip_space();
        cursor.take(b':')?;
        cursor.skip_space();
        Some(Some((key.start, key.end)))
    }

    fn field_named(&self, key: &[u8]) -> Option<usize> {
        self.fields.iter().position(|field| *field.name == *key)
    }

    /// The place in the layout behind the member of this key, searched from `from` on; `from` if it is not there.
    fn place_after(&self, key: &[u8], from: usize) -> usize {
        let rest = self.layout.get(from..).unwrap_or_default();
        rest.iter().position(|guess| *guess.key == *key).map_or(from, |ahead| from + ahead + 1)
    }

    #[cold]
    fn learn(&mut self, data: &[u8]) {
        self.misses = 0;
        self.layout = self.learned.iter().map(|member| Guess::of(member, data)).collect();
    }
}

impl Guess {
    fn of(member: &Member, data: &[u8]) -> Self {
        let text = data[member.value] == b'"';
        Guess {
            literal: Literal::new(&data[member.start..member.value + usize::from(text)]),
            key: data[member.key.0..member.key.1].into(),
            text,
            field: member.field,
        }
    }
}

/// Reads up to the value, and the opening quote of a string: whether it is one.
#[inline(always)]
fn open_value(cursor: &mut Cursor) -> bool {
    cursor.skip_space();
    cursor.take(b'"').is_some()
}

/// The value at the cursor, if it is of the field's type; `text` says that it is a string whose quote has been read.
#[inline(always)]
fn value_of(field: &mut Field, cursor: &mut Cursor, text: bool) -> Option<Found> {
    if text {
        if !matches!(field.kind, Kind::Str | Kind::Any) {
            return None;
        }
        let string = cursor.string()?;
        return (!(field.needed && string.escaped)).then_some(Found::Text(string.start, string.end));
    }
    match (cursor.peek(), field.kind) {
        (_, Kind::Any) => cursor.skip_value().map(|()| Found::Null),
        (b'n', _) if field.nullable => cursor.word(b"null").map(|()| Found::Null),
        (b't', Kind::Bool) => cursor.word(b"true").map(|()| Found::Bool(true)),
        (b'f', Kind::Bool) => cursor.word(b"false").map(|()| Found::Bool(false)),
        (b'{', Kind::Object) => {
            let start = cursor.pos;
            field.inner.as_mut()?.parse_object(cursor)?;
            Some(Found::Object(start, cursor.pos))
        }
        (b'-' | b'0'..=b'9', Kind::Int | Kind::Float) => match (number(cursor, field.needed)?, field.kind) {
            (Number::Int(value), Kind::Int) => Some(Found::Int(value)),
            (Number::Int(value), _) => Some(Found::Float(value as f64)),
            (Number::Float(value), Kind::Float) => Some(Found::Float(value)),
            (Number::Float(_), _) => None,
        },
        _ => None,
    }
}

#[inline(always)]
fn number(cursor: &mut Cursor, needed: bool) -> Option<Number> {
    if needed { cursor.number::<true>() } else { cursor.number::<false>() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, kind: Kind) -> Field {
        Field {
            name: name.as_bytes().into(),
            kind,
            nullable: false,
            required: true,
            needed: true,
            default: Found::Absent,
            inner: None,
        }
    }

    fn parser(unknown_allowed: bool) -> RecordParser {
        let nullable = Field { nullable: true, ..field("n", Kind::Int) };
        let optional = Field { required: false, default: Found::Float(0.5), ..field("f", Kind::Float) };
        RecordParser::new(vec![field("s", Kind::Str), nullable, optional, field("b", Kind::Bool)], unknown_allowed)
    }

    fn read(parser: &mut RecordParser, text: &str) -> Option<Vec<Found>> {
        parser.parse(text.as_bytes(), 0, text.len()).map(|()| parser.found.clone())
    }

    const WHOLE: &str = r#"{"s":"text","n":12,"f":1,"b":true}"#;

    #[test]
    fn fields_are_found_in_any_order_and_layout() {
        let mut parser = parser(true);
        let found = vec![Found::Text(6, 10), Found::Int(12), Found::Float(1.0), Found::Bool(true)];
        // The first record teaches the layout, by which the second is read.
        assert_eq!(read(&mut parser, WHOLE), Some(found.clone()));
        assert_eq!(read(&mut parser, WHOLE), Some(found));
        let other = r#" { "b" : false , "x" : [1, {"s": 2}], "n" : null , "s" : "é" } "#;
        let at = other.find('é').unwrap();
        let found = vec![Found::Text(at, at + 2), Found::Null, Found::Float(0.5), Found::Bool(false)];
        for _ in 0..2 * MISSES_MAX {
            assert_eq!(read(&mut parser, other), Some(found.clone()));
        }
        assert!(read(&mut parser, WHOLE).is_some());
    }

    #[test]
    fn what_is_not_certain_is_left_to_the_decoder() {
        for bad in [
            "",
            "[]",
            "{}",
            r#"{"s":"a","n":1}"#,
            r#"{"s":"a","n":1,"b":true} x"#,
            r#"{"s":"a","n":1,"b":true,"b":true}"#,
            r#"{"s":"a","n":1.5,"b":true}"#,
            r#"{"s":"a","n":"1","b":true}"#,
            r#"{"s":1,"n":1,"b":true}"#,
            r#"{"s":null,"n":1,"b":true}"#,
            r#"{"s":"a\n","n":1,"b":true}"#,
            r#"{"\u0073":"a","n":1,"b":true}"#,
            r#"{"s":"a","n":1,"b":true"#,
            r#"{"s":"a","n":1,"b":true,}"#,
        ] {
            let mut parser = parser(true);
            assert_eq!(read(&mut parser, bad), None, "{bad}");
            assert!(read(&mut parser, WHOLE).is_some());
            assert_eq!(read(&mut parser, bad), None, "{bad}, when the layout is known");
        }
        let mut strict = parser(false);
        assert!(read(&mut strict, WHOLE).is_some());
        assert_eq!(read(&mut strict, r#"{"s":"a","n":1,"b":true,"x":0}"#), None);
    }

    fn with_inner(unknown_allowed: bool) -> RecordParser {
        let object = Field {
            nullable: true,
            required: false,
            inner: Some(Box::new(parser(unknown_allowed))),
            ..field("o", Kind::Object)
        };
        RecordParser::new(vec![field("i", Kind::Int), object], true)
    }

    #[test]
    fn objects_are_read_by_their_own_fields() {
        let mut outer = with_inner(true);
        for text in [
            format!(r#"{{"i":1,"o":{WHOLE}}}"#),
            format!(r#"{{ "o" : {WHOLE} , "i" : 1 }}"#),
            format!(r#"{{"i":1,"x":{{"o":0}},"o":{WHOLE}}}"#),
        ] {
            for _ in 0..2 * MISSES_MAX {
                let found = read(&mut outer, &text).unwrap();
                let at = text.find(WHOLE).unwrap();
                assert_eq!(found, vec![Found::Int(1), Found::Object(at, at + WHOLE.len())], "{text}");
                let inner = &outer.fields[1].inner.as_ref().unwrap().found;
                assert_eq!(inner[..2], [Found::Text(at + 6, at + 10), Found::Int(12)]);
            }
        }
        assert_eq!(read(&mut outer, r#"{"i":1,"o":null}"#), Some(vec![Found::Int(1), Found::Null]));
        assert_eq!(read(&mut outer, r#"{"i":1}"#), Some(vec![Found::Int(1), Found::Absent]));
    }

    #[test]
    fn a_bad_object_makes_its_record_uncertain() {
        for bad in [
            r#""text""#,
            "1",
            "[]",
            "{}",
            r#"{"s":"text","n":12,"f":1}"#,
            r#"{"s":"text","n":12,"f":1,"b":1}"#,
            r#"{"s":"te\nxt","n":12,"f":1,"b":true}"#,
            r#"{"s":"text","n":12,"f":1,"b":true"#,
            r#"{"s":"text","n":12,"f":1,"b":true,"s":"again"}"#,
        ] {
            let mut outer = with_inner(true);
            for _ in 0..2 {
                assert_eq!(read(&mut outer, &format!(r#"{{"i":1,"o":{bad}}}"#)), None, "{bad}");
                assert!(read(&mut outer, &format!(r#"{{"i":1,"o":{WHOLE}}}"#)).is_some());
            }
        }
        let unknown = WHOLE.replace('}', r#","x":0}"#);
        assert!(read(&mut with_inner(true), &format!(r#"{{"i":1,"o":{unknown}}}"#)).is_some());
        assert!(read(&mut with_inner(false), &format!(r#"{{"i":1,"o":{unknown}}}"#)).is_none());
        let twice = format!(r#"{{"i":1,"o":{WHOLE},"o":{WHOLE}}}"#);
        assert_eq!(read(&mut with_inner(true), &twice), None);
    }

    #[test]
    fn a_record_ends_where_it_ends() {
        let mut parser = parser(true);
        let two = format!("{WHOLE}{WHOLE}");
        for _ in 0..2 {
            assert!(parser.parse(two.as_bytes(), 0, WHOLE.len()).is_some());
            assert!(parser.parse(two.as_bytes(), WHOLE.len(), two.len()).is_some());
            assert_eq!(parser.found[0], Found::Text(WHOLE.len() + 6, WHOLE.len() + 10));
            assert!(parser.parse(two.as_bytes(), 0, WHOLE.len() - 1).is_none());
            assert!(parser.parse(two.as_bytes(), 0, WHOLE.len() + 1).is_none());
        }
    }
}
