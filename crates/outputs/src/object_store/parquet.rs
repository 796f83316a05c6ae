//! A Parquet file that grows by batches.
//!
//! The columns of a row group are encoded side by side as rows come, each into memory of its own; a complete row group is appended to the file. So
//! memory holds one row group in its encoded form, and rows only for as long as their page takes. Source: <https://parquet.apache.org/docs/file-format>.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use component::Compression;
use parking_lot::Mutex;
use parquet::basic::{self, ZstdLevel};
use parquet::column::page::{CompressedPage, PageWriteSpec, PageWriter};
use parquet::column::writer::{ColumnWriter, get_column_writer};
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use super::columns::{ColumnRows, ColumnType, Columns, read};

/// What the files of an output have in common.
#[derive(Debug, Clone)]
pub struct ParquetFormat {
    kinds: Arc<[ColumnType]>,
    schema: TypePtr,
    properties: WriterPropertiesPtr,
    row_group_rows: usize,
}

/// A file.
pub struct ParquetContent {
    format: ParquetFormat,
    file: SerializedFileWriter<Vec<u8>>,
    group: Option<RowGroup>,
}

/// The columns of a row group that is not complete.
struct RowGroup {
    columns: Vec<(ColumnWriter<'static>, Pages)>,
    rows: usize,
}

/// Where the pages of a column go.
#[derive(Clone)]
struct Pages(Arc<Mutex<TrackedWrite<Vec<u8>>>>);

impl PageWriter for Pages {
    fn write_page(&mut self, page: CompressedPage) -> Result<PageWriteSpec, ParquetError> {
        SerializedPageWriter::new(&mut *self.0.lock()).write_page(page)
    }

