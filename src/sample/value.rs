//! What the bytes of a field say, by its extension: a number, a text, a document, an array.
//!
//! It decodes no images and unpickles nothing: what it does not know stays bytes.

use std::fmt;

use bytes::Bytes;

use super::npy::parse_npy;
use super::selector::JsonPath;
use crate::error::{Error, ErrorKind, Result};

/// The largest JSON document in bytes: parsed, it takes many times its size.
const JSON_BYTES_MAX: usize = 256 << 20;

/// How the bytes of a field are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldKind {
    /// A decimal integer: `cls`, `cls2`, `index`, `inx`, `id`.
    Int,
    /// UTF-8 text: `txt`, `text`, `transcript`.
    Text,
    /// A JSON document: `json`, `jsn`.
    Json,
    /// A NumPy array: `npy`.
    Npy,
    /// Anything else.
    Bytes,
}

impl FieldKind {
    /// The kind of a field by the last dotted part of its extension (lower case), as webdataset's basic decoders choose:
    /// `seg.json` is JSON.
    #[must_use]
    pub fn of(ext: &str) -> Self {
        match ext.rsplit('.').next().unwrap_or(ext) {
            "cls" | "cls2" | "index" | "inx" | "id" => Self::Int,
            "txt" | "text" | "transcript" => Self::Text,
            "json" | "jsn" => Self::Json,
            "npy" => Self::Npy,
            _ => Self::Bytes,
        }
    }
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// An integer.
    Int(i64),
    /// A number that is no integer.
    Float(f64),
    /// Text.
    Text(String),
    /// A JSON value that is neither a number nor a string.
    Json(serde_json::Value),
    /// An array of numbers.
    Array(Array),
    /// The bytes themselves.
    Bytes(Bytes),
    /// A name of the file system or of an archive: bytes as stored, usually but not necessarily UTF-8.
    Name(Bytes),
}

/// A dense array in host memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// The type of an element.
    pub dtype: ArrayDtype,
    /// Lengths of the dimensions, slowest first; empty for a single number.
    pub shape: Vec<usize>,
    /// The elements, row-major, contiguous, in this machine's byte order, at any alignment.
    pub data: Bytes,
}

/// The type of an array's element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum ArrayDtype {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    BF16,
    F32,
    F64,
}

impl ArrayDtype {
    /// Size of an element in bytes.
    #[must_use]
    pub fn size_bytes(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::BF16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// NumPy's name of the type, such as `float32`; torch's for `bfloat16`, which NumPy does not have.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U8 => "uint8",
            Self::I8 => "int8",
            Self::U16 => "uint16",
            Self::I16 => "int16",
            Self::U32 => "uint32",
            Self::I32 => "int32",
            Self::U64 => "uint64",
            Self::I64 => "int64",
            Self::F16 => "float16",
            Self::BF16 => "bfloat16",
            Self::F32 => "float32",
            Self::F64 => "float64",
        }
    }
}

impl fmt::Display for ArrayDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Value {
    /// Reads a field by its extension (lower case); with a path, the value that lies there in a JSON document.
    ///
    /// # Errors
    /// [`ErrorKind::FieldValue`] naming the field, when the bytes are not what the extension promises, nothing lies at the
    /// path, or an integer does not fit: 64 bits with a sign, inside lists and objects of JSON also without one.
    pub fn read(ext: &str, bytes: &Bytes, path: Option<&JsonPath>) -> Result<Self> {
        Self::read_as(FieldKind::of(ext), bytes, path).map_err(|error| error.in_field(ext))
    }

    /// Reads a field as what the caller says it is.
    ///
    /// # Errors
    /// As [`read`](Self::read), without the field's name; also for a path into anything but JSON.
    pub fn read_as(kind: FieldKind, bytes: &Bytes, path: Option<&JsonPath>) -> Result<Self> {
        if let Some(path) = path.filter(|_| kind != FieldKind::Json) {
            return Err(refuse(format!("the path '{}' leads into JSON only", path.as_str())));
        }
        match kind {
            FieldKind::Int => parse_int(bytes).map(Self::Int),
            FieldKind::Text => text(bytes).map(|text| Self::Text(text.to_owned())),
            FieldKind::Json => parse_json(bytes, path),
            FieldKind::Npy => parse_npy(bytes).map(Self::Array),
            FieldKind::Bytes => Ok(Self::Bytes(bytes.clone())),
        }
    }
}

/// JSON's numbers and strings become plain values; an integer too large for [`Value::Int`] stays JSON, and exact.
impl From<serde_json::Value> for Value {
    fn from(value: serde_json::Value) -> Self {
        match value {
            serde_json::Value::String(text) => Self::Text(text),
            serde_json::Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(int), _) => Self::Int(int),
                (None, Some(float)) if !number.is_u64() => Self::Float(float),
                _ => Self::Json(number.into()),
            },
            value => Self::Json(value),
        }
    }
}

