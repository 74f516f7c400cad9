//! librdkafka as the Python client has loaded it: its functions, found by name, and the handle inside a client object.
//!
//! Nothing here is linked. The functions are looked up through the client's own extension module, so they are of the very
//! library that made the handle. A pointer taken out of a client object is believed only after it was read through the
//! kernel, which answers with an error where a wrong pointer would end the process, and after the library calls it by the
//! name that the client's settings demand.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::{size_t, ssize_t};
use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

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
            fn find(library: *mut c_void) -> Result<Self, String> {
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

/// A client's handle with the functions of its library. Holds the client object, so that the handle outlives its users.
pub struct Handle {
    pub call: Functions,
    pub rk: *mut c_void,
    client: Py<PyAny>,
}

// SAFETY: librdkafka's handles and queues may be used by any thread, and the client object is only dropped.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// The handle of `client`, an object of the extension module at the path `library`; `version` is what the client says
    /// of its library, `client_id` what it was configured with. A `RuntimeError` says what is not as expected.
    pub fn of(client: &Bound<'_, PyAny>, kind: Kind, library: &str, version: i32, client_id: &str) -> PyResult<Self> {
        let size: usize = client.get_type().getattr("__basicsize__")?.extract()?;
        let call = functions_of(library).map_err(PyRuntimeError::new_err)?;
        // SAFETY: takes no argument.
        let seen = unsafe { (call.version)() };
        if seen != version {
            return Err(PyRuntimeError::new_err(format!(
                "the library says that it is {seen:#x}, the client says {version:#x}"
            )));
        }
        // Behind the two words of every object (reference count, type) comes the handle.
        let at = 2 * size_of::<usize>();
        if size < at + size_of::<usize>() {
            return Err(PyRuntimeError::new_err(format!("a client object has only {size} bytes")));
        }
        // SAFETY: the object is alive and has at least `size` bytes.
        let rk = unsafe { client.as_ptr().cast::<u8>().add(at).cast::<*mut c_void>().read() };
        check(&call, rk, kind, client_id).map_err(PyRuntimeError::new_err)?;
        Ok(Self { call, rk, client: client.clone().unbind() })
    }

    /// The client refers to its callbacks, and those to whoever uses this handle: the collector must see the whole ring.
    /// Nothing here is to be cleared: the client's own part is, and the handle serves until its user is gone.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.client)
    }
}

fn functions_of(library: &str) -> Result<Functions, String> {
    let path = CString::new(library).map_err(|_| "the client's path holds a 0".to_string())?;
    // SAFETY: RTLD_NOLOAD gives a handle of what is loaded already, or null. It is kept for the life of the process.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return Err(format!("{library} is not loaded"));
    }
    Functions::find(handle)
}

/// How much must be readable behind a handle before the library may look into it. Its own struct is larger.
const HANDLE_BYTES_MIN: usize = 4096;
/// The library cuts a handle's name here.
const NAME_BYTES_MAX: usize = 127;

fn check(call: &Functions, rk: *mut c_void, kind: Kind, client_id: &str) -> Result<(), String> {
    if rk.is_null() {
        return Err("the client has no handle: it is closed".into());
    }
    if (rk as usize) % align_of::<usize>() != 0 {
        return Err("the place of the handle holds no pointer".into());
    }
    readable(rk.cast(), HANDLE_BYTES_MIN)?;
    // SAFETY: the function reads at most a word near the beginning of the struct, which can be read.
    let name = unsafe { (call.name)(rk) }.cast::<u8>();
    let prefix = format!("{client_id}#{}-", if kind == Kind::Consumer { "consumer" } else { "producer" });
    let known = prefix.len().min(NAME_BYTES_MAX);
    let bytes = readable(name, (prefix.len() + 1).min(NAME_BYTES_MAX))?;
    if bytes[..known] != prefix.as_bytes()[..known] || bytes.get(prefix.len()).is_some_and(|b| !b.is_ascii_digit()) {
        return Err(format!("the handle is not called {prefix}…"));
    }
    // SAFETY: a handle that is called so is one.
    if unsafe { (call.kind)(rk) } != kind as c_int {
        return Err("the handle is of the other kind".into());
    }
    Ok(())
}

/// The bytes at an address that may be wrong: the kernel copies them through a pipe and refuses what is not mapped.
fn readable(start: *const u8, len: usize) -> Result<Vec<u8>, String> {
    let mut ends = [0; 2];
    // SAFETY: the array takes the two descriptors.
    if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
        return Err(format!("no pipe to check the handle with ({})", std::io::Error::last_os_error()));
    }
    // SAFETY: both were just opened and belong to nobody else.
    let (reader, writer) = unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
    let mut copy = vec![0; len];
    // SAFETY: the kernel checks the address; a pipe takes this much at once.
    let written = unsafe { libc::write(writer.as_raw_fd(), start.cast(), len) };
    if written != len as isize {
        return Err("the place of the handle holds no pointer to memory".into());
    }
    // SAFETY: the vector has this length.
    let read = unsafe { libc::read(reader.as_raw_fd(), copy.as_mut_ptr().cast(), len) };
    if read != len as isize {
        return Err("the handle could not be checked".into());
    }
    Ok(copy)
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
