//! The objects of the Firefox Profiler's files. Tables have a list for each column, all as long as `length` says.
//!
//! Source of names: <https://github.com/firefox-devtools/profiler/blob/main/src/types/profile.ts>.

use serde::Serialize;

/// The version of the format.
pub const VERSION: u32 = 55;

/// The whole file.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document<'a> {
    meta: Meta<'a>,
    libs: Vec<Library>,
    threads: Vec<ThreadTables>,
    pages: [(); 0],
    profiler_overhead: [(); 0],
    counters: [(); 0],
}

impl<'a> Document<'a> {
    pub fn new(meta: Meta<'a>, libs: Vec<Library>, threads: Vec<ThreadTables>) -> Self {
        Self {
            meta,
            libs,
            threads,
            pages: [],
            profiler_overhead: [],
            counters: [],
        }
    }
}

/// What the whole is about. Times are in milliseconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta<'a> {
    interval: f64,
    start_time: f64,
    product: &'a str,
    categories: &'a [Category],
    /// The one of the profiler's own recordings, which plays no role here.
    version: u32,
    preprocessed_profile_version: u32,
    process_type: u32,
    stackwalk: u32,
    debug: bool,
    /// Names of functions are there, none are to be looked for.
    symbolicated: bool,
    uses_only_one_stack_type: bool,
    source_code_is_not_on_searchfox: bool,
    marker_schema: [(); 0],
    extensions: Extensions,
}

#[derive(Debug, Default, Serialize)]
struct Extensions {
    length: usize,
    id: [(); 0],
    name: [(); 0],
    #[serde(rename = "baseURL")]
    base_url: [(); 0],
}

impl<'a> Meta<'a> {
    pub fn new(
        interval: f64,
        start_time: f64,
        product: &'a str,
        categories: &'a [Category],
    ) -> Self {
        Self {
            interval,
            start_time,
            product,
            categories,
            version: 24,
            preprocessed_profile_version: VERSION,
            process_type: 0,
            stackwalk: 1,
            debug: false,
            symbolicated: true,
            uses_only_one_stack_type: true,
            source_code_is_not_on_searchfox: true,
            marker_schema: [],
            extensions: Extensions::default(),
        }
    }
}

/// A kind of frames.
#[derive(Debug, Serialize)]
pub struct Category {
    name: &'static str,
    color: &'static str,
    subcategories: [&'static str; 1],
}

impl Category {
    pub const fn new(name: &'static str, color: &'static str) -> Self {
        Self {
            name,
            color,
            subcategories: ["Other"],
        }
    }
}

/// A file with code.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Library {
    name: String,
    path: String,
    debug_name: String,
    debug_path: String,
    /// The id under which a server would have its symbols: none, as they are not looked for.
    breakpad_id: &'static str,
    code_id: Option<String>,
    arch: Option<String>,
}

impl Library {
    pub fn new(name: String, path: String, code_id: Option<String>) -> Self {
        Self {
            debug_name: name.clone(),
            debug_path: path.clone(),
            name,
            path,
            breakpad_id: "000000000000000000000000000000000",
            code_id,
            arch: None,
        }
    }
}

/// A thread with its tables.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ThreadTables {
    pub name: String,
    pub is_main_thread: bool,
    pub process_name: String,
    pub process_type: &'static str,
    pub pid: String,
    pub tid: usize,
    pub process_startup_time: f64,
    pub process_shutdown_time: Option<f64>,
    pub register_time: f64,
    pub unregister_time: Option<f64>,
    pub paused_ranges: [(); 0],
    pub samples: SampleTable,
    pub stack_table: StackTable,
    pub frame_table: FrameTable,
    pub func_table: FuncTable,
    pub resource_table: ResourceTable,
    pub native_symbols: NativeSymbols,
    pub markers: Markers,
    pub string_array: Vec<String>,
}

/// Stacks, and what they weigh.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SampleTable {
    pub length: usize,
    pub weight_type: &'static str,
    pub stack: Vec<Option<usize>>,
    pub time_deltas: Vec<f64>,
    pub weight: Vec<f64>,
}

/// A frame and the stack that called it.
#[derive(Debug, Default, Serialize)]
pub struct StackTable {
    length: usize,
    frame: Vec<usize>,
    prefix: Vec<Option<usize>>,
}

impl StackTable {
    pub fn push(&mut self, frame: usize, prefix: Option<usize>) {
        self.length += 1;
        self.frame.push(frame);
        self.prefix.push(prefix);
    }
}

/// Places in functions.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FrameTable {
    length: usize,
    address: Vec<i64>,
    inline_depth: Vec<u8>,
    category: Vec<usize>,
    subcategory: Vec<usize>,
    func: Vec<usize>,
    native_symbol: Vec<Option<usize>>,
    #[serde(rename = "innerWindowID")]
    inner_window_id: Vec<u64>,
    line: Vec<Option<u32>>,
    column: Vec<Option<u32>>,
}

impl FrameTable {
    pub fn push(
        &mut self,
        func: usize,
        address: i64,
        category: usize,
        line: Option<u32>,
        is_inlined: bool,
    ) {
        self.length += 1;
        self.address.push(address);
        self.inline_depth.push(u8::from(is_inlined));
        self.category.push(category);
        self.subcategory.push(0);
        self.func.push(func);
        self.native_symbol.push(None);
        self.inner_window_id.push(0);
        self.line.push(line);
        self.column.push(None);
    }
}

/// Functions; names and files are numbers of texts.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FuncTable {
    length: usize,
    name: Vec<usize>,
    #[serde(rename = "isJS")]
    is_js: Vec<bool>,
    #[serde(rename = "relevantForJS")]
    relevant_for_js: Vec<bool>,
    /// -1 for none.
    resource: Vec<i64>,
    file_name: Vec<Option<usize>>,
    line_number: Vec<Option<u32>>,
    column_number: Vec<Option<u32>>,
}

impl FuncTable {
    pub fn push(&mut self, name: usize, file: Option<usize>, resource: Option<usize>) {
        self.length += 1;
        self.name.push(name);
        self.is_js.push(false);
        self.relevant_for_js.push(false);
        self.resource
            .push(resource.map_or(-1, |index| index as i64));
        self.file_name.push(file);
        self.line_number.push(None);
        self.column_number.push(None);
    }
}

/// Libraries of a thread.
#[derive(Debug, Default, Serialize)]
pub struct ResourceTable {
    length: usize,
    lib: Vec<usize>,
    name: Vec<usize>,
    host: Vec<Option<usize>>,
    #[serde(rename = "type")]
    kind: Vec<u8>,
}

impl ResourceTable {
    /// The type of a library.
    const LIBRARY: u8 = 1;

    pub fn push(&mut self, library: usize, name: usize) {
        self.length += 1;
        self.lib.push(library);
        self.name.push(name);
        self.host.push(None);
        self.kind.push(Self::LIBRARY);
    }
}

/// None: functions have names already.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NativeSymbols {
    length: usize,
    address: [(); 0],
    function_size: [(); 0],
    lib_index: [(); 0],
    name: [(); 0],
}

/// None.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Markers {
    length: usize,
    category: [(); 0],
    data: [(); 0],
    name: [(); 0],
    phase: [(); 0],
    start_time: [(); 0],
    end_time: [(); 0],
}
