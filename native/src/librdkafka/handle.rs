//! The handle of a client, and the checks before it is used.

use std::ffi::{CString, c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::functions::{Functions, Kind};

/// A client's handle with the functions of its library.
#[derive(Clone, Copy)]
pub struct Handle {
    pub call: Functions,
    pub rk: *mut c_void,
}

// SAFETY: librdkafka's handles may be used by any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// How much must be readable after a handle's address before the library may use it. Its own struct is larger.
const HANDLE_BYTES_MIN: usize = 4096;
/// The library cuts a handle's name here.
const NAME_BYTES_MAX: usize = 127;

/// Checks that `rk` is an open handle of this kind, of a client that was configured with this `client_id`; else
/// returns what is not as expected.
pub fn check(call: &Functions, rk: *mut c_void, kind: Kind, client_id: &str) -> Result<(), String> {
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

/// The functions of the library at a path, if it is loaded and says that it is of this version.
pub fn functions_of(library: &str, version: i32) -> Result<Functions, String> {
    let path = CString::new(library).map_err(|_| "the client's path holds a 0".to_string())?;
    // SAFETY: RTLD_NOLOAD gives a handle of what is loaded already, or null. It is kept for the life of the process.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return Err(format!("{library} is not loaded"));
    }
    let call = Functions::find(handle)?;
    // SAFETY: takes no argument.
    let seen = unsafe { (call.version)() };
    if seen != version {
        return Err(format!("the library says that it is {seen:#x}, the client says {version:#x}"));
    }
    Ok(call)
}

#[cfg(test)]
mod tests {
    use super::super::functions::fake;
    use super::*;

    /// Room for a handle.
    fn some() -> Vec<u64> {
        vec![0; HANDLE_BYTES_MIN / 8]
    }

    #[test]
    fn a_handle_is_known_by_its_name_and_kind() {
        let call = fake::functions();
        let mut memory = some();
        let rk = memory.as_mut_ptr().cast();
        fake::with(|library| (library.name, library.kind) = (c"mine#consumer-12", 1));
        assert_eq!(check(&call, rk, Kind::Consumer, "mine"), Ok(()));
        for client_id in ["other", "min", "mine2", ""] {
            assert!(check(&call, rk, Kind::Consumer, client_id).is_err_and(|why| why.contains("not called")));
        }
        assert!(check(&call, rk, Kind::Producer, "mine").is_err());
        fake::with(|library| library.kind = 0);
        assert!(check(&call, rk, Kind::Consumer, "mine").is_err_and(|why| why.contains("other kind")));
    }

    #[test]
    fn what_is_no_pointer_is_refused_and_not_touched() {
        let call = fake::functions();
        fake::with(|library| (library.name, library.kind) = (c"mine#consumer-1", 1));
        for place in [0, 5, 8, 1 << 46, usize::MAX - 7] {
            assert!(check(&call, place as *mut c_void, Kind::Consumer, "mine").is_err());
        }
    }

    #[test]
    fn memory_is_read_only_where_there_is_some() {
        let bytes = [1u8, 2, 3];
        assert_eq!(readable(bytes.as_ptr(), 3), Ok(vec![1, 2, 3]));
        assert!(readable(8 as *const u8, 1).is_err());
        assert!(readable(std::ptr::null(), 1).is_err());
    }

    #[test]
    fn a_library_that_is_not_loaded_or_another_one_is_refused() {
        let why = |library| functions_of(library, 1).err().unwrap();
        assert!(why("/no/such/library.so").contains("not loaded"));
        assert!(why("a\0b").contains("holds a 0"));
        assert!(why("libc.so.6").contains("no rd_kafka_version"));
    }
}
