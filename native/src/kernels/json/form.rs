//! Whether JSON objects have the form in which their type's encoder writes them, so that their bytes can be passed
//! on.
//!
//! The promise is one-sided, like the projector's: an object that has the form is, byte for byte, what the encoder
//! writes for what the decoder reads from it. All others are left to those two.

use super::lexer::{Cursor, Number};
use crate::kernels::rows::Rows;
use crate::refused::Refused;

/// What a field holds; of an object, its fields.
enum Kind {
    Str,
    Int,
    Bool,
    Object(Form),
}

struct Field {
    /// The text before the value: a brace or a comma, the name, a colon.
    before: Vec<u8>,
    kind: Kind,
    nullable: bool,
}

impl Field {
    #[inline(always)]
    fn check(&self, cursor: &mut Cursor) -> Option<()> {
        cursor.word(&self.before)?;
        match (&self.kind, cursor.peek()) {
            (_, b'n') if self.nullable => cursor.word(b"null"),
            (Kind::Object(form), _) => form.check(cursor),
            (Kind::Str, b'"') => {
                cursor.pos += 1;
                let text = cursor.string()?;
                // Encoders differ on the control character after ASCII (DEL).
                (!text.escaped && !cursor.data[text.start..text.end].contains(&0x7f)).then_some(())
            }
            (Kind::Bool, b't') => cursor.word(b"true"),
            (Kind::Bool, b'f') => cursor.word(b"false"),
            (Kind::Int, first) => match cursor.number::<true>()? {
                Number::Int(0) if first == b'-' => None,
                Number::Int(_) => Some(()),
                Number::Float(_) => None,
            },
            _ => None,
        }
    }
}

/// Objects with exactly these fields, in this order.
pub struct Form {
    fields: Vec<Field>,
}

impl Form {
    fn check(&self, cursor: &mut Cursor) -> Option<()> {
        self.fields.iter().try_for_each(|field| field.check(cursor))?;
        cursor.take(b'}')
    }

    fn fits(&self, data: &[u8], start: usize, end: usize) -> bool {
        let mut cursor = Cursor { data, pos: start, end };
        self.check(&mut cursor).is_some() && cursor.pos == end
    }

    /// `fields`: the text before each value, its kind (`str`, `int`, `bool`, `object`), whether it may be null, and of an
    /// object the form.
    pub fn new(fields: Vec<(Vec<u8>, String, bool, Option<Form>)>) -> Result<Self, Refused> {
        let fields = fields.into_iter().map(|(before, kind, nullable, inner)| {
            let kind = match (kind.as_str(), inner) {
                ("str", None) => Kind::Str,
                ("int", None) => Kind::Int,
                ("bool", None) => Kind::Bool,
                ("object", Some(form)) => Kind::Object(form),
                (other, _) => return Err(Refused::Value(format!("no kind {other:?}"))),
            };
            Ok(Field { before, kind, nullable })
        });
        Ok(Form { fields: fields.collect::<Result<_, _>>()? })
    }

    /// A byte per row, 1 if the row does not have the form. A null has it.
    pub fn others(&self, rows: &Rows) -> Vec<u8> {
        let other = |row| {
            let (start, end) = rows.span(row);
            u8::from(!rows.is_null(row) && !self.fits(rows.data, start, end))
        };
        (0..rows.len()).map(other).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parts = (Vec<u8>, String, bool, Option<Form>);

    fn field(before: &str, kind: &str, nullable: bool) -> Parts {
        (before.as_bytes().to_vec(), kind.to_string(), nullable, None)
    }

    fn form() -> Form {
        Form::new(vec![field("{\"s\":", "str", true), field(",\"i\":", "int", false), field(",\"b\":", "bool", false)])
            .unwrap()
    }

    fn has(form: &Form, text: &str) -> bool {
        form.others(&Rows::of(text.as_bytes(), &[0, text.len() as i64], None).unwrap()) == [0]
    }

    fn fits(text: &str) -> bool {
        has(&form(), text)
    }

    #[test]
    fn what_the_encoder_would_write_has_the_form() {
        for text in [
            r#"{"s":"a text","i":-5,"b":true}"#,
            r#"{"s":null,"i":0,"b":false}"#,
            r#"{"s":"é✓","i":999999999999999999,"b":true}"#,
        ] {
            assert!(fits(text), "{text}");
        }
    }

    #[test]
    fn all_else_has_not() {
        for text in [
            r#"{"s": "a","i":1,"b":true}"#,
            r#"{"s":"\u0061","i":1,"b":true}"#,
            "{\"s\":\"\x7f\",\"i\":1,\"b\":true}",
            r#"{"s":"a","i":-0,"b":true}"#,
            r#"{"s":"a","i":1.0,"b":true}"#,
            r#"{"s":"a","i":null,"b":true}"#,
            r#"{"s":"a","i":1,"b":1}"#,
            r#"{"s":"a","i":1,"b":true} "#,
            r#"{"s":"a","i":1,"b":true"#,
            r#"{"s":"a","b":true,"i":1}"#,
            "",
        ] {
            assert!(!fits(text), "{text}");
        }
    }

    #[test]
    fn objects_within_have_forms_of_their_own() {
        let object =
            |before: &str, nullable| (before.as_bytes().to_vec(), "object".to_string(), nullable, Some(form()));
        let whole = Form::new(vec![object("{\"a\":", false), field(",\"n\":", "int", false), object(",\"z\":", true)]);
        let whole = whole.unwrap();
        let one = r#"{"s":"x","i":1,"b":true}"#;
        assert!(has(&whole, &format!(r#"{{"a":{one},"n":1,"z":{one}}}"#)));
        assert!(has(&whole, &format!(r#"{{"a":{one},"n":1,"z":null}}"#)));
        for text in [
            format!(r#"{{"a":null,"n":1,"z":{one}}}"#),
            format!(r#"{{"a":{one},"n":1,"z":{{}}}}"#),
            format!(r#"{{"a":{one},"n":1,"z":{one}"#),
            format!(r#"{{"a":{one},"n":1,"z":{one}}}}}"#),
            format!(r#"{{"a":{one}, "n":1,"z":null}}"#),
            format!(r#"{{"a":{},"n":1,"z":null}}"#, one.replace('1', "1.0")),
        ] {
            assert!(!has(&whole, &text), "{text}");
        }
    }

    #[test]
    fn nulls_have_it_and_kinds_are_checked() {
        let rows = Rows::of(b"{}", &[0, 0, 2], Some(&[1, 0])).unwrap();
        assert_eq!(form().others(&rows), [0, 1]);
        assert!(Form::new(vec![field("", "float", false)]).is_err());
        assert!(Form::new(vec![field("", "object", false)]).is_err());
    }
}
