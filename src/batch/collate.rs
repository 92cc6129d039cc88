//! Values of single samples become columns of a batch, by the rules of torch's default collate: numbers and arrays
//! are stacked into tensors, everything else stays a list. Images never pass here; they are written in place.

use std::sync::Arc;

use bytes::Bytes;

use super::{BufferPool, DeviceArray, Dtype, HostTensor};
use crate::sample::{Array, Value};
use crate::{Error, ErrorKind, Result};

/// What one sample contributes to a column.
pub type RowValue = Value;

/// One field of a batch, in row order.
#[derive(Debug)]
#[non_exhaustive]
pub enum Column {
    /// A tensor whose first dimension is the batch: images, numbers, stacked arrays.
    Tensor(HostTensor),
    /// Texts: `txt` fields, strings inside JSON.
    Texts(Vec<String>),
    /// Keys and paths of shards (`__key__`, `__url__`): bytes as stored, usually but not necessarily UTF-8.
    Names(Vec<Bytes>),
    /// JSON values that are no plain numbers or strings.
    Json(Vec<serde_json::Value>),
    /// Undecoded fields: views of the shard where it is mapped.
    Bytes(Vec<Bytes>),
    /// A tensor in a device's memory.
    Device(Arc<dyn DeviceArray>),
    /// One tensor a row, where rows are not stacked: images of free size, arrays.
    Tensors(Vec<HostTensor>),
    /// Values of rows that were not collated and are no arrays.
    Values(Vec<RowValue>),
}

impl Column {
    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Tensor(tensor) => tensor.shape.first().copied().unwrap_or(0),
            Self::Texts(rows) => rows.len(),
            Self::Json(rows) => rows.len(),
            Self::Names(rows) | Self::Bytes(rows) => rows.len(),
            Self::Device(array) => array.shape().first().copied().unwrap_or(0),
            Self::Tensors(rows) => rows.len(),
            Self::Values(rows) => rows.len(),
        }
    }

    /// Whether the column has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Makes a column of `rows`; tensors take their memory from `pool`.
///
/// # Errors
/// [`ErrorKind::FieldValue`] when rows cannot share a column: different kinds, or arrays of unequal shape or dtype.
pub fn collate(rows: Vec<RowValue>, pool: &Arc<BufferPool>) -> Result<Column> {
    let rows: Vec<RowValue> = rows.into_iter().map(plain).collect();
    let all = |is: fn(&Value) -> bool| rows.iter().all(is);
    if all(|v| matches!(v, Value::Int(_))) {
        numbers(rows.iter().map(|v| if let Value::Int(x) = v { x.to_le_bytes() } else { [0; 8] }), Dtype::I64, pool)
    } else if all(|v| matches!(v, Value::Int(_) | Value::Float(_))) {
        numbers(rows.iter().map(|v| as_f64(v).to_le_bytes()), Dtype::F64, pool)
    } else if all(|v| matches!(v, Value::Text(_))) {
        Ok(Column::Texts(
            rows.into_iter().filter_map(|v| if let Value::Text(x) = v { Some(x) } else { None }).collect(),
        ))
    } else if all(|v| matches!(v, Value::Bytes(_))) {
        Ok(Column::Bytes(
            rows.into_iter().filter_map(|v| if let Value::Bytes(x) = v { Some(x) } else { None }).collect(),
        ))
    } else if all(|v| matches!(v, Value::Name(_))) {
        Ok(Column::Names(
            rows.into_iter().filter_map(|v| if let Value::Name(x) = v { Some(x) } else { None }).collect(),
        ))
    } else if all(|v| matches!(v, Value::Array(_))) {
        stack(rows.iter().filter_map(|v| if let Value::Array(x) = v { Some(x) } else { None }), pool)
    } else if all(|v| matches!(v, Value::Json(_) | Value::Text(_) | Value::Int(_) | Value::Float(_))) {
        Ok(Column::Json(rows.into_iter().map(into_json).collect()))
    } else {
        let message = "the field holds values of different kinds in one batch, so they cannot share a column";
        Err(Error::new(ErrorKind::FieldValue, message))
    }
}

/// `rows` as they are, for someone who makes a batch of them himself: arrays as tensors of their own.
///
/// # Errors
/// [`ErrorKind::FieldValue`] when some rows are arrays and others are not.
pub fn apart(rows: Vec<RowValue>, pool: &Arc<BufferPool>) -> Result<Column> {
    let arrays = rows.iter().filter(|value| matches!(value, Value::Array(_))).count();
    if arrays == 0 {
        return Ok(Column::Values(rows));
    }
    let tensors = rows.iter().map(|value| match value {
        Value::Array(array) => {
            let mut data = pool.take(array.data.len())?;
            data.copy_from_slice(&array.data);
            HostTensor::contiguous(data, array.dtype, array.shape.clone())
        }
        _ => Err(Error::new(ErrorKind::FieldValue, "the field holds arrays and other values in one batch")),
    });
    Ok(Column::Tensors(tensors.collect::<Result<_>>()?))
}