/// A decimal integer as Python's `int` reads it: blanks around it, a sign, underscores between digits.
fn parse_int(bytes: &[u8]) -> Result<i64> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = bytes.iter().position(|byte| !is_blank(byte)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
    let number = &bytes[start..end];
    let digits = number.strip_prefix(b"-").or(number.strip_prefix(b"+")).unwrap_or(number);
    if digits.is_empty()
        || !digits.split(|&byte| byte == b'_').all(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit))
    {
        return Err(refuse(format!("'{}' is no integer", excerpt(bytes))));
    }
    let sign = if number[0] == b'-' { -1 } else { 1 };
    digits
        .iter()
        .filter(|&&byte| byte != b'_')
        .try_fold(0_i64, |sum, &digit| sum.checked_mul(10)?.checked_add(sign * i64::from(digit - b'0')))
        .ok_or_else(|| refuse(format!("'{}' does not fit into 64 bits", excerpt(bytes))))
}

fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes)
        .map_err(|error| refuse(format!("the text is not UTF-8 from byte {} on", error.valid_up_to())))
}

fn parse_json(bytes: &[u8], path: Option<&JsonPath>) -> Result<Value> {
    if bytes.len() > JSON_BYTES_MAX {
        return Err(refuse(format!("a JSON document of {} bytes is over the limit of {JSON_BYTES_MAX}", bytes.len())));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let document: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|error| refuse("the JSON cannot be read").with_source(error))?;
    let value = match path {
        Some(path) => at_path(&document, path)?,
        None => &document,
    };
    refuse_wide_integers(value, bytes)?;
    Ok(if path.is_some() { value.clone() } else { document }.into())
}

/// The parser makes floats of integers that it cannot hold, which would change labels and identifiers without a word.
/// Only what was asked for is looked at: a wide integer elsewhere in `document` does no harm.
fn refuse_wide_integers(value: &serde_json::Value, document: &[u8]) -> Result<()> {
    let refuse = |integer: &str| {
        let excerpt = excerpt(integer.as_bytes());
        Err(refuse(format!("the integer {excerpt} does not fit into 64 bits")).with_hint("store it as a string"))
    };
    if let serde_json::Value::Number(number) = value
        && number.is_u64()
        && !number.is_i64()
    {
        return refuse(&number.to_string());
    }
    for integer in wide_integers(document) {
        if integer.parse().is_ok_and(|float| holds_float(value, float)) {
            return refuse(integer);
        }
    }
    Ok(())
}

/// The integers of a sound JSON document that fit into 64 bits neither with nor without a sign, as they are written.
fn wide_integers(document: &[u8]) -> Vec<&str> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&byte) = document.get(at) {
        let rest = &document[at..];
        at += match byte {
            b'"' => string_len(rest),
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                let len = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
                let digits = rest[..len].strip_prefix(b"-").unwrap_or(&rest[..len]);
                // Nineteen digits are the fewest that can be too many.
                if digits.len() >= 19 && digits.iter().all(u8::is_ascii_digit) {
                    let number = std::str::from_utf8(&rest[..len]).unwrap_or_default();
                    if number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                        found.push(number);
                    }
                }
                len
            }
            _ => 1,
        };
    }
    found
}

/// Length of the JSON string that `text` begins with, its quotes included.
fn string_len(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

/// Whether a float lies anywhere in `value`; the parser has limited its depth.
fn holds_float(value: &serde_json::Value, float: f64) -> bool {
    match value {
        serde_json::Value::Number(number) => number.is_f64() && number.as_f64() == Some(float),
        serde_json::Value::Array(values) => values.iter().any(|value| holds_float(value, float)),
        serde_json::Value::Object(members) => members.values().any(|value| holds_float(value, float)),
        _ => false,
    }
}

fn at_path<'a>(document: &'a serde_json::Value, path: &JsonPath) -> Result<&'a serde_json::Value> {
    path.find(document).ok_or_else(|| {
        let error = refuse(format!("nothing lies at '{}' in the JSON document", path.as_str()));
        match document {
            serde_json::Value::Object(map) => {
                let names: Vec<&str> = map.keys().take(8).map(String::as_str).collect();
                error.with_hint(format!("the document begins with the names {}", names.join(", ")))
            }
            _ => error,
        }
    })
}

/// The beginning of a value for a message.
fn excerpt(bytes: &[u8]) -> String {
    match bytes.get(..32) {
        Some(start) => format!("{}..", start.escape_ascii()),
        None => bytes.escape_ascii().to_string(),
    }
}

