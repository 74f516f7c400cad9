//! Strict JSON, read byte by byte: one cursor over one record of a larger buffer.
//!
//! Every function returns `None` for input that is not certainly read as msgspec reads it; the record is then left to
//! msgspec. So what is accepted here is a subset of JSON (RFC 8259): valid UTF-8, no lone surrogates, numbers of at
//! most 18 (integers) or 19 (floats) digits and exponents of at most two, nesting of at most `DEPTH_MAX`.

use super::scan::special;

/// How deep an unread value may be nested; msgspec's own limit is that of the current Python stack.
pub const DEPTH_MAX: u32 = 32;
const INT_DIGITS_MAX: usize = 18;
/// So that all digits, read as one whole number, fit 64 bits.
const FLOAT_DIGITS_MAX: usize = 19;
/// The same with the zeros in front; with the exponents allowed, every float is finite and none but zero is subnormal.
const FLOAT_ZEROS_MAX: usize = 40;
const EXPONENT_DIGITS_MAX: usize = 2;
/// Up to here whole numbers and powers of ten are exact doubles, so that one multiplication or division rounds once.
const EXACT_INT_MAX: u64 = 1 << 53;
const EXACT_POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Int(i64),
    Float(f64),
}

/// A string between its quotes: `data[start..end]`, in valid UTF-8.
#[derive(Clone, Copy)]
pub struct Text {
    pub start: usize,
    pub end: usize,
    pub escaped: bool,
}

pub struct Cursor<'a> {
    pub data: &'a [u8],
    pub pos: usize,
    pub end: usize,
}