/// JSON scalars count as the numbers and texts they are.
fn plain(value: Value) -> Value {
    match value {
        Value::Json(value) => value.into(),
        other => other,
    }
}

fn into_json(value: Value) -> serde_json::Value {
    match value {
        Value::Json(json) => json,
        Value::Text(text) => text.into(),
        Value::Int(int) => int.into(),
        Value::Float(float) => float.into(),
        Value::Array(_) | Value::Bytes(_) | Value::Name(_) => serde_json::Value::Null,
    }
}

fn as_f64(value: &Value) -> f64 {
    match value {
        Value::Int(int) => *int as f64,
        Value::Float(float) => *float,
        _ => f64::NAN,
    }
}

fn numbers(rows: impl ExactSizeIterator<Item = [u8; 8]>, dtype: Dtype, pool: &Arc<BufferPool>) -> Result<Column> {
    let count = rows.len();
    let mut data = pool.take(count * 8)?;
    for (place, row) in data.chunks_exact_mut(8).zip(rows) {
        place.copy_from_slice(&row);
    }
    Ok(Column::Tensor(HostTensor::contiguous(data, dtype, vec![count])?))
}

fn stack<'a>(rows: impl Iterator<Item = &'a Array> + Clone, pool: &Arc<BufferPool>) -> Result<Column> {
    let count = rows.clone().count();
    let Some(first) = rows.clone().next() else { return Ok(Column::Bytes(Vec::new())) };
    if let Some((row, other)) = rows.clone().enumerate().find(|(_, a)| a.shape != first.shape || a.dtype != first.dtype)
    {
        let message = format!(
            "arrays of unequal shape or type in one batch: row 0 is {} {:?}, row {row} is {} {:?}",
            first.dtype, first.shape, other.dtype, other.shape
        );
        return Err(
            Error::new(ErrorKind::FieldValue, message).with_hint("store arrays of one shape, or use batch_size=1")
        );
    }
    let dtype = first.dtype;
    let row_bytes = first.data.len();
    let mut data = pool.take(count * row_bytes)?;
    for (place, row) in data.chunks_exact_mut(row_bytes.max(1)).zip(rows) {
        place.copy_from_slice(&row.data);
    }
    let shape = std::iter::once(count).chain(first.shape.iter().copied()).collect();
    Ok(Column::Tensor(HostTensor::contiguous(data, dtype, shape)?))
}

#[cfg(test)]
mod tests {
    use super::super::PageableAllocator;
    use super::*;

    fn check(rows: Vec<Value>) -> Result<Column> {
        collate(rows, &BufferPool::new(Arc::new(PageableAllocator), 0))
    }

    #[test]
    fn integers_become_an_int64_tensor() {
        let Column::Tensor(tensor) = check(vec![Value::Int(7), Value::Int(-1)]).unwrap() else { panic!("no tensor") };
        assert_eq!((tensor.dtype, tensor.shape.as_slice()), (Dtype::I64, &[2][..]));
        assert_eq!(tensor.bytes(), [7i64.to_le_bytes(), (-1i64).to_le_bytes()].concat());
    }

    #[test]
    fn a_float_among_integers_makes_the_column_float() {
        let rows = vec![Value::Int(1), Value::Json(serde_json::json!(0.5))];
        let Column::Tensor(tensor) = check(rows).unwrap() else { panic!("no tensor") };
        assert_eq!(tensor.dtype, Dtype::F64);
    }

    #[test]
    fn json_strings_are_texts_and_other_json_stays_a_list() {
        assert!(matches!(check(vec![Value::Json("a".into()), Value::Text("b".into())]).unwrap(), Column::Texts(_)));
        assert!(matches!(check(vec![Value::Json(serde_json::json!([1])), Value::Int(1)]).unwrap(), Column::Json(_)));
    }

    #[test]
    fn rows_apart_keep_their_kinds_and_arrays_their_shapes() {
        let pool = BufferPool::new(Arc::new(PageableAllocator), 0);
        let array = |n: u8| {
            let data = Bytes::from(vec![n; usize::from(n)]);
            Value::Array(Array { dtype: Dtype::U8, shape: vec![usize::from(n)], data })
        };
        let Column::Tensors(rows) = apart(vec![array(2), array(5)], &pool).unwrap() else { panic!("no tensors") };
        assert_eq!(rows.iter().map(|row| row.bytes().to_vec()).collect::<Vec<_>>(), [vec![2; 2], vec![5; 5]]);
        let mixed = vec![Value::Int(1), Value::Text("a".into())];
        let Column::Values(rows) = apart(mixed.clone(), &pool).unwrap() else { panic!("no values") };
        assert_eq!(rows, mixed);
        assert_eq!(apart(vec![array(1), Value::Int(1)], &pool).unwrap_err().kind(), ErrorKind::FieldValue);
    }

    #[test]
    fn kinds_that_do_not_mix_are_an_error() {
        let error = check(vec![Value::Int(1), Value::Bytes(Bytes::new())]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FieldValue);
    }
}
