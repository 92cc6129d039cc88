//! Any bytes as a field and any text as its selector: no panic, and the value that a plain reader finds.
#![no_main]

use brimful::sample::{FieldKind, FieldSelector, JsonPath, Value};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use serde_json::Value as Json;

fuzz_target!(|bytes: &[u8]| {
    // The selector ends at the first line's end; the field's bytes follow.
    let end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
    let (selector, field) = (String::from_utf8_lossy(&bytes[..end]), bytes.get(end + 1..).unwrap_or_default());
    let field = Bytes::copy_from_slice(field);
    let Ok(selector) = FieldSelector::parse(&selector) else { return };
    assert!(selector.extensions().all(|ext| !ext.is_empty() && ext.to_lowercase() == ext));
    for ext in selector.extensions() {
        let path = selector.path(ext);
        let value = Value::read(ext, &field, path);
        if let Err(error) = &value {
            assert_eq!(error.place().field.as_deref(), Some(ext));
        }
        match FieldKind::of(ext) {
            FieldKind::Int => assert_eq!(value.ok(), integer(&field).map(Value::Int)),
            FieldKind::Text => assert_eq!(value.ok(), String::from_utf8(field.to_vec()).ok().map(Value::Text)),
            FieldKind::Json => json(value.ok(), &field, path),
            FieldKind::Bytes => assert_eq!(value.ok(), Some(Value::Bytes(field.clone()))),
            FieldKind::Npy => assert!(matches!(value, Ok(Value::Array(_)) | Err(_))),
        }
    }
});

/// What Python's `int` makes of ASCII.
fn integer(bytes: &[u8]) -> Option<i64> {
    let is_blank = |c: char| matches!(c, ' ' | '\t'..='\r');
    let text = std::str::from_utf8(bytes).ok()?.trim_matches(is_blank);
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("", &text[1..]),
        _ => ("", text),
    };
    let is_number = digits.split('_').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_number {
        return None;
    }
    format!("{sign}{}", digits.replace('_', "")).parse().ok()
}

fn json(value: Option<Value>, field: &[u8], path: Option<&JsonPath>) {
    let field = field.strip_prefix(b"\xef\xbb\xbf").unwrap_or(field);
    let document: Option<Json> = serde_json::from_slice(field).ok();
    let expected = match path {
        // A JSON pointer is serde_json's own.
        Some(path) if path.as_str().starts_with('/') => document.as_ref().and_then(|json| json.pointer(path.as_str())),
        Some(path) => document.as_ref().and_then(|json| path.as_str().split('.').try_fold(json, step)),
        None => document.as_ref(),
    };
    match (value, expected) {
        (None, None) => {}
        // An integer beyond 64 bits is refused, which the parser does not see.
        (None, Some(_)) if has_long_number(field) => {}
        (Some(Value::Int(int)), Some(Json::Number(number))) => assert_eq!(number.as_i64(), Some(int)),
        (Some(Value::Float(float)), Some(Json::Number(number))) => {
            assert!(float.is_finite() && number.is_f64());
            assert_eq!(number.as_f64(), Some(float));
        }
        (Some(Value::Text(text)), Some(Json::String(expected))) => assert_eq!(text, *expected),
        (Some(Value::Json(json)), Some(expected)) => assert_eq!(json, *expected),
        (value, expected) => panic!("{value:?} instead of {expected:?}"),
    }
}

fn has_long_number(field: &[u8]) -> bool {
    field.split(|byte| !byte.is_ascii_digit()).any(|digits| digits.len() >= 19)
}

/// One step of a dotted path.
fn step<'a>(json: &'a Json, name: &str) -> Option<&'a Json> {
    match json {
        Json::Object(map) => map.get(name),
        Json::Array(all) if name == "0" || !name.starts_with(['0', '+']) => all.get(name.parse::<usize>().ok()?),
        _ => None,
    }
}
