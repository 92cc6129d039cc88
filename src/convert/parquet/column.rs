//! One column of a Parquet file, read row by row: bytes, or a value as JSON has it, lists included.
//!
//! It knows neither pictures nor labels, and opens no file. Columns of types that JSON lacks it does not read.

use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::{ParquetError, Result};
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor, Type};
use serde_json::{Number, Value};

/// A column: a leaf of the tree of groups.
#[derive(Debug)]
pub(super) struct Column {
    /// Its number among the leaves.
    pub(super) leaf: usize,
    /// Its name, with a dot between the names of groups; those that only make a list of something are left out.
    pub(super) name: String,
    pub(super) kind: Kind,
    /// For each of the lists around a value, the outermost first: the definition level from which on it has an element.
    lists: Vec<i16>,
    /// The definition level of a value that is there.
    defined: i16,
}

/// What the values of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    Unsigned,
    Float,
    Text,
    /// Bytes that are no text; only outside of lists.
    Bytes,
    /// Not read.
    Other,
}

/// What one row has in a column.
#[derive(Debug)]
pub(super) enum Cell {
    Null,
    Bytes(ByteArray),
    Json(Value),
}

/// Lists within lists that are read.
const LISTS_MAX: usize = 8;

impl Column {
    /// All columns of a file.
    pub(super) fn all(schema: &SchemaDescriptor) -> Vec<Self> {
        (0..schema.num_columns()).map(|leaf| Self::of(schema, leaf)).collect()
    }

    fn of(schema: &SchemaDescriptor, leaf: usize) -> Self {
        let column = schema.column(leaf);
        let mut names: Vec<&str> = Vec::new();
        let mut lists = Vec::new();
        let (mut level, mut group) = (0, schema.root_schema());
        let (mut is_list, mut is_only) = (false, false);
        for part in column.path().parts() {
            let Some(node) = fields_of(group).iter().find(|field| field.name() == part) else { break };
            let repetition = node.get_basic_info().has_repetition().then(|| node.get_basic_info().repetition());
            level += i16::from(matches!(repetition, Some(Repetition::OPTIONAL | Repetition::REPEATED)));
            let is_repeated = repetition == Some(Repetition::REPEATED);
            if is_repeated {
                lists.push(level);
            }
            // `a.list.element` is the list `a`; older writers have other words for the same.
            if !(is_list && is_repeated || is_only) {
                names.push(part);
            }
            is_only = is_list && is_repeated && fields_of(node).len() == 1;
            is_list = is_list_group(node);
            group = node;
        }
        let kind = if lists.len() > LISTS_MAX { Kind::Other } else { kind_of(&column, !lists.is_empty()) };
        Self { leaf, name: names.join("."), kind, lists, defined: column.max_def_level() }
    }

    /// Whether its values stand in lists.
    pub(super) fn is_list(&self) -> bool {
        !self.lists.is_empty()
    }

    /// The value that is `skipped` rows ahead in `reader`.
    ///
    /// # Errors
    /// Those of reading; [`ParquetError::General`] where the column has fewer rows than the file says, and for text that is
    /// none.
    pub(super) fn read(&self, reader: &mut ColumnReader, skipped: usize) -> Result<Cell> {
        let is_unsigned = self.kind == Kind::Unsigned;
        let Row { values, def_levels, rep_levels } = match reader {
            ColumnReader::BoolColumnReader(reader) => row(reader, skipped, |value| Ok(Cell::Json(value.into())))?,
            ColumnReader::Int32ColumnReader(reader) => row(reader, skipped, |value| {
                Ok(Cell::Json(if is_unsigned { value.cast_unsigned().into() } else { value.into() }))
            })?,
            ColumnReader::Int64ColumnReader(reader) => row(reader, skipped, |value| {
                Ok(Cell::Json(if is_unsigned { value.cast_unsigned().into() } else { value.into() }))
            })?,
            // By way of its shortest text, so that 0.1 stays 0.1.
            ColumnReader::FloatColumnReader(reader) => {
                row(reader, skipped, |value| Ok(Cell::Json(value.to_string().parse().map_or(Value::Null, number))))?
            }
            ColumnReader::DoubleColumnReader(reader) => row(reader, skipped, |value| Ok(Cell::Json(number(value))))?,
            ColumnReader::ByteArrayColumnReader(reader) if self.kind == Kind::Bytes => {
                row(reader, skipped, |value| Ok(Cell::Bytes(value)))?
            }
            ColumnReader::ByteArrayColumnReader(reader) => {
                row(reader, skipped, |value| Ok(Cell::Json(std::str::from_utf8(value.data())?.into())))?
            }
            _ => return Err(ParquetError::NYI(format!("values of the type of the column '{}'", self.name))),
        };
        let mut values = values.into_iter();
        if !self.is_list() {
            return Ok(values.next().unwrap_or(Cell::Null));
        }
        let levels: Vec<(i16, i16)> = rep_levels.into_iter().zip(def_levels).collect();
        Ok(Cell::Json(self.list(0, &levels, &mut values)))
    }