fn refuse(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::FieldValue, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn read(ext: &str, bytes: &'static [u8]) -> Result<Value> {
        Value::read(ext, &Bytes::from_static(bytes), None)
    }

    #[test]
    fn the_last_part_of_an_extension_decides() {
        let check = |ext: &str, kind| assert_eq!(FieldKind::of(ext), kind, "{ext}");
        check("cls", FieldKind::Int);
        check("left.id", FieldKind::Int);
        check("transcript", FieldKind::Text);
        check("a.b.json", FieldKind::Json);
        check("npy", FieldKind::Npy);
        for ext in ["", "class", "count", "json.gz", "npz", "jpg", "pkl"] {
            check(ext, FieldKind::Bytes);
        }
    }

    #[test]
    fn integers_are_read_as_python_reads_them() {
        let check = |bytes, expected: i64| assert_eq!(read("cls", bytes).unwrap(), Value::Int(expected), "{bytes:?}");
        check(b"7", 7);
        check(b" \t\n\x0b\x0c\r-12\n", -12);
        check(b"+007", 7);
        check(b"1_000", 1000);
        check(b"9223372036854775807", i64::MAX);
        check(b"-9223372036854775808", i64::MIN);
        for bytes in [
            &b""[..],
            b" ",
            b"7.5",
            b"-",
            b"+-1",
            b"_1",
            b"1_",
            b"1__0",
            b"0x10",
            b"1 2",
            b"7\0",
            b"\xef\xbb\xbf7",
            b"9223372036854775808",
            b"-9223372036854775809",
        ] {
            let error = read("cls", bytes).unwrap_err();
            assert_eq!(
                (error.kind(), error.place().field.as_deref()),
                (ErrorKind::FieldValue, Some("cls")),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn text_must_be_utf8() {
        assert_eq!(read("txt", "café\n".as_bytes()).unwrap(), Value::Text("café\n".into()));
        let error = read("txt", b"caf\xe9").unwrap_err();
        assert_eq!(error.to_string(), "field 'txt': the text is not UTF-8 from byte 3 on");
    }

    #[test]
    fn json_gives_plain_values_where_it_can() {
        let check = |bytes, expected| assert_eq!(read("json", bytes).unwrap(), expected, "{bytes:?}");
        check(b"5", Value::Int(5));
        check(b"5.5", Value::Float(5.5));
        check(b"1e30", Value::Float(1e30));
        check(b"\"a\"", Value::Text("a".into()));
        check(b"\xef\xbb\xbf true", Value::Json(json!(true)));
        check(b"{\"a\": [1]}", Value::Json(json!({"a": [1]})));
        assert_eq!(read("json", b"{").unwrap_err().kind(), ErrorKind::FieldValue);
        let deep = Bytes::from("[".repeat(100_000));
        assert_eq!(Value::read("json", &deep, None).unwrap_err().kind(), ErrorKind::FieldValue);
    }

    #[test]
    fn json_integers_are_exact_or_refused() {
        let check = |bytes: &'static [u8], path: Option<&str>, expected: Option<Value>| {
            let path = path.and_then(JsonPath::parse);
            let value = Value::read("json", &Bytes::from_static(bytes), path.as_ref());
            match expected {
                Some(expected) => assert_eq!(value.unwrap(), expected, "{}", bytes.escape_ascii()),
                None => {
                    let error = value.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::FieldValue);
                    assert!(error.to_string().contains("does not fit into 64 bits"), "{error}");
                }
            }
        };
        check(b"9223372036854775807", None, Some(Value::Int(i64::MAX)));
        check(b"-9223372036854775808", None, Some(Value::Int(i64::MIN)));
        for wide in [
            &b"9223372036854775808"[..],
            b"18446744073709551616",
            b"-9223372036854775809",
            b"[1, -1e3, {\"a\": 18446744073709551616}]",
        ] {
            check(wide, None, None);
        }
        check(b"[18446744073709551615]", None, Some(Value::Json(json!([u64::MAX]))));
        check(b"18446744073709551616.0", None, Some(Value::Float(18_446_744_073_709_551_616.0)));
        check(b"[1844674407370955161600e1]", None, Some(Value::Json(json!([1.844_674_407_370_955_2e22]))));
        let document = b"{\"big\": 18446744073709551616, \"a\": 3, \"text\": \"\\\" 18446744073709551617\"}";
        check(document, Some("a"), Some(Value::Int(3)));
        check(document, Some("text"), Some(Value::Text("\" 18446744073709551617".into())));
        check(document, Some("big"), None);
        check(document, None, None);
    }

    #[test]
    fn a_path_leads_into_json_only() {
        let bytes = Bytes::from_static(b"{\"meta\": {\"label\": 3}}");
        let path = JsonPath::parse("meta.label").unwrap();
        assert_eq!(Value::read("json", &bytes, Some(&path)).unwrap(), Value::Int(3));
        let error = Value::read("json", &bytes, JsonPath::parse("label").as_ref()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FieldValue);
        assert!(error.hint().is_some_and(|hint| hint.contains("meta")));
        assert!(Value::read("txt", &bytes, Some(&path)).is_err());
    }

    #[test]
    fn unknown_fields_stay_bytes_and_share_them() {
        let bytes = Bytes::from_static(b"\xff\xd8");
        let Value::Bytes(value) = Value::read("jpg", &bytes, None).unwrap() else { panic!("not bytes") };
        assert_eq!(value.as_ptr(), bytes.as_ptr());
    }

    proptest! {
        #[test]
        fn integers_agree_with_the_standard_parser(number: i64, blanks in "[ \n]{0,3}") {
            let text = Bytes::from(format!("{blanks}{number}{blanks}"));
            prop_assert_eq!(Value::read("cls", &text, None).unwrap(), Value::Int(number));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let bytes = Bytes::from(bytes);
            for ext in ["cls", "txt", "json", "npy", "bin"] {
                let _ = Value::read(ext, &bytes, None);
            }
        }
    }
}