    fn close(&mut self) -> Result<(), ParquetError> {
        SerializedPageWriter::new(&mut *self.0.lock()).close()
    }
}

impl ParquetFormat {
    /// Files with these columns.
    ///
    /// # Errors
    /// The columns or the compression cannot be.
    pub fn new(
        columns: &Columns,
        compression: Compression,
        row_group_rows: usize,
    ) -> io::Result<Self> {
        let declared = columns
            .declared
            .iter()
            .map(|it| (it.name.as_str(), it.kind));
        let rest = columns
            .rest
            .iter()
            .map(|name| (name.as_str(), ColumnType::Json));
        let all: Vec<_> = declared.chain(rest).collect();
        let fields = all.iter().map(|(name, kind)| field(name, *kind));
        let fields = fields.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let schema = Type::group_type_builder("event")
            .with_fields(fields)
            .build();
        let compression = match compression {
            Compression::Zstd(level) => {
                basic::Compression::ZSTD(ZstdLevel::try_new(level).map_err(failed)?)
            }
            _ => basic::Compression::UNCOMPRESSED,
        };
        let mut properties = WriterProperties::builder()
            .set_created_by(concat!("millpond version ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(compression)
            .set_statistics_enabled(EnabledStatistics::Chunk);
        for (name, kind) in &all {
            if *kind == ColumnType::Json {
                let path = ColumnPath::from((*name).to_owned());
                properties = properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_statistics_enabled(path, EnabledStatistics::None);
            }
        }
        Ok(Self {
            kinds: all.iter().map(|(_, kind)| *kind).collect(),
            schema: Arc::new(schema.map_err(failed)?),
            properties: Arc::new(properties.build()),
            row_group_rows,
        })
    }

    /// Begins a file.
    ///
    /// # Errors
    /// None that is known.
    pub fn begin(&self) -> io::Result<ParquetContent> {
        let file =
            SerializedFileWriter::new(Vec::new(), self.schema.clone(), self.properties.clone());
        Ok(ParquetContent {
            format: self.clone(),
            file: file.map_err(failed)?,
            group: None,
        })
    }
}

fn field(name: &str, kind: ColumnType) -> Result<TypePtr, ParquetError> {
    let (physical, logical) = match kind {
        ColumnType::Text | ColumnType::Json => {
            (basic::Type::BYTE_ARRAY, Some(basic::LogicalType::String))
        }
        ColumnType::Int => (basic::Type::INT64, None),
        ColumnType::Float => (basic::Type::DOUBLE, None),
        ColumnType::Bool => (basic::Type::BOOLEAN, None),
        ColumnType::Timestamp => (
            basic::Type::INT64,
            Some(basic::LogicalType::timestamp(true, basic::TimeUnit::MICROS)),
        ),
    };
    let field = Type::primitive_type_builder(name, physical)
        .with_repetition(basic::Repetition::OPTIONAL)
        .with_logical_type(logical);
    Ok(Arc::new(field.build()?))
}

impl ParquetContent {
    /// Appends rows that are on their way. What is complete of the file goes to `out`.
    ///
    /// # Errors
    /// None that is known.
    pub fn write(&mut self, rows: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let (count, columns) = read(rows)?;
        let group = match &mut self.group {
            Some(group) => group,
            None => {
                let group = self.begin_group();
                self.group.insert(group)
            }
        };
        let writers = group.columns.iter_mut().zip(&*self.format.kinds);
        for (rows, ((writer, _), kind)) in columns.zip(writers) {
            write_column(writer, *kind, &rows?).map_err(failed)?;
        }
        group.rows += count;
        if group.rows >= self.format.row_group_rows {
            self.end_group(out)?;
        }
        Ok(())
    }

    fn begin_group(&self) -> RowGroup {
        let schema = self.file.schema_descr();
        let columns = schema.columns().iter().map(|column| {
            let pages = Pages(Arc::new(Mutex::new(TrackedWrite::new(Vec::new()))));
            let properties = self.format.properties.clone();
            let writer = get_column_writer(column.clone(), properties, Box::new(pages.clone()));
            (writer, pages)
        });
        RowGroup {
            columns: columns.collect(),
            rows: 0,
        }
    }

    fn end_group(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let Some(group) = self.group.take() else {
            return Ok(());
        };
        let mut writer = self.file.next_row_group().map_err(failed)?;
        for (column, pages) in group.columns {
            let closed = column.close().map_err(failed)?;
            let bytes = Bytes::from(std::mem::take(pages.0.lock().inner_mut()));
            writer.append_column(&bytes, closed).map_err(failed)?;
        }
        writer.close().map_err(failed)?;
        self.file.flush()?;
        out.append(self.file.inner_mut());
        Ok(())
    }

    /// Ends the file.
    ///
    /// # Errors
    /// None that is known.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.end_group(out)?;
        self.file.finish().map_err(failed)?;
        self.file.flush()?;
        out.append(self.file.inner_mut());
        Ok(())
    }

    /// Bytes of the row group that is not complete.
    pub fn held(&self) -> usize {
        let columns = self.group.iter().flat_map(|group| &group.columns);
        columns
            .map(|(_, pages)| pages.0.lock().bytes_written())
            .sum()
    }
}

fn write_column(
    writer: &mut ColumnWriter<'_>,
    kind: ColumnType,
    rows: &ColumnRows<'_>,
) -> Result<(), ParquetError> {
    let levels: Vec<i16> = rows.levels.iter().map(|level| i16::from(*level)).collect();
    let levels = Some(&*levels);
    match (kind, writer) {
        (ColumnType::Int | ColumnType::Timestamp, ColumnWriter::Int64ColumnWriter(writer)) => {
            let values: Vec<i64> = rows.eights().map(i64::from_le_bytes).collect();
            writer.write_batch(&values, levels, None)
        }
        (ColumnType::Float, ColumnWriter::DoubleColumnWriter(writer)) => {
            let values: Vec<f64> = rows.eights().map(f64::from_le_bytes).collect();
            writer.write_batch(&values, levels, None)
        }
        (ColumnType::Bool, ColumnWriter::BoolColumnWriter(writer)) => {
            let values: Vec<bool> = rows.bytes().iter().map(|byte| *byte == 1).collect();
            writer.write_batch(&values, levels, None)
        }
        (ColumnType::Text | ColumnType::Json, ColumnWriter::ByteArrayColumnWriter(writer)) => {
            let bytes = Bytes::copy_from_slice(rows.bytes());
            let texts = rows.texts().map(|text| ByteArray::from(bytes.slice(text)));
            writer.write_batch(&texts.collect::<Vec<_>>(), levels, None)
        }
        _ => Err(ParquetError::General(
            "a column has another type".to_owned(),
        )),
    }
    .map(drop)
}

fn failed(error: ParquetError) -> io::Error {
    io::Error::other(error)
}

#[cfg(test)]
mod tests {
    use config::{Source, parse_yaml};
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;
    use crate::testing;

