//! The functions and structs of librdkafka that are used, as its public header declares them.

use std::ffi::{CStr, c_char, c_int, c_void};

use libc::{size_t, ssize_t};

#[cfg(test)]
pub mod fake;

/// `rd_kafka_type_t`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Producer = 0,
    Consumer = 1,
}

/// `rd_kafka_message_t`, public since the first release.
#[repr(C)]
pub struct Message {
    pub err: c_int,
    pub topic: *mut c_void,
    pub partition: i32,
    pub payload: *const u8,
    pub len: size_t,
    pub key: *const u8,
    pub key_len: size_t,
    pub offset: i64,
    private: *mut c_void,
}

/// `rd_kafka_vu_t`: one argument of `rd_kafka_produceva`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Argument {
    kind: c_int,
    value: Value,
}

#[repr(C)]
#[derive(Clone, Copy)]
union Value {
    pointer: *const c_void,
    int32: i32,
    int64: i64,
    memory: Memory,
    padding: [u64; 8],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Memory {
    start: *const u8,
    len: size_t,
}

impl Argument {
    fn new(kind: c_int, set: impl FnOnce(&mut Value)) -> Self {
        let mut value = Value { padding: [0; 8] };
        set(&mut value);
        Self { kind, value }
    }

    pub fn topic_name(name: &CStr) -> Self {
        Self::new(1, |v| v.pointer = name.as_ptr().cast())
    }

    pub fn topic(topic: *mut c_void) -> Self {
        Self::new(2, |v| v.pointer = topic)
    }

    pub fn partition(partition: i32) -> Self {
        Self::new(3, |v| v.int32 = partition)
    }

    pub fn value(start: *const u8, len: usize) -> Self {
        Self::new(4, |v| v.memory = Memory { start, len })
    }

    pub fn key(start: *const u8, len: usize) -> Self {
        Self::new(5, |v| v.memory = Memory { start, len })
    }

    pub fn copied() -> Self {
        Self::new(7, |v| v.int32 = 2)
    }

    pub fn timestamp(at: i64) -> Self {
        Self::new(8, |v| v.int64 = at)
    }

    pub fn headers(headers: *mut c_void) -> Self {
        Self::new(10, |v| v.pointer = headers)
    }
}

pub type OnMessage = unsafe extern "C" fn(*mut Message, *mut c_void);

macro_rules! functions {
    ($($field:ident = $name:literal : fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions that are used, by their names without `rd_kafka_`.
        #[derive(Clone, Copy)]
        pub struct Functions {
            $(pub $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// Looks each of them up in an open library; an error names the first that is missing.
            pub fn find(library: *mut c_void) -> Result<Self, String> {
                Ok(Self {
                    $($field: {
                        // SAFETY: the handle is open and the name ends with 0.
                        let found = unsafe { libc::dlsym(library, concat!("rd_kafka_", $name, "\0").as_ptr().cast()) };
                        if found.is_null() {
                            return Err(concat!("the client's library has no rd_kafka_", $name).into());
                        }
                        // SAFETY: the public header declares the function so.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(found)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    version = "version": fn() -> c_int;
    name = "name": fn(*mut c_void) -> *const c_char;
    kind = "type": fn(*mut c_void) -> c_int;
    stop_serving = "yield": fn(*mut c_void);
    queue_new = "queue_new": fn(*mut c_void) -> *mut c_void;
    queue_destroy = "queue_destroy": fn(*mut c_void);
    queue_get_partition = "queue_get_partition": fn(*mut c_void, *const c_char, i32) -> *mut c_void;
    queue_forward = "queue_forward": fn(*mut c_void, *mut c_void);
    consume_callback = "consume_callback": fn(*mut c_void, i32, c_int, OnMessage, *mut c_void) -> c_int;
    consume_callback_queue = "consume_callback_queue": fn(*mut c_void, c_int, OnMessage, *mut c_void) -> c_int;
    topic_name = "topic_name": fn(*mut c_void) -> *const c_char;
    message_timestamp = "message_timestamp": fn(*const Message, *mut c_int) -> i64;
    message_leader_epoch = "message_leader_epoch": fn(*const Message) -> i32;
    message_headers = "message_headers": fn(*const Message, *mut *mut c_void) -> c_int;
    header_get_all =
        "header_get_all": fn(*const c_void, size_t, *mut *const c_char, *mut *const u8, *mut size_t) -> c_int;
    headers_new = "headers_new": fn(size_t) -> *mut c_void;
    headers_destroy = "headers_destroy": fn(*mut c_void);
    header_add = "header_add": fn(*mut c_void, *const c_char, ssize_t, *const u8, ssize_t) -> c_int;
    topic_new = "topic_new": fn(*mut c_void, *const c_char, *mut c_void) -> *mut c_void;
    topic_destroy = "topic_destroy": fn(*mut c_void);
    produceva = "produceva": fn(*mut c_void, *const Argument, size_t) -> *mut c_void;
    error_destroy = "error_destroy": fn(*mut c_void);
}

/// The text of a string that the library owns.
///
/// # Safety
/// `text` is null or a string that ends with 0.
pub unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: by the contract.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