impl Cursor<'_> {
    /// The current byte; 0, which begins no value, at the end.
    #[inline(always)]
    pub fn peek(&self) -> u8 {
        if self.pos < self.end { self.data[self.pos] } else { 0 }
    }

    #[inline(always)]
    pub fn skip_space(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t') {
            self.pos += 1;
        }
    }

    #[inline(always)]
    pub fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek() == byte).then(|| self.pos += 1)
    }

    /// The rest of a string whose opening quote has been read.
    #[inline(always)]
    pub fn string(&mut self) -> Option<Text> {
        let start = self.pos;
        let at = special::<true>(self.data, start);
        if at < self.end && self.data[at] == b'"' {
            self.pos = at + 1;
            return Some(Text { start, end: at, escaped: false });
        }
        self.difficult_string(start, at)
    }

    /// A string that may hold escapes or more than ASCII, of which `data[start..at]` is read.
    #[cold]
    fn difficult_string(&mut self, start: usize, mut at: usize) -> Option<Text> {
        let mut escaped = false;
        loop {
            at = special::<false>(self.data, at);
            if at >= self.end {
                return None;
            }
            match self.data[at] {
                b'"' => break,
                b'\\' => at += self.escape(at + 1)?,
                _ => return None,
            }
            escaped = true;
        }
        std::str::from_utf8(&self.data[start..at]).ok()?;
        self.pos = at + 1;
        Some(Text { start, end: at, escaped })
    }

    /// The length of an escape, its backslash included, of which `at` is the letter.
    fn escape(&self, at: usize) -> Option<usize> {
        if at >= self.end {
            return None;
        }
        match self.data[at] {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(2),
            b'u' => {
                let digits = self.data[..self.end].get(at + 1..at + 5)?;
                let mut unit = 0;
                for &digit in digits {
                    unit = unit * 16 + char::from(digit).to_digit(16)?;
                }
                (!(0xd800..0xe000).contains(&unit)).then_some(6)
            }
            _ => None,
        }
    }

    #[inline(always)]
    pub fn word(&mut self, word: &[u8]) -> Option<()> {
        let stands = self.data[self.pos..self.end].starts_with(word);
        stands.then(|| self.pos += word.len())
    }

    /// A number, exactly as the nearest int64 or double; without `VALUE`, only its kind is right.
    #[inline(always)]
    pub fn number<const VALUE: bool>(&mut self) -> Option<Number> {
        let start = self.pos;
        let negative = self.take(b'-').is_some();
        let mut mantissa: u64 = 0;
        let leading_zero = self.peek() == b'0';
        let whole_digits = self.digits::<VALUE>(&mut mantissa);
        if whole_digits == 0 || whole_digits > INT_DIGITS_MAX || (leading_zero && whole_digits > 1) {
            return None;
        }
        if !matches!(self.peek(), b'.' | b'e' | b'E') {
            let magnitude = mantissa as i64; // of at most 18 digits
            return Some(Number::Int(if negative { -magnitude } else { magnitude }));
        }
        let mut places = 0;
        if self.take(b'.').is_some() {
            places = self.digits::<VALUE>(&mut mantissa);
            let all = whole_digits + places;
            if places == 0
                || all > FLOAT_DIGITS_MAX && (all > FLOAT_ZEROS_MAX || self.significant(start) > FLOAT_DIGITS_MAX)
            {
                return None;
            }
        }
        let exponent = self.exponent()?;
        if !VALUE {
            return Some(Number::Float(0.0));
        }
        self.float(start, negative, mantissa, exponent - places as i64).map(Number::Float)
    }

    /// How many digits the float that begins at `start` and ends at the cursor has behind its leading zeros.
    #[cold]
    fn significant(&self, start: usize) -> usize {
        let digits = self.data[start..self.pos].iter().filter(|byte| byte.is_ascii_digit());
        digits.skip_while(|&&digit| digit == b'0').count()
    }

    /// Reads digits, into `mantissa` too if `VALUE`, which overflows (harmlessly: such numbers are not used) with more than
    /// 19 of them; how many there were.
    #[inline(always)]
    fn digits<const VALUE: bool>(&mut self, mantissa: &mut u64) -> usize {
        let digits = &self.data[self.pos..self.end];
        let mut count = 0;
        while count < digits.len() && digits[count].is_ascii_digit() {
            if VALUE {
                *mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(digits[count] - b'0'));
            }
            count += 1;
        }
        self.pos += count;
        count
    }

    /// The exponent of a float, 0 where none is written.
    #[inline(always)]
    fn exponent(&mut self) -> Option<i64> {
        if !matches!(self.peek(), b'e' | b'E') {
            return Some(0);
        }
        self.pos += 1;
        let negative = self.peek() == b'-';
        if matches!(self.peek(), b'-' | b'+') {
            self.pos += 1;
        }
        let mut value = 0;
        let digits = self.digits::<true>(&mut value);
        let value = value as i64; // of at most two digits
        (1..=EXPONENT_DIGITS_MAX).contains(&digits).then_some(if negative { -value } else { value })
    }

    /// The double nearest to `mantissa * 10^exponent`; `start` is where its text begins, which ends at the cursor.
    #[inline(always)]
    fn float(&self, start: usize, negative: bool, mantissa: u64, exponent: i64) -> Option<f64> {
        if mantissa <= EXACT_INT_MAX && exponent.unsigned_abs() <= 22 {
            let power = EXACT_POWERS[exponent.unsigned_abs() as usize];
            let value = mantissa as f64;
            let value = if exponent < 0 { value / power } else { value * power };
            return Some(if negative { -value } else { value });
        }
        std::str::from_utf8(&self.data[start..self.pos]).ok()?.parse().ok()
    }

    /// Reads over a value of any kind.
    #[inline(always)]
    pub fn skip_value(&mut self) -> Option<()> {
        match self.peek() {
            b'"' => {
                self.pos += 1;
                self.string().map(drop)
            }
            b'-' | b'0'..=b'9' => self.number::<false>().map(drop),
            _ => self.skip_other(0),
        }
    }

    fn skip_other(&mut self, depth: u32) -> Option<()> {
        match self.peek() {
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            b'[' | b'{' if depth >= DEPTH_MAX => None,
            b'[' => self.skip_members(b']', depth + 1, false),
            b'{' => self.skip_members(b'}', depth + 1, true),
            b'"' | b'-' | b'0'..=b'9' => self.skip_value(),
            _ => None,
        }
    }

    fn skip_members(&mut self, close: u8, depth: u32, keyed: bool) -> Option<()> {
        self.pos += 1;
        self.skip_space();
        if self.take(close).is_some() {
            return Some(());
        }
        loop {
            if keyed {
                self.take(b'"')?;
                self.string()?;
                self.skip_space();
                self.take(b':')?;
                self.skip_space();
            }
            self.skip_other(depth)?;
            self.skip_space();
            if self.take(close).is_some() {
                return Some(());
            }
            self.take(b',')?;
            self.skip_space();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(text: &str) -> Cursor<'_> {
        Cursor { data: text.as_bytes(), pos: 0, end: text.len() }
    }

    fn number(text: &str) -> Option<Number> {
        let mut cursor = cursor(text);
        cursor.number::<true>().filter(|_| cursor.pos == text.len())
    }

    #[test]
    fn numbers_are_exact() {
        for text in ["0", "-0", "7", "-12", "999999999999999999", "-999999999999999999"] {
            assert_eq!(number(text), Some(Number::Int(text.parse().unwrap())), "{text}");
        }
        for text in
            ["0.5", "-1.25e2", "3E8", "1e-7", "0.1", "123456789.123456789", "9007199254740993.0", "1e99", "5e-99"]
        {
            assert_eq!(number(text), Some(Number::Float(text.parse().unwrap())), "{text}");
        }
        assert!(matches!(number("-0.0"), Some(Number::Float(zero)) if zero.is_sign_negative()));
    }

    #[test]
    fn what_may_be_read_otherwise_is_no_number() {
        for text in [
            "",
            "-",
            "01",
            "+1",
            ".5",
            "1.",
            "1e",
            "1e+",
            "1e100",
            "1000000000000000000",
            "0.12345678901234567890",
            "0x1",
            "NaN",
        ] {
            assert_eq!(number(text), None, "{text}");
        }
        assert!(number("0.00000000000000000001234567890123456789").is_some(), "leading zeros are not digits");
    }

    #[test]
    fn the_kind_of_a_number_is_known_without_its_value() {
        let kind = |text| cursor(text).number::<false>();
        assert_eq!((kind("12"), kind("-1.5e3")), (Some(Number::Int(0)), Some(Number::Float(0.0))));
        assert_eq!((kind("01"), kind("1e100"), kind("-")), (None, None, None));
    }

    #[test]
    fn strings_end_at_their_quote() {
        let string = |text: &'static str| cursor(text).string().map(|s| (&text[s.start..s.end], s.escaped));
        assert_eq!(string("plain\" rest"), Some(("plain", false)));
        assert_eq!(string("\""), Some(("", false)));
        assert_eq!(string("a longer text than sixteen bytes\","), Some(("a longer text than sixteen bytes", false)));
        assert_eq!(string("é and ✓\""), Some(("é and ✓", false)));
        assert_eq!(string(r#"a\"b\\\/\b\f\n\r\t\u00e9c""#), Some((r#"a\"b\\\/\b\f\n\r\t\u00e9c"#, true)));
        for bad in ["open", "bad\\x\"", "\\u12\"", "\\u12G4\"", "\\ud83d\\ude00\"", "tab\t\"", "\\", "\\\"", "\\u123"] {
            assert!(string(bad).is_none(), "{bad}");
        }
        let latin = [b'a', 0xe9, b'"'];
        assert!(Cursor { data: &latin, pos: 0, end: 3 }.string().is_none());
    }

    #[test]
    fn a_string_never_ends_in_the_next_record() {
        for text in ["abc", "a\\\"c", "äöü"] {
            let data = format!("{text}\"");
            assert!(Cursor { data: data.as_bytes(), pos: 0, end: text.len() }.string().is_none());
        }
    }

    #[test]
    fn values_are_read_over_whole() {
        let skipped = |text: &str| {
            let mut cursor = cursor(text);
            cursor.skip_value().map(|()| cursor.pos)
        };
        for text in [
            "1",
            "-2.5",
            "\"a\"",
            "true",
            "false",
            "null",
            "[]",
            "{}",
            "[1, [2], {\"a\": [null]}]",
            "{ \"a\" : 1 , \"b\":\"\\n\" }",
        ] {
            assert_eq!(skipped(text), Some(text.len()), "{text}");
            assert_eq!(skipped(&format!("{text},")), Some(text.len()));
        }
        for bad in ["", "tru", "[1,]", "{1:2}", "{\"a\"}", "[1 2]", "{\"a\":1,}", "[", "{\"a\":"] {
            assert_eq!(skipped(bad), None, "{bad}");
        }
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(skipped(&nested(DEPTH_MAX as usize)).is_some());
        assert!(skipped(&nested(DEPTH_MAX as usize + 1)).is_none());
    }
}