    /// The rows of a file as JSON.
    fn rows(settings: &str, batches: &[&[&str]], row_group_rows: usize) -> (Vec<String>, usize) {
        let node = parse_yaml(&Source::new("test.yaml", settings)).expect("it parses");
        let columns = Columns::new(node.get("columns"), "rest").expect("columns");
        let format = ParquetFormat::new(&columns, Compression::Zstd(1), row_group_rows);
        let mut content = format.expect("a format").begin().expect("a file");
        let mut file = Vec::new();
        for documents in batches {
            let batch = testing::documents(documents);
            let mut rows = Vec::new();
            columns
                .bind(&batch, batch.alive())
                .write(batch.alive(), &mut rows);
            content.write(&rows, &mut file).expect("it writes");
        }
        content.finish(&mut file).expect("it ends");
        let reader = SerializedFileReader::new(Bytes::from(file)).expect("it is a Parquet file");
        let groups = reader.metadata().num_row_groups();
        let rows = reader.get_row_iter(None).expect("rows");
        let rows = rows.map(|row| row.expect("a row").to_string());
        (rows.collect(), groups)
    }

    #[test]
    fn values_are_in_the_column_of_their_type_or_in_the_rest() {
        let settings = "columns: {n: int, a.b: text, f: float, ok: bool, at: timestamp, o: json}";
        let (rows, _) = rows(
            settings,
            &[&[
                r#"{"n":1,"a":{"b":"x","c":2},"f":1.5,"ok":true,"at":"2024-02-29T12:34:56.789012345Z","o":{"x":[1]}}"#,
                r#"{"n":"12","a":{"b":7},"f":"2","ok":"no","at":"later","o":null,"z":1}"#,
                r#"{"n":1.5,"a":{"b":[1]},"f":"x","ok":null}"#,
                "{}",
            ]],
            100,
        );
        let expected = [
            r#"{n: 1, a.b: "x", f: 1.5, ok: true, at: 2024-02-29 12:34:56.789012 +00:00, o: "{"x":[1]}", rest: "{"a":{"c":2}}"}"#,
            r#"{n: 12, a.b: "7", f: 2.0, ok: null, at: null, o: null, rest: "{"a":{},"ok":"no","at":"later","o":null,"z":1}"}"#,
            r#"{n: null, a.b: null, f: null, ok: null, at: null, o: null, rest: "{"n":1.5,"a":{"b":[1]},"f":"x","ok":null}"}"#,
            r#"{n: null, a.b: null, f: null, ok: null, at: null, o: null, rest: "{}"}"#,
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn a_row_group_ends_between_two_batches() {
        let documents: Vec<String> = (0..70).map(|n| format!(r#"{{"n":{n}}}"#)).collect();
        let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
        let batches: Vec<&[&str]> = documents.chunks(20).collect();
        let (rows, groups) = rows("columns: {n: int}", &batches, 30);
        assert_eq!(groups, 2);
        let expected = (0..70).map(|n| format!(r#"{{n: {n}, rest: "{{}}"}}"#));
        assert_eq!(rows, expected.collect::<Vec<_>>());
    }
}