    /// The list at `depth`, out of the levels of its elements and the values that are left.
    fn list(&self, depth: usize, levels: &[(i16, i16)], values: &mut impl Iterator<Item = Cell>) -> Value {
        let has_element = self.lists[depth];
        match levels.first() {
            Some(&(_, defined)) if defined >= has_element => {}
            Some(&(_, defined)) if defined == has_element - 1 => return Value::Array(Vec::new()),
            _ => return Value::Null,
        }
        // An element begins where no list inside of this one goes on.
        let same = |_: &(i16, i16), next: &(i16, i16)| usize::try_from(next.0).is_ok_and(|level| level > depth + 1);
        let element = |levels: &[(i16, i16)]| {
            if depth + 1 < self.lists.len() {
                return self.list(depth + 1, levels, values);
            }
            match levels.first() {
                Some(&(_, defined)) if defined == self.defined => match values.next() {
                    Some(Cell::Json(value)) => value,
                    _ => Value::Null,
                },
                _ => Value::Null,
            }
        };
        Value::Array(levels.chunk_by(same).map(element).collect())
    }
}

/// The values and levels of one row.
struct Row {
    values: Vec<Cell>,
    def_levels: Vec<i16>,
    rep_levels: Vec<i16>,
}

fn row<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    skipped: usize,
    cell: impl Fn(T::T) -> Result<Cell>,
) -> Result<Row> {
    let (mut values, mut def_levels, mut rep_levels) = (Vec::new(), Vec::new(), Vec::new());
    let found = reader.skip_records(skipped)?;
    let (rows, ..) = reader.read_records(1, Some(&mut def_levels), Some(&mut rep_levels), &mut values)?;
    if (found, rows) != (skipped, 1) {
        return Err(ParquetError::General("a column has fewer rows than the file says".into()));
    }
    Ok(Row { values: values.into_iter().map(cell).collect::<Result<_>>()?, def_levels, rep_levels })
}

/// JSON has no infinities: they become text.
fn number(value: f64) -> Value {
    Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number)
}

fn fields_of(node: &Type) -> &[std::sync::Arc<Type>] {
    if node.is_group() { node.get_fields() } else { &[] }
}

fn is_list_group(node: &Type) -> bool {
    let info = node.get_basic_info();
    matches!(info.logical_type_ref(), Some(LogicalType::List)) || info.converted_type() == ConvertedType::LIST
}

fn kind_of(column: &ColumnDescriptor, is_list: bool) -> Kind {
    let (logical, converted) = (column.logical_type_ref(), column.converted_type());
    if matches!(logical, Some(LogicalType::Decimal(_))) || converted == ConvertedType::DECIMAL {
        return Kind::Other;
    }
    match column.physical_type() {
        Physical::BOOLEAN => Kind::Bool,
        Physical::INT32 | Physical::INT64 => match converted {
            ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64 => {
                Kind::Unsigned
            }
            _ => match logical {
                Some(LogicalType::Integer(integer)) if !integer.is_signed => Kind::Unsigned,
                _ => Kind::Int,
            },
        },
        Physical::FLOAT | Physical::DOUBLE => Kind::Float,
        Physical::BYTE_ARRAY => match (logical, converted) {
            (Some(LogicalType::String | LogicalType::Enum | LogicalType::Json), _)
            | (_, ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON) => Kind::Text,
            (None, ConvertedType::NONE) if !is_list => Kind::Bytes,
            _ => Kind::Other,
        },
        Physical::INT96 | Physical::FIXED_LEN_BYTE_ARRAY => Kind::Other,
    }
}
